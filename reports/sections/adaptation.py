"""How layers adapt to the prompt: the factor on the labels by their energy, and the step by the residuals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from interp.reports.numbers import Z95, estimate, interval, is_finite, layers_named, number, rounded
from interp.reports.plots import Point, axis, charted, curve, marks, plot, thinned
from interp.reports.registry import section
from interp.reports.sections.losses import stand_in
from interp.reports.tabulate import tabulate
from interp.results import Adaptation, Analysis, Regression, Section, Series, Skipped

__all__ = ["shrinkage_finding", "step_finding"]

GOOD = 0.9  # R^2 from which a prediction is said to hold
_OBSERVED = Series(key="observed", label="the network", colour="var(--series-1)", symbol="circle")
_WEIGHTS = Series(key="weights", label="predicted by the layer's own weights", colour="var(--series-2)", symbol="dash")
_WITHOUT = Series(key="without", label="predicted with ω_xy = 0", colour="var(--series-4)", symbol="dot")
_MOST_PANELS = 8  # drawn; the table has all layers
_SENSELESS = -10  # R² below it says no more than that the prediction is far off
_REACH = 1.5  # of what the network's factor spans: predictions farther from it are outside the plot
_CONSTANT = 1e-9  # relative spread below which a factor is the same for all prompts


def _change(entry: Adaptation) -> float | None:
    """From the first bin to the last, as observed; None when it is not clear."""
    if len(entry.bins) < 2:
        return None
    first, last = entry.bins[0], entry.bins[-1]
    change, error = last.observed - first.observed, math.hypot(first.stderr or 0.0, last.stderr or 0.0)
    rounding = 1e-9 * max(abs(first.observed), abs(last.observed))
    return change if abs(change) > Z95 * error and abs(change) > rounding else None


def _moves(subject: str, against: str, entries: Sequence[Adaptation]) -> str:
    """In which layers the factor falls, and in which it rises."""
    changes = [(entry.layer, change) for entry in entries if (change := _change(entry)) is not None]
    sides = {"falls": [layer for layer, c in changes if c < 0], "rises": [layer for layer, c in changes if c > 0]}
    parts = [f"{verb} in {layers_named(layers)}" for verb, layers in sides.items() if layers]
    said = " and ".join(parts) or "does not change in any layer, beyond its error"
    return f"With more {against} {subject} {said}"


def _predicted(entries: Sequence[Adaptation]) -> str:
    """In which layers the two predictions hold; empty when none can be scored."""
    scored = [entry for entry in entries if entry.r2 is not None or entry.r2_by_weights is not None]
    recovered = [entry.layer for entry in scored if entry.r2 is not None and entry.r2 >= GOOD]
    by_weights = [entry.layer for entry in scored if entry.r2_by_weights is not None and entry.r2_by_weights >= GOOD]
    if not scored:
        return ""
    if len(recovered) == len(by_weights) == len(scored):
        said = f"both predictions hold in {'every layer' if len(scored) > 1 else 'it'}"
    elif not recovered and not by_weights:
        said = "neither prediction holds in any layer"
    elif recovered == by_weights:
        said = f"both predictions hold in {layers_named(by_weights)}"
    else:
        said = f"the layer's own weights predict it in {layers_named(by_weights)}, the recovered algorithm in "
        said += layers_named(recovered)
    return f"; {said} (R² {GOOD} or more)"


def shrinkage_finding(entries: Sequence[Adaptation]) -> str:
    return _moves("the factor on the labels", "label energy", entries) + _predicted(entries)


def step_finding(entries: Sequence[Adaptation]) -> str:
    text = _moves("the step", "residual energy", entries) + _predicted(entries)
    clear = [entry for entry in entries if _change(entry) is not None]
    if not clear:
        return text
    most = max(clear, key=lambda e: abs(_change(e) or 0.0) / max(abs(b.observed) for b in e.bins))
    first, last = most.bins[0], most.bins[-1]
    ends = f"from {rounded(first.observed, first.stderr)} to {rounded(last.observed, last.stderr)}"
    holds = most.r2 is not None and most.r2 >= GOOD  # else the algorithm says nothing about this layer
    if holds and first.without is not None and last.without is not None:
        ends += f", without ω_xy from {number(first.without, 2)} to {number(last.without, 2)}"
    return f"{text}. It changes most in layer {most.layer}: {ends}"


def varies(entries: Sequence[Adaptation]) -> bool:
    """Does any layer treat prompts differently?"""
    factors = [[b.observed for b in entry.bins] for entry in entries if entry.bins]
    return any(max(values) - min(values) > _CONSTANT * max(map(abs, values)) for values in factors)


@section("shrinkage", title="the factor on the labels", where="noise", part="regression")
def shrinkage(analysis: Analysis, regression: Regression) -> Section | Skipped:
    entries = regression.shrinkage
    if not varies(entries):
        return Skipped("no layer has a factor on the labels that reaches the output and differs between prompts")
    description = (
        "The factor by which a layer multiplies the labels and the weights so far, against the label energy λ of the "
        "prompt as it enters the layer; 1 + ω_yy λ for a layer of four ω."
    )
    axes, names = ("label energy λ (label²)", "factor on the label"), ("shrinkage", "The factor on the labels")
    return _section(analysis, names, entries, shrinkage_finding(entries), description, axes)


@section("step", title="the size of the step", where="noise", part="regression")
def step(analysis: Analysis, regression: Regression) -> Section | Skipped:
    entries = regression.step
    if not any(entry.bins for entry in entries):
        return Skipped("the contexts are fitted exactly, so no residual energy differs between prompts")
    description = (
        "The size of a layer's step along the negative gradient, against the squared residuals of least squares: what "
        "noise leaves in the context. ω_xy is what can make the step depend on it."
    )
    axes, names = ("residual energy (label²)", "step"), ("step", "The size of the step")
    return _section(analysis, names, entries, step_finding(entries), description, axes)


def _section(
    analysis: Analysis, names: tuple[str, str], entries: Sequence[Adaptation], finding: str, description: str,
    axes: tuple[str, str],
) -> Section:  # fmt: skip
    text = f"predicted by the {stand_in(analysis)}"
    recovered = Series(key="recovered", label=text, colour="var(--series-3)", symbol="line")
    without = any(b.without is not None for entry in entries for b in entry.bins)
    predictions = [(recovered, "predicted", "solid"), (_WEIGHTS, "by_weights", "dash")]
    predictions += [(_WITHOUT, "without", "dot")] if without else []
    panels = []
    for entry in thinned([e for e in entries if e.bins], _MOST_PANELS):
        where, traces = f"layer {entry.layer}", []
        for series, field, dash in predictions:
            values = [(b.x, getattr(b, field)) for b in entry.bins]
            points = [Point(x, v, None, f"{where}, {series.label}: {number(v, 3)}") for x, v in values]
            traces.append(curve(series, points, dash=dash, marked=False))
        seen = [Point(b.x, b.observed, b.stderr, f"{where}: {estimate(b.observed, b.stderr)}") for b in entry.bins]
        observed = marks(_OBSERVED, seen)
        scores = [("algorithm", entry.r2, entry.r2_ci), ("weights", entry.r2_by_weights, entry.r2_by_weights_ci)]
        scored = ", ".join(f"{what} {_score(r2, bounds)}" for what, r2, bounds in scores if is_finite(r2))
        x, y = axis(axes[0], rangemode="tozero", zeroline=False), axis(axes[1], **_visible(traces, observed))
        said = f"R²: {scored}" if scored else "the same for all prompts"
        panels.append(plot(f"{names[0]}-{entry.layer}", [*traces, observed], x, y, 270, where, said))
    columns = {
        "layer": "0.layer", axes[0]: "1.x:4", f"{axes[1]} ± stderr": "1.observed:stderr",
        "recovered": "1.predicted:4", "by its weights": "1.by_weights:4",
    }  # fmt: skip
    columns |= {"ω_xy = 0": "1.without:4"} if without else {}
    description += (
        " Each point is a tenth of the prompts. Bars and brackets are 95 % intervals; R² is over prompts, and negative "
        "where the mean would predict better. The axes are those of the network: a prediction may leave the plot."
    )
    legend = (_OBSERVED, *(series for series, _, _ in predictions))
    table = tabulate([(entry, b) for entry in entries for b in entry.bins], columns)
    return charted(*names, finding, description, panels, table, legend=legend, compact=True)


def _score(r2: float, bounds: tuple[float | None, float | None]) -> str:
    return interval(r2, bounds) if r2 >= _SENSELESS else f"far off (below {_SENSELESS:.0f})"


def _visible(predicted: Sequence[dict[str, Any]], observed: dict[str, Any]) -> dict[str, Any]:
    """Limits of an axis on which what the network does is seen, and a factor that never changes looks like one. A
    prediction that is far off leaves the plot."""
    bars = observed.get("error_y", {"array": [0.0], "arrayminus": [0.0]})
    low = min(v - b for v, b in itertools.zip_longest(observed["y"], bars["arrayminus"], fillvalue=0.0))
    high = max(v + b for v, b in itertools.zip_longest(observed["y"], bars["array"], fillvalue=0.0))
    middle, spread = (high + low) / 2, high - low
    values = [v for trace in predicted for v in trace["y"]]
    if max([spread, *(abs(v - middle) for v in values)]) <= 1e-6 * abs(middle):
        half = 0.1 * abs(middle) or 0.1
        return {"range": [middle - half, middle + half]}
    reach = _REACH * max(spread, 0.01 * abs(middle))
    near = [v for v in values if low - reach <= v <= high + reach]
    if len(near) == len(values):
        return {}
    low, high = min([low, *near]), max([high, *near])
    return {"range": [low - 0.08 * (high - low), high + 0.08 * (high - low)]}
