"""Figures of the recovered algorithm in the network's place: layer by layer, by degrees, and out of distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from interp.reports import findings
from interp.reports.evidence_findings import (
    AGREES,
    absorption_finding,
    algorithm,
    change_text,
    interpolation_finding,
    point_text,
    span_text,
    stress_finding,
    swap_finding,
)
from interp.reports.numbers import DASH, Z95, estimate, interval, is_finite, number
from interp.reports.plots import Point, axis, curve, error_bars, label, layer_axis, layout, log_axis, marks
from interp.results import Analysis, Figure, Outcome, Panel, Series, Stress, Table

__all__ = ["absorption_figure", "interpolation_figure", "stress_figure", "swap_figure"]

_HIGHEST = 100.0  # times the error of predicting zero: what is larger is drawn at the edge
_LOWEST = 1e-4  # of the network's error: what is smaller is drawn at the edge
_IDLE = Series(key="idle", label="control: the layer left out", colour="var(--muted)", symbol="x")


def _limits(analysis: Analysis, outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Of an axis of errors or of their rise."""
    null = findings.loss(analysis.evidence.losses, "null")
    known = [o.mse for o in outcomes if is_finite(o.mse) and o.mse > 0]
    own = min(known, default=1.0)
    top = null.mse if null is not None and is_finite(null.mse) and null.mse > 0 else max(own, 1.0)
    return _LOWEST * own, _HIGHEST * max(top, own)


def _edges(values: Sequence[float], floor: float, ceiling: float) -> str:
    below, above = sum(v < floor for v in values), sum(v > ceiling for v in values)
    if not below and not above:
        return ""
    small = f"too small or not clearly above 0: {below}, larger: {above}"
    return f" Triangles at the edges are values beyond the axis ({small})."


def swap_figure(analysis: Analysis) -> Figure | None:
    """What the error gains when one layer is replaced, or left out."""
    swaps = analysis.evidence.swaps
    kinds = [(_swapped(analysis), [(s.layer, s.swapped) for s in swaps]), (_IDLE, [(s.layer, s.idle) for s in swaps])]
    known = [o for _, rows in kinds for _, o in rows if is_finite(o.change)]
    if not known:
        return None
    floor, ceiling = _limits(analysis, known)
    log = _spread_above_zero(known, floor, ceiling)
    traces, offset = [], (-0.08, 0.08)
    for shift, (series, rows) in zip(offset, kinds, strict=True):
        points = [
            Point(
                layer + shift,
                _drawn(o, ceiling) if log else (o.change or 0.0),
                o.change_stderr,
                f"layer {layer}, {label(series.label)}: {change_text(o)}; R² {interval(o.fidelity, o.fidelity_ci)}",
            )
            for layer, o in rows
            if is_finite(o.change)
        ]
        edges = {"floor": floor, "ceiling": ceiling} if log else {}
        traces.append(marks(series, points, log=log, size=10, **edges))
    y = axis("change of the squared error (label²)", rangemode="tozero")
    if log:
        y = log_axis("rise of the squared error (label²)", [floor, ceiling], dense=False)
        y["range"] = [math.log10(floor) - 0.25, math.log10(ceiling) + 0.25]
    x = layer_axis([s.layer for s in swaps], "layer that is replaced")
    network = analysis.evidence.interpolation
    base = network.points[0].mixed if network is not None and network.points else None
    beside = "" if base is None else f" The network as it is errs by {estimate(base.mse, base.stderr)}."
    return Figure(
        name="swaps",
        finding=swap_finding(analysis),
        description=f"One layer of the network at a time is replaced by that layer of the {algorithm(analysis)}, "
        f"the others stay; on {analysis.evidence.replaced} prompts that were not fitted. As a control the layer is "
        f"left out: where that costs nothing, replacing it proves nothing.{beside} Bars are 95 % intervals."
        f"{_edges([_drawn(o, ceiling) for o in known], floor, ceiling) if log else ''}",
        panels=(Panel(name="swaps", title="", data=traces, layout=layout(x, y), height=320),),
        legend=tuple(series for series, _ in kinds),
        table=Table(
            header=(
                *("layer", "rise of the error ± stderr", "R² against the network [95 %]"),
                *("control: left out ± stderr", "R², left out [95 %]"),
            ),
            rows=tuple(
                (
                    str(s.layer),
                    change_text(s.swapped),
                    interval(s.swapped.fidelity, s.swapped.fidelity_ci),
                    change_text(s.idle),
                    interval(s.idle.fidelity, s.idle.fidelity_ci),
                )
                for s in swaps
            ),
        ),
    )


