"""The network beside the classical algorithms: as predictors, and as weight vectors layer by layer.

The implicit weights w^l come from the exact unrolling, so their distances to the baselines' need no probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import implicit_states
from interp.identify.losses import Panel
from interp.models.gram import GramTrajectory
from interp.models.specification import ModelSpec
from interp.models.tasks import ContextPrompts, NoisyRegression, RegressionPrompts
from interp.results import ImplicitModel
from interp.solvers.baselines import Baseline, regression_baselines
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet
from interp.stats.averages import ratio_with_error

__all__ = ["classical_panel", "implicit_models", "tuned_baselines"]


def statistics(prompts: RegressionPrompts) -> RegressionStatistics:
    return RegressionStatistics.from_data(prompts.x, prompts.y)


def tuned_baselines(task: NoisyRegression, prompts: int, seed: int) -> tuple[Baseline, ...]:
    """The classical algorithms, their free numbers tuned on prompts of their own."""
    drawn = task.sample(prompts, seed)
    covariance = None if task.covariance is None else torch.tensor(task.covariance, dtype=torch.float64)
    tuning = TuningSet(statistics=statistics(drawn), oracle=task.oracle_weights(drawn), covariance=covariance)
    return regression_baselines(tuning, task.weight_std)


def classical_panel(task: NoisyRegression, baselines: Sequence[Baseline]) -> Panel[ContextPrompts]:
    """The baselines and the oracle as predictors of the target."""

    def predict(prompts: ContextPrompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
        assert isinstance(prompts, RegressionPrompts)  # prompts of the task
        known = statistics(prompts)
        weights = {b.name: b.weights(known) for b in baselines} | {"oracle": task.oracle_weights(prompts)}
        return {name: (w * prompts.x_query).sum(-1, keepdim=True) for name, w in weights.items()}

    labels = {b.name: b.label for b in baselines} | {"oracle": "ridge, true noise (optimal)"}
    return Panel(labels=labels, predict=predict)


def implicit_models(
    trajectory: GramTrajectory,
    spec: ModelSpec,
    task: NoisyRegression,
    prompts: RegressionPrompts,
    baselines: Sequence[Baseline],
    linearity: Sequence[float | None],
) -> tuple[ImplicitModel, ...]:
    """Distance of the implicit weights of every layer to the baselines': E|w - w_b|^2 / E|w_b|^2.

    The weights are those of the prediction, <w, x_t> = sign * y_t^l, so the sign of the read-out is taken out.
    """
    known = statistics(prompts)
    references = {b.name: b.weights(known) for b in baselines if b.name != "null"}
    references |= {"oracle": task.oracle_weights(prompts), "true": prompts.w}
    out = []
    for layer, state in enumerate(implicit_states(trajectory, spec)):
        w = -spec.readout.sign * state.w[:, 0]
        ratios = {name: ratio_with_error(((w - b) ** 2).sum(-1), (b**2).sum(-1)) for name, b in references.items()}
        a = state.a[:, 0, 0]
        out.append(
            ImplicitModel(
                layer=layer,
                a=float(a.mean()) if bool(torch.isfinite(a).all()) else None,
                linearity_r2=linearity[layer],
                distance={name: value for name, (value, _) in ratios.items()},
                distance_stderr={name: error for name, (_, error) in ratios.items()},
            )
        )
    return tuple(out)
