"""What causal checks say, in sentences: that predictions follow a transplant, and that an erased target is missed."""

from __future__ import annotations

from collections.abc import Sequence

from interp.reports.findings import listed
from interp.reports.numbers import interval, is_finite, number
from interp.reports.probe_findings import depth_text
from interp.results import Analysis, Erasure, ImplicitFit, ProbeReport, Transplant

__all__ = [
    "erased_targets",
    "erasure_finding",
    "interventions",
    "linear",
    "linearity_finding",
    "skipped_checks",
    "transplant_finding",
]

FOLLOWS = 1e-4  # error of predictions that follow within 1 %
EXACT = 1e-9  # 1 - R^2 below it is rounding


def interventions(moved: Sequence[Transplant], erased: Sequence[Erasure]) -> str:
    """What was done to the activations, in words."""
    done = ["other implicit weights are put in place"] if any(row.reason is None for row in moved) else []
    done += ["what a probe reads is erased"] if any(row.reason is None for row in erased) else []
    return listed(done) if done else "nothing was changed"


def transplant_finding(rows: Sequence[Transplant]) -> str:
    """After which layers the prediction follows the weights of another prompt, and what that proves."""
    made = [row for row in rows if row.kind == "weights" and row.reason is None and is_finite(row.error)]
    if not made:
        return "No implicit weights could be transplanted"
    followed = [row for row in made if is_finite(row.error) and row.error < FOLLOWS]
    if len(followed) == len(made):
        worst = max(row.error or 0.0 for row in made)
        return (
            f"The network predicts from its implicit weights: given those of another prompt, it predicts what they "
            f"imply, {_depths(made)} (of the change, it misses {number(worst, 1)} at most)"
        )
    others = [row for row in made if row not in followed]
    told = [f"{depth_text(row.layer)} the effect is {interval(row.effect, row.effect_ci)}" for row in others]
    if not followed:
        return f"Predictions do not follow transplanted implicit weights: {listed(told, most=4)}, where 1 is expected"
    return (
        f"Predictions follow the implicit weights of another prompt {_depths(followed)}, but not everywhere: "
        f"{listed(told, most=4)}, where 1 is expected"
    )


def _depths(rows: Sequence[Transplant]) -> str:
    layers = sorted({row.layer for row in rows})
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"after {layers[0]} to {layers[-1]} layers"
    return f"after {listed([str(layer) for layer in layers])} layer{'s' * (layers != [1])}"


def erased_targets(rows: Sequence[Erasure]) -> dict[str, list[Erasure]]:
    """The erasures that were made, by target."""
    made: dict[str, list[Erasure]] = {}
    for row in rows:
        if row.reason is None and is_finite(row.effect):
            made.setdefault(row.target, []).append(row)
    return made


def used(row: Erasure) -> bool:
    """Whether the loss rises by more than with as many random directions erased: the intervals are apart."""
    low, high = row.effect_ci[0], row.random_ci[1]
    return is_finite(low) and is_finite(high) and low > max(high, 0.0)


def erasure_finding(rows: Sequence[Erasure]) -> str:
    """Which decoded targets the prediction needs, and which could be read but are not shown to be used."""
    made = erased_targets(rows)
    if not made:
        return "No target could be erased: the token holds none of them for a linear probe to read"
    told, idle = [], []
    for target, own in made.items():
        worst = max((row for row in own if used(row)), key=lambda row: row.effect or 0.0, default=None)
        if worst is None:
            idle.append(target)
        else:
            told.append(
                f"{target} ({interval(worst.effect, worst.effect_ci)} {depth_text(worst.layer)}; as many random "
                f"directions: {interval(worst.random, worst.random_ci)})"
            )
    parts = [f"The prediction needs what is erased, by the loss that is gained: {listed(told)}"] if told else []
    if idle:
        parts.append(f"To erase {listed(idle)} costs no more than to erase random directions")
    return ". ".join(parts)


def linear(fits: Sequence[ImplicitFit]) -> bool:
    """Whether every figure is 1 to rounding."""
    return all(is_finite(fit.linearity_r2) and fit.linearity_r2 > 1 - EXACT for fit in fits)


def linearity_finding(fits: Sequence[ImplicitFit]) -> str:
    """How linear the labels are in the tokens of their prompt."""
    known = [fit for fit in fits if is_finite(fit.linearity_r2)]
    if not known:
        return "How linear the implicit model of a prompt is could not be scored"
    lowest = min(known, key=lambda fit: fit.linearity_r2 or 0.0)
    if linear(fits):
        return "The implicit model of a prompt is linear wherever it was read: R² is 1 to rounding"
    place = "" if lowest.position is None else f" and the tokens before {lowest.position}"
    return (
        f"The implicit model of a prompt is not exactly linear: R² is lowest {depth_text(lowest.layer)}{place}, "
        f"{interval(lowest.linearity_r2, lowest.linearity_r2_ci)}"
    )


def skipped_checks(result: Analysis | ProbeReport) -> list[str]:
    """The interventions that were not made, those of the same reason together."""
    layers: dict[tuple[str, str], list[str]] = {}
    for row in result.transplants:
        if row.reason is not None:
            layers.setdefault((f"transplant of {row.kind}", row.reason), []).append(str(row.layer))
    for row in result.erasures:
        if row.reason is not None:
            layers.setdefault((f"erasure of {row.target}", row.reason), []).append(str(row.layer))
    return [f"{what} after {', '.join(found)} layers: {reason}" for (what, reason), found in layers.items()]
