"""One offline page: how the error of the solvers falls, and that of the trained networks by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp.reports.html import render_figures
from interp.reports.numbers import number
from interp.reports.page import Page
from interp.reports.plots import (
    SYMBOLS,
    Figure,
    Panel,
    Point,
    Series,
    Table,
    axis,
    curve,
    layer_axis,
    layout,
    log_axis,
)

__all__ = ["eagle_figures", "eagle_page"]

Rows = Sequence[Mapping[str, Any]]


def eagle_page(tables: Mapping[str, Mapping[str, Any]]) -> Page:
    return render_figures("EAGLE: the solver and the trained networks", eagle_figures(tables))


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
        finding="EAGLE's error falls ever faster: at the end its logarithm doubles with every iteration",
        description="Relative squared error of D after every iteration on a logarithmic axis (n = d = 100, singular "
        "values evenly spaced in the logarithm), down to rounding. A method of first order is a straight line at best; "
        "one of second order bends down. EAGLE with η = 1/3, γ = 1 and the exact norms.",
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
            ends.append(f"{number(own[-1]['zero / error'], 2)} ({model})")
    depths = layer_axis(sorted({row["layers run"] for row in rows}), "layers run")
    header = ("model", "layers run", "error of D", "network - algorithm", "layer by layer", "the paper's")
    return Figure(
        name="depth",
        finding=f"The error of the trained networks is that of predicting 0, divided by {' and '.join(ends)}"
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
