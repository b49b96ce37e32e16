"use strict";
/* The state of the page, its controls, its address, search, help and export. */
(() => {
  const byId = (id) => document.getElementById(id);
  const { width, names, starts, tokens, layers, heads, checkpoints, kind, group } = Weights;
  const MATRICES = {
    Q: { name: "Q", axes: ["destination channel", "source channel"] },
    P: { name: "P", axes: ["output channel", "source channel"] },
    copy: { name: "dT/dG", axes: ["channel of T and G, row", "channel of T and G, column"] },
    trace: { name: "dT/dG", axes: ["diagonal of T", "diagonal of G"] },
    left: { name: "left", axes: ["T: output channel", "T: token channel"] },
  };
  const PARTS = { file: "", gauge: ", gauge-fixed", scalar: ", block-scalar part", rest: ", without its block-scalar part" };
  const steps = checkpoints.map((entry, i) => entry.step ?? i);
  const last = checkpoints.length - 1;
  const start = () => ({ m: "Q", part: "file", view: kind === "pair" ? "a" : "b", layer: 0, head: 0, index: kind === "pair" ? 1 : last, limits: "own", limit: null, cell: null });
  let state = start();
  let drawn = null; /* what the map shows now: values, marks, limit */

  // The address -----------------------------------------------------------------------------------------------------

  const within = (text, size) => (/^\d+$/.test(text ?? "") && Number(text) < size ? Number(text) : null);

  function fromAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    state = start();
    state.layer = within(wanted.get("l"), layers) ?? 0;
    state.head = within(wanted.get("h"), heads) ?? 0;
    for (const key of ["m", "part", "view"]) if (options(key).includes(wanted.get(key))) state[key] = wanted.get(key);
    const step = steps.findIndex((s) => String(s) === wanted.get("step"));
    if (kind === "steps" && step >= 0) state.index = step;
    const limits = wanted.get("limits");
    if (limits !== null && limits !== "" && Number(limits) > 0) Object.assign(state, { limits: "set", limit: Number(limits) });
    else if (["own", "shared", "p98"].includes(limits)) state.limits = limits;
    const cell = (wanted.get("cell") ?? "").split(",").map((text) => within(text, width));
    if (cell.length === 2 && !cell.includes(null)) state.cell = cell;
  }

  const options = (id) => Array.from(byId(id).options, (option) => option.value).filter((value) => kind !== "single" || id !== "view" || value === "b");

  function toAddress() {
    const said = new URLSearchParams({ l: state.layer, m: state.m, h: state.head });
    if (state.part !== "file") said.set("part", state.part);
    if (kind === "steps") said.set("step", steps[state.index]);
    if (kind !== "single") said.set("view", state.view);
    if (state.limits !== "own") said.set("limits", state.limits === "set" ? state.limit : state.limits);
    if (state.cell) said.set("cell", state.cell.join(","));
    try { history.replaceState(null, "", `#${said.toString().replaceAll("%2C", ",")}`); } catch { /* a frame without an address of its own */ }
  }

  // Words -----------------------------------------------------------------------------------------------------------

  const headed = () => Weights.perHead(state.m);
  const viewed = () => (kind === "single" ? "" : { a: kind === "pair" ? "A" : "first step", b: kind === "pair" ? "B" : stepWords(), aligned: kind === "pair" ? "B aligned to A" : `${stepWords()} aligned to the first`, diff: kind === "pair" ? "B − A" : `${stepWords()} − first step` }[state.view]);
  const stepWords = () => `step ${steps[state.index]}`;
  const symbol = () => (state.view === "diff" ? `Δ${MATRICES[state.m].name}` : MATRICES[state.m].name);

  function title() {
    const long = { copy: "G copied in place, all heads", trace: "Traces of G, all heads", left: "Size of what is left, all heads" }[state.m] ?? `${state.m}${PARTS[state.part]}`;
    return [`${long}: layer ${state.layer}${headed() ? `, head ${state.head}` : ""}`, viewed()].filter(Boolean).join(", ");
  }

  const said = (v) => (Number.isFinite(v) && !Weights.exact ? `≈ ${Number(v.toPrecision(4))}` : String(v));

  /* The text of a cell; lines as a list. */
  function about(r, c) {
    const { values, source, marks } = drawn;
    const i = r * width + c, place = `[${names[r]}, ${names[c]}]`;
    const lines = [`${symbol()}${place} = ${said(values[i])}`];
    if (source.a) lines.push(`${kind === "pair" ? "A" : "first"} ${said(source.a.values[i])}, ${kind === "pair" ? "B" : stepWords()} ${said(source.b.values[i])}`);
    const one = source.b ?? source;
    if (one.place && (one.place.k !== 1 || one.place.head !== state.head)) {
      lines.push(`${source.b ? `${kind === "pair" ? "B" : "this step"}, in` : "in"} its file: ${said(one.file[i])} (head ${one.place.head}, ${state.m} ${state.m === "P" ? "times" : "divided by"} ${Heat.signed(String(Number(one.place.k.toPrecision(6))))})`);
    } else if (one.file && one.values !== one.file && !source.b) lines.push(`in the file: ${said(one.file[i])}`);
    if (marks[i] === Heat.DEAD) lines.push("dead: no prediction depends on it");
    if (marks[i] === Heat.ABOVE || marks[i] === Heat.BELOW) lines.push("clipped: beyond the limit of the colours");
    return lines;
  }

  // Drawing ---------------------------------------------------------------------------------------------------------

  function limitOf(values) {
    if (state.limits === "set") return state.limit;
    if (state.limits === "shared") return Weights.largestAnywhere(state);
    if (state.limits === "p98") {
      const sizes = Float64Array.from(values.filter((v) => Number.isFinite(v)), Math.abs).sort();
      return sizes.length ? sizes[Math.floor(0.98 * (sizes.length - 1))] || Heat.largest(values) : 0;
    }
    return Heat.largest(values);
  }

  function compute() {
    const source = Weights.shown(state), values = source.values;
    const limit = limitOf(values);
    drawn = { source, values, limit, marks: Heat.marks(values, limit || Infinity, Weights.deadShown(state)) };
  }

  const TEXTS_UP_TO = 300; /* cells a side; beyond that the text of a cell is made when the pointer is on it */

  function drawMap() {
    const element = byId("heat");
    drawn.figure = Heat.draw(element, {
      values: drawn.values, width, channels: tokens, starts, limit: drawn.limit, marks: drawn.marks, axes: MATRICES[state.m].axes,
      cell: state.cell, hover: width > TEXTS_UP_TO ? null : (r, c) => about(r, c).map(Page.label).join("<br>"),
    }, drawMap);
    for (const event of ["plotly_click", "plotly_hover"]) element.removeAllListeners(event);
    if (width > TEXTS_UP_TO) element.on("plotly_hover", ({ points: [point] }) => { byId("heat-keys").textContent = about(Math.round(point.y), Math.round(point.x)).join("; "); });
    element.on("plotly_click", ({ points: [point] }) => select([Math.round(point.y), Math.round(point.x)]));
  }

  function showMarks() {
    const found = new Array(7).fill(0);
    drawn.marks.forEach((mark) => { found[mark]++; });
    const words = ["", "NaN", "plus infinity", "minus infinity", "dead (no prediction depends on it)", "clipped above the limit", "clipped below the limit"];
    const fills = ["", "not-finite", "plus-infinity", "minus-infinity", "veil", "diverging-8", "diverging-0"];
    byId("marks").replaceChildren(...found.map((n, mark) => {
      if (!n || !mark) return null;
      const item = document.createElement("li"), swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.setAttribute("aria-hidden", "true");
      swatch.style.background = `var(--${fills[mark]})`;
      if (mark > 4) swatch.style.color = "var(--card)";
      swatch.textContent = Heat.SIGNS[mark];
      item.append(swatch, `${n} ${words[mark]}`);
      return item;
    }).filter(Boolean));
    return found;
  }

  function showWords(found) {
    byId("map-title").textContent = title();
    const top = Heat.short(drawn.limit), short = { own: "the largest here", shared: "the largest anywhere", p98: "98 % of the cells here", set: "set by hand" }[state.limits];
    const strange = found[1] + found[2] + found[3];
    const dead = found[4] ? ` ${found[4]} of ${width * width} cells are dead.` : "", clipped = found[5] + found[6];
    byId("status").textContent = `Colours from −${top} (blue) over 0 to ${top} (orange): ${short}.${strange ? ` ${strange} not finite.` : ""}${dead}${clipped ? ` ${clipped} clipped.` : ""}`;
    byId("heat").setAttribute("aria-label", `Heat map of ${title()}. ${byId("status").textContent}`);
    byId("meaning").textContent = meaning();
  }

  const percent = (share) => `${share < 1e-12 ? 0 : Number((100 * share).toPrecision(3))} %`; /* less is rounding */

  function meaning() {
    const entry = checkpoints[state.view === "a" ? 0 : state.index], parts = [];
    if (entry.sameAs !== null) parts.push(`Duplicate: the same weights as ${checkpoints[entry.sameAs].name}${checkpoints[entry.sameAs].step === null ? "" : ` (step ${checkpoints[entry.sameAs].step})`}.`);
    if (!headed()) parts.push("The layer adds T e to a token e; T depends on the tokens through G = Σ e eᵀ. The map says how (see help).");
    if (group > 1) parts.push(`A cell is the mean of up to ${group} × ${group} numbers.`);
    if (!headed() && entry.shares[state.layer][0] !== null) {
      const [block, trace, left] = entry.shares[state.layer].map(percent);
      parts.push(`Of this layer's live weight energy ‖K‖²: coefficients ω ${block}, traces τ ${trace}, left ${left}.`);
    }
    if (kind !== "single" && (state.view === "diff" || state.view === "aligned")) {
      const far = entry.distance[state.layer];
      const [of, to] = kind === "pair" ? ["K_B − K_A", "K_A"] : ["K − K_first", "K_first"];
      parts.push(`Layer ${state.layer}, all heads, free of gauge, live entries: ${far === null ? `${to} is zero or not finite, so there is no relative distance` : `‖${of}‖ / ‖${to}‖ = ${Heat.short(far)}`}.`);
    }
    return parts.join(" ");
  }

  function showControls() {
    byId("m").value = state.m;
    byId("part").value = headed() ? state.part : "file";
    byId("part").disabled = !headed();
    byId("view").value = state.view;
    byId("l").value = state.layer;
    byId("l-shown").value = String(state.layer);
    byId("l").setAttribute("aria-valuetext", `layer ${state.layer}`);
    byId("h").value = state.head;
    byId("h").disabled = !headed();
    byId("h-shown").value = headed() ? String(state.head) : "all";
    byId("h").setAttribute("aria-valuetext", `head ${state.head}`);
    byId("limits").value = state.limits;
    byId("limit-control").hidden = state.limits !== "set";
    if (document.activeElement !== byId("limit")) byId("limit").value = state.limit ?? "";
    if (kind !== "steps") return;
    byId("step").value = steps[state.index];
    byId("step-shown").value = `${steps[state.index]} (${state.index + 1} of ${steps.length})${checkpoints[state.index].sameAs === null ? "" : " duplicate"}`;
    byId("step").setAttribute("aria-valuetext", byId("step-shown").value);
  }

  /* The words of the cell, and what is still to be drawn. */
  function showCell() {
    const [r, c] = state.cell ?? [0, 0];
    byId("cell-title").textContent = state.cell ? `Cell ${names[r]}, ${names[c]}` : "A cell of the map";
    byId("cell-status").textContent = state.cell ? about(r, c).join("\n") : "Click a cell for its row, its column and its coefficients; the first cell is shown.";
    return Panels.parts({ ...state }, drawn.values, [r, c], title(), MATRICES[state.m].axes, symbol(), said);
  }

  function showTable() {
    if (!byId("matrix-table").open) return;
    byId("matrix-table").querySelector("div").replaceChildren(width > 200
      ? Object.assign(document.createElement("p"), { textContent: `The map has ${width} × ${width} numbers, too many for a table in a page; the CSV has them all, and a cell's row and column have tables above.` })
      : Heat.matrixTable(`${title()}: row = ${MATRICES[state.m].axes[0]}, column = ${MATRICES[state.m].axes[1]}`, names, drawn.values));
  }

  function show() {
    compute();
    showControls();
    showWords(showMarks());
    drawMap();
    toAddress();
    later();
  }

  /* A map is seen before the rest is made, one part at a time: a slider that runs on waits for none of them. */
  let turn = 0;
  function later() {
    const mine = ++turn, parts = [...showCell(), showTable];
    document.documentElement.dataset.ready = "no";
    const next = () => {
      if (mine !== turn) return;
      const part = parts.shift();
      if (part) { part(); setTimeout(next); } else document.documentElement.dataset.ready = "yes";
    };
    requestAnimationFrame(() => setTimeout(next));
  }

  function change(fields) {
    Object.assign(state, fields);
    if (!headed()) state.part = "file";
    show();
  }

  function select(cell) {
    state.cell = cell;
    drawMap();
    toAddress();
    later();
  }

  // Controls --------------------------------------------------------------------------------------------------------

  for (const id of ["m", "part", "view"]) byId(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
  byId("l").addEventListener("input", (event) => change({ layer: Number(event.target.value) }));
  byId("h").addEventListener("input", (event) => change({ head: Number(event.target.value) }));
  byId("l-control").hidden = layers === 1;
  byId("h-control").hidden = heads === 1;
  byId("limits").addEventListener("change", (event) => {
    change(event.target.value === "set" ? { limits: "set", limit: state.limit ?? (drawn.limit || 1) } : { limits: event.target.value });
  });
  byId("limit").addEventListener("input", (event) => { if (Number(event.target.value) > 0) change({ limit: Number(event.target.value) }); });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("matrix-table").addEventListener("toggle", showTable);

  /* The slider has the true spacing of the steps; the keys go from one known step to the next. */
  const slider = byId("step");
  if (kind === "steps") {
    Object.assign(slider, { min: steps[0], max: steps[last], step: 1 });
    slider.addEventListener("input", () => {
      const at = Number(slider.value);
      change({ index: steps.reduce((best, s, i) => (Math.abs(s - at) < Math.abs(steps[best] - at) ? i : best), 0) });
    });
    slider.addEventListener("keydown", (event) => {
      const jump = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: Math.ceil(steps.length / 10), PageDown: -Math.ceil(steps.length / 10), Home: -last, End: last }[event.key];
      if (!jump) return;
      event.preventDefault();
      change({ index: Math.min(last, Math.max(0, state.index + jump)) });
    });
  }

  byId("heat").addEventListener("keydown", (event) => {
    const [r, c] = state.cell ?? [0, 0];
    const to = {
      ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1], ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], Home: [r, 0], End: [r, width - 1],
    }[event.key];
    if (event.key === "Escape" && state.cell) { event.preventDefault(); select(null); }
    if (!to) return;
    event.preventDefault();
    select(state.cell ? to.map((k) => Math.min(width - 1, Math.max(0, k))) : [0, 0]);
  });

  /* From its beginning, which on a narrow screen is far from its only button. */
  function help() {
    byId("help").showModal();
    byId("help-title").focus();
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=range]), select, textarea, dialog")) return;
    if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    if (event.key === "?") { event.preventDefault(); help(); }
  });
  byId("help-open").addEventListener("click", help);

  // Search ----------------------------------------------------------------------------------------------------------

  const everything = [
    ...Array.from({ length: layers }, (_, l) => [`layer ${l}`, { layer: l }]),
    ...(heads > 1 ? Array.from({ length: heads }, (_, h) => [`head ${h}`, { head: h, m: headed() ? state.m : "Q" }]) : []),
    ...(kind === "steps" ? steps.map((s, i) => [`step ${s}`, { index: i, view: "b" }]) : []),
    ...Array.from(byId("m").options, (option) => [`matrix ${option.textContent}`, { m: option.value }]),
    ...tokens.map(([name], i) => [`channel ${name}`, { cell: [starts[i], starts[i]] }]),
    ...names.map((name, i) => [`coordinate ${name}`, { cell: [i, i] }]),
    ...Weights.coefficients.map((c) => [`coefficient ${c.name} (${Panels.nice(c.name)})`, c.trace
      ? { m: "trace", part: "file", cell: [starts[c.row], starts[c.keyRow]] }
      : c.row === c.keyRow && c.column === c.keyColumn
        ? { m: "copy", part: "file", cell: [starts[c.row], starts[c.column]] }
        : { m: "P", part: "file", cell: [starts[c.row], starts[c.keyRow]] }]),
  ];

  /* "layer 3 head 1" is both, "layer 3 x" what "x" finds, in that layer; anything else must hold all words. */
  function found(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    const both = /^l(?:ayer)?\s*(\d+)[\s,]+h(?:ead)?\s*(\d+)$/.exec(wanted);
    if (both && Number(both[1]) < layers && Number(both[2]) < heads) return [[`layer ${both[1]}, head ${both[2]}`, { layer: Number(both[1]), head: Number(both[2]) }]];
    const within = /^l(?:ayer)?\s*(\d+)[\s,]+(.+)$/.exec(wanted);
    if (within && Number(within[1]) < layers) {
      const layer = Number(within[1]), inside = found(within[2]).filter(([, fields]) => fields.layer === undefined);
      return inside.map(([name, fields]) => [`layer ${layer}, ${name}`, { layer, ...fields }]);
    }
    const words = wanted.replace(/^([lh])\s*(\d+)$/, (_, what, n) => `${what === "l" ? "layer" : "head"} ${n}`).split(/\s+/);
    const hits = everything.filter(([name]) => words.every((word) => name.toLowerCase().includes(word)));
    const whole = (name) => words.every((word) => name.toLowerCase().split(/[\s()]+/).includes(word));
    return [...hits.filter(([name]) => whole(name)), ...hits.filter(([name]) => !whole(name))];
  }

  function search() {
    const hits = found(byId("search").value);
    byId("search-count").textContent = byId("search").value.trim() ? `${hits.length || "nothing"} found` : "";
    byId("search-results").replaceChildren(...hits.slice(0, 30).map(([name, fields]) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => { closeSearch(); change(fields); byId("heat").focus(); });
      item.append(button);
      return item;
    }));
  }

  function closeSearch() {
    byId("search").value = "";
    search();
  }

  byId("search").addEventListener("input", search);
  byId("choose").addEventListener("keydown", (event) => {
    if (!event.target.closest(".search")) return;
    const buttons = [...byId("search-results").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    if (event.key === "Enter" && at < 0 && buttons.length) { event.preventDefault(); buttons[0].click(); }
    if (event.key === "ArrowDown" && buttons.length) { event.preventDefault(); buttons[Math.min(at + 1, buttons.length - 1)].focus(); }
    if (event.key === "ArrowUp" && at >= 0) { event.preventDefault(); (at ? buttons[at - 1] : byId("search")).focus(); }
    if (event.key === "Escape") { closeSearch(); byId("heat").focus(); }
  });

  // Export ----------------------------------------------------------------------------------------------------------

  const fileName = () => title().toLowerCase().replaceAll("−", "minus").replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

  function download(href, extension) {
    const link = document.createElement("a");
    link.href = href;
    link.download = `${fileName()}.${extension}`;
    link.click();
  }

  async function image(format) {
    const heat = byId("heat"), size = 900, { data, layout } = drawn.figure;
    const titled = { ...layout, title: { text: Page.label(`${document.querySelector("h1").textContent}: ${title()}`), font: { size: 15 }, x: 0.02, xanchor: "left" }, margin: { ...layout.margin, t: 50, l: 20, b: 20 }, paper_bgcolor: "var(--card)", width: size, height: size, autosize: false };
    const figure = { data: Page.coloured(data), layout: Page.coloured(titled), config: heat._context };
    download(await Plotly.toImage(figure, { format, width: size, height: size, scale: format === "png" ? 2 : 1 }), format);
  }

  /* A name that a spreadsheet would run as a formula is given a quote in front. */
  const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

  function csv() {
    const rows = names.map((name, r) => [quoted(name), ...Array.from(drawn.values.subarray(r * width, (r + 1) * width), String)].join(","));
    const url = URL.createObjectURL(new Blob([[["", ...names.map(quoted)].join(","), ...rows].join("\r\n"), "\r\n"], { type: "text/csv;charset=utf-8" }));
    download(url, "csv");
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  byId("export-png").addEventListener("click", () => image("png"));
  byId("export-svg").addEventListener("click", () => image("svg"));
  byId("export-csv").addEventListener("click", csv);

  byId("controls").reset();
  fromAddress();
  addEventListener("hashchange", () => { fromAddress(); show(); });
  Page.onColours(show);
})();
