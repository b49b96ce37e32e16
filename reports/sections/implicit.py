"""The implicit weights after every layer: beside baselines, as momentum, and how linear they are."""

from __future__ import annotations

from collections.abc import Sequence

from interp.reports.baseline_looks import baseline_series, coinciding
from interp.reports.numbers import Z95, estimate, interval, is_finite, layers_named, number, several, spanned
from interp.reports.plots import Point, bounded, charted, curve, label, layer_axis, log_axis, marks, plot, thinned
from interp.reports.registry import section
from interp.reports.tabulate import points, tabulate
from interp.results import Analysis, Momentum, Regression, Section, Series, Skipped, Table

__all__ = ["baseline_label", "distance_finding", "momentum_finding"]

LITTLE = 0.05  # R^2 below which nothing worth naming is explained
EVEN = 0.02  # R^2 by which one account must beat another to be called better, its interval clear of the other's
_MOST_DEPTHS = 7  # columns of a terminal
_REFERENCES = {  # that the losses need not have
    "true": "the true w of the prompt",
    "gd-1": "one gradient step",
    "nystrom": "least squares on the visible blocks (Nyström)",
}


def baseline_label(analysis: Analysis, name: str) -> str:
    """A baseline's name for people, where the loss ladder has one."""
    other = _REFERENCES.get(name, name)
    return next((entry.label for entry in analysis.evidence.losses if entry.name == name), other)


def distance_finding(analysis: Analysis) -> str:
    last = max(analysis.implicit, key=lambda m: m.layer, default=None)
    distances = {} if last is None else {name: d for name, d in last.distance.items() if d is not None}
    if last is None or not distances:
        return "The distance of the implicit weights to the baselines was not measured"
    name = min(distances, key=lambda n: distances[n])
    stderr, nearest = last.distance_stderr.get(name), baseline_label(analysis, name)
    far, start = estimate(distances[name], stderr), "After the last layer the network's implicit weights are"
    if distances[name] + Z95 * (stderr or 0.0) >= 1:  # weights of 0 are at 1 from every baseline
        which = f"the nearest, {nearest}," if len(distances) > 1 else nearest
        return (
            f"{start} like those of no baseline: no weights at all are as near or nearer; {which} is at a relative "
            f"squared distance of {far}"
        )
    return f"{start} closest to {nearest}: relative squared distance {far}"


@section("distances", title="implicit weights", where="implicit")
def distances(analysis: Analysis) -> Section | Skipped | None:
    models = sorted(analysis.implicit, key=lambda m: m.layer)
    names = list(dict.fromkeys(name for m in models for name in m.distance))
    if not names:
        return Skipped("this analysis has none") if analysis.sequences is None else None
    data, legend, dropped, curves = [], [], 0, {}
    for name in names:
        series = baseline_series(name, baseline_label(analysis, name), names)
        finite = [(m.layer, d, m.distance_stderr.get(name)) for m in models if is_finite(d := m.distance.get(name))]
        shown = [
            Point(i, d, e, f"{label(series.label)}, after {several(i, 'layer')}: {estimate(d, e)}")
            for i, d, e in finite
            if d > 0
        ]
        dropped += len(finite) - len(shown)
        legend.append(series)
        curves[series.label] = shown
        data.append(curve(series, shown, log=True, dash=series.dash))
    drawn = [distance for trace in data for distance in trace["y"]]
    x, y = layer_axis([m.layer for m in models], "layers run"), log_axis("relative squared distance", drawn, dense=True)
    zero = f" Distances of 0, which this axis cannot show: {dropped}." if dropped else ""
    rows = tuple(
        (series.label, *(estimate(m.distance.get(n), m.distance_stderr.get(n)) for m in models))
        for n, series in zip(names, legend, strict=True)
    )
    table = Table(header=("baseline", *(f"after {several(m.layer, 'layer')}" for m in models)), rows=rows)
    shown = thinned(models, _MOST_DEPTHS)
    cells = tuple((name, *(number(m.distance.get(name), 3) for m in shown)) for name in names)
    short = Table(header=("layers run", *(str(m.layer) for m in shown)), rows=cells)
    description = (
        "E|w - b|² / E|b|² between the implicit weights w of the network after each layer and the weights "
        f"b of a baseline: 0 is the same, 1 is as far as no weights at all. Bars are 95 % intervals."
        f"{coinciding(curves, log=True)}{zero}"
    )
    title, finding = "Distance of the implicit weights to baselines", distance_finding(analysis)
    panels = [plot("distances", data, x, y, 420)] if drawn else []
    return charted("distances", title, finding, description, panels, table, legend=legend, short=short)


@section("linearity", title="how linear the implicit model is", where="implicit")
def linearity(analysis: Analysis) -> Section | None:
    if not analysis.implicit:
        return None
    worst = min((m.linearity_r2 for m in analysis.implicit if is_finite(m.linearity_r2)), default=None)
    return Section(
        name="linearity-by-layer", title="How linear the implicit model is",
        finding=f"A linear model describes every layer to R² {interval(worst, (None, None))} at least",
        table=tabulate(analysis.implicit, {"layers run": "layer", "mean a": "a", "R²": "linearity_r2"}),
        notes=("a: factor on the token's own label; R²: how well a linear model describes the layer's tokens",),
    )  # fmt: skip


