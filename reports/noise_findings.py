"""What the numbers of ``Analysis.regression`` say of how a network adapts to noise, in sentences.

A comparison is stated only where it is clear at 95 %. Averages over noise levels or bins share their prompts, so their
standard error is taken as the mean of those of their parts, which is never too small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from interp.reports.findings import listed
from interp.reports.numbers import Z95, estimate, interval, is_finite, number, rounded
from interp.results import Adaptation, Momentum, NoiseProfile, ProfileSeries, SpectralFilter

__all__ = [
    "Standing",
    "depth_profile_finding",
    "filter_finding",
    "is_whole",
    "layers_named",
    "momentum_finding",
    "noise_text",
    "profile_baselines",
    "profile_finding",
    "quoted",
    "recovered_sentence",
    "shrinkage_finding",
    "standing",
    "step_finding",
    "trained_levels",
    "trained_text",
]

GOOD = 0.9  # R^2 from which a prediction is said to hold
LITTLE = 0.05  # R^2 below which nothing worth naming is explained
EVEN = 0.02  # R^2 by which one account must beat another to be called better, its interval clear of the other's


def layers_named(layers: Sequence[int]) -> str:
    """``layer 2``, ``layers 0 and 1``, or ``no layer``."""
    if not layers:
        return "no layer"
    return f"layer{'s' if len(layers) > 1 else ''} {listed([str(layer) for layer in layers], most=8)}"


# --- loss against the true noise level ------------------------------------------------------------------------------


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
    known = [value for value in values if is_finite(value)]
    if not levels or len(known) < len(levels):
        return None
    return sum(known) / len(known), sum(errors) / len(errors)


def profile_baselines(profile: NoiseProfile) -> tuple[ProfileSeries, ...]:
    own = ("network", "recovered")
    return tuple(s for s in profile.series if s.name not in own and not s.name.startswith("layer-"))


def standing(profile: NoiseProfile, levels: Sequence[int]) -> Standing | None:
    """Which baselines do better than the network, on average over the levels; None when the network's loss is unknown
    there."""
    network = next((s for s in profile.series if s.name == "network"), None)
    own = None if network is None else _mean(network, levels)
    if own is None:
        return None
    found: dict[str, list[tuple[float, str]]] = {"better": [], "even": [], "worse": []}
    for series in profile_baselines(profile):
        mean = _mean(series, levels)
        if mean is None:
            continue
        difference, error = mean[0] - own[0], Z95 * math.hypot(mean[1], own[1])
        kind = "even" if abs(difference) <= error else ("better" if difference < 0 else "worse")
        found[kind].append((mean[0], series.label))
    return Standing(*(tuple(text for _, text in sorted(found[kind])) for kind in ("better", "even", "worse")))


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


def _standing_text(known: Standing) -> str:
    better, even, worse = known.better, known.even, len(known.worse)
    if not better and not even:
        return "beats every baseline" if worse else "has no baseline beside it"
    if not even and not worse:
        return f"loses to every baseline, most of all to {quoted(better[0])}"
    parts = [f"loses to {listed([quoted(text) for text in better], most=2)}"] if better else []
    parts += [f"is even with {listed([quoted(text) for text in even], most=2)}"] if even else []
    parts += [f"beats {quoted(known.worse[0]) if worse == 1 else f'the {worse} others'}"] if worse else []
    return listed(parts)


def quoted(text: str) -> str:
    """A label, in quotes where it could be read as two."""
    return f"“{text}”" if "," in text else text


def recovered_sentence(profile: NoiseProfile) -> str:
    """Mean excess of the network and of the recovered algorithm over the levels of training; empty when unknown."""
    named = {s.name: s for s in profile.series}
    pairs = [_mean(named[name], trained_levels(profile)) for name in ("network", "recovered") if name in named]
    if len(pairs) < 2 or pairs[0] is None or pairs[1] is None:
        return ""
    own, other = (estimate(*pair) for pair in pairs if pair is not None)
    label = named["recovered"].label
    return f"{_over_training(profile)} it is {own} for the network and {other} for the {label}."


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


# --- what is kept of least squares ----------------------------------------------------------------------------------


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


# --- how a layer adapts ---------------------------------------------------------------------------------------------


def _change(entry: Adaptation) -> float | None:
    """From the first bin to the last, as observed; None when it is not clear."""
    if len(entry.bins) < 2:
        return None
    first, last = entry.bins[0], entry.bins[-1]
    change, error = last.observed - first.observed, math.hypot(first.stderr or 0.0, last.stderr or 0.0)
    rounding = 1e-9 * max(abs(first.observed), abs(last.observed))
    return change if abs(change) > Z95 * error and abs(change) > rounding else None


def _directions(entries: Sequence[Adaptation]) -> tuple[list[int], list[int]]:
    """Layers in which the factor falls, and in which it rises."""
    changes = [(entry.layer, change) for entry in entries if (change := _change(entry)) is not None]
    return [layer for layer, c in changes if c < 0], [layer for layer, c in changes if c > 0]


def _moves(subject: str, against: str, entries: Sequence[Adaptation]) -> str:
    falls, rises = _directions(entries)
    if not falls and not rises:
        return f"With more {against} {subject} does not change in any layer, beyond its error"
    parts = [f"{verb} in {layers_named(layers)}" for verb, layers in (("falls", falls), ("rises", rises)) if layers]
    return f"With more {against} {subject} {' and '.join(parts)}"


def _predicted(entries: Sequence[Adaptation]) -> str:
    """In which layers the two predictions hold; empty when none can be scored."""
    scored = [entry for entry in entries if entry.r2 is not None or entry.r2_by_weights is not None]
    if not scored:
        return ""
    recovered = [entry.layer for entry in scored if entry.r2 is not None and entry.r2 >= GOOD]
    own = [entry.layer for entry in scored if entry.r2_by_weights is not None and entry.r2_by_weights >= GOOD]
    if len(recovered) == len(own) == len(scored):
        return f"; both predictions hold in {'every layer' if len(scored) > 1 else 'it'} (R² {GOOD} or more)"
    if not recovered and not own:
        return f"; neither prediction holds in any layer (R² {GOOD} or more)"
    if recovered == own:
        return f"; both predictions hold in {layers_named(own)} (R² {GOOD} or more)"
    return (
        f"; the layer's own weights predict it in {layers_named(own)}, the recovered algorithm in "
        f"{layers_named(recovered)} (R² {GOOD} or more)"
    )


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


# --- momentum -------------------------------------------------------------------------------------------------------


def momentum_finding(entries: Sequence[Momentum]) -> str:
    known = [m for m in entries if m.step_r2 is not None or m.eta_r2 is not None]
    if not known:
        return "No layer moves the implicit weights"
    plain = [m.step_r2 for m in known if m.step_r2 is not None]
    if all(m.eta_r2 is None for m in known):
        if max(plain) < LITTLE:
            none = f"nothing of the change of w to speak of (R² below {LITTLE})"
            return f"There is no momentum: u stays 0; and plain gradient steps explain {none}"
        return f"There is no momentum: u stays 0, and plain gradient steps explain the change of w to {_range(plain)}"
    little = [m.layer for m in known if max(m.step_r2 or 0.0, m.eta_r2 or 0.0) < LITTLE]
    pairs = [m for m in known if m.layer not in little and m.eta_r2 is not None and m.step_r2 is not None]
    compared = [(m.layer, _gain(m)) for m in pairs]
    parts = [
        f"{name} in {layers_named(layers)}"
        for name, layers in (
            ("better by momentum than by the plain gradient", [i for i, d in compared if d > 0]),
            ("better by the plain gradient than by momentum", [i for i, d in compared if d < 0]),
            ("about equally by either", [i for i, d in compared if d == 0]),
            (f"by neither (R² below {LITTLE})", little),
        )
        if layers
    ]
    both = [m.both_r2 for m in known if m.both_r2 is not None]
    together = [f"by both together to {_range(both)}"] if both and len(little) < len(known) else []
    return f"The change of w is explained {', '.join([*parts, *together])}"


def _gain(m: Momentum) -> float:
    """By how much momentum explains more than the plain gradient; 0 when that is not clear."""
    gain = (m.eta_r2 or 0.0) - (m.step_r2 or 0.0)
    better, worse = (m.eta_r2_ci, m.step_r2_ci) if gain > 0 else (m.step_r2_ci, m.eta_r2_ci)
    low, high = better[0], worse[1]
    overlap = is_finite(low) and is_finite(high) and low <= high
    return 0.0 if abs(gain) <= EVEN or overlap else gain


def _range(values: Sequence[float]) -> str:
    low, high = (interval(f(values), (None, None)) if f(values) > 0.99 else number(f(values), 2) for f in (min, max))
    return f"R² = {low}" if low == high else f"R² = {low} to {high}"
