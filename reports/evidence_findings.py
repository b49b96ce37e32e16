"""What replaced layers, the path to the algorithm and stress say, in sentences: for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from interp.reports.findings import listed
from interp.reports.noise_findings import layers_named
from interp.reports.numbers import Z95, estimate, interval, is_finite, number, percent
from interp.results import Absorption, Analysis, Interpolation, LayerSwap, Outcome, Stress, StressPoint

__all__ = [
    "AGREES",
    "absorption_finding",
    "algorithm",
    "change_text",
    "evidence_sentences",
    "interpolation_finding",
    "point_text",
    "reach",
    "span_text",
    "stands_in",
    "stress_finding",
    "swap_finding",
    "whole",
]

AGREES = 0.01  # share of the variance of the network's predictions up to which an account agrees with it
LEVEL = 0.01  # of the network's error: a barrier lower than this is none
ROUNDING = 1e-9  # of the error: a change smaller than this is none
EXPLODES = 10  # times the error at the ends of a path: a larger one is a barrier, however unsure its mean
LOW = 4  # directions up to which a rest is of low rank
ABSORBED = 0.99  # R^2 from which the behaviour is said to be restored


def algorithm(analysis: Analysis) -> str:
    """What stands in for the network."""
    return "recovered algorithm" if analysis.verdict.recognized else "closest family"


def stands_in(outcome: Outcome) -> bool:
    """Whether the predictions surely stay within 1 % of the network's."""
    low = outcome.fidelity_ci[0]
    return is_finite(low) and low >= 1 - AGREES


def _unchanged(outcome: Outcome) -> bool:
    known = is_finite(outcome.change) and is_finite(outcome.mse)
    return known and abs(outcome.change or 0.0) <= ROUNDING * (outcome.mse or 0.0)


def swap_finding(analysis: Analysis) -> str:
    swaps = analysis.evidence.swaps
    if not swaps:
        return "No layer was replaced"
    good = [s for s in swaps if stands_in(s.swapped)]
    bad = [s for s in swaps if not stands_in(s.swapped)]
    what = f"the {algorithm(analysis)}'s"
    if not bad:
        if all(_unchanged(s.swapped) for s in swaps):
            text = f"Each layer can be replaced by {what} with no change but rounding"
        else:
            text = f"Each layer alone can be replaced by {what}: predictions stay within 1 % of the network's"
        return text + _control(swaps)
    where = layers_named([s.layer for s in bad])
    rises = [s.swapped.change for s in bad if is_finite(s.swapped.change)]
    much = f" (the error rises by up to {_size(max(rises))})" if rises and max(rises) > 0 else ""
    if analysis.verdict.recognized and good:
        return (
            f"The {algorithm(analysis)} agrees with the network as a whole, but not layer by layer: it can stand in "
            f"for {layers_named([s.layer for s in good])} alone to 1 % of the predictions, not for {where}{much}"
        )
    if len(swaps) == 1:
        left = swaps[0].swapped.fidelity
        share = percent(1 - left) if is_finite(left) else "an unknown share"
        return (
            f"In the place of the only layer, the {algorithm(analysis)} leaves {share} of what the network predicts "
            "unexplained"
        )
    if analysis.verdict.recognized:
        return (
            f"The {algorithm(analysis)} follows the network as a whole, but no single layer of it can stand in for the "
            f"network's{much}"
        )
    return f"The closest family cannot stand in for {where}{much}"


def _size(value: float) -> str:
    if value < 1e4:
        return number(value, 2)
    mantissa, power = f"{value:.0e}".split("e+")
    return f"{mantissa}e{int(power)}"


def _control(swaps: Sequence[LayerSwap]) -> str:
    """What leaving layers out costs, so that replacing them at no cost says something."""
    idle = [s.layer for s in swaps if stands_in(s.idle)]
    if not idle:
        return "; leaving any of them out changes far more" if len(swaps) > 1 else "; leaving it out changes far more"
    return f". That says little of {layers_named(idle)}, which can be left out as well"


