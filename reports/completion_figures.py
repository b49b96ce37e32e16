"""The figures of a network for matrix completion: its steps beside EAGLE's law, and its error and its distance to the
recovered algorithm, by layer."""

from __future__ import annotations

import math

from interp.reports.completion_findings import agreement_finding, agreement_rows, completion_finding, law_rows
from interp.reports.numbers import Z95, estimate, interval, is_finite, number
from interp.reports.plots import Point, curve, layer_axis, layout, log_axis
from interp.results import Analysis, Figure, Panel, Series, Table
from interp.results.completion import LawPoint

__all__ = ["agreement_figure", "law_figure"]

_AGREEMENT = (
    Series(key="network", label="error of the network's D", colour="var(--series-1)", symbol="circle"),
    Series(key="recovered", label="network - algorithm, all tokens", colour="var(--series-3)", symbol="diamond"),
)
_LAW = (
    Series(key="eta", label="η = -ω_xx |A|²", colour="var(--series-2)", symbol="square"),
    Series(key="gamma", label="γ = -ω_yx |A|²", colour="var(--series-1)", symbol="circle"),
)


def law_figure(analysis: Analysis) -> Figure | None:
    """eta and gamma of every layer, which the law asks to be the same."""
    found = analysis.completion
    if found is None or (law := found.law) is None:
        return None
    traces, lines, values = [], [], []
    for series, mean in zip(_LAW, (law.eta, law.gamma), strict=True):
        points = [point for row in law.points if (point := _step(row, series.key)) is not None]
        values += [point.y for point in points]
        traces.append(curve(series, points, log=True))
        if mean is not None:
            where = {"xref": "paper", "x0": 0, "x1": 1, "y0": mean, "y1": mean}
            lines.append({"type": "line", **where, "line": {"color": series.colour, "width": 1, "dash": "dash"}})
    if not values:
        return None
    return Figure(
        name="law",
        finding=completion_finding(found),
        description="Every layer's steps times the squared norm of what the layer sees of A, on a logarithmic axis: by "
        "the law of EAGLE all η are the same (dashed: their mean), and all γ. Bars are 95 % intervals; the last ω_xx "
        "is never read, and steps in the wrong direction have no place here.",
        panels=(
            Panel(
                name="law", title="", data=traces, height=300,
                layout=layout(
                    layer_axis([row.layer for row in law.points], "layer"),
                    log_axis("step times |A|²", values, dense=True), shapes=lines,
                ),
            ),
        ),
        legend=_LAW,
        table=Table(header=("layer", "|A|²", "η [95 %]", "γ [95 %]"), rows=tuple(law_rows(law))),
    )  # fmt: skip


def _step(row: LawPoint, key: str) -> Point | None:
    value, ends = (row.eta, row.eta_ci) if key == "eta" else (row.gamma, row.gamma_ci)
    if not is_finite(value) or value <= 0:
        return None
    high = ends[1]
    stderr = value * math.log(high / value) / Z95 if is_finite(high) and high > value else None
    text = f"layer {row.layer}: {interval(value, ends)} with |A|² = {number(row.norm)}"
    return Point(row.layer, value, stderr, text)


def agreement_figure(analysis: Analysis) -> Figure | None:
    found = analysis.completion
    if found is None or not found.agreement:
        return None
    traces, values = [], []
    for series in _AGREEMENT:
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
    return Figure(
        name="agreement",
        finding=agreement_finding(found),
        description="Mean squared entries, on a logarithmic axis: the error of the network's D read out after every "
        "layer, and the difference of its tokens to those of the recovered algorithm run from the same prompts (after "
        "the last layer, of C and D alone); the table also has it with the numbers of every layer fitted to what that "
        "layer puts out. Bars are 95 % intervals.",
        panels=(
            Panel(
                name="agreement", title="", data=traces, height=340,
                layout=layout(depths, log_axis("mean squared entry", values, dense=False)),
            ),
        ),
        legend=_AGREEMENT,
        table=Table(
            header=("layers run", "difference ± stderr", "fitted layer by layer", "error of D ± stderr"),
            rows=tuple(agreement_rows(found)),
        ),
    )  # fmt: skip
