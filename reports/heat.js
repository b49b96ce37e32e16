"use strict";
/* Heat maps of square weight matrices: about 0, channels drawn and named, what is no plain number marked. */
const Heat = (() => {
  /* Marks of cells. CLIPPED cells keep the colour of the end of the scale. */
  const NAN = 1, PLUS = 2, MINUS = 3, DEAD = 4, ABOVE = 5, BELOW = 6;
  const SIGNS = ["", "×", "∞", "−∞", "·", "+", "−"];
  const FILLS = ["var(--not-finite)", "var(--plus-infinity)", "var(--minus-infinity)", "var(--veil)"];
  const SIGNS_UP_TO = 40; /* cells a side; smaller cells have no room for a sign */
  const COLOURS = Array.from({ length: 9 }, (_, i) => [i / 8, `var(--diverging-${i})`]);

  function bytes(text) {
    const raw = atob(text), out = new Uint8Array(raw.length + 2); /* two more: numbers of any bits are read in threes */
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }

  function floats(text, size) {
    const source = bytes(text), view = new DataView(source.buffer), count = (source.length - 2) / size;
    const out = new Float64Array(count);
    for (let i = 0; i < count; i++) out[i] = size === 8 ? view.getFloat64(8 * i, true) : view.getFloat32(4 * i, true);
    return out;
  }

  /* Names of single coordinates, and where each channel starts. */
  function coordinates(channels) {
    const names = [], starts = [];
    for (const [name, count] of channels) {
      starts.push(names.length);
      for (let i = 0; i < count; i++) names.push(count > 1 ? `${name}[${i}]` : name);
    }
    return { names, starts };
  }

  const largest = (values) => values.reduce((top, v) => (Number.isFinite(v) ? Math.max(top, Math.abs(v)) : top), 0);
  const short = (value) => signed(String(Number(value.toPrecision(3))));
  const signed = (text) => text.replaceAll("-", "−"); /* as plotly writes it */
  const rows = (values, width) => Array.from({ length: width }, (_, r) => Array.from(values.subarray(r * width, (r + 1) * width)));

  /* The mark of every cell: numbers beyond the limit are clipped, dead cells are so whatever they hold. */
  function marks(values, limit, dead) {
    const out = new Uint8Array(values.length);
    for (let i = 0; i < values.length; i++) {
      const v = values[i];
      if (Number.isNaN(v)) out[i] = NAN;
      else if (v === Infinity) out[i] = PLUS;
      else if (v === -Infinity) out[i] = MINUS;
      else if (dead && dead[i]) out[i] = DEAD;
      else if (v > limit * (1 + 1e-12)) out[i] = ABOVE;
      else if (v < -limit * (1 + 1e-12)) out[i] = BELOW;
    }
    return out;
  }

  /* Channel names as tick labels, turned or thinned where there is no room for them. */
  function ticks(channels, starts, width, pixels) {
    const ends = [...starts.slice(1), width];
    const labels = channels.map(([name]) => (name.length > 12 ? `${name.slice(0, 11)}…` : name));
    const middles = starts.map((start, i) => (start + ends[i] - 1) / 2);
    const apart = Math.min(...middles.slice(1).map((m, i) => (m - middles[i]) * pixels / width), Infinity);
    const every = Math.max(1, Math.ceil(16 / apart));
    const kept = labels.map((_, i) => i).filter((i) => i % every === 0);
    const crowded = kept.some((i, k) => k && (middles[i] - middles[kept[k - 1]]) * pixels / width < 4 * (labels[i].length + labels[kept[k - 1]].length) + 6);
    return { labels, every, crowded, tickvals: kept.map((i) => middles[i]), ticktext: kept.map((i) => Page.label(labels[i])) };
  }

  function lines(starts, width) {
    const line = { type: "line", layer: "above", line: { color: "var(--ink)", width: starts.length > 24 ? 0.5 : 1.5 } };
    return starts.slice(1).flatMap((start) => [
      { ...line, x0: start - 0.5, x1: start - 0.5, y0: -0.5, y1: width - 0.5 },
      { ...line, y0: start - 0.5, y1: start - 0.5, x0: -0.5, x1: width - 0.5 },
    ]);
  }

  const widest = (() => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "13px system-ui, sans-serif";
    return (texts) => Math.max(...texts.map((text) => pen.measureText(text).width));
  })();

  /* Room for names and titles of the axes, and for the scale of the colours below. Plotly could find it too, by drawing
     everything again and again. */
  function margins({ labels, crowded }) {
    const name = Math.ceil(widest(labels)), last = Math.ceil(widest(labels.slice(-1)) / 2);
    return { l: name + 36, r: crowded ? 12 : Math.max(12, last), t: 12, b: (crowded ? name : 14) + 78 };
  }

  /* Plotly's data and layout. view: values, width, channels, starts, limit, marks, axes [row, column],
     hover (row, column) -> text or null, cell [row, column] or null, pixels: the width of the place it is drawn in. */
  function figure(view) {
    const { values, width, limit } = view;
    const top = limit || 1;
    const gap = width <= SIGNS_UP_TO ? 1 : 0;
    const plain = { type: "heatmap", xgap: gap, ygap: gap };
    const data = [{
      ...plain, z: rows(values, width).map((row) => row.map((v) => (Number.isFinite(v) ? v : null))),
      zmin: -top, zmax: top, colorscale: COLOURS, hoverongaps: true,
      ...(view.hover ? {
        customdata: Array.from({ length: width }, (_, r) => Array.from({ length: width }, (_, c) => view.hover(r, c))),
        hovertemplate: "%{customdata}<extra></extra>",
      } : { hoverinfo: "none" }),
      colorbar: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", ypad: 4, thickness: 12, len: 0.9, outlinewidth: 0, ticklabeloverflow: "allow", tickvals: [-top, 0, top], ticktext: [`−${short(top)}`, "0", short(top)] },
    }];
    const overlay = (chosen, colour, more) => {
      if (!view.marks.some((mark) => chosen.includes(mark))) return;
      const codes = rows(view.marks, width);
      data.push({
        ...plain, z: codes.map((row) => row.map((mark) => (chosen.includes(mark) ? mark : null))), showscale: false, hoverinfo: "skip", hoverongaps: false,
        ...(width <= SIGNS_UP_TO ? { text: codes.map((row) => row.map((mark) => (chosen.includes(mark) ? SIGNS[mark] : ""))), texttemplate: "%{text}", textfont: { color: colour, size: 14 } } : {}),
        ...more,
      });
    };
    const scale = FILLS.flatMap((colour, i) => [[i / 4, colour], [(i + 1) / 4, colour]]);
    overlay([NAN, PLUS, MINUS, DEAD], "var(--ink)", { zmin: 0.5, zmax: 4.5, colorscale: scale });
    overlay([ABOVE, BELOW], "var(--card)", { zmin: 0, zmax: 10, colorscale: [[0, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]] });
    const named = ticks(view.channels, view.starts, width, view.pixels - 60);
    const shared = { tickvals: named.tickvals, ticktext: named.ticktext, showgrid: false, zeroline: false, constrain: "domain" };
    const [row, column] = view.axes;
    const shapes = lines(view.starts, width);
    if (view.cell) {
      const [r, c] = view.cell;
      const box = { type: "rect", layer: "above", x0: c - 0.5, x1: c + 0.5, y0: r - 0.5, y1: r + 0.5 };
      shapes.push({ ...box, line: { color: "var(--card)", width: 5 } }, { ...box, line: { color: "var(--accent)", width: 3 } });
    }
    const margin = margins(named);
    const layout = {
      font: { family: "system-ui, sans-serif", size: 13, color: "var(--ink)" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin,
      hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--axis)", font: { color: "var(--ink)" }, align: "left" },
      xaxis: { ...shared, range: [-0.5, width - 0.5], tickangle: named.crowded ? -90 : 0, title: { text: column, standoff: 8, font: { size: 13 } } },
      yaxis: { ...shared, range: [width - 0.5, -0.5], constraintoward: "top", scaleanchor: "x", title: { text: row, standoff: 8, font: { size: 13 } } },
      shapes,
    };
    return { data, layout };
  }

  const MOST_PIXELS = 640; /* a side of the map */
  const widths = new Map();

  /* Draws a view, as high as square cells need, and again by redraw() whenever the width changes. Returns the figure. */
  function draw(element, view, redraw) {
    const made = figure({ ...view, pixels: element.clientWidth }), { l, r, t, b } = made.layout.margin;
    const height = Math.max(120, Math.min(element.clientWidth - l - r, MOST_PIXELS)) + t + b;
    element.style.height = `${height}px`;
    Object.assign(made.layout, { width: element.clientWidth, height });
    if (!widths.has(element)) {
      new ResizeObserver(() => { if (element.clientWidth && element.clientWidth !== widths.get(element)) redraw(); }).observe(element);
    }
    widths.set(element, element.clientWidth);
    Page.draw(element, made.data, made.layout);
    return made;
  }

  /* A table that can be scrolled with the keyboard. Every row starts with its name. */
  function table(caption, header, body) {
    const element = document.createElement("table");
    element.createCaption().textContent = caption;
    const cell = (tag, text, scope) => {
      const made = document.createElement(tag);
      made.textContent = text;
      if (scope) made.scope = scope;
      return made;
    };
    const [corner, ...columns] = header;
    element.createTHead().insertRow().append(corner ? cell("th", corner, "col") : cell("td", ""), ...columns.map((n) => cell("th", n, "col")));
    const rowsOf = element.createTBody();
    for (const [name, ...cells] of body) rowsOf.insertRow().append(cell("th", name, "row"), ...cells.map((text) => cell("td", text)));
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption);
    scroll.append(element);
    return scroll;
  }

  const matrixTable = (caption, names, values) => table(caption, ["", ...names], rows(values, names.length).map((row, r) => [names[r], ...row.map(String)]));

  return { NAN, PLUS, MINUS, DEAD, ABOVE, BELOW, SIGNS, bytes, floats, coordinates, largest, short, marks, ticks, draw, signed, table, matrixTable };
})();
