"""The network beside the classical algorithms: as predictors, and as weight vectors layer by layer.

The implicit weights w^l come from the exact unrolling, so their distances to the baselines' need no probe.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from interp.algebra.unrolling import implicit_states
from interp.models.gram import GramTrajectory
from interp.models.specification import ModelSpec
from interp.models.tasks import NoisyRegression, RegressionPrompts
from interp.results import ImplicitModel
from interp.solvers.baselines import Baseline
from interp.stats.averages import ratio_with_error

__all__ = ["implicit_models"]


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
    known = prompts.statistics
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