def _spread_above_zero(outcomes: Sequence[Outcome], floor: float, ceiling: float) -> bool:
    """Whether a log axis shows the changes of the error: not where most of them are falls, or none is within its ends.
    Where one is beyond the axis no other has room beside it."""
    drawn = [_drawn(o, ceiling) for o in outcomes]
    falls = [o for o in outcomes if -(o.change or 0.0) > max(Z95 * (o.change_stderr or 0.0), floor)]
    inside = [v for v in drawn if floor <= v <= ceiling]
    return any(v > ceiling for v in drawn) or bool(inside and 2 * len(falls) < len(outcomes))


def _drawn(outcome: Outcome, ceiling: float) -> float:
    """The rise of the error, or -1 where it may be none, which has no place on a log axis. A mean that a few exploding
    prompts lift beyond the axis is large, however unsure."""
    change = outcome.change or 0.0
    return change if change > min(Z95 * (outcome.change_stderr or 0.0), ceiling) else -1.0


def _swapped(analysis: Analysis) -> Series:
    return Series(
        key="swapped", label=f"replaced by the {algorithm(analysis)}'s", colour="var(--series-3)", symbol="diamond"
    )


def interpolation_figure(analysis: Analysis) -> Figure | None:
    """The error on the straight path from the network to the algorithm."""
    path = analysis.evidence.interpolation
    kinds = (
        Series(key="mixed", label=f"to the {algorithm(analysis)}", colour="var(--series-3)", symbol="diamond"),
        Series(key="fading", label="control: to layers that do nothing", colour="var(--muted)", symbol="x"),
    )
    points = () if path is None else path.points
    rows = [[(p.share, p.mixed) for p in points], [(p.share, p.idle) for p in points]]
    known = [o for row in rows for _, o in row if is_finite(o.mse)]
    if path is None or not known:
        return None
    _, ceiling = _limits(analysis, known)
    values = [o.mse for o in known if is_finite(o.mse)]
    log = max(values) > 5 * min(values) > 0
    traces = []
    looks: tuple[dict[str, Any], ...] = ({"width": 2.5}, {"dash": "dot", "width": 1.5, "size": 6})
    for series, row, look in zip(kinds, rows, looks, strict=True):
        drawn = [
            Point(t, o.mse, o.stderr, f"{100 * t:.0f} % of the way, {label(series.label)}: {_error_text(o)}")
            for t, o in row
            if is_finite(o.mse)
        ]
        traces.append(curve(series, drawn, log=log, ceiling=ceiling, **look))
    title = "mean squared error"
    inside = [min(v, ceiling) for v in values]
    y = log_axis(title, inside, dense=True) if log else axis(title, rangemode="tozero")
    x = axis("from the network (0) to the algorithm (1)", range=[-0.03, 1.03], zeroline=False)
    return Figure(
        name="interpolation",
        finding=interpolation_finding(analysis),
        description="All layers at once move in a straight line from the network's products of weights to those of the "
        f"{algorithm(analysis)}, (1 - t) K + t K', whatever the gauge of the heads; on {analysis.evidence.replaced} "
        "prompts that were not fitted. Two accounts of one solution have no barrier between them. Control: the same "
        f"path to layers that do nothing. Bars are 95 % intervals.{_edges(values, 0.0, ceiling)}",
        panels=(Panel(name="interpolation", title="", data=traces, layout=layout(x, y), height=320),),
        legend=kinds,
        table=Table(
            header=(
                *("share of the way", "error ± stderr", "change to the network's ± stderr", "R² [95 %]"),
                *("control: error ± stderr", "control: R² [95 %]"),
            ),
            rows=tuple(
                (
                    f"{100 * p.share:.0f} %",
                    estimate(p.mixed.mse, p.mixed.stderr),
                    change_text(p.mixed),
                    interval(p.mixed.fidelity, p.mixed.fidelity_ci),
                    estimate(p.idle.mse, p.idle.stderr),
                    interval(p.idle.fidelity, p.idle.fidelity_ci),
                )
                for p in points
            ),
        ),
    )


