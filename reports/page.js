"use strict";
/* Colours and plots of the page. The plots name their colours after custom properties of the style sheet; they are
   looked up here, and again whenever the colours of the page change. */
const Page = (() => {
  const config = {
    displaylogo: false, showSendToCloud: false, plotlyServerURL: "", responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const root = document.documentElement;
  const redraws = [];
  const waiting = [];

  /* Long arrays that name no colours. */
  const NUMBERS = new Set(["x", "y", "z", "text", "customdata"]);

  /* A custom property as the rgb() that plotly understands, whatever the style sheet wrote. */
  const lookUp = (() => {
    const probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
    return (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  })();

  function coloured(value) {
    if (typeof value === "string") {
      const match = /^var\((--[\w-]+)\)$/.exec(value);
      return match ? lookUp(match[1]) : value;
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (ArrayBuffer.isView(value) || value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, NUMBERS.has(key) && Array.isArray(entry) ? entry : coloured(entry)]));
  }

  function draw(plot, data, layout) {
    return Plotly.react(plot, coloured(data), coloured(layout), config);
  }

  /* Plotly reads a small HTML in every string: text from a file must not be read so. */
  function label(text) {
    return text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  }

  function json(element) {
    return JSON.parse(element.textContent);
  }

  function onColours(redraw) {
    redraws.push(redraw);
    redraw();
  }

  function start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const button = document.getElementById("theme");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const name = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; }; /* what it changes to */
    const refresh = () => {
      name();
      redraws.forEach((redraw) => redraw());
    };
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; refresh(); });
    dark.addEventListener("change", refresh);
    name();

    let before;
    addEventListener("beforeprint", () => { while (waiting.length) waiting.shift()(); before = root.dataset.theme; root.dataset.theme = "light"; refresh(); });
    addEventListener("afterprint", () => {
      if (before) root.dataset.theme = before; else delete root.dataset.theme;
      refresh();
    });

    /* One at a time, so that the page can be read and used while the plots further down are drawn. */
    for (const source of document.querySelectorAll("script.plot-data")) waiting.push(() => plotFigure(source));
    const next = () => {
      const job = waiting.shift();
      if (job) { job(); setTimeout(next); } else root.dataset.drawn = "all";
    };
    next();
  }

  function plotFigure(source) {
    const plot = document.getElementById(source.dataset.plot);
    const { data, layout } = json(source);
    const hidden = new Set();
    const shown = () => data.map((trace) => ({ ...trace, visible: !hidden.has(trace.legendgroup) }));
    onColours(() => draw(plot, shown(), layout));
    for (const button of plot.closest("figure").querySelectorAll("button[data-series]")) {
      button.addEventListener("click", () => {
        const key = button.dataset.series;
        if (!hidden.delete(key)) hidden.add(key);
        button.setAttribute("aria-pressed", String(!hidden.has(key)));
        draw(plot, shown(), layout);
      });
    }
  }

  return { start, draw, coloured, json, label, onColours };
})();
Page.start();
