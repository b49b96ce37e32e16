"""What the network and the recovered algorithm do on fresh prompts, beside the classical baselines.

Losses are mean squared errors against the noise-free target, all on the same held-out prompts, each with its standard
error over prompts. The implicit weights w^l come from the exact unrolling, so their distances need no probe.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algorithms.baselines import Baseline, regression_baselines
from interp.algorithms.statistics import RegressionStatistics
from interp.algorithms.tuning import TuningSet
from interp.models.gram import GramTrajectory
from interp.models.specification import ModelSpec
from interp.models.tasks import NoisyRegression, RegressionPrompts
from interp.results import ImplicitModel, Loss
from interp.unrolling import implicit_states, prediction

__all__ = ["depth_losses", "implicit_models", "loss", "reference_losses", "solves_task", "tuned_baselines"]

SOLVES_SHARE = (
    0.05  # least share of what the oracle gains over predicting zero that a network must gain, to solve a task
)


def loss(
    name: str, label: str, predicted: Float[Tensor, "prompt ..."], target: Float[Tensor, "prompt ..."]
) -> Loss:
    """Mean squared error per prompt (summed over outputs), with its standard error."""
    squares = ((predicted - target) ** 2).flatten(1).sum(1)
    if not bool(torch.isfinite(squares).all()):
        return Loss(name=name, label=label, mse=None, stderr=None)
    return Loss(name=name, label=label, mse=float(squares.mean()), stderr=_stderr(squares))


def _stderr(values: Float[Tensor, " prompt"]) -> float | None:
    return float(values.std()) / len(values) ** 0.5 if len(values) > 1 else None


def statistics(prompts: RegressionPrompts) -> RegressionStatistics:
    return RegressionStatistics.from_data(prompts.x, prompts.y)


def tuned_baselines(task: NoisyRegression, prompts: int, seed: int) -> tuple[Baseline, ...]:
    """The classical algorithms, their free numbers tuned on prompts of their own."""
    drawn = task.sample(prompts, seed)
    covariance = None if task.covariance is None else torch.tensor(task.covariance, dtype=torch.float64)
    tuning = TuningSet(statistics=statistics(drawn), oracle=task.oracle_weights(drawn), covariance=covariance)
    return regression_baselines(tuning, task.weight_std)


def reference_losses(
    task: NoisyRegression, prompts: RegressionPrompts, baselines: Sequence[Baseline]
) -> tuple[Loss, ...]:
    """Losses of the baselines and of the oracle on ``prompts``."""
    known, out = statistics(prompts), []
    for baseline in baselines:
        predicted = (baseline.weights(known) * prompts.x_query).sum(-1)
        out.append(loss(baseline.name, baseline.label, predicted[:, None, None], prompts.target))
    out.append(loss("oracle", "ridge, true noise (optimal)", task.oracle(prompts), prompts.target))
    return tuple(out)


def solves_task(
    predicted: Float[Tensor, "prompt ..."],
    oracle: Float[Tensor, "prompt ..."],
    target: Float[Tensor, "prompt ..."],
) -> tuple[bool, float | None]:
    """Whether the network beats predicting zero: by more than two standard errors (paired), and by at least
    ``SOLVES_SHARE`` of what the oracle gains. Also returns that share."""
    null = (target**2).flatten(1).sum(1)
    gain = null - ((predicted - target) ** 2).flatten(1).sum(1)
    possible = float((null - ((oracle - target) ** 2).flatten(1).sum(1)).mean())
    if not bool(torch.isfinite(gain).all()) or possible <= 0:
        return False, None
    share, error = float(gain.mean()) / possible, _stderr(gain)
    return share >= SOLVES_SHARE and error is not None and float(gain.mean()) > 2 * error, share


def depth_losses(
    trajectory: GramTrajectory, spec: ModelSpec, target: Float[Tensor, "prompt query output"]
) -> tuple[Loss, ...]:
    """The loss of the read-out after 0, 1, ..., L layers."""
    return tuple(
        loss(f"layer-{layer}", f"read-out after layer {layer}", prediction(tokens, spec), target)
        for layer, tokens in enumerate(trajectory.queries)
    )


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
        ratios = {name: _relative_distance(w, b) for name, b in references.items()}
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


def _relative_distance(
    w: Float[Tensor, "prompt dim"], other: Float[Tensor, "prompt dim"]
) -> tuple[float | None, float | None]:
    """E|w - b|^2 / E|b|^2 and its standard error (delta method for a ratio of means)."""
    top, bottom = ((w - other) ** 2).sum(-1), (other**2).sum(-1)
    if not bool(torch.isfinite(top).all()) or not float(bottom.mean()) > 0:
        return None, None
    ratio = float(top.mean() / bottom.mean())
    error = _stderr((top - ratio * bottom) / bottom.mean())
    return ratio, error
