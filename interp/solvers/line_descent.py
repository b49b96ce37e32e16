"""Gradient methods for simple regression, x and y being numbers, with steps fitted to any predictions.

With phi = (1, x), Sigma = mean phi phi^T and alpha = mean phi y over the keys, K steps from w_0 = 0:

    gd                 w <- w + eta_k (alpha - Sigma w)                                       one number per step
    preconditioned-gd  w <- w + A_k (alpha - Sigma w)                                         a 2 x 2 matrix per step
    gd++               the same, and phi <- (I + C_k Sigma_k) phi between steps               two matrices per step
    polynomial         phi^T (M alpha + v), every entry of M and v a cubic in Sigma           linear regression

Two steps of any of the first three are polynomials of the fourth kind (a step is linear in alpha, and gd++ transforms
inputs once, which makes phi^T (I + C Sigma)^T A (I + C Sigma) (...): cubic in Sigma), and so is any method that takes
two steps along gradients, whatever its start, momentum or matrices. Units: x and y in their root mean squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats.prediction_fits import fit_predictions

__all__ = ["METHODS", "POLYNOMIAL", "Descent", "fit_descent"]

POLYNOMIAL = "two-step polynomial"
METHODS = {"gd": 1, "preconditioned-gd": 4, "gd++": 8}  # numbers a step
STARTS = 2
MOST_PROMPTS = 1024  # that the iterated methods are fitted on
DEGREE = 3  # in Sigma
EVALUATIONS = 50  # of the residuals, from every start


@runtime_checkable
class Points(Protocol):
    """Examples (x_i, y_i) of many prompts, and the query of each."""

    @property
    def x(self) -> Float[Tensor, "prompt context"]: ...

    @property
    def y(self) -> Float[Tensor, "prompt context"]: ...

    @property
    def x_query(self) -> Float[Tensor, " prompt"]: ...


@dataclass(frozen=True, eq=False)
class Moments:
    """What gradient methods see of the prompts."""

    sigma: Float[Tensor, "prompt 2 2"]
    alpha: Float[Tensor, "prompt 2"]
    query: Float[Tensor, "prompt 2"]

    @classmethod
    def of(cls, prompts: Points, keys: str, x_unit: float, y_unit: float) -> Moments:
        """Means over the context, or (``keys`` "all") also over the query with y = 0."""
        x, y, u = prompts.x / x_unit, prompts.y / y_unit, prompts.x_query / x_unit
        query = torch.stack([torch.ones_like(u), u], -1)
        if keys == "all":
            x, y = torch.cat([x, u[:, None]], 1), torch.cat([y, torch.zeros_like(u)[:, None]], 1)
        phi = torch.stack([torch.ones_like(x), x], -1)
        return cls(phi.mT @ phi / x.shape[1], (phi.mT @ y[..., None])[..., 0] / x.shape[1], query)


@dataclass(frozen=True, eq=False)
class Descent:
    """A fitted method. ``predict`` takes any prompts of the same kind."""

    name: str
    parameters: int
    predict: Callable[[Points], Float[Tensor, " prompt"]]
    # Of a method that takes steps: A_k and C_k of each, C_k = 0 but for gd++, in the units that follow.
    steps: Float[Tensor, "step matrix 2 2"] | None
    x_unit: float
    y_unit: float


def fit_descent(
    prompts: Points, keys: str, network: Float[Tensor, " prompt"], steps: int, seed: int, name: str
) -> Descent | None:
    """The method of this name with ``steps`` steps, fitted to the network's predictions; no polynomial for more than
    two."""
    x_unit, y_unit = (float(v.square().mean().sqrt()) or 1.0 for v in (prompts.x, prompts.y))
    seen, reference = Moments.of(prompts, keys, x_unit, y_unit), network / y_unit
    if name == POLYNOMIAL:
        if steps > 2:
            return None
        features = _polynomials(seen)
        scale = features.square().mean(0).sqrt().clamp_min(1e-300)
        theta = torch.linalg.lstsq(features / scale, reference[:, None], driver="gelsd").solution[:, 0] / scale
        taken = None
    else:
        few = tuple(part[:MOST_PROMPTS] for part in (seen.sigma, seen.alpha, seen.query))

        def run(theta: Tensor, *parts: Tensor) -> Tensor:
            return _predictions(_matrices(name, theta, steps, x_unit), Moments(*parts))

        def one(theta: Tensor, *parts: Tensor) -> Tensor:
            return run(theta, *(part[None] for part in parts))[0]

        rows = torch.func.vmap(torch.func.grad(one), (None, 0, 0, 0))
        theta = fit_predictions(
            lambda t: run(t, *few)[:, None],
            reference[:MOST_PROMPTS, None],
            _starts(METHODS[name] * steps, steps, seed),
            EVALUATIONS,
            lambda t: rows(t, *few),
        )
        taken = _matrices(name, theta, steps, x_unit)

    def predict(drawn: Points) -> Tensor:
        m = Moments.of(drawn, keys, x_unit, y_unit)
        return y_unit * (_polynomials(m) @ theta if taken is None else _predictions(taken, m))

    return Descent(name, len(theta), predict, taken, x_unit, y_unit)


def _starts(count: int, steps: int, seed: int) -> list[Float[Tensor, " parameter"]]:
    """Small steps, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    starts = []
    for start in range(STARTS):
        theta = (0.1 if start == 0 else 0.5) * torch.randn(count, generator=generator, dtype=torch.float64)
        theta[:: count // steps] = 0.3  # the first number of every step is a step size
        starts.append(theta)
    return starts


def _matrices(name: str, theta: Tensor, steps: int, x_unit: float) -> Float[Tensor, "step matrix 2 2"]:
    """A_k and C_k of every step. A step eta along the gradient for the slope on x is eta * x_unit^2 for the slope on
    x / x_unit."""
    if name == "gd++":
        return theta.view(steps, 2, 2, 2)
    metric = torch.diag(torch.tensor([1.0 / x_unit**2, 1.0], dtype=torch.float64))
    A = theta[:, None, None] * metric if name == "gd" else theta.view(steps, 2, 2)
    return torch.stack([A, torch.zeros_like(A)], 1)


def _predictions(matrices: Float[Tensor, "step matrix 2 2"], m: Moments) -> Float[Tensor, " prompt"]:
    sigma, alpha, query = m.sigma, m.alpha, m.query
    total = torch.zeros_like(query[:, 0])
    for A, C in matrices:
        step = alpha @ A.T
        total = total + (step * query).sum(-1)
        T = torch.eye(2, dtype=alpha.dtype) + C @ sigma
        # labels lose what the step explains, inputs are transformed: alpha and Sigma of the new examples
        alpha = (T @ (alpha - (sigma @ step[..., None])[..., 0])[..., None])[..., 0]
        query, sigma = (T @ query[..., None])[..., 0], T @ sigma @ T.mT
    return total


def _polynomials(m: Moments) -> Float[Tensor, "prompt feature"]:
    """query_a (1, alpha)_b (Sigma_01)^i (Sigma_11)^j for i + j <= DEGREE; Sigma_00 is 1."""
    first, second = m.sigma[:, 0, 1], m.sigma[:, 1, 1]
    powers = torch.stack([first**i * second**j for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)], -1)
    linear = torch.cat([torch.ones_like(m.alpha[:, :1]), m.alpha], -1)
    pairs = torch.einsum("na,nb->nab", m.query, linear).flatten(1)
    return torch.einsum("np,nq->npq", pairs, powers).flatten(1)
