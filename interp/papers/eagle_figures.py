"""EAGLE's tables as sections: how the error of the solvers falls, and that of the trained networks by depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp.papers.comparison import Rows, drawn, measured_table, plotted
from interp.reports.numbers import listed, number
from interp.reports.plots import SYMBOLS, Point, axis, curve, layer_axis
from interp.results import Section, Series

__all__ = ["eagle_sections"]

FLAT = 0.05  # decades: an error that falls by less in an iteration stalls
LAST, FASTER = 4, 1.25  # of the last iterations one must multiply the logarithm by so much; first order: 1 + 1 / k
TITLES = {
    "layers": "Trained networks",
    "iterations": "Iterations",
    "distributed": "Distributed",
    "sketched": "Sketched",
    "timing": "CPU time",
    "tail": "By iteration",
}


def eagle_sections(tables: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """One for every table; figures first, where there are numbers for them."""
    figures, sections = [], []
    for name, table in tables.items():
        rows, skipped = [row for row in table["rows"] if "skipped" not in row], _skipped(table["rows"])
        if name in FIGURES and rows:
            figures.append(FIGURES[name](rows, skipped))
        else:
            notes = (*([table["title"]] if "title" in table else ()), *skipped)
            sections.append(Section(name=f"part-{name}", title=TITLES[name], table=measured_table(rows), notes=notes))
    return [*figures, *sections]


def _skipped(rows: Rows) -> tuple[str, ...]:
    """What was not measured, and why; those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "skipped" in row:
            reasons.setdefault(row["skipped"], []).append(str(next(iter(row.values()))))
    return tuple(f"{listed(names, most=20)}: {why}" for why, names in reasons.items())


def _tail(rows: Rows, _: Sequence[str]) -> Section:
    legend, data = [], []
    for i, name in enumerate(name for name in rows[0] if name != "iteration"):
        solver, _, kappa = name.rpartition(" ")
        eagle, label = solver == "EAGLE", f"{solver}, κ = {number(float(kappa), 1)}"
        colour = f"var(--series-{1 if eagle else 2 + i % 4})"
        legend.append(Series(key=f"tail-{i}", label=label, colour=colour, symbol=SYMBOLS[i % len(SYMBOLS)]))
        points = [Point(k, error, None, f"{label}, {k}: {number(error, 2)}") for k, error in _positive(rows, name)]
        data.append(curve(legend[-1], points, log=True, size=6, dash="solid" if eagle else "dot"))
    panel = plotted("tail", data, axis("iterations", zeroline=False), "relative squared error", 460)
    description = (
        "Relative squared error of D after every iteration on a logarithmic axis (n = d = 100, singular values evenly "
        "spaced in the logarithm), down to rounding. A method of first order is a straight line at best; one of second "
        "order bends down. EAGLE with η = 1/3, γ = 1 and the exact norms. It lowers the error along every singular "
        "direction in every iteration; in D they add up with signs, and some may cancel for a while."
    )
    return drawn("tail", "Error by iteration", _tail_finding(rows), description, [panel], legend, measured_table(rows))


def _positive(rows: Rows, name: str) -> list[tuple[int, float]]:
    return [(row["iteration"], row[name]) for row in rows if row[name] is not None and row[name] > 0]


def _tail_finding(rows: Rows) -> str:
    """How fast the errors of EAGLE fall near the end, and where they stall before."""
    growth, stalled = [], []
    for name in (name for name in rows[0] if name.startswith("EAGLE ")):
        values = _positive(rows, name)
        logs = [math.log10(value) for _, value in values]
        growth.append(max((b / a for a, b in list(itertools.pairwise(logs))[-LAST:] if a < -1), default=0.0))
        flat = [values[k][0] for k in range(1, len(logs)) if logs[k - 1] < -0.3 and logs[k] > logs[k - 1] - FLAT]
        if flat:
            kappa = number(float(name.rpartition(" ")[2]), 1)
            span = str(flat[0]) if len(flat) == 1 else f"{flat[0]} to {flat[-1]}"
            stalled.append(f"κ = {kappa} at iteration{'s' * (len(flat) > 1)} {span}")
    before = f"; before, it hardly falls for {listed(stalled)}" if stalled else ""
    if not growth or min(growth) < FASTER:
        return f"EAGLE's error does not fall ever faster for every κ{before}"
    return (
        f"EAGLE's error falls ever faster near the end: its logarithm grows {number(min(growth), 2)} times or more in "
        f"one of the last iterations{before}"
    )


def _depth(rows: Rows, skipped: Sequence[str]) -> Section:
    legend, data, ends = [], [], []
    for i, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
        layers = [row for row in rows if row["model"] == model]
        legend.append(Series(key=f"depth-{i}", label=model, colour=f"var(--series-{1 + i % 5})", symbol=SYMBOLS[i]))
        points = [
            Point(run, error, row["± error of D"], f"{model} after {run} layers: {number(error, 2)}")
            for row in layers
            if (run := row["layers run"]) is not None and (error := row["error of D"])
        ]
        data.append(curve(legend[-1], points, log=True))
        if (last := layers[-1])["zero / error"]:
            ends.append(f"{number(last['zero / error'], 2)} ({model}, {last['verdict']})")
    depths = layer_axis(sorted({row["layers run"] for row in rows}), "layers run")
    panel = plotted("depth", data, depths, "mean squared entry", 380)
    ratios = f" is that of predicting 0, divided by {listed(ends, most=8)}" if ends else ", layer by layer"
    finding = f"The error of the trained networks{ratios}"
    description = (
        "Mean squared entry of the error of D, read out after every layer, on fresh prompts; bars are 95 % intervals. "
        "The table has the mean squared entry of the difference between the tokens of the network and of the recovered "
        "algorithm run in its place, with its numbers fitted all together to the predictions and, layer by layer, to "
        "what the layer puts out, beside the paper's Table 1." + "".join(f" {note}." for note in skipped)
    )
    table = measured_table(rows, ("model", "layers run"))
    return drawn("depth", "Error by depth", finding, description, [panel], legend, table)


FIGURES = {"tail": _tail, "layers": _depth}
