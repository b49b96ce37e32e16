"use strict";
/* What is said of one cell: its row, its column, the spectrum of its matrix, its coefficients by layer and by step. */
const Panels = (() => {
  const byId = (id) => document.getElementById(id);
  const { names, starts, width, tokens, layers, checkpoints, kind, channelOf } = Weights;
  const SERIES = ["var(--series-1)", "var(--series-2)", "var(--series-3)", "var(--series-4)", "var(--series-5)"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x"];
  const MOST_LINES = SERIES.length;

  const axis = (title, more) => ({
    title: { text: title, standoff: 8, font: { size: 13 } }, automargin: true, gridcolor: "var(--grid)", linecolor: "var(--axis)",
    zerolinecolor: "var(--axis)", ticks: "outside", tickcolor: "var(--axis)", exponentformat: "power", ...more,
  });
  const layout = (xaxis, yaxis, more) => ({
    xaxis, yaxis, font: { family: "system-ui, sans-serif", size: 13, color: "var(--ink)" }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 12, t: 8, b: 8 }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--axis)", font: { color: "var(--ink)" }, align: "left" }, ...more,
  });
  const number = (v) => (v === null || v === undefined ? "—" : String(Number(v.toPrecision(6))));

  function panel(name, { title, words, data, figure, table, label }) {
    byId(`title-${name}`).textContent = title;
    byId(`words-${name}`).textContent = words;
    const plot = byId(`plot-${name}`), numbers = byId(`table-${name}`);
    plot.setAttribute("aria-label", `Plot: ${title}. ${label ?? words} The numbers are in the table below it.`);
    plot.hidden = numbers.hidden = !data;
    if (!data) { Plotly.purge(plot); return; }
    Page.draw(plot, data, figure);
    const fill = () => { if (numbers.open) numbers.querySelector("div").replaceChildren(Heat.table(title, ...table())); };
    numbers.ontoggle = fill;
    fill();
  }

  /* A row or a column of the map. */
  function line(name, title, cells, at, otherAxis, symbol, said) {
    const colour = "var(--series-1)";
    const finite = Array.from(cells, (v) => (Number.isFinite(v) ? v : null)), missing = finite.filter((v) => v === null).length;
    const bars = width <= 64;
    const named = Heat.ticks(tokens, starts, width, (byId(`plot-${name}`).clientWidth || 300) - 70);
    panel(name, {
      title, words: missing ? `${missing} of ${width} not finite, and not drawn.` : "", label: `${width} numbers by ${otherAxis}.`,
      data: [{
        ...(bars ? { type: "bar", marker: { color: Array.from(cells, (_, i) => (i === at ? "var(--series-2)" : colour)) } }
          : { type: "scatter", mode: "lines", line: { color: colour, width: 1.5 } }),
        x: names.map((_, i) => i), y: finite, customdata: Array.from(cells, (v, i) => `${Page.label(names[i])}: ${said(v)}`), hovertemplate: "%{customdata}<extra></extra>",
      }, ...(bars ? [] : [{ type: "scatter", mode: "markers", marker: { color: "var(--series-2)", size: 9 }, x: [at], y: [finite[at]], hoverinfo: "skip" }])],
      figure: layout(
        axis(otherAxis, { tickvals: named.tickvals, ticktext: named.ticktext, tickangle: named.crowded ? -90 : 0, showgrid: false, zeroline: false, range: [-0.6, width - 0.4] }),
        axis(symbol, { nticks: 5 }),
        { shapes: starts.slice(1).map((s) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: s - 0.5, x1: s - 0.5, line: { color: "var(--axis)", width: 1 } })) },
      ),
      table: () => [["", "value"], names.map((n, i) => [n, said(cells[i])])],
    });
  }

  const single = (v) => String(Number(v.toPrecision(7))); /* singular values come in single precision, which has no more digits */

  function spectrum(state, what) {
    const found = Weights.spectrum(state);
    const title = `Singular values of ${what.replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase())}`;
    if (!found.values) { panel("spectrum", { title, words: `Not shown: ${found.why}.` }); return; }
    const values = Array.from(found.values), top = values[0];
    const shown = values.filter((v) => v > 1e-10 * top), zero = values.length - shown.length;
    const energy = values.reduce((s, v) => s + v * v, 0), log = shown.length > 1 && top > 30 * shown[shown.length - 1];
    const rank = energy ? energy * energy / values.reduce((s, v) => s + v ** 4, 0) : 0;
    panel("spectrum", {
      title,
      words: top ? `Largest ${number(top)}; effective rank ${number(Number(rank.toPrecision(3)))} of ${values.length}: that many equal values would share the energy as evenly.${zero ? ` ${zero} of ${values.length} are 0 to rounding, and not drawn.` : ""}` : "The matrix is zero.",
      data: top ? [{ type: "scatter", mode: "lines+markers", x: shown.map((_, i) => i + 1), y: shown, line: { color: "var(--series-3)", width: 1.5 }, marker: { color: "var(--series-3)", size: shown.length > 40 ? 4 : 7 }, customdata: shown.map((v, i) => `${i + 1}: ${single(v)}`), hovertemplate: "%{customdata}<extra></extra>" }] : null,
      figure: layout(axis("number", { range: [0.4, Math.max(shown.length, 2) + 0.6], tick0: 1, dtick: Math.ceil(Math.max(shown.length, 2) / 8), showgrid: false, zeroline: false }), axis(log ? "singular value (log)" : "singular value", log ? { type: "log", tickfont: { size: 10.4 } /* plotly enlarges powers by a quarter */, nticks: 5, dtick: Math.max(1, Math.ceil(Math.log10(top / shown[shown.length - 1]) / 4)) } : { rangemode: "tozero", nticks: 5 })),
      table: () => [["number", "singular value"], values.map((v, i) => [String(i + 1), single(v)])],
    });
  }

  /* Curves of coefficients; lines: [{ name, dash, x, y, text }] by coefficient and checkpoint. */
  function curves(name, title, words, lines, x, mark) {
    const known = lines.filter((l) => l.y.some((v) => v !== null));
    const plot = byId(`plot-${name}`), height = known.length > 3 ? "22rem" : ""; /* room for the names */
    if (plot.style.height !== height) {
      plot.style.height = height;
      Plotly.purge(plot); /* a plot keeps the height that it was made with */
    }
    const every = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b);
    panel(name, {
      title, words: known.length ? words : `${words} None of their values is known here: they are dead, or the weights are not finite.`,
      data: known.length ? known.map((l) => ({
        type: "scatter", mode: "lines+markers", name: Page.label(cut(l.name)), x: l.x, y: l.y, line: { color: l.colour, width: 2, dash: l.dash }, marker: { color: l.colour, size: 7, symbol: l.symbol },
        customdata: l.text, hovertemplate: "%{customdata}<extra></extra>", connectgaps: false,
      })) : null,
      figure: layout(axis(x, x === "layer" && every.length <= 12 ? { tickvals: every, showgrid: false, zeroline: false } : { nticks: 5, tickangle: 0, showgrid: false, zeroline: false }), axis("coefficient", { nticks: 5 }), {
        showlegend: known.length > 1, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
        shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: mark, x1: mark, line: { color: "var(--axis)", width: 1.5, dash: "dot" } }],
      }),
      table: () => [[x, ...lines.map((l) => l.name)], every.map((at) => [String(at), ...lines.map((l) => number(l.y[l.x.indexOf(at)]))])],
    });
  }

  const cut = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);
  const nice = (name) => name.replace("omega_", "ω_").replace("tau_", "τ_");

  function coefficientPanels(state, [r, c]) {
    const block = `${tokens[channelOf[r]][0]} × ${tokens[channelOf[c]][0]}`;
    const all = Weights.belonging(state.m, channelOf[r], channelOf[c]);
    const seen = kind === "pair" ? [0, 1] : [state.view === "a" ? 0 : state.index];
    const size = (k) => Math.max(...seen.flatMap((i) => checkpoints[i].coefficients.map((row) => Math.abs(row[k] ?? 0))));
    const chosen = all.length > MOST_LINES ? all.map((k) => [size(k), k]).sort((a, b) => b[0] - a[0]).slice(0, MOST_LINES).map(([, k]) => k) : all;
    const title = `Coefficients of block ${block}`;
    if (!chosen.length) {
      const none = tokens[channelOf[r]][1] === tokens[channelOf[c]][1] ? "None of the coefficients that are listed holds this block."
        : "The cell belongs to no coefficient: rotation-equivariant layers have none for a block of channels of different sizes.";
      for (const name of ["coefficient", "training"]) panel(name, { title, words: none });
      return;
    }
    const label = (k) => nice(Weights.coefficients[k].name);
    const left = all.length > chosen.length ? ` The ${MOST_LINES} largest of ${all.length}.` : "";
    let words = `${chosen.length > 1 || kind === "pair" ? "By" : `${cut(label(chosen[0]))}, by`} the weights of all heads together, free of gauge.${left}`;
    if (Weights.perHead(state.m) && state.view !== "diff") {
      const which = state.view === "a" ? 0 : state.index;
      const place = Weights.placed(which, state.layer, state.head, state.part, state.view === "aligned");
      const own = Weights.multiples(which, state.m, state.layer, place)[channelOf[r] * tokens.length + channelOf[c]];
      if (own !== null) words += ` This head's multiple of the identity in the block: ${number(own)}.`;
    }
    const lines = chosen.flatMap((k, at) => seen.map((i) => ({
      name: kind === "pair" ? `${"AB"[i]}: ${label(k)}` : label(k), dash: kind === "pair" && i ? "dash" : "solid", colour: SERIES[at], symbol: SYMBOLS[at],
      x: checkpoints[i].coefficients.map((_, l) => l), y: checkpoints[i].coefficients.map((row) => row[k]),
      text: checkpoints[i].coefficients.map((row, l) => `layer ${l}, ${Page.label(label(k))}: ${number(row[k])}`),
    })));
    curves("coefficient", `${title}, by layer`, words, lines, "layer", state.layer);
    if (kind !== "steps") return;
    const steps = checkpoints.map((entry, i) => entry.step ?? i);
    curves("training", `${title}, by training step`, `Layer ${state.layer}.`, chosen.map((k, at) => ({
      name: label(k), dash: "solid", colour: SERIES[at], symbol: SYMBOLS[at], x: steps, y: checkpoints.map((entry) => entry.coefficients[state.layer][k]),
      text: checkpoints.map((entry, i) => `step ${steps[i]}, ${Page.label(label(k))}: ${number(entry.coefficients[state.layer][k])}`),
    })), "training step", steps[state.index]);
  }

  /* The panels, each to be drawn by a call. what: the name of the map, as in a title; said: a value as text;
     axes: [row, column]; symbol: what a value is called. */
  function parts(state, values, cell, what, axes, symbol, said) {
    const [r, c] = cell;
    return [
      () => line("row", `Row ${names[r]} (${axes[0]})`, values.subarray(r * width, (r + 1) * width), c, axes[1], symbol, said),
      () => line("column", `Column ${names[c]} (${axes[1]})`, Float64Array.from({ length: width }, (_, k) => values[k * width + c]), r, axes[0], symbol, said),
      () => spectrum(state, what),
      () => coefficientPanels(state, cell),
    ];
  }

  return { parts, nice };
})();
