"""Choosing the free numbers of a baseline: the loss that is minimised, and the two minimisers.

For an estimator that sees the context only, E (<w_hat, x_t> - y_t)^2 = E |C^1/2 (w_hat - w_o)|^2 + loss of the oracle,
where w_o is the posterior mean of w and C the covariance of the query. So the first term, halved as in Table 1 of
arXiv 2402.14180, is the adjusted loss, free of the variance of the query and of the oracle's own error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.lbfgs import LBFGS
from interp.solvers.statistics import RegressionStatistics

__all__ = ["TuningSet", "minimise_positive", "minimise_smooth"]

MOST_MOVES = 200  # of a compass search; those that end of themselves mostly take 20 to 100


@dataclass(frozen=True, eq=False)
class TuningSet:
    """Prompts to tune on. ``oracle`` is the posterior mean of w given the context and its true noise level;
    ``covariance`` holds the eigenvalues of the diagonal covariance C of the inputs (None: C = I)."""

    statistics: RegressionStatistics
    oracle: Float[Tensor, "prompt dim"]
    covariance: Float[Tensor, " dim"] | None = None

    def __post_init__(self) -> None:
        if self.oracle.shape != self.statistics.alpha.shape:
            raise UsageError(
                f"oracle has shape {tuple(self.oracle.shape)}, expected that of alpha, "
                f"{tuple(self.statistics.alpha.shape)}"
            )

    def losses(self, weights: Float[Tensor, "prompt dim"]) -> Float[Tensor, " prompt"]:
        """1/2 |C^1/2 (w_hat - w_o)|^2 of every prompt."""
        return self._half_square(weights - self.oracle)

    def loss(self, weights: Float[Tensor, "prompt dim"]) -> float:
        """The adjusted loss, 1/2 E |C^1/2 (w_hat - w_o)|^2."""
        return float(self.losses(weights).mean())

    def gain_loss(self, gain: Float[Tensor, "prompt dim"]) -> Float[Tensor, ""]:
        """The adjusted loss of V diag(gain) V^T alpha, differentiable in ``gain``."""
        error = gain * self._alpha - self._oracle
        if self.covariance is not None:
            error = torch.einsum("nij,nj->ni", self.statistics.spectrum.vectors, error)
        return self._half_square(error).mean()

    def _half_square(self, error: Tensor) -> Tensor:
        square = error.square()
        return 0.5 * (square if self.covariance is None else square * self.covariance).sum(-1)

    @property
    def largest_eigenvalue(self) -> float:
        """The mean over prompts of Sigma's."""
        return max(float(self.statistics.spectrum.values[:, -1].mean()), 1e-300)

    @cached_property
    def _alpha(self) -> Tensor:
        return self.statistics.spectrum.rotate(self.statistics.alpha)

    @cached_property
    def _oracle(self) -> Tensor:
        return self.statistics.spectrum.rotate(self.oracle)


def minimise_positive(
    function: Callable[..., float], grids: Sequence[Sequence[float]], precision: float = 1e-5
) -> tuple[float, ...]:
    """The positive numbers that minimise ``function``: the best point of the product of the (geometric) ``grids``, then
    a compass search in logarithms until the relative step is below ``precision``, for at most
    ``MOST_MOVES``: along a valley whose floor hardly falls it would creep on and on. The result may lie off the
    grids."""
    best = min(itertools.product(*grids), key=lambda point: function(*point))
    value = function(*best)
    spacing = [math.log(grid[1] / grid[0]) for grid in grids]
    shrink = 0.5
    directions = [d for d in itertools.product((-1, 0, 1), repeat=len(grids)) if any(d)]
    for _ in range(MOST_MOVES):
        if shrink * max(spacing) <= precision:
            break
        around = [
            tuple(b * math.exp(shrink * s * k) for b, s, k in zip(best, spacing, direction, strict=True))
            for direction in directions
        ]
        values = [function(*point) for point in around]
        if min(values) < value:
            value = min(values)
            best = around[values.index(value)]
        else:
            shrink *= 0.5
    return best


def minimise_smooth(
    function: Callable[[Tensor], Tensor], start: Float[Tensor, " parameter"], iterations: int = 200
) -> tuple[Float[Tensor, " parameter"], float]:
    """A local minimum of a differentiable function (L-BFGS with a strong Wolfe line search), and the value there."""
    point = start.clone().requires_grad_()
    optimiser = LBFGS(
        [point],
        max_iter=iterations,
        history_size=20,
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        point.grad = None
        value = function(point)
        value.backward()
        return value

    optimiser.step(closure)  # type: ignore[arg-type]  # the stub says the closure returns float
    found = point.detach()
    return found, float(function(found))