def _error_text(outcome: Outcome) -> str:
    return f"{estimate(outcome.mse, outcome.stderr)}; R² {interval(outcome.fidelity, outcome.fidelity_ci)}"


# --- outside the training distribution ------------------------------------------------------------------------------

_SERIES = Series(key="stress", label="unexplained", colour="var(--series-3)", symbol="diamond")
_SMALLEST, _LARGEST = 1e-5, 10.0  # shares beyond these are drawn at the edge
_AXES = {
    "context": "examples in the prompt",
    "noise": "noise σ (label units)",
    "scale": "inputs, times as large",
    "covariance": "variance, largest : smallest",
}


def stress_figure(analysis: Analysis) -> Figure | None:
    """1 - R^2 of the algorithm against the network as the prompts leave the training distribution."""
    known = [entry for entry in analysis.evidence.stress if any(is_finite(p.unexplained) for p in entry.points)]
    if not known:
        return None
    rows = tuple(
        (
            entry.label,
            f"{p.value:.3g}{' (training)' if p.trained else ''}",
            point_text(entry, p),
            estimate(p.network, p.network_stderr),
            estimate(p.recovered, p.recovered_stderr),
            number(p.oracle, 3),
            str(p.prompts) + (f", {p.left_out} left out" if p.left_out else ""),
        )
        for entry in known
        for p in entry.points
    )
    return Figure(
        name="stress",
        finding=stress_finding(analysis),
        description="One property of the prompts leaves the training distribution at a time. Drawn: the share of the "
        f"variance of the network's predictions that the {algorithm(analysis)} leaves unexplained, with 95 % "
        "intervals; they agree within 1 % where the upper end of the interval is below the dashed line. Shaded: "
        "training. Triangles at the edges are smaller or larger values. Where both explode, a few prompts decide, and "
        "the intervals are wide. The table has the errors of both.",
        panels=tuple(_stress_panel(entry) for entry in known),
        legend=(),
        table=Table(
            header=(
                *("property", "value", "unexplained [95 %]", "network's error ± stderr"),
                *(f"{algorithm(analysis)}'s error ± stderr", "best possible", "prompts"),
            ),
            rows=rows,
        ),
        compact=True,
    )


def _stress_panel(entry: Stress) -> Panel:
    log = entry.name != "noise"
    points = [p for p in entry.points if is_finite(p.unexplained) and (p.value > 0 or not log)]
    values = [p.unexplained for p in points if is_finite(p.unexplained)]
    drawn = [min(max(v, _SMALLEST), _LARGEST) for v in values]
    off = [v != at for v, at in zip(values, drawn, strict=True)]
    low, high = [], []
    for at, outside, p in zip(drawn, off, points, strict=True):
        bottom, top = p.unexplained_ci
        bounded = is_finite(bottom) and is_finite(top) and not outside
        low.append(at - max(bottom, _SMALLEST) if bounded and is_finite(bottom) else 0.0)
        high.append(min(top, _LARGEST) - at if bounded and is_finite(top) else 0.0)
    shapes = [
        "circle" if not outside else "triangle-down" if v < 1e-3 else "triangle-up"
        for outside, v in zip(off, values, strict=True)
    ]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "legendgroup": _SERIES.key,
        "x": [p.value for p in points],
        "y": drawn,
        "error_y": error_bars(low, high, _SERIES.colour),
        "line": {"color": _SERIES.colour, "width": 2},
        "marker": {"color": _SERIES.colour, "size": 8, "symbol": shapes},
        "customdata": [f"{label(entry.label)} {p.value:.3g}: {point_text(entry, p)}" for p in points],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    title = _AXES.get(entry.name, entry.label)
    x = axis(title, zeroline=False, rangemode="tozero")
    if log and points:
        ticks = _spread([p.value for p in points])
        x = axis(title, type="log", tickvals=ticks, ticktext=[f"{v:.3g}" for v in ticks], zeroline=False)
    shares = [_SMALLEST * 10**k for k in range(7)]
    y = axis("variance unexplained", type="log", tickvals=shares, ticktext=[f"{100 * v:g} %" for v in shares])
    y["range"] = [math.log10(_SMALLEST) - 0.2, math.log10(_LARGEST) + 0.2]
    trained = [p.value for p in points if p.trained]
    shapes_ = [_rule(AGREES)]
    if trained:
        shapes_.append(_shade(min(trained), max(trained), log=log, span=max(p.value for p in points)))
    plot = layout(x, y, shapes=shapes_)
    return Panel(
        name=f"stress-{entry.name}", title=entry.label, subtitle=span_text(entry), data=[trace], layout=plot, height=280
    )


