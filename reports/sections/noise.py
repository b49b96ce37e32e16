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

from interp.reports.baseline_looks import baseline_series, coinciding, quoted
from interp.reports.numbers import Z95, estimate, is_finite, listed, number, rounded, several, spanned
from interp.reports.plots import (
    Point,
    axis,
    charted,
    curve,
    label,
    layout,
    log_axis,
    note,
    ordered_series,
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
    Section,
    Series,
    Skipped,
    SpectralFilter,
    Table,
)

__all__ = [
    "Standing",
    "depth_profile_finding",
    "filter_finding",
    "noise_text",
    "profile_baselines",
    "profile_finding",
    "recovered_sentence",
    "standing",
    "trained_levels",
]

_EXCESS = "excess squared error (label²)"
_HIGHEST = 1e3  # of predicting zero: what is larger is drawn at the edge
_DEEPEST = 1e-6  # of the largest value: what is smaller is drawn at the edge
_MOST_READ_OUTS = 9  # drawn; the table has all
_MOST_PANELS = 8  # drawn; the table has all layers
_COLOURS = {"network": ("var(--series-1)", "circle"), "recovered": ("var(--series-3)", "diamond")}


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
    network = next((s for s in profile.series if s.name == "network"), None)
    network_mean = None if network is None else _mean(network, levels)
    if network_mean is None:
        return None
    places: dict[str, list[tuple[float, str]]] = {"better": [], "even": [], "worse": []}
    for series in profile_baselines(profile):
        mean = _mean(series, levels)
        if mean is None:
            continue
        difference, error = mean[0] - network_mean[0], Z95 * math.hypot(mean[1], network_mean[1])
        kind = "even" if abs(difference) <= error else ("better" if difference < 0 else "worse")
        places[kind].append((mean[0], series.label))
    return Standing(*(tuple(text for _, text in sorted(places[kind])) for kind in ("better", "even", "worse")))


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
    last = max(range(len(profile.sigma)), key=lambda i: profile.sigma[i])
    if profile.sigma[last] <= profile.trained[1]:
        return text
    outside = standing(profile, [last])
    beyond = f"beyond, at σ = {_level(profile.sigma[last])}, it"
    return f"{text}; {beyond} {'overflows' if outside is None else _standing_text(outside)}"


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
    named = {s.name: s for s in profile.series}
    pairs = [_mean(named[name], trained_levels(profile)) for name in ("network", "recovered") if name in named]
    if len(pairs) < 2 or pairs[0] is None or pairs[1] is None:
        return ""
    network, other = (estimate(*pair) for pair in pairs if pair is not None)
    label = named["recovered"].label
    return f"{_over_training(profile)} it is {network} for the network and {other} for the {label}."


def depth_profile_finding(profile: NoiseProfile) -> str:
    """Which layers raise the error, and at which noise levels."""
    read_outs = [s for s in profile.series if s.name.startswith("layer-")]
    raised: list[str] = []
    for layer, (before, after) in enumerate(itertools.pairwise(read_outs)):
        where = [sigma for i, sigma in enumerate(profile.sigma) if _above(after, before, i)]
        if where:
            raised.append(f"layer {layer} at {noise_text((min(where), max(where)))}")
    if len(read_outs) < 2:
        return "The error of early read-outs was not measured"
    if not raised:
        return "No layer raises the error of its read-out at any noise level"
    if len(read_outs) == 2:
        where = raised[0].removeprefix("layer 0 at ")
        return f"The only layer makes the prediction worse than none at all at {where}"
    return f"Read out early, the prediction can be worse than before the layer: {listed(raised, most=8)}"


def _above(after: ProfileSeries, before: ProfileSeries, i: int) -> bool:
    high, low = after.excess[i], before.excess[i]
    error = math.hypot(after.stderr[i] or 0.0, before.stderr[i] or 0.0)
    return is_finite(high) and is_finite(low) and high - low > Z95 * error


def noise_text(noise: tuple[float, float]) -> str:
    low, high = noise
    return f"σ = {_level(low)}" if low == high else f"σ {low:.2g} to {high:.2g}"


def _level_of(group: SpectralFilter) -> tuple[tuple[float, float], tuple[float, float]]:
    """Means over the bins of the network's filter and of ridge's, each with its standard error."""
    count = len(group.bins)
    error = sum(b.stderr or 0.0 for b in group.bins) / count
    return (sum(b.filter for b in group.bins) / count, error), (sum(b.ridge for b in group.bins) / count, 0.0)


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
    (quiet, quiet_ridge), (loud, loud_ridge) = _level_of(groups[0]), _level_of(groups[-1])
    change, error = quiet[0] - loud[0], math.hypot(quiet[1], loud[1])
    expected = quiet_ridge[0] - loud_ridge[0]
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


