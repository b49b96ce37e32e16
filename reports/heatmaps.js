"use strict";
/* Q and P of one layer and head, chosen by native controls. */
(() => {
  const source = document.getElementById("heatmap-data");
  if (!source) return;
  const content = Page.json(source);
  const { layers, heads, width } = content;
  const size = width * width;
  const byId = (id) => document.getElementById(id);

  const decode = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
  };
  const weights = { Q: decode(content.Q), P: decode(content.P) };
  const axes = { Q: ["destination channel", "source channel"], P: ["output channel", "source channel"] };

  /* Names of single coordinates, and where each channel starts. */
  const names = [], starts = [];
  for (const [name, count] of content.channels) {
    starts.push(names.length);
    for (let i = 0; i < count; i++) names.push(count > 1 ? `${name}[${i}]` : name);
  }

  const state = { layer: 0, head: 0, limits: "own" };
  const matrix = (name) => weights[name].subarray((state.layer * heads + state.head) * size).subarray(0, size);
  const largest = (values) => values.reduce((top, v) => (Number.isFinite(v) ? Math.max(top, Math.abs(v)) : top), 0);
  const everywhere = { Q: largest(weights.Q), P: largest(weights.P) };
  const limit = (name) => (state.limits === "shared" ? everywhere[name] : largest(matrix(name)));
  const rows = (values) => Array.from({ length: width }, (_, r) => Array.from(values.subarray(r * width, (r + 1) * width)));
  const short = (value) => String(Number(value.toPrecision(3)));

  const colours = Array.from({ length: 9 }, (_, i) => [i / 8, `var(--diverging-${i})`]);

  function plot(name) {
    const values = matrix(name);
    const top = limit(name) || 1;
    const grid = rows(values);
    const hover = grid.map((row, r) => row.map((value, c) =>
      `${name}[${Page.label(names[r])}, ${Page.label(names[c])}] = ${String(value)}`));
    const gap = width <= 40 ? 1 : 0;
    const shared = { type: "heatmap", xgap: gap, ygap: gap, customdata: hover, hovertemplate: "%{customdata}<extra></extra>" };
    const data = [{
      ...shared, z: grid.map((row) => row.map((v) => (Number.isFinite(v) ? v : null))),
      zmin: -top, zmax: top, colorscale: colours, hoverongaps: false,
      colorbar: { orientation: "h", y: -0.14, yanchor: "top", thickness: 12, len: 0.9, outlinewidth: 0, ticklabeloverflow: "allow", tickvals: [-top, 0, top], ticktext: [`-${short(top)}`, "0", short(top)] },
    }];
    if (values.some((v) => !Number.isFinite(v))) {
      data.push({
        ...shared, z: grid.map((row) => row.map((v) => (Number.isFinite(v) ? null : 1))), hoverongaps: false,
        colorscale: [[0, "var(--not-finite)"], [1, "var(--not-finite)"]], showscale: false,
        text: grid.map((row) => row.map((v) => (Number.isFinite(v) ? "" : "×"))), texttemplate: "%{text}", textfont: { color: "var(--card)", size: 16 },
      });
    }
    const labels = content.channels.map(([channel]) => (channel.length > 12 ? `${channel.slice(0, 11)}…` : channel));
    const ticks = {
      tickvals: content.channels.map(([, count], i) => starts[i] + (count - 1) / 2),
      ticktext: labels.map(Page.label),
      showgrid: false, zeroline: false, automargin: true, range: [-0.5, width - 0.5], constrain: "domain",
    };
    const [row, column] = axes[name];
    const line = { type: "line", layer: "above", line: { color: "var(--ink)", width: 1.5 } };
    const between = starts.slice(1).flatMap((start) => [
      { ...line, x0: start - 0.5, x1: start - 0.5, y0: -0.5, y1: width - 0.5 },
      { ...line, y0: start - 0.5, y1: start - 0.5, x0: -0.5, x1: width - 0.5 },
    ]);
    return Page.draw(byId(`heatmap-${name}`), data, {
      font: { family: "system-ui, sans-serif", size: 13, color: "var(--ink)" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 8 + 4 * labels[labels.length - 1].length, t: 12, b: 8 },
      hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--axis)", font: { color: "var(--ink)" }, align: "left" },
      xaxis: { ...ticks, title: { text: column, standoff: 8, font: { size: 13 } } },
      yaxis: { ...ticks, constraintoward: "top", range: [width - 0.5, -0.5], scaleanchor: "x", title: { text: row, standoff: 8, font: { size: 13 } } },
      shapes: between,
    });
  }

  function table(name) {
    const element = document.createElement("table");
    const caption = element.createCaption();
    caption.textContent = `${name} of layer ${state.layer}, head ${state.head}: row = ${axes[name][0]}, column = ${axes[name][1]}`;
    const cell = (tag, text, scope) => {
      const made = document.createElement(tag);
      made.textContent = text;
      if (scope) made.scope = scope;
      return made;
    };
    const head = element.createTHead().insertRow();
    head.append(cell("td", ""), ...names.map((n) => cell("th", n, "col")));
    const body = element.createTBody();
    rows(matrix(name)).forEach((row, r) => {
      body.insertRow().append(cell("th", names[r], "row"), ...row.map((v) => cell("td", String(v))));
    });
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption.textContent);
    scroll.append(element);
    return scroll;
  }

  function describe() {
    const parts = ["Q", "P"].map((name) => {
      const values = matrix(name);
      const bad = values.filter((v) => !Number.isFinite(v)).length;
      return `${name}: colours from -${short(limit(name))} to ${short(limit(name))}${bad ? `, ${bad} not finite (×)` : ""}`;
    });
    return `Layer ${state.layer}, head ${state.head}. ${parts.join("; ")}.`;
  }

  function show() {
    byId("layer-shown").value = String(state.layer);
    byId("heatmap-status").textContent = describe();
    for (const name of ["Q", "P"]) {
      byId(`heatmap-${name}`).setAttribute("aria-label", `Heat map of ${name}, layer ${state.layer}, head ${state.head}`);
      plot(name);
    }
    if (byId("heatmap-tables").open) byId("heatmap-table").replaceChildren(table("Q"), table("P"));
  }

  byId("layer-control").hidden = layers === 1;
  byId("head-control").hidden = heads === 1;
  byId("layer").addEventListener("input", (event) => { state.layer = Number(event.target.value); show(); });
  byId("head").addEventListener("change", (event) => { state.head = Number(event.target.value); show(); });
  byId("limits").addEventListener("change", (event) => { state.limits = event.target.value; show(); });
  byId("heatmap-tables").addEventListener("toggle", show);
  byId("heatmap-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("heatmap-controls").reset(); /* browsers keep the controls of a reloaded page; the plots start afresh */
  Page.onColours(show);
})();