def _spread(values: Sequence[float]) -> list[float]:
    """Those of the values whose labels do not touch on a log axis, the ends among them."""
    first, last = values[0], values[-1]
    apart, kept = 0.2 * math.log(last / first), [first]
    for value in values[1:-1]:
        if math.log(value / kept[-1]) >= apart and math.log(last / value) >= apart:
            kept.append(value)
    return [*kept, last] if last != first else kept


def _rule(height: float) -> dict[str, Any]:
    line = {"color": "var(--muted)", "dash": "dash", "width": 1.5}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": height, "y1": height, "line": line}


def _shade(low: float, high: float, *, log: bool, span: float) -> dict[str, Any]:
    if log:
        low, high = low / 1.05, high * 1.05
    else:
        low, high = low - 0.012 * span, high + 0.012 * span
    return {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": low, "x1": high, "layer": "below"} | {
        "fillcolor": "var(--shade)",
        "line": {"width": 0},
    }


# --- what absorbs the rest ------------------------------------------------------------------------------------------


def absorption_figure(analysis: Analysis) -> Figure | None:
    """R^2 against the network by how many directions of the remainder are kept in every layer."""
    rows = [row for row in analysis.evidence.absorption if is_finite(row.fidelity)]
    if not rows:
        return None
    values = [row.fidelity for row in rows if is_finite(row.fidelity)]
    lower = [v for row in rows for v in (row.fidelity, row.fidelity_ci[0]) if is_finite(v)]
    lowest = max(min(lower), -0.1)
    margin = 0.05 * max(1 - lowest, 1e-3)  # a rise from 0.98 to 1 is seen as well as one from 0
    drawn = [max(v, lowest) for v in values]
    low, high = [], []
    for at, row in zip(values, rows, strict=True):
        bottom, top = row.fidelity_ci
        bounded = is_finite(bottom) and is_finite(top) and at >= lowest
        low.append(at - max(bottom, lowest) if bounded and is_finite(bottom) else 0.0)
        high.append(top - at if bounded and is_finite(top) else 0.0)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [str(row.directions) for row in rows],
        "y": drawn,
        "error_y": error_bars(low, high, "var(--series-1)"),
        "line": {"color": "var(--series-1)", "width": 2},
        "marker": {
            "color": "var(--series-1)",
            "size": 8,
            "symbol": ["triangle-down" if v < lowest else "circle" for v in values],
        },
        "customdata": [f"{row.directions} directions: R² {interval(row.fidelity, row.fidelity_ci)}" for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    plot = layout(
        axis("directions kept of what is left, in every layer", type="category"),
        axis("R² against the network", range=[lowest - margin, 1 + margin]),
    )
    return Figure(
        name="absorption",
        finding=absorption_finding(analysis.evidence.absorption),
        description="The next larger family: every layer is cut to the ω and traces of its own weights and the "
        "leading singular directions of what is left, each of them a head of rank one; nothing is refitted. If few "
        "directions restore the behaviour, what is left is of low rank where it matters. On "
        f"{analysis.evidence.replaced} prompts; bars are 95 % intervals.",
        panels=(Panel(name="absorption", title="", data=[trace], layout=plot, height=280),),
        legend=(),
        table=Table(
            header=("directions", "R² against the network [95 %]"),
            rows=tuple(
                (str(row.directions), interval(row.fidelity, row.fidelity_ci) if is_finite(row.fidelity) else DASH)
                for row in analysis.evidence.absorption
            ),
        ),
    )
