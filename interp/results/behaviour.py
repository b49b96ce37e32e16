"""Behaviour: how close a network of regression stays to classical solvers, whatever its weights are.

Nothing here says that a network *is* an algorithm: that is what ``Verdict`` is for. Weights w^l are those by which the
network would predict after l layers, <w^l, x_t>; all figures but the choice of an iterate are from prompts that neither
the solvers' free numbers nor that choice have seen, with 95 % bootstrap intervals over prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interp.results.tables import Tabular

Interval = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Solver:
    """A classical solver; its free numbers come closest to the network's weights after the last layer."""

    name: str
    label: str
    unit: str  # what its iterates are counted by: "steps", or "penalty" along the ridge path
    parameters: Mapping[str, float]
    sensitivity: (
        float | None
    )  # E|dp/dx_t - w_k|^2 / E|dp/dx_t|^2, p the network's prediction, k as after the last layer
    sensitivity_ci: Interval


@dataclass(frozen=True, kw_only=True)
class Match:
    """After ``layer`` layers, the iterate of one solver that comes closest: number ``best`` (a penalty on the ridge
    path), with the interval of that choice over resamples of prompts.

    ``distance`` is E|w^l - w_k|^2 / E|w^l|^2; ``at_budget`` the same for as many steps as layers (None on the ridge
    path). ``similarity``: the cosine of the errors w^l - w and w_k - w over all prompts, w the true weights; that of
    any two poor predictors is high, so it stands beside ``Behaviour.null_similarity``.
    """

    layer: int
    solver: str
    best: float
    best_ci: Interval
    distance: float | None
    distance_ci: Interval
    at_budget: float | None
    similarity: float | None
    similarity_ci: Interval


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Prompts unlike those of the task: by solver (at its iterate after the last layer), E(p - p_k)^2 / E p^2 of the
    predictions. None where the network diverges, with the reason."""

    name: str
    label: str
    disagreement: Mapping[str, float | None]
    disagreement_ci: Mapping[str, Interval]
    prompts: int
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Behaviour(Tabular):
    """``weights``: how w^l was found, "unrolling" (exact) or "tokens" (a fit to the tokens of each prompt);
    ``linearity_r2``: how much of the tokens it accounts for, by layers run.

    ``closest`` is the solver with the least distance after the last layer, None when none comes within ``named``;
    ``alike`` are those whose distances cannot be told from its own. ``solves_task``: whether the network's predictions
    beat predicting zero, as in ``Verdict``, on these prompts alone. ``null_similarity``: by layers run, the similarity
    to predicting zero.
    """

    weights: str
    linearity_r2: tuple[float | None, ...]
    solvers: tuple[Solver, ...]
    matches: tuple[Match, ...]
    null_similarity: tuple[float | None, ...]
    shifts: tuple[Shift, ...]
    solves_task: bool
    closest: str | None
    alike: tuple[str, ...]
    named: float
    prompts: int
    notes: tuple[str, ...] = ()
