"""Gradient descent on the least-squares loss of the context, from w = 0.

    L(w) = 1/2 sum_i (y_i - <w, x_i>)^2,   grad L = Sigma w - alpha,   w_{k+1} = w_k + eta_k (alpha - Sigma w_k)

One step gives eta alpha, which is what one layer of linear attention computes (von Oswald et al., "Transformers learn
in-context by gradient descent", arXiv 2212.07677). Every solver returns all iterates, w_0 = 0 first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet, minimise_positive, minimise_smooth

__all__ = [
    "GradientDescent",
    "gradient_descent",
    "gradient_descent_gain",
    "heavy_ball",
    "tune_constant_step",
    "tune_steps",
]


def gradient_descent(
    sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"], steps: Sequence[float]
) -> Float[Tensor, "iterate prompt dim"]:
    """The iterates for step sizes eta_0, eta_1, …: ``len(steps) + 1`` of them."""
    iterates = [torch.zeros_like(alpha)]
    for step in steps:
        w = iterates[-1]
        iterates.append(w + step * (alpha - torch.einsum("nij,nj->ni", sigma, w)))
    return torch.stack(iterates)


def heavy_ball(
    sigma: Float[Tensor, "prompt dim dim"],
    alpha: Float[Tensor, "prompt dim"],
    eta: float,
    beta: float,
    iterations: int,
) -> Float[Tensor, "iterate prompt dim"]:
    """w_{k+1} = w_k + eta (alpha - Sigma w_k) + beta (w_k - w_{k-1})      (Polyak 1964).

    arXiv 2402.14180 writes momentum as u <- (1 - beta) u + grad L: its beta is 1 minus this one.
    """
    iterates = [torch.zeros_like(alpha)]
    previous = iterates[0]
    for _ in range(iterations):
        w = iterates[-1]
        iterates.append(w + eta * (alpha - torch.einsum("nij,nj->ni", sigma, w)) + beta * (w - previous))
        previous = w
    return torch.stack(iterates)


def gradient_descent_gain(
    values: Float[Tensor, "prompt dim"], steps: Sequence[float] | Float[Tensor, " step"]
) -> Float[Tensor, "prompt dim"]:
    """The spectral gain (1 - prod_k (1 - eta_k value)) / value of the last iterate, without the division."""
    gain = torch.zeros_like(values)
    for step in steps:
        gain = gain + step * (1.0 - values * gain)
    return gain


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """Gradient descent with given step sizes, one per iteration."""

    steps: tuple[float, ...]

    def weights(self, statistics: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
        return gradient_descent(statistics.sigma, statistics.alpha, self.steps)[-1]


def tune_constant_step(tuning: TuningSet, iterations: int) -> GradientDescent:
    """The one step size with the least adjusted loss after ``iterations`` steps."""
    _require_iterations(iterations)
    values = tuning.statistics.spectrum.values
    scale = _typical_largest(values)

    def loss(step: float) -> float:
        return float(tuning.gain_loss(gradient_descent_gain(values, [step] * iterations)))

    (step,) = minimise_positive(loss, [[2.0 ** (0.5 * k) / scale for k in range(-16, 5)]])
    return GradientDescent(steps=(step,) * iterations)


def tune_steps(tuning: TuningSet, iterations: int) -> GradientDescent:
    """A step size for every iteration, chosen together for the least adjusted loss after the last one.

    The last iterate does not depend on their order, so they come sorted, smallest first. A local search, started from
    the best constant step with a spread (without one, all steps would stay equal: they have the same gradient).
    """
    _require_iterations(iterations)
    values = tuning.statistics.spectrum.values
    scale = _typical_largest(values)
    constant = tune_constant_step(tuning, iterations).steps[0] * scale
    middles = (torch.arange(iterations, dtype=values.dtype) + 0.5) / iterations

    def loss(scaled: Tensor) -> Tensor:
        return tuning.gain_loss(gradient_descent_gain(values, scaled / scale))

    best, _ = minimise_smooth(loss, constant * (0.7 + 0.6 * middles))
    return GradientDescent(steps=tuple((best / scale).sort().values.tolist()))


def _typical_largest(values: Tensor) -> float:
    """The mean largest eigenvalue: step sizes are of the order of its inverse."""
    return max(float(values[:, -1].mean()), 1e-300)


def _require_iterations(iterations: int) -> None:
    if iterations < 1:
        raise UsageError(f"asked to tune {iterations} gradient descent steps, expected 1 or more")