_ACCOUNTS = (
    Series(key="step", label="w: plain gradient step", colour="var(--series-2)", symbol="square"),
    Series(key="eta", label="w: along the momentum u", colour="var(--series-1)", symbol="circle"),
    Series(key="both", label="w: both together", colour="var(--series-3)", symbol="diamond"),
    Series(key="u", label="u: decay and gradient", colour="var(--series-4)", symbol="triangle-up"),
)


def momentum_finding(entries: Sequence[Momentum]) -> str:
    scored = [m for m in entries if m.step_r2 is not None or m.eta_r2 is not None]
    if not scored:
        return "No layer moves the implicit weights"
    plain = [m.step_r2 for m in scored if m.step_r2 is not None]
    if all(m.eta_r2 is None for m in scored):
        if max(plain) < LITTLE:
            none = f"nothing of the change of w to speak of (R² below {LITTLE})"
            return f"There is no momentum: u stays 0; and plain gradient steps explain {none}"
        return f"There is no momentum: u stays 0, and plain gradient steps explain the change of w to {_range(plain)}"
    little = [m.layer for m in scored if max(m.step_r2 or 0.0, m.eta_r2 or 0.0) < LITTLE]
    pairs = [m for m in scored if m.layer not in little and m.eta_r2 is not None and m.step_r2 is not None]
    gains = [(m.layer, _gain(m)) for m in pairs]
    accounts = {
        "better by momentum than by the plain gradient": [i for i, gain in gains if gain > 0],
        "better by the plain gradient than by momentum": [i for i, gain in gains if gain < 0],
        "about equally by either": [i for i, gain in gains if gain == 0],
        f"by neither (R² below {LITTLE})": little,
    }
    parts = [f"{name} in {layers_named(layers)}" for name, layers in accounts.items() if layers]
    both = [m.both_r2 for m in scored if m.both_r2 is not None]
    together = [f"by both together to {_range(both)}"] if both and len(little) < len(scored) else []
    return f"The change of w is explained {', '.join([*parts, *together])}"


def _gain(m: Momentum) -> float:
    """By how much momentum explains more than the plain gradient; 0 when that is not clear."""
    gain = (m.eta_r2 or 0.0) - (m.step_r2 or 0.0)
    better, worse = (m.eta_r2_ci, m.step_r2_ci) if gain > 0 else (m.step_r2_ci, m.eta_r2_ci)
    low, high = better[0], worse[1]
    overlap = is_finite(low) and is_finite(high) and low <= high
    return 0.0 if abs(gain) <= EVEN or overlap else gain


def _range(values: Sequence[float]) -> str:
    ends = [interval(v, (None, None)) if v > 0.99 else number(v, 2) for v in (min(values), max(values))]
    return f"R² = {spanned(ends)}"


@section("momentum", title="momentum", where="implicit", part="regression")
def momentum(_: Analysis, regression: Regression) -> Section | Skipped:
    """R^2 of every account of what a layer does to (u, w); the numbers themselves are in the table."""
    entries = regression.momentum
    accounts = [s for s in _ACCOUNTS if any(is_finite(getattr(m, f"{s.key}_r2")) for m in entries)]
    if not any(is_finite(m.eta_r2) for m in entries):  # no momentum: both together are the step alone
        accounts = [s for s in accounts if s.key != "both"]
    if not accounts:
        return Skipped("no layer moves the implicit weights by a finite amount")
    floor = max(min(v for m in entries for s in accounts if is_finite(v := getattr(m, f"{s.key}_r2"))), -0.1)
    data = []
    for k, series in enumerate(accounts):
        field, start = f"{series.key}_r2", f"{series.label}: R² ="
        drawn = points(entries, "layer", field, lambda m, r2, start=start: f"layer {m.layer}, {start} {r2}")
        data.append(marks(series, drawn, floor=floor, aside=0.12 * (k - (len(accounts) - 1) / 2)))
    panel = plot("momentum", data, layer_axis([m.layer for m in entries], "layer"), bounded("held-out R²", floor), 300)
    description = (
        "With g the negative gradient of half the squared residuals at the layer's own weights, what the "
        "layer adds to its weights w and to the vector u that it carries beside them is fitted with one number of each "
        "kind for all prompts: w + step g, w - η u (momentum), both, and u - β u + γ g. R² is on prompts that were not "
        "fitted, with 95 % intervals; it says what one number leaves. u after the last layer is never read."
    )
    columns = {
        "layer": "layer", "β ± stderr": "beta", "γ ± stderr": "gradient", "R² of u [95 %]": "u_r2",
        "η ± stderr": "eta", "R² of η [95 %]": "eta_r2", "step ± stderr": "step", "R² of the step [95 %]": "step_r2",
        "R² of both [95 %]": "both_r2",
    }  # fmt: skip
    finding, table = momentum_finding(entries), tabulate(entries, columns)
    return charted("momentum", "Momentum", finding, description, [panel], table, legend=accounts)
