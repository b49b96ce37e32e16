"""The ridge family: least squares, ridge, and the three noise-blind ridge baselines of arXiv 2402.14180, section 4.

    w = (Sigma + penalty I)^-1 alpha        optimal for penalty = sigma^2 / tau^2 with w ~ N(0, tau^2 I)

ConstRR uses one penalty for every prompt, AdaRR estimates it from the residuals of least squares, TunedRR scales and
caps that estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.statistics import RANK_TOLERANCE, RegressionStatistics, Spectrum
from interp.solvers.tuning import TuningSet, minimise_positive

__all__ = ["ConstRR", "TunedRR", "damped", "ols", "residual_variance", "ridge", "tune_const", "tune_tuned"]


Penalty = float | Float[Tensor, " prompt"]


def ridge_gain(values: Float[Tensor, "prompt dim"], penalty: Penalty) -> Float[Tensor, "prompt dim"]:
    """1/(value + penalty), and 0 where both vanish (the limit penalty -> 0, which gives the least-norm solution)."""
    damped = values + _at_least_zero(penalty).reshape(-1, 1)
    determined = damped > RANK_TOLERANCE * values.amax(-1, keepdim=True)
    return torch.where(determined, 1.0 / torch.where(determined, damped, 1.0), 0.0)


def damped(A: Float[Tensor, "prompt dim dim"], penalty: Penalty) -> Float[Tensor, "prompt dim dim"]:
    """A + penalty I."""
    return A + _at_least_zero(penalty).reshape(-1, 1, 1) * torch.eye(A.shape[-1], dtype=A.dtype)


def _at_least_zero(penalty: Penalty) -> Tensor:
    penalty = torch.as_tensor(penalty, dtype=torch.float64)
    if bool((penalty < 0).any()):
        raise UsageError(f"the ridge penalty reaches down to {float(penalty.min()):.3g}, expected 0 or more")
    return penalty


def ridge(
    sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"], penalty: Penalty
) -> Float[Tensor, "prompt dim"]:
    """(Sigma + penalty I)^-1 alpha, one penalty for all prompts or one each; where that is singular, of all solutions
    the one of least norm. Cholesky where it can be, for its speed. Raises UsageError for a negative penalty."""
    factor, failed = torch.linalg.cholesky_ex(damped(sigma, penalty))
    diagonal = torch.diagonal(factor, dim1=-2, dim2=-1)
    regular = (failed == 0) & (diagonal.amin(-1) ** 2 > RANK_TOLERANCE * diagonal.amax(-1) ** 2)
    if bool(regular.all()):
        return torch.cholesky_solve(alpha[..., None], factor).squeeze(-1)
    spectrum = Spectrum.of(sigma)
    return spectrum.filtered(ridge_gain(spectrum.values, penalty), alpha)


def ols(sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"]) -> Float[Tensor, "prompt dim"]:
    """Least squares, Sigma^-1 alpha; of all solutions the one of least norm when Sigma is singular."""
    return ridge(sigma, alpha, 0.0)


def residual_variance(statistics: RegressionStatistics) -> Float[Tensor, " prompt"]:
    """sigma^2_est = |y - X w_ols|^2 / (n - rank Sigma) = (lambda - <alpha, w_ols>) / (n - d) for Sigma of full rank.

    Raises UsageError when a prompt has no more pairs than dimensions it determines: nothing is left to estimate from.
    """
    spectrum = statistics.spectrum
    freedom = statistics.context - spectrum.determined.sum(-1)
    if bool((freedom < 1).any()):
        raise UsageError(
            f"{statistics.context} context tokens of dimension {statistics.dim} leave no degrees of freedom to "
            "estimate the noise from, expected a context longer than the dimension"
        )
    explained = (ridge_gain(spectrum.values, 0.0) * spectrum.rotate(statistics.alpha).square()).sum(-1)
    return (statistics.lambda_ - explained).clamp_min(0.0) / freedom  # the difference can round below 0


@dataclass(frozen=True, kw_only=True)
class ConstRR:
    """Ridge regression with one penalty (sigma^2/tau^2) for every prompt."""

    penalty: float

    def weights(self, statistics: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
        return statistics.spectrum.filtered(ridge_gain(statistics.spectrum.values, self.penalty), statistics.alpha)


@dataclass(frozen=True, kw_only=True)
class TunedRR:
    """Ridge regression with penalty min(factor * sigma^2_est, cap): also factor * min(sigma^2_est, cap / factor).
    AdaRR has the factor 1/tau^2 and no cap."""

    factor: float = 1.0
    cap: float = math.inf

    def weights(self, statistics: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
        penalty = (self.factor * residual_variance(statistics)).clamp_max(self.cap)
        return statistics.spectrum.filtered(ridge_gain(statistics.spectrum.values, penalty), statistics.alpha)


def tune_const(tuning: TuningSet) -> ConstRR:
    """The penalty of least adjusted loss on ``tuning``; 0 if none above 1e-7 mean eigenvalues beats least squares."""
    values = tuning.statistics.spectrum.values
    scale = max(float(values.mean()), 1e-300)

    def loss(penalty: float) -> float:
        return float(tuning.gain_loss(ridge_gain(values, penalty)))

    grid = [scale * 2.0**k for k in range(-24, 7)]
    (penalty,) = minimise_positive(loss, [grid])
    return ConstRR(penalty=penalty if penalty >= grid[0] and loss(penalty) < loss(0.0) else 0.0)


def tune_tuned(tuning: TuningSet) -> TunedRR:
    """The factor and cap of least adjusted loss on ``tuning`` (both tunings of the paper together)."""
    values = tuning.statistics.spectrum.values
    estimate = residual_variance(tuning.statistics)
    scale = float(estimate.mean())
    if scale <= 1e-12 * float(tuning.statistics.lambda_.mean()) / tuning.statistics.context:
        return TunedRR()  # the residuals are rounding errors: nothing to scale or cap

    def loss(factor: float, cap: float) -> float:
        return float(tuning.gain_loss(ridge_gain(values, (factor * estimate).clamp_max(cap))))

    factor, cap = minimise_positive(loss, [[2.0**k for k in range(-3, 4)], [scale * 2.0**k for k in range(-4, 6)]])
    return TunedRR(factor=factor, cap=cap)
