"use strict";
/* Q and P of one layer and head, chosen by native controls. */
(() => {
  const source = document.getElementById("heatmap-data");
  if (!source) return;
  const content = Page.json(source);
  const { layers, heads, width } = content;
  const size = width * width;
  const byId = (id) => document.getElementById(id);
  const weights = { Q: Heat.floats(content.Q, 8), P: Heat.floats(content.P, 8) };
  const axes = { Q: ["destination channel", "source channel"], P: ["output channel", "source channel"] };
  const { names, starts } = Heat.coordinates(content.channels);

  const state = { layer: 0, head: 0, limits: "own" };
  const matrix = (name) => weights[name].subarray((state.layer * heads + state.head) * size).subarray(0, size);
  const everywhere = { Q: Heat.largest(weights.Q), P: Heat.largest(weights.P) };
  const limit = (name) => (state.limits === "shared" ? everywhere[name] : Heat.largest(matrix(name)));

  function plot(name) {
    const values = matrix(name);
    Heat.draw(byId(`heatmap-${name}`), {
      values, width, channels: content.channels, starts, limit: limit(name), axes: axes[name], cell: null,
      marks: Uint8Array.from(values, (v) => (Number.isFinite(v) ? 0 : Heat.NAN)),
      hover: (r, c) => `${name}[${Page.label(names[r])}, ${Page.label(names[c])}] = ${String(values[r * width + c])}`,
    }, () => plot(name));
  }

  const table = (name) => Heat.matrixTable(
    `${name} of layer ${state.layer}, head ${state.head}: row = ${axes[name][0]}, column = ${axes[name][1]}`, names, matrix(name));

  function describe() {
    const parts = ["Q", "P"].map((name) => {
      const bad = matrix(name).filter((v) => !Number.isFinite(v)).length, top = Heat.short(limit(name));
      return `${name}: colours from −${top} to ${top}${bad ? `, ${bad} not finite (×)` : ""}`;
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
