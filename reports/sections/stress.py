"""Where the agreement of algorithm and network ends: prompts outside the training distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from interp.reports.numbers import is_finite, listed, percent, spanned
from interp.reports.plots import Point, axis, charted, curve, label, level, plot, shaded
from interp.reports.registry import section
from interp.reports.sections.losses import stand_in
from interp.reports.sections.replacement import AGREES
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Panel, Section, Series, Stress, StressPoint

__all__ = ["reach", "span_text", "stress_finding", "whole"]

_SERIES = Series(key="stress", label="unexplained", colour="var(--series-3)", symbol="diamond")
_SMALLEST, _LARGEST = 1e-5, 10.0  # shares beyond these are drawn at the edge
_AXES = {
    "context": "examples in the prompt", "noise": "noise σ (label units)", "scale": "inputs, times as large",
    "covariance": "variance, largest : smallest",
}  # fmt: skip


def _value(entry: Stress, value: float) -> str:
    return f"{value:.0f}" if entry.name == "context" else f"{value:.3g}"


def reach(entry: Stress) -> str:
    """The range in which the algorithm agrees, in the words of its axis; empty when there is none."""
    if entry.agrees is None:
        return ""
    span, high = _range(entry), _value(entry, entry.agrees[1])
    uneven = "as" if high == "1" else f"up to {high} times as uneven as"
    words = {
        "context": f"{span} examples",
        "noise": f"noise σ {span}",
        "scale": "inputs as large as in training" if span == "1" else f"inputs {span} times as large",
        "covariance": f"variances of the inputs {uneven} in training",
    }
    return words.get(entry.name, f"{entry.label} {span}")


def _range(entry: Stress) -> str:
    """Where the algorithm agrees with the network."""
    return spanned([_value(entry, v) for v in entry.agrees or ()])


def span_text(entry: Stress) -> str:
    """The same as a range of the values tried."""
    tried = f"{_value(entry, entry.points[0].value)} to {_value(entry, entry.points[-1].value)} tried"
    apart = listed(_apart(entry), most=6) if _apart(entry) else ""
    if entry.agrees is not None:
        return f"within 1 %: {_range(entry)}{apart and f', and at {apart}'} (of {tried})"
    return (f"not in training, though within 1 % at {apart}" if apart else "nowhere within 1 %") + f" ({tried})"


def _apart(entry: Stress) -> list[str]:
    """Values at which the algorithm surely agrees, in no one piece with those of training."""
    low, high = entry.agrees or (math.inf, -math.inf)
    sure = [p.value for p in entry.points if is_finite(top := p.unexplained_ci[1]) and top <= AGREES]
    return [_value(entry, v) for v in sure if not low <= v <= high]


def stress_finding(analysis: Analysis) -> str:
    tried = [entry for entry in analysis.evidence.stress if entry.points]
    if not tried:
        return "Nothing outside the training distribution was tried"
    who = f"The {stand_in(analysis)}"
    reached = [entry for entry in tried if entry.agrees is not None]
    if not reached:
        left = [p.unexplained for entry in tried for p in entry.points if p.trained and is_finite(p.unexplained)]
        count = max((p.prompts for entry in tried for p in entry.points), default=0)
        sample = f", on samples of {count} prompts of their own" if left else ""
        span = f": there {_span(left)} of the variance is unexplained{sample}" if left else ""
        elsewhere = [f"{entry.label} {listed(values, most=6)}" for entry in tried if (values := _apart(entry))]
        if not elsewhere:
            return f"{who} is nowhere within 1 % of the network{span.replace('there', 'in training already')}"
        return f"{who} is not within 1 % of the network in training{span}; yet it is with {'; '.join(elsewhere)}"
    text = "; ".join(reach(entry) for entry in reached)
    if all(whole(entry) for entry in tried):
        return f"{who} stays within 1 % of the network wherever it was tried: {text}"
    nowhere = "" if len(reached) == len(tried) else ", and not in training along the other axes"
    return f"{who} stays within 1 % of the network for {text}{nowhere}; beyond, they part"


def _span(shares: Sequence[float]) -> str:
    return spanned([percent(min(shares)), percent(max(shares))])


def whole(entry: Stress) -> bool:
    """Whether the algorithm agrees wherever it was tried."""
    tried = [p.value for p in entry.points]
    return entry.agrees is not None and entry.agrees == (min(tried), max(tried))


def point_text(entry: Stress, point: StressPoint) -> str:
    """One point in words, for hover and table."""
    low, high = point.unexplained_ci
    if not is_finite(point.unexplained):
        return point.skipped or "not measured"
    finite = is_finite(low) and is_finite(high)
    return percent(point.unexplained) + (f" [{percent(low)}, {percent(high)}]" if finite else "")


@section("stress", title="prompts unlike those of training", where="evidence")
def stress(analysis: Analysis) -> Section | None:
    """1 - R^2 of the algorithm against the network as the prompts leave the training distribution."""
    axes = [entry for entry in analysis.evidence.stress if any(is_finite(p.unexplained) for p in entry.points)]
    if not axes:
        return None
    who = stand_in(analysis)
    description = (
        "One property of the prompts leaves the training distribution at a time. Drawn: the share of the "
        f"variance of the network's predictions that the {who} leaves unexplained, with 95 % intervals; they agree "
        "within 1 % where the upper end of the interval is below the dashed line. Shaded: training. Triangles at the "
        "edges are smaller or larger values. Where both explode, a few prompts decide, and the intervals are wide. The "
        "table has the errors of both."
    )
    columns = {
        "property": lambda e: e[0].label,
        "value": lambda e: f"{e[1].value:.3g}{' (training)' if e[1].trained else ''}",
        "unexplained [95 %]": lambda e: point_text(*e), "network's error ± stderr": "1.network",
        f"{who}'s error ± stderr": "1.recovered", "best possible": "1.oracle:3",
        "prompts": lambda e: str(e[1].prompts) + (f", {e[1].left_out} left out" if e[1].left_out else ""),
    }  # fmt: skip
    panels, table = map(_panel, axes), tabulate([(entry, point) for entry in axes for point in entry.points], columns)
    title, finding = "Prompts unlike those of training", stress_finding(analysis)
    return charted("stress", title, finding, description, panels, table, compact=True)


def _panel(entry: Stress) -> Panel:
    log = entry.name != "noise"
    shown = [p for p in entry.points if is_finite(p.unexplained) and (p.value > 0 or not log)]
    points = [
        Point(p.value, p.unexplained, p.unexplained_ci, f"{label(entry.label)} {p.value:.3g}: {point_text(entry, p)}")
        for p in shown
    ]
    title = _AXES.get(entry.name, entry.label)
    x = axis(title, zeroline=False, rangemode="tozero")
    if log and points:
        ticks = _spread([p.x for p in points])
        x = axis(title, type="log", tickvals=ticks, ticktext=[f"{v:.3g}" for v in ticks], zeroline=False)
    shares = [_SMALLEST * 10**k for k in range(7)]
    y = axis("variance unexplained", type="log", tickvals=shares, ticktext=[f"{100 * v:g} %" for v in shares])
    y["range"] = [math.log10(_SMALLEST) - 0.2, math.log10(_LARGEST) + 0.2]
    shapes = [level(AGREES)]
    if trained := [p.value for p in shown if p.trained]:
        low, high, pad = min(trained), max(trained), 0.012 * max(p.x for p in points)
        shapes.append(shaded(low / 1.05, high * 1.05) if log else shaded(low - pad, high + pad))
    data = [curve(_SERIES, points, floor=_SMALLEST, ceiling=_LARGEST)]
    return plot(f"stress-{entry.name}", data, x, y, 280, entry.label, span_text(entry), shapes=shapes)


def _spread(values: Sequence[float]) -> list[float]:
    """Those of the values whose labels do not touch on a log axis, the ends among them."""
    first, last = values[0], values[-1]
    apart, kept = 0.2 * math.log(last / first), [first]
    for value in values[1:-1]:
        if math.log(value / kept[-1]) >= apart and math.log(last / value) >= apart:
            kept.append(value)
    return [*kept, last] if last != first else kept
