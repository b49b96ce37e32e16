"""One offline page: how the error of the solvers falls, and that of the trained networks by depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp.reports.findings import listed
from interp.reports.html import render_figures
from interp.reports.numbers import number
from interp.reports.page import Page
from interp.reports.plots import SYMBOLS, Point, axis, curve, layer_axis, layout, log_axis
from interp.reports.reproduction_tables import measured_table, skipped_rows
from interp.results import Figure, Panel, Section, Series, Table

__all__ = ["eagle_figures", "eagle_page"]

Rows = Sequence[Mapping[str, Any]]
FLAT = 0.05  # decades: an error that falls by less in an iteration stalls
LAST, FASTER = 4, 1.25  # of the last iterations one must multiply the logarithm by so much; first order: 1 + 1 / k

SOURCE = "Lutz et al., arXiv 2509.19702 (NeurIPS 2025)"
_TITLES = {
    "layers": "Trained networks",
    "iterations": "Iterations",
    "tail": "By iteration",
    "distributed": "Distributed",
    "sketched": "Sketched",
    "timing": "CPU time",
}
_ELSEWHERE = ("verdict", "zero / error")  # in the titles, where a line has no room for them
_DRAWN = ("tail",)  # parts whose figure has all their numbers


def eagle_page(tables: Mapping[str, Mapping[str, Any]], command: str | None = None) -> Page:
    parts = tuple(
        Section(
            name=f"part-{name}",
            title=_TITLES.get(name, name),
            finding=str(table.get("title", "")),
            table=measured_table([{k: v for k, v in row.items() if k not in _ELSEWHERE} for row in table["rows"]]),
            notes=skipped_rows(table["rows"]),
        )
        for name, table in tables.items()
        if name not in _DRAWN
    )
    recorded = next((table["provenance"] for table in tables.values() if "provenance" in table), {})
    return render_figures(
        "EAGLE: the solver and the trained networks",
        eagle_figures(tables),
        source=SOURCE,
        parts=parts,
        command=command,
        recorded={"measured with": recorded},
    )


def eagle_figures(tables: Mapping[str, Mapping[str, Any]]) -> tuple[Figure, ...]:
    """Those that there are numbers for."""
    made = []
    if "tail" in tables:
        made.append(_tail(tables["tail"]["rows"]))
    trained = [row for row in tables.get("layers", {}).get("rows", ()) if "skipped" not in row]
    if trained:
        made.append(_depth(trained))
    return tuple(made)


def _tail(rows: Rows) -> Figure:
    names = [name for name in rows[0] if name != "iteration"]
    legend, data, drawn = [], [], []
    for i, name in enumerate(names):
        solver, _, kappa = name.rpartition(" ")
        eagle = solver == "EAGLE"
        series = Series(
            key=f"tail-{i}",
            label=f"{solver}, κ = {number(float(kappa), 1)}",
            colour="var(--series-1)" if eagle else f"var(--series-{2 + i % 4})",
            symbol=SYMBOLS[i % len(SYMBOLS)],
        )
        points = [
            Point(row["iteration"], row[name], None, f"{series.label}, {row['iteration']}: {number(row[name], 2)}")
            for row in rows
            if row[name] is not None and row[name] > 0
        ]
        drawn += [point.y for point in points]
        legend.append(series)
        data.append(curve(series, points, log=True, size=6, dash="solid" if eagle else "dot"))
    errors = log_axis("relative squared error", drawn, dense=False)
    return Figure(
        name="tail",
        short="Error by iteration",
        finding=_tail_finding(rows),
        description="Relative squared error of D after every iteration on a logarithmic axis (n = d = 100, singular "
        "values evenly spaced in the logarithm), down to rounding. A method of first order is a straight line at best; "
        "one of second order bends down. EAGLE with η = 1/3, γ = 1 and the exact norms. It lowers the error along "
        "every singular direction in every iteration; in D they add up with signs, and some may cancel for a while.",
        panels=(
            Panel(
                name="tail", title="", data=data, height=460,
                layout=layout(axis("iterations", zeroline=False), errors),
            ),
        ),
        legend=tuple(legend),
        table=Table(
            header=("iterations", *names),
            rows=tuple((str(row["iteration"]), *(number(row[name], 2) for name in names)) for row in rows),
        ),
    )  # fmt: skip


def _tail_finding(rows: Rows) -> str:
    """How fast the errors of EAGLE fall near the end, and where they stall before."""
    growth, stalled = [], []
    for name in (name for name in rows[0] if name.startswith("EAGLE ")):
        values = [(row["iteration"], row[name]) for row in rows if row[name] is not None and row[name] > 0]
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


def _depth(rows: Rows) -> Figure:
    models = list(dict.fromkeys(row["model"] for row in rows))
    legend, data, drawn, ends = [], [], [], []
    for i, model in enumerate(models):
        own = [row for row in rows if row["model"] == model]
        series = Series(key=f"depth-{i}", label=model, colour=f"var(--series-{1 + i % 5})", symbol=SYMBOLS[i])
        points = [
            Point(
                row["layers run"],
                row["error of D"],
                row["± error of D"],
                f"{model} after {row['layers run']} layers: {number(row['error of D'], 2)}",
            )
            for row in own
            if row["error of D"]
        ]
        drawn += [point.y for point in points]
        legend.append(series)
        data.append(curve(series, points, log=True))
        if own[-1]["zero / error"]:
            ends.append(f"{number(own[-1]['zero / error'], 2)} ({model}, {own[-1]['verdict']})")
    depths = layer_axis(sorted({row["layers run"] for row in rows}), "layers run")
    header = ("model", "layers run", "error of D", "network - algorithm", "layer by layer", "the paper's")
    return Figure(
        name="depth",
        short="Error by depth",
        finding=f"The error of the trained networks is that of predicting 0, divided by {listed(ends, most=8)}"
        if ends
        else "The error of the trained networks, layer by layer",
        description="Mean squared entry of the error of D, read out after every layer, on fresh prompts; bars are 95 % "
        "intervals. The table has the mean squared entry of the difference between the tokens of the network and of "
        "the recovered algorithm run in its place, with its numbers fitted all together to the predictions and, layer "
        "by layer, to what the layer puts out, beside the paper's Table 1.",
        panels=(
            Panel(
                name="depth", title="", data=data, height=380,
                layout=layout(depths, log_axis("mean squared entry", drawn, dense=False)),
            ),
        ),
        legend=tuple(legend),
        table=Table(
            header=header,
            rows=tuple(
                (
                    row["model"],
                    str(row["layers run"]),
                    *(number(row[name], 2) for name in ("error of D", "difference", "layer by layer", "paper")),
                )
                for row in rows
            ),
        ),
    )  # fmt: skip
