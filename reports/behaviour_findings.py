"""What the comparison with classical solvers says, in sentences. Behaviour only: it never says what a network is."""

from __future__ import annotations

from interp.reports.findings import listed
from interp.reports.numbers import DASH, interval, is_finite, number, percent
from interp.results import Behaviour, Match, Solver

__all__ = [
    "averages",
    "behaviour_finding",
    "iterate_text",
    "last_matches",
    "mark_text",
    "share_text",
    "shift_finding",
    "similarity_finding",
    "weights_finding",
]

COUNTS = ("context-half", "context-double")  # shifts that change the number of tokens
AGREES = 0.01  # predictions that agree to 1 % of their mean square
FINE = 1e-4  # of a share: a narrower interval would print digits that nobody asks for
UNLIKE = 0.9  # predictions that have so little in common with others that no more is said of how far off they are


def share_text(value: float | None, bounds: tuple[float | None, float | None]) -> str:
    """A share that is missed, with its interval where that has a say in the digits; it may exceed 1."""
    if not is_finite(value):
        return DASH
    low, high = bounds
    if is_finite(low) and is_finite(high) and high - low > FINE * abs(value):
        return interval(value, bounds)
    return number(value, 2)


def weights_finding(found: Behaviour) -> str:
    """What the compared weights are worth, where they are a fit; empty where they are exact."""
    if found.weights != "tokens":
        return ""
    r2 = found.linearity_r2[-1] if found.linearity_r2 else None
    return (
        f"The network's weights are a fit to the tokens of every prompt; after the last layer it accounts for "
        f"{percent(r2)} of the variance"
    )


def last_matches(found: Behaviour) -> dict[str, Match]:
    """The match after the last layer, by solver, closest first."""
    depth = max((entry.layer for entry in found.matches), default=0)
    entries = [entry for entry in found.matches if entry.layer == depth and is_finite(entry.distance)]
    return {entry.solver: entry for entry in sorted(entries, key=lambda entry: entry.distance or 0.0)}


def _label(found: Behaviour, name: str) -> str:
    return next((solver.label for solver in found.solvers if solver.name == name), name)


def mark_text(solver: Solver, mark: float) -> str:
    """``4`` steps, or a penalty."""
    return f"{mark:.0f}" if solver.unit == "steps" else number(mark, 2)


def iterate_text(found: Behaviour, entry: Match) -> str:
    """``gradient descent after 4 steps [3, 5]``."""
    solver = next((solver for solver in found.solvers if solver.name == entry.solver), None)
    if solver is None:
        return entry.solver
    low, high = entry.best_ci
    doubt = ""
    if is_finite(low) and is_finite(high) and low != high:
        doubt = f" [{mark_text(solver, low)}, {mark_text(solver, high)}]"
    if solver.unit == "steps":
        return f"{solver.label} after {mark_text(solver, entry.best)}{doubt} step{'s' * (entry.best != 1)}"
    return f"ridge regression with the penalty {mark_text(solver, entry.best)}{doubt}"


def behaviour_finding(found: Behaviour) -> str:
    """Which solver the network is most like after its last layer, and that this is behaviour."""
    last = last_matches(found)
    if not last:
        return "Nothing could be compared with classical solvers"
    entry = next(iter(last.values())) if found.closest is None else last[found.closest]
    missed = f"it misses {share_text(entry.distance, entry.distance_ci)} of the energy of the network's weights"
    if found.closest is None and not (entry.distance or 0.0) < 1 - AGREES:
        return (
            "Behaves like no classical solver with fixed numbers: no iterate of any is nearer to the network's "
            f"weights than no weights at all, by {percent(AGREES)} or more of their energy"
        )
    if found.closest is None:
        return (
            f"Behaves like no classical solver with fixed numbers: the closest is {iterate_text(found, entry)}, and "
            f"{missed}"
        )
    text = f"Behaves most like {iterate_text(found, entry)}: {missed} after the last layer"
    if found.alike:
        text += f". As close, or nearly: {listed([_label(found, name) for name in found.alike])}"
    return text


def similarity_finding(found: Behaviour) -> str:
    """How far errors are the solver's own errors, beside those of predicting zero."""
    entry = last_matches(found).get(found.closest or "")
    if entry is None or not is_finite(entry.similarity):
        return ""
    null = found.null_similarity[-1] if found.null_similarity else None
    return (
        f"Its errors are those of {_label(found, entry.solver)} to a cosine of "
        f"{interval(entry.similarity, entry.similarity_ci)} (those of predicting zero: {number(null, 2)})"
    )


def shift_finding(found: Behaviour, scale: str | float | int = "1") -> str:
    """Outside the task, where the closest solver still predicts what the network does. ``scale`` is what the network
    multiplies its sums by."""
    name = found.closest or next(iter(last_matches(found)), None)
    known = [s for s in found.shifts if name is not None and is_finite(s.disagreement.get(name))]
    if name is None or not known:
        return "Outside the task nothing could be compared"
    apart = [s for s in known if (s.disagreement[name] or 0.0) > AGREES]
    if not apart:
        return f"Outside the task, too, it predicts what {_label(found, name)} does, to {percent(AGREES)} everywhere"
    worst = max(known, key=lambda s: s.disagreement[name] or 0.0)
    most = f"{worst.label} ({share_text(worst.disagreement[name], worst.disagreement_ci[name])})"
    same = [s for s in known if s not in apart]
    steps = any(solver.name == name and solver.unit == "steps" for solver in found.solvers)
    why = (
        ""
        if not (steps and averages(scale) and worst.name in COUNTS)
        else (
            "; there a step fixed for the sum over the tokens is another step for their mean, which the network takes"
        )
    )
    if all((s.disagreement[name] or 0.0) >= UNLIKE for s in known):
        return f"Its predictions are unlike those of {_label(found, name)}, in the task and outside of it"
    if not same:
        return f"Its predictions differ from those of {_label(found, name)} everywhere, most with {most}{why}"
    return (
        f"Its predictions are those of {_label(found, name)} to {percent(AGREES)} with "
        f"{listed([s.label for s in same])}; they differ most with {most}{why}"
    )


def averages(scale: str | float | int) -> bool:
    """Whether the network takes means over its tokens, so that what it does depends less on their number."""
    return isinstance(scale, str) and scale.startswith("1/")
