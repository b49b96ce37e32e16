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
from interp.solvers.tuning import TuningSet, minimise_positive

__all__ = ["gradient_descent", "gradient_descent_gain", "tune_constant_step"]


def gradient_descent(
    sigma: Float[Tensor, "prompt dim dim"],
    alpha: Float[Tensor, "prompt dim"],
    steps: Sequence[float],
    momentum: float = 0.0,
) -> Float[Tensor, "iterate prompt dim"]:
    """The iterates for step sizes eta_0, eta_1, …: ``len(steps) + 1`` of them. With momentum beta (Polyak 1964)

        w_{k+1} = w_k + eta_k (alpha - Sigma w_k) + beta (w_k - w_{k-1});

    arXiv 2402.14180 writes it as u <- (1 - beta) u + grad L: its beta is 1 minus this one.
    """
    iterates = [torch.zeros_like(alpha)]
    previous = iterates[0]
    for step in steps:
        w = iterates[-1]
        iterates.append(w + step * (alpha - torch.einsum("nij,nj->ni", sigma, w)) + momentum * (w - previous))
        previous = w
    return torch.stack(iterates)


def gradient_descent_gain(
    values: Float[Tensor, "prompt dim"], steps: Sequence[float], momentum: float = 0.0
) -> Float[Tensor, "prompt dim"]:
    """The spectral gain of the last iterate; without momentum (1 - prod_k (1 - eta_k value)) / value."""
    gain = previous = torch.zeros_like(values)
    for step in steps:
        gain, previous = gain + step * (1.0 - values * gain) + momentum * (gain - previous), gain
    return gain


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """Gradient descent with given step sizes, one per iteration."""

    steps: tuple[float, ...]

    def weights(self, statistics: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
        return gradient_descent(statistics.sigma, statistics.alpha, self.steps)[-1]


def tune_constant_step(tuning: TuningSet, iterations: int) -> GradientDescent:
    """The one step size with the least adjusted loss after ``iterations`` steps."""
    if iterations < 1:
        raise UsageError(f"asked to tune {iterations} gradient descent steps, expected 1 or more")
    values = tuning.statistics.spectrum.values
    scale = tuning.largest_eigenvalue  # step sizes are of the order of its inverse

    def loss(step: float) -> float:
        return float(tuning.gain_loss(gradient_descent_gain(values, [step] * iterations)))

    (step,) = minimise_positive(loss, [[2.0 ** (0.5 * k) / scale for k in range(-16, 5)]])
    return GradientDescent(steps=(step,) * iterations)
