"""Loss against the true noise level, and what the network keeps of least squares by eigen-direction.

A comparison is stated only where it is clear at 95 %. Averages over noise levels or bins share their prompts, so their
standard error is taken as the mean of those of their parts, which is never too small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interp.reports.baseline_looks import as_drawn, baseline_series, coinciding, quoted
from interp.reports.numbers import Z95, estimate, is_finite, listed, number, rounded, several, spanned
from interp.reports.plots import (
    Point,
    axis,
    charted,
    curve,
    label,
    log_axis,
    note,
    ordered_series,
    plot,
    shaded,
    spans_decades,
    thinned,
)
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import (
    Analysis,
    NoiseProfile,
    Panel,
    ProfileSeries,
    Regression,
    Section,
    Series,
    Skipped,
    SpectralFilter,
    Table,
)

__all__ = [
    "Standing", "depth_profile_finding", "filter_finding", "noise_text", "profile_baselines", "profile_finding",
    "recovered_sentence", "standing", "trained_levels",
]  # fmt: skip

_EXCESS = "excess squared error (label²)"
_HIGHEST = 1e3  # of predicting zero: what is larger is drawn at the edge
_DEEPEST = 1e-6  # of the largest value: what is smaller is drawn at the edge
_MOST_READ_OUTS = 9  # drawn; the table has all
_MOST_PANELS = 8  # drawn; the table has all layers
_FRONT = (
    Series(key="network", label="", colour="var(--series-1)", symbol="circle"),
    Series(key="recovered", label="", colour="var(--series-3)", symbol="diamond"),
)


@dataclass(frozen=True)
class Standing:
    """Labels of the baselines beside the network, by their mean excess loss over some noise levels, best first."""

    better: tuple[str, ...]
    even: tuple[str, ...]
    worse: tuple[str, ...]


def _mean(series: ProfileSeries, levels: Sequence[int]) -> tuple[float, float] | None:
    """Mean excess over the levels with its standard error; None when one of them is not known."""
    values = [series.excess[i] for i in levels]
    errors = [series.stderr[i] or 0.0 for i in levels]
    finite = [value for value in values if is_finite(value)]
    if not levels or len(finite) < len(levels):
        return None
    return sum(finite) / len(finite), sum(errors) / len(errors)


def profile_baselines(profile: NoiseProfile) -> tuple[ProfileSeries, ...]:
    not_baselines = ("network", "recovered")
    return tuple(s for s in profile.series if s.name not in not_baselines and not s.name.startswith("layer-"))


def standing(profile: NoiseProfile, levels: Sequence[int]) -> Standing | None:
    """Which baselines do better than the network, on average over the levels; None when the network's loss is unknown
    there."""
    network = next((_mean(s, levels) for s in profile.series if s.name == "network"), None)
    if network is None:
        return None
    places: dict[str, list[tuple[float, str]]] = {"better": [], "even": [], "worse": []}
    for series in profile_baselines(profile):
        if (mean := _mean(series, levels)) is not None:
            difference, error = mean[0] - network[0], Z95 * math.hypot(mean[1], network[1])
            kind = "even" if abs(difference) <= error else ("better" if difference < 0 else "worse")
            places[kind].append((mean[0], series.label))
    return Standing(**{kind: tuple(text for _, text in sorted(entries)) for kind, entries in places.items()})


def trained_levels(profile: NoiseProfile) -> list[int]:
    """Indices of the noise levels that the network was trained on."""
    if profile.levels is not None:
        return [i for i, sigma in enumerate(profile.sigma) if min(abs(sigma - v) for v in profile.levels) < 1e-9]
    low, high = profile.trained
    return [i for i, sigma in enumerate(profile.sigma) if low - 1e-9 <= sigma <= high + 1e-9]


def trained_text(profile: NoiseProfile) -> str:
    """The noise that the network was trained on."""
    if profile.levels is not None:
        return f"σ = {listed([_level(v) for v in profile.levels], most=8)}"
    return f"σ from {_level(profile.trained[0])} to {_level(profile.trained[1])}"


def _level(sigma: float) -> str:
    return f"{sigma:.3g}"


def is_whole(profile: NoiseProfile) -> bool:
    """Whether every series has a value at every noise level, if only None: a document may hold anything."""
    count = len(profile.sigma)
    series = [(len(s.excess), len(s.stderr)) for s in profile.series]
    return count > 0 and len(profile.prompts) == count and all(pair == (count, count) for pair in series)


def profile_finding(profile: NoiseProfile) -> str:
    inside = standing(profile, trained_levels(profile)) if is_whole(profile) else None
    if inside is None:
        return "The network's loss at fixed noise levels was not measured, or overflows"
    text = f"{_over_training(profile)} ({trained_text(profile)}) the network {_standing_text(inside)}"
    highest = max(profile.sigma)
    if highest <= profile.trained[1]:
        return text
    outside = standing(profile, [profile.sigma.index(highest)])
    beyond = "overflows" if outside is None else _standing_text(outside)
    return f"{text}; beyond, at σ = {_level(highest)}, it {beyond}"


def _over_training(profile: NoiseProfile) -> str:
    return "On average over the noise of training" if len(trained_levels(profile)) > 1 else "At the noise of training"


def _standing_text(place: Standing) -> str:
    better, even, worse = place.better, place.even, len(place.worse)
    if not better and not even:
        return "beats every baseline" if worse else "has no baseline beside it"
    if not even and not worse:
        return f"loses to every baseline, most of all to {quoted(better[0])}"
    parts = [f"loses to {listed([quoted(text) for text in better], most=2)}"] if better else []
    parts += [f"is even with {listed([quoted(text) for text in even], most=2)}"] if even else []
    parts += [f"beats {quoted(place.worse[0]) if worse == 1 else f'the {worse} others'}"] if worse else []
    return listed(parts)


def recovered_sentence(profile: NoiseProfile) -> str:
    """Mean excess of the network and of the recovered algorithm over the levels of training; empty when unknown."""
    means = {s.name: (_mean(s, trained_levels(profile)), s.label) for s in profile.series}
    (network, _), (other, label) = (means.get(name, (None, "")) for name in ("network", "recovered"))
    if network is None or other is None:
        return ""
    said = f"{estimate(*network)} for the network and {estimate(*other)} for the {label}"
    return f"{_over_training(profile)} it is {said}."


def depth_profile_finding(profile: NoiseProfile) -> str:
    """Which layers raise the error, and at which noise levels."""
    read_outs = _read_outs(profile)
    raised: dict[int, str] = {}
    for layer, (before, after) in enumerate(itertools.pairwise(read_outs)):
        if where := [sigma for i, sigma in enumerate(profile.sigma) if _above(after, before, i)]:
            raised[layer] = noise_text((min(where), max(where)))
    if len(read_outs) < 2:
        return "The error of early read-outs was not measured"
    if not raised:
        return "No layer raises the error of its read-out at any noise level"
    if len(read_outs) == 2:
        return f"The only layer makes the prediction worse than none at all at {raised[0]}"
    said = listed([f"layer {layer} at {where}" for layer, where in raised.items()], most=8)
    return f"Read out early, the prediction can be worse than before the layer: {said}"


def _read_outs(profile: NoiseProfile) -> list[ProfileSeries]:
    return [s for s in profile.series if s.name.startswith("layer-")]


def _above(after: ProfileSeries, before: ProfileSeries, i: int) -> bool:
    high, low = after.excess[i], before.excess[i]
    error = math.hypot(after.stderr[i] or 0.0, before.stderr[i] or 0.0)
    return is_finite(high) and is_finite(low) and high - low > Z95 * error


def noise_text(noise: tuple[float, float]) -> str:
    low, high = noise
    return f"σ = {_level(low)}" if low == high else f"σ {low:.2g} to {high:.2g}"


def _level_of(group: SpectralFilter) -> Iterator[float]:
    """Means over the bins: of the network's filter, its standard error and ridge's filter."""
    for values in zip(*((b.filter, b.stderr or 0.0, b.ridge) for b in group.bins), strict=True):
        yield sum(values) / len(values)


def filter_finding(filters: Sequence[SpectralFilter]) -> str:
    last = max((f.layer for f in filters if f.bins), default=None)
    groups = sorted((f for f in filters if f.layer == last and f.bins), key=lambda f: f.noise)
    if last is None:
        return "The filter of no layer was measured"
    gaps = [(b.filter - b.ridge) ** 2 for f in groups for b in f.bins]
    size = f"by {number(math.sqrt(sum(gaps) / len(gaps)), 2)} (root mean square)"
    if len(groups) < 2:
        return f"What the last layer keeps of least squares differs from what ridge keeps {size}"
    apart = f"differs from it {size}"
    quiet, quiet_error, quiet_ridge = _level_of(groups[0])
    loud, loud_error, loud_ridge = _level_of(groups[-1])
    change, error, expected = quiet - loud, math.hypot(quiet_error, loud_error), quiet_ridge - loud_ridge
    ends = f"between {noise_text(groups[0].noise)} and {noise_text(groups[-1].noise)}"
    if abs(change) <= Z95 * error:
        return (
            f"The filter of the last layer does not respond to the noise: {ends} it changes by "
            f"{estimate(change, error)}, ridge's by {number(expected, 2)}; it {apart}"
        )
    if expected == 0:
        return f"The filter of the last layer changes by {estimate(change, error)} {ends}, ridge's not at all"
    share = rounded(change / expected, error / abs(expected))
    if change * expected < 0:
        return f"The filter of the last layer moves with the noise, but not as ridge's ({share} times it), and {apart}"
    return f"The filter of the last layer responds to the noise {share} times as strongly as ridge's, and {apart}"


@section("profile", title="loss against the noise", where="noise", part="regression")
def profile(_: Analysis, regression: Regression) -> Section | Skipped:
    """Excess loss of the network, the recovered algorithm and every baseline against the true noise level."""
    noise = regression.profile
    if not is_whole(noise):
        return Skipped("the losses at fixed noise levels are not finite")
    named, baselines = {s.name: s for s in noise.series}, profile_baselines(noise)
    front = [(replace(look, label=named[look.key].label), named[look.key]) for look in _FRONT if look.key in named]
    behind = [(baseline_series(s.name, s.label, [o.name for o in baselines]), s) for s in baselines]
    panel, remarks = _panel("profile", noise, behind, front)
    counts = spanned([str(min(noise.prompts)), str(max(noise.prompts))])
    description = (
        "Mean squared error above that of the best prediction (ridge with the true noise), in squared "
        f"units of the label; {counts} prompts at every noise level, the same inputs and weights at all, not those of "
        "the losses under Evidence: even here means not told apart on these, at 95 %. Shaded: "
        f"{trained_text(noise)}, where the network was trained. Bars are 95 % intervals.{remarks} A ridge of one "
        f"penalty is the best prediction at one noise level, so its curve dips there. {recovered_sentence(noise)}"
    )
    finding, table = profile_finding(noise), _table(noise, [s for _, s in (*front, *behind)])
    legend = [look for look, _ in (*front, *behind)]
    return charted("profile", "Loss against the noise", finding, description, [panel], table, legend=legend)


@section("profile-depth", title="early read-outs against the noise", where="implicit", part="regression")
def depth_profile(_: Analysis, regression: Regression) -> Section | Skipped:
    noise, read_outs = regression.profile, _read_outs(regression.profile)
    if not is_whole(noise) or len(read_outs) < 2:
        return Skipped("it has no read-outs after single layers")
    shown = thinned(read_outs, _MOST_READ_OUTS)
    legend = ordered_series([f"after {several(int(s.name.removeprefix('layer-')), 'layer')}" for s in shown], "layer-")
    panel, remarks = _panel("profile-depth", noise, [], list(zip(legend, shown, strict=True)))
    description = (
        "The prediction is read out after every layer as if it were the last; otherwise as in the figure "
        f"beside the baselines. Bars are 95 % intervals.{remarks}"
    )
    title, table = "Early read-outs against the noise", _table(noise, read_outs)
    return charted("profile-depth", title, depth_profile_finding(noise), description, [panel], table, legend=legend)


Lines = Sequence[tuple[Series, ProfileSeries]]


def _panel(name: str, noise: NoiseProfile, behind: Lines, front: Lines) -> tuple[Panel, str]:
    """The plot, with the series ``behind`` thin, and sentences on what is drawn at its edge or on each other."""
    values = [v for _, data in (*behind, *front) for v in data.excess if is_finite(v)]
    zero = [v for s in noise.series if s.name == "null" for v in s.excess if is_finite(v)]
    ceiling = _HIGHEST * max(zero, default=1)
    largest = max((v for v in values if v <= ceiling), default=1.0)
    above = [v for v in values if max(_DEEPEST * largest, 0.0) < v <= ceiling]
    floor = min(above, default=1.0) / 2
    traces, curves = [], {}
    for k, (series, data) in enumerate((*behind, *front)):
        look: dict[str, Any] = {"dash": series.dash, "width": 1.5, "size": 6} if k < len(behind) else {"width": 2.5}
        points = [
            Point(sigma, value, stderr, f"{label(series.label)}, σ = {sigma:.3g}: {estimate(value, stderr)}")
            for sigma, value, stderr in zip(noise.sigma, data.excess, data.stderr, strict=True)
        ]
        traces.append(curve(series, points, log=True, floor=floor, ceiling=ceiling, **look))
        curves[series.label] = as_drawn(traces[-1])
    y = log_axis(_EXCESS, [*above, floor], dense=False)
    top = max(ceiling if any(v > ceiling for v in values) else 0, *above, 2 * floor)
    y["range"] = [math.log10(floor) - 0.05, math.log10(top) + 0.15]
    off = len(values) - len(above)
    remarks = f" Triangles at the edges are values too small or too large for the axis ({off})." if off else ""
    low, high = noise.trained
    ranged, width = noise.levels is None and high > low, 0.012 * max(noise.sigma)
    spans = [(low, high)] if ranged else [(v - width, v + width) for v in noise.levels or (low,)]
    middle = sum(spans[0]) / 2 if len(spans) == 1 else spans[0][1]
    anchor = "center" if len(spans) == 1 and high > low else "left"
    panel = plot(
        name, traces, axis("true noise σ (label units)", zeroline=False), y, 420,
        shapes=[shaded(*span) for span in spans], margin={"l": 8, "r": 12, "t": 26, "b": 8},
        annotations=[note("trained here", x=middle, xanchor=anchor, yref="paper", y=1, yanchor="bottom")],
    )  # fmt: skip
    return panel, remarks + coinciding(curves, log=True)


def _table(profile: NoiseProfile, series: Sequence[ProfileSeries]) -> Table:
    return Table(
        header=("excess ± stderr", *(f"σ = {sigma:.3g}" for sigma in profile.sigma)),
        rows=tuple((s.label, *(estimate(v, e) for v, e in zip(s.excess, s.stderr, strict=True))) for s in series),
    )


@section("filters", title="what is kept of least squares", where="noise", part="regression")
def filters(_: Analysis, regression: Regression) -> Section | Skipped:
    """For every layer, what is kept of least squares by eigenvalue, for prompts of each noise, beside ridge's."""
    groups = regression.filters
    layers = sorted({f.layer for f in groups if f.bins})
    if not layers:
        return Skipped("the implicit weights are not finite, or least squares is 0")
    noises = sorted({f.noise for f in groups})
    legend = ordered_series([f"network, {noise_text(noise)}" for noise in noises], "noise-")
    by_noise = dict(zip(noises, legend, strict=True))
    log = spans_decades([b.eigenvalue for f in groups for b in f.bins])
    panels = []
    for layer in thinned(layers, _MOST_PANELS):
        of_layer = [f for f in groups if f.layer == layer]
        traces = [trace for f in of_layer for trace in _filter_traces(f, by_noise[f.noise])]
        title, values = "eigenvalue of Σ", [b.eigenvalue for f in of_layer for b in f.bins]
        x = log_axis(title, values, dense=False) if log else axis(title, rangemode="tozero", zeroline=False)
        y = axis("share kept", zeroline=True, rangemode="tozero")
        panels.append(plot(f"filter-{layer}", traces, x, y, 270, f"after {several(layer, 'layer')}"))
    description = (
        "Along every eigen-direction of Σ, the share of the least-squares weights that the network's "
        "weights w keep: 1 is least squares, 0 is nothing. Dotted, in the same colour: ridge regression with the true "
        "noise on the same prompts, the best possible. Bars are 95 % intervals."
    )
    columns = {
        "layers run": "0.layer", "noise": lambda e: noise_text(e[0].noise), "eigenvalue": "1.eigenvalue:3",
        "share kept ± stderr": "1.filter:stderr", "ridge": "1.ridge:3", "R²": "0.r2:4",
    }  # fmt: skip
    title, table = "What is kept of least squares", tabulate([(f, b) for f in groups for b in f.bins], columns)
    return charted("filters", title, filter_finding(groups), description, panels, table, legend=legend, compact=True)


def _filter_traces(f: SpectralFilter, series: Series) -> list[dict[str, Any]]:
    places = [(b, f"{noise_text(f.noise)}, eigenvalue {b.eigenvalue:.3g}") for b in f.bins]
    kept = [Point(b.eigenvalue, b.filter, b.stderr, f"{at}: {estimate(b.filter, b.stderr)}") for b, at in places]
    ridge = [Point(b.eigenvalue, b.ridge, None, f"ridge, {at}: {number(b.ridge, 3)}") for b, at in places]
    return [curve(series, ridge, dash="dot", marked=False), curve(series, kept)]