@section("profile", title="loss against the noise", where="noise")
def profile(analysis: Analysis) -> Iterator[Section | Skipped]:
    """Excess loss of the network, the recovered algorithm and every baseline against the true noise level."""
    if analysis.regression is None:
        return
    noise = analysis.regression.profile
    if not is_whole(noise):
        yield Skipped("the losses at fixed noise levels are not finite")
        return
    series = {s.name: s for s in noise.series}
    front = [
        (Series(key=name, label=series[name].label, colour=colour, symbol=symbol), series[name])
        for name, (colour, symbol) in _COLOURS.items()
        if name in series
    ]
    baselines = profile_baselines(noise)
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
    table = _table(noise, [s for _, s in (*front, *behind)])
    legend = [series for series, _ in (*front, *behind)]
    yield charted(
        "profile", "Loss against the noise", profile_finding(noise), description, [panel], table, legend=legend
    )


@section("profile-depth", title="early read-outs against the noise", where="implicit")
def depth_profile(analysis: Analysis) -> Iterator[Section | Skipped]:
    if analysis.regression is None:
        return
    noise = analysis.regression.profile
    read_outs = [s for s in noise.series if s.name.startswith("layer-")]
    if not is_whole(noise) or len(read_outs) < 2:
        yield Skipped("it has no read-outs after single layers")
        return
    shown = thinned(read_outs, _MOST_READ_OUTS)
    labels = [f"after {several(int(s.name.removeprefix('layer-')), 'layer')}" for s in shown]
    lines = list(zip(ordered_series(labels, "layer-"), shown, strict=True))
    panel, remarks = _panel("profile-depth", noise, [], lines)
    description = (
        "The prediction is read out after every layer as if it were the last; otherwise as in the figure "
        f"beside the baselines. Bars are 95 % intervals.{remarks}"
    )
    table = _table(noise, read_outs)
    legend = [series for series, _ in lines]
    title = "Early read-outs against the noise"
    yield charted("profile-depth", title, depth_profile_finding(noise), description, [panel], table, legend=legend)


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
            if is_finite(value)
        ]
        curves[series.label] = [replace(p, y=min(max(p.y, floor), ceiling)) for p in points]  # as drawn
        traces.append(curve(series, points, log=True, floor=floor, ceiling=ceiling, **look))
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
    plot = layout(
        axis("true noise σ (label units)", zeroline=False), y, shapes=[shaded(*span) for span in spans],
        annotations=[note("trained here", x=middle, xanchor=anchor, yref="paper", y=1, yanchor="bottom")],
        margin={"l": 8, "r": 12, "t": 26, "b": 8},
    )  # fmt: skip
    panel = Panel(name=name, title="", data=traces, layout=plot, height=420)
    return panel, remarks + coinciding(curves, log=True)


def _table(profile: NoiseProfile, series: Sequence[ProfileSeries]) -> Table:
    return Table(
        header=("excess ± stderr", *(f"σ = {sigma:.3g}" for sigma in profile.sigma)),
        rows=tuple((s.label, *(estimate(v, e) for v, e in zip(s.excess, s.stderr, strict=True))) for s in series),
    )


@section("filters", title="what is kept of least squares", where="noise")
def filters(analysis: Analysis) -> Iterator[Section | Skipped]:
    """For every layer, what is kept of least squares by eigenvalue, for prompts of each noise, beside ridge's."""
    if analysis.regression is None:
        return
    groups = analysis.regression.filters
    layers = sorted({f.layer for f in groups if f.bins})
    if not layers:
        yield Skipped("the implicit weights are not finite, or least squares is 0")
        return
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
        plot = layout(x, axis("share kept", zeroline=True, rangemode="tozero"))
        name, where = f"filter-{layer}", f"after {several(layer, 'layer')}"
        panels.append(Panel(name=name, title=where, data=traces, layout=plot, height=270))
    description = (
        "Along every eigen-direction of Σ, the share of the least-squares weights that the network's "
        "weights w keep: 1 is least squares, 0 is nothing. Dotted, in the same colour: ridge regression with the true "
        "noise on the same prompts, the best possible. Bars are 95 % intervals."
    )
    columns = {
        "layers run": "0.layer", "noise": lambda e: noise_text(e[0].noise), "eigenvalue": "1.eigenvalue:3",
        "share kept ± stderr": "1.filter:stderr", "ridge": "1.ridge:3", "R²": "0.r2:4",
    }  # fmt: skip
    table = tabulate([(f, b) for f in groups for b in f.bins], columns)
    title = "What is kept of least squares"
    yield charted("filters", title, filter_finding(groups), description, panels, table, legend=legend, compact=True)


def _filter_traces(f: SpectralFilter, series: Series) -> list[dict[str, Any]]:
    places = [(b, f"{noise_text(f.noise)}, eigenvalue {b.eigenvalue:.3g}") for b in f.bins]
    kept = [Point(b.eigenvalue, b.filter, b.stderr, f"{at}: {estimate(b.filter, b.stderr)}") for b, at in places]
    ridge = [Point(b.eigenvalue, b.ridge, None, f"ridge, {at}: {number(b.ridge, 3)}") for b, at in places]
    return [curve(series, ridge, dash="dot", marked=False), curve(series, kept)]