def interpolation_finding(analysis: Analysis) -> str:
    path = analysis.evidence.interpolation
    if path is None or not path.points:
        return "No path between the network and an algorithm was run"
    ends = f"the network's weights to the {algorithm(analysis)}'s"
    first, last = path.points[0].mixed.mse, path.points[-1].mixed.mse
    if not is_finite(path.barrier) or not is_finite(first) or not is_finite(last):
        return f"On the straight path from {ends} the error overflows"
    step = f"from {number(first, 3)} to {number(last, 3)}"
    highest = path.barrier + Z95 * (path.barrier_stderr or 0.0)
    peak = _peak(path)
    if peak is not None and _rises(path, peak, max(first, last)):
        apart = ": they behave alike but are not near each other" if analysis.verdict.recognized else ""
        size = f"{_size(peak)}, {_with_ends(first, last)}"
        return f"On the straight path from {ends} the error rises to {size}{apart}"
    if highest > LEVEL * first:
        at_most = number(100 * highest / first, 2)
        return f"On the straight path from {ends}, {step}, no barrier is clear: at most {at_most} % of the error"
    if abs(last - first) <= LEVEL * first:
        return f"On the straight path from {ends} the error stays level"
    return f"On the straight path from {ends} the error has no barrier, {step}"


def _rises(path: Interpolation, peak: float, ends: float) -> bool:
    """Whether there surely is a barrier. Where a few prompts explode the standard error is as large as the mean, and
    yet no accident of the same prompts makes it many times that of the ends."""
    height, error = path.barrier or 0.0, path.barrier_stderr or 0.0
    return height > LEVEL * ends and (height > Z95 * error or peak > EXPLODES * ends)


def _with_ends(first: float, last: float) -> str:
    level = abs(last - first) <= 0.1 * first
    return f"from {number(first, 3)}" if level else f"with {number(first, 3)} and {number(last, 3)} at its ends"


def _peak(path: Interpolation) -> float | None:
    return max((p.mixed.mse for p in path.points if is_finite(p.mixed.mse)), default=None)


# --- stress ---------------------------------------------------------------------------------------------------------


def _value(entry: Stress, value: float) -> str:
    return f"{value:.0f}" if entry.name == "context" else f"{value:.3g}"


def reach(entry: Stress) -> str:
    """The range in which the algorithm agrees, in the words of its axis; empty when there is none."""
    if entry.agrees is None:
        return ""
    low, high = (_value(entry, v) for v in entry.agrees)
    span = low if low == high else f"{low} to {high}"
    if entry.name == "covariance":
        return f"variances of the inputs {'as' if high == '1' else f'up to {high} times as uneven as'} in training"
    words = {
        "context": f"{span} examples",
        "noise": f"noise σ {span}",
        "scale": "inputs as large as in training" if span == "1" else f"inputs {span} times as large",
    }
    return words.get(entry.name, f"{entry.label} {span}")


def span_text(entry: Stress) -> str:
    """The same as a range of the values tried."""
    tried = [_value(entry, p.value) for p in entry.points]
    apart = _apart(entry)
    if entry.agrees is None:
        span = f"({tried[0]} to {tried[-1]} tried)"
        if not apart:
            return f"nowhere within 1 % {span}"
        return f"not in training, though within 1 % at {listed(apart, most=6)} {span}"
    low, high = (_value(entry, v) for v in entry.agrees)
    also = f", and at {listed(apart, most=6)}" if apart else ""
    return f"within 1 %: {low if low == high else f'{low} to {high}'}{also} (of {tried[0]} to {tried[-1]} tried)"


def _apart(entry: Stress) -> list[str]:
    """Values at which the algorithm surely agrees, in no one piece with those of training."""
    low, high = entry.agrees or (math.inf, -math.inf)
    sure = [p.value for p in entry.points if is_finite(top := p.unexplained_ci[1]) and top <= AGREES]
    return [_value(entry, v) for v in sure if not low <= v <= high]


