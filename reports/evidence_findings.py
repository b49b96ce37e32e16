"""What replaced layers, the path to the algorithm and stress say, in sentences: for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interp.reports.noise_findings import layers_named
from interp.reports.numbers import DASH, estimate, interval, is_finite, number, percent
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
            f"for {layers_named([s.layer for s in good])} alone, not for {where}{much}"
        )
    if len(swaps) == 1:
        left = swaps[0].swapped.fidelity
        share = percent(1 - left) if is_finite(left) else "an unknown share"
        return f"In the place of the only layer, the {algorithm(analysis)} leaves {share} of what the network does"
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
    error = path.barrier_stderr or 0.0
    if path.barrier <= max(LEVEL * first, 2 * error, 0.0):
        span = "" if abs(last - first) <= LEVEL * first else f", from {number(first, 3)} to {number(last, 3)}"
        level = "stays level" if not span else "has no barrier"
        return f"On the straight path from {ends} the error {level}{span}"
    peak = _peak(path)
    apart = ": they behave alike but are not near each other" if analysis.verdict.recognized else ""
    top = DASH if peak is None else _size(peak)
    return f"On the straight path from {ends} the error rises to {top}, from {number(first, 3)}{apart}"


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
    if entry.agrees is None:
        return f"nowhere within 1 % ({tried[0]} to {tried[-1]} tried)"
    low, high = (_value(entry, v) for v in entry.agrees)
    return f"within 1 %: {low if low == high else f'{low} to {high}'} (of {tried[0]} to {tried[-1]} tried)"


def stress_finding(analysis: Analysis) -> str:
    known = [entry for entry in analysis.evidence.stress if entry.points]
    if not known:
        return "Nothing outside the training distribution was tried"
    who = f"The {algorithm(analysis)}"
    reached = [entry for entry in known if entry.agrees is not None]
    if not reached:
        left = [p.unexplained for entry in known for p in entry.points if p.trained and is_finite(p.unexplained)]
        span = f": in training already {_span(left)} of the variance is unexplained" if left else ""
        return f"{who} is nowhere within 1 % of the network{span}"
    text = "; ".join(reach(entry) for entry in reached)
    if all(whole(entry) for entry in known):
        return f"{who} stays within 1 % of the network wherever it was tried: {text}"
    nowhere = "" if len(reached) == len(known) else ", and nowhere along the other axes"
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
        count = f"{enough.directions} more direction{'s' * (enough.directions != 1)}"
        return f"{without}; {count} per layer make it 0.99: the rest that matters is of low rank"
    count = f"it takes {enough.directions} more directions per layer"
    return f"{without}; {count} to make it 0.99: the rest is not of low rank"


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
