"""The figure of a network for matrix completion: its error and its distance to the recovered algorithm, by layer."""

from __future__ import annotations

from interp.reports.completion_findings import agreement_rows, completion_finding, law_rows
from interp.reports.numbers import estimate, is_finite
from interp.reports.plots import Figure, Panel, Point, Series, Table, curve, layer_axis, layout, log_axis
from interp.results import Analysis

__all__ = ["eagle_figure"]

_SERIES = (
    Series(key="network", label="error of the network's D", colour="var(--series-1)", symbol="circle"),
    Series(key="recovered", label="network - algorithm, all tokens", colour="var(--series-3)", symbol="diamond"),
)


def eagle_figure(analysis: Analysis) -> Figure | None:
    found = analysis.completion
    if found is None or not found.agreement:
        return None
    traces, values = [], []
    for series in _SERIES:
        points = []
        for row in found.agreement:
            value, error = (
                (row.error, row.error_stderr) if series.key == "network" else (row.difference, row.difference_stderr)
            )
            if is_finite(value) and value > 0:
                points.append(Point(row.layer, value, error, f"after {row.layer} layers: {estimate(value, error)}"))
                values.append(value)
        traces.append(curve(series, points, log=True))
    if not values:
        return None
    depths = layer_axis([row.layer for row in found.agreement], "layers run")
    law = found.law
    rows = agreement_rows(found)
    steps = {row[0]: row[1:] for row in law_rows(law)} if law is not None else {}
    return Figure(
        name="eagle",
        finding=completion_finding(found),
        description="Mean squared entries, on a logarithmic axis: the error of the network's D read out after every "
        "layer, and the difference of its tokens to those of the recovered algorithm run from the same prompts (after "
        "the last layer, of C and D alone); the table also has it with the numbers of every layer fitted to what that "
        "layer puts out. Bars are 95 % intervals.",
        panels=(
            Panel(
                name="eagle", title="", data=traces, height=340,
                layout=layout(depths, log_axis("mean squared entry", values, dense=False)),
            ),
        ),
        legend=_SERIES,
        table=Table(
            header=(
                "layers run", "difference ± stderr", "fitted layer by layer", "error of D ± stderr", "|A|²", "η [95 %]",
                "γ [95 %]",
            ),
            rows=tuple((*row, *steps.get(row[0], ("", "", ""))) for row in rows),
        ),
    )  # fmt: skip