def stress_finding(analysis: Analysis) -> str:
    known = [entry for entry in analysis.evidence.stress if entry.points]
    if not known:
        return "Nothing outside the training distribution was tried"
    who = f"The {algorithm(analysis)}"
    reached = [entry for entry in known if entry.agrees is not None]
    if not reached:
        left = [p.unexplained for entry in known for p in entry.points if p.trained and is_finite(p.unexplained)]
        count = max((p.prompts for entry in known for p in entry.points), default=0)
        own = f", on samples of {count} prompts of their own" if left else ""
        span = f": there {_span(left)} of the variance is unexplained{own}" if left else ""
        elsewhere = [f"{entry.label} {listed(values, most=6)}" for entry in known if (values := _apart(entry))]
        if not elsewhere:
            return f"{who} is nowhere within 1 % of the network{span.replace('there', 'in training already')}"
        return f"{who} is not within 1 % of the network in training{span}; yet it is with {'; '.join(elsewhere)}"
    text = "; ".join(reach(entry) for entry in reached)
    if all(whole(entry) for entry in known):
        return f"{who} stays within 1 % of the network wherever it was tried: {text}"
    nowhere = "" if len(reached) == len(known) else ", and not in training along the other axes"
    return f"{who} stays within 1 % of the network for {text}{nowhere}; beyond, they part"


def _span(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def whole(entry: Stress) -> bool:
    """Whether the algorithm agrees wherever it was tried."""
    tried = [p.value for p in entry.points]
    return entry.agrees is not None and entry.agrees == (min(tried), max(tried))


def point_text(entry: Stress, point: StressPoint) -> str:
    """One point in words, for hover and table."""
    low, high = point.unexplained_ci
    if not is_finite(point.unexplained):
        return point.skipped or "not measured"
    known = is_finite(low) and is_finite(high)
    return percent(point.unexplained) + (f" [{percent(low)}, {percent(high)}]" if known else "")


# --- what absorbs the rest ------------------------------------------------------------------------------------------


def absorption_finding(rows: Sequence[Absorption]) -> str:
    known = [row for row in rows if is_finite(row.fidelity)]
    if not known:
        return "Nothing was added to the ω and traces"
    first = known[0]
    enough = next((row for row in known if (row.fidelity or 0.0) >= ABSORBED), None)
    if enough is first:
        return (
            f"The weights' own ω and traces, the rest taken out of all layers at once, predict what the network "
            f"predicts: R² = {interval(first.fidelity, first.fidelity_ci)}"
        )
    without = f"The weights' own ω and traces alone predict R² = {interval(first.fidelity, first.fidelity_ci)} of what "
    without += "the network predicts"
    if enough is None:
        return f"{without}, and no number of directions of the rest restores it"
    if enough.directions <= LOW:
        one = enough.directions == 1
        count = f"{enough.directions} more direction{'s' * (not one)} per layer make{'s' * one}"
        return f"{without}; {count} it 0.99: the rest that matters is of low rank"
    count = f"it takes {enough.directions} more directions per layer"
    return f"{without}; {count} to make it 0.99: the rest that matters is not of rank {LOW} or less"


def evidence_sentences(analysis: Analysis) -> Iterator[str]:
    """What replacing layers and leaving the training distribution showed."""
    evidence = analysis.evidence
    if evidence.swaps:
        yield swap_finding(analysis)
    if evidence.interpolation is not None:
        yield interpolation_finding(analysis)
    if evidence.stress:
        yield stress_finding(analysis)
    if evidence.absorption:
        yield absorption_finding(evidence.absorption)


def change_text(outcome: Outcome) -> str:
    """The change of the error, or that there is none but rounding."""
    return "0 to rounding" if _unchanged(outcome) else estimate(outcome.change, outcome.change_stderr)
