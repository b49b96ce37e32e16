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

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

__all__ = ["POLYNOMIAL", "Descent", "Moments", "fit_descent", "moments"]

POLYNOMIAL = "two-step polynomial"
_FAMILIES = ("gd", "preconditioned-gd", "gd++")
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
    """What gradient methods see of the prompts. ``x_unit`` is what x was divided by."""

    sigma: Float[Tensor, "prompt 2 2"]
    alpha: Float[Tensor, "prompt 2"]
    query: Float[Tensor, "prompt 2"]
    x_unit: float = 1.0

    def __getitem__(self, index: slice) -> Moments:
        return Moments(self.sigma[index], self.alpha[index], self.query[index], self.x_unit)


def moments(prompts: Points, keys: str, x_unit: float = 1.0, y_unit: float = 1.0) -> Moments:
    """Means over the context, or (``keys`` "all") also over the query with y = 0."""
    x, y, u = prompts.x / x_unit, prompts.y / y_unit, prompts.x_query / x_unit
    query = torch.stack([torch.ones_like(u), u], -1)
    if keys == "all":
        x, y = torch.cat([x, u[:, None]], 1), torch.cat([y, torch.zeros_like(u)[:, None]], 1)
    phi = torch.stack([torch.ones_like(x), x], -1)
    return Moments(phi.mT @ phi / x.shape[1], (phi.mT @ y[..., None])[..., 0] / x.shape[1], query, x_unit)


@dataclass(frozen=True, eq=False)
class Descent:
    """A fitted method. ``predict`` takes any prompts of the same kind."""

    name: str
    formula: str
    parameters: int
    predict: Callable[[Points], Float[Tensor, " prompt"]]
    # Of a method that takes steps: A_k and C_k of each, C_k = 0 but for gd++, in the units that follow.
    steps: Float[Tensor, "step matrix 2 2"] | None = None
    x_unit: float = 1.0
    y_unit: float = 1.0


def fit_descent(
    prompts: Points,
    keys: str,
    network: Float[Tensor, " prompt"],
    steps: int,
    seed: int,
    names: Collection[str] = (*_FAMILIES, POLYNOMIAL),
) -> tuple[Descent, ...]:
    """The methods of ``steps`` steps by name, fitted to the network's predictions; the polynomial for two or fewer."""
    x_unit, y_unit = (float(v.square().mean().sqrt()) or 1.0 for v in (prompts.x, prompts.y))
    seen, reference = moments(prompts, keys, x_unit, y_unit), network / y_unit
    few, few_reference = seen[:MOST_PROMPTS], reference[:MOST_PROMPTS]
    out = []
    for name, (formula, width, method) in _METHODS.items():
        if name not in names:
            continue
        theta = _fit(method, width * steps, steps, few, few_reference, seed)

        def predict(drawn: Points, method: _Method = method, theta: Tensor = theta) -> Tensor:
            return y_unit * method(theta, steps, moments(drawn, keys, x_unit, y_unit))

        made = _matrices(name, theta, steps, x_unit)
        out.append(Descent(name, formula, width * steps, predict, made, x_unit, y_unit))
    if steps <= 2 and POLYNOMIAL in names:
        features = _polynomials(seen)
        scale = features.square().mean(0).sqrt().clamp_min(1e-300)
        solution = torch.linalg.lstsq(features / scale, reference[:, None], driver="gelsd").solution[:, 0] / scale
        out.append(
            Descent(
                POLYNOMIAL,
                "ŷ = φᵀ (M α + v), M and v cubic in Σ",
                features.shape[1],
                lambda drawn: y_unit * (_polynomials(moments(drawn, keys, x_unit, y_unit)) @ solution),
            )
        )
    return tuple(out)


def _matrices(name: str, theta: Tensor, steps: int, x_unit: float) -> Float[Tensor, "step matrix 2 2"]:
    """A_k and C_k of every step."""
    if name == "gd++":
        return theta.view(steps, 2, 2, 2)
    A = theta[:, None, None] * _metric(x_unit) if name == "gd" else theta.view(steps, 2, 2)
    return torch.stack([A, torch.zeros_like(A)], 1)


def _metric(x_unit: float) -> Float[Tensor, "2 2"]:
    """A step eta along the gradient for the slope on x is eta * x_unit^2 for the slope on x / x_unit."""
    return torch.diag(torch.tensor([1.0 / x_unit**2, 1.0], dtype=torch.float64))


_Method = Callable[[Tensor, int, Moments], Tensor]


def _gd(theta: Tensor, steps: int, m: Moments) -> Float[Tensor, " prompt"]:
    metric = _metric(m.x_unit)
    return _preconditioned(torch.cat([(eta * metric).flatten() for eta in theta]), steps, m)


def _preconditioned(theta: Tensor, steps: int, m: Moments) -> Float[Tensor, " prompt"]:
    w = torch.zeros_like(m.alpha)
    for A in theta.view(steps, 2, 2):
        w = w + (m.alpha - (m.sigma @ w[..., None])[..., 0]) @ A.T
    return (w * m.query).sum(-1)


def _gdpp(theta: Tensor, steps: int, m: Moments) -> Float[Tensor, " prompt"]:
    sigma, alpha, query = m.sigma, m.alpha, m.query
    total = torch.zeros_like(query[:, 0])
    identity = torch.eye(2, dtype=theta.dtype)
    for A, C in theta.view(steps, 2, 2, 2):
        step = alpha @ A.T
        total = total + (step * query).sum(-1)
        T = identity + C @ sigma
        # labels lose what the step explains, inputs are transformed: alpha and Sigma of the new examples
        alpha = (T @ (alpha - (sigma @ step[..., None])[..., 0])[..., None])[..., 0]
        query, sigma = (T @ query[..., None])[..., 0], T @ sigma @ T.mT
    return total


_METHODS: dict[str, tuple[str, int, _Method]] = {
    "gd": ("w ← w + η (α − Σ w)", 1, _gd),
    "preconditioned-gd": ("w ← w + A (α − Σ w)", 4, _preconditioned),
    "gd++": ("w ← w + A (α − Σ w), φ ← (I + C Σ) φ", 8, _gdpp),
}


def _fit(
    method: _Method, count: int, steps: int, m: Moments, reference: Float[Tensor, " prompt"], seed: int
) -> Float[Tensor, " parameter"]:
    """The best of a few Levenberg-Marquardt runs: from small steps, and from random ones."""
    generator = torch.Generator().manual_seed(seed)

    def one(theta: Tensor, sigma: Tensor, alpha: Tensor, query: Tensor) -> Tensor:
        return method(theta, steps, Moments(sigma[None], alpha[None], query[None], m.x_unit))[0]

    rows = torch.func.vmap(torch.func.grad(one), (None, 0, 0, 0))

    def jacobian(theta: Tensor) -> Float[Tensor, "prompt parameter"]:
        return rows(theta, m.sigma, m.alpha, m.query)

    size = float(reference.square().mean().sqrt()) or 1.0

    def residual(theta: np.ndarray) -> np.ndarray:
        found = (method(torch.from_numpy(theta), steps, m) - reference) / size
        return torch.nan_to_num(found, nan=1e12, posinf=1e12, neginf=-1e12).clamp(-1e12, 1e12).numpy()

    def slope(theta: np.ndarray) -> np.ndarray:
        return torch.nan_to_num(jacobian(torch.from_numpy(theta)) / size, nan=0.0, posinf=0.0, neginf=0.0).numpy()

    best, cost = np.zeros(count), np.inf
    for start in range(STARTS):
        theta = (0.1 if start == 0 else 0.5) * torch.randn(count, generator=generator, dtype=torch.float64)
        theta[:: count // steps] = 0.3  # the first number of every step is a step size
        # The stub of scipy knows jac as a word only.
        found = least_squares(residual, theta.numpy(), jac=slope, x_scale="jac", max_nfev=EVALUATIONS)  # type: ignore[arg-type]
        if found.cost < cost:
            best, cost = found.x, found.cost
    return torch.from_numpy(best)


def _polynomials(m: Moments) -> Float[Tensor, "prompt feature"]:
    """query_a (1, alpha)_b (Sigma_01)^i (Sigma_11)^j for i + j <= DEGREE; Sigma_00 is 1."""
    first, second = m.sigma[:, 0, 1], m.sigma[:, 1, 1]
    powers = torch.stack([first**i * second**j for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)], -1)
    linear = torch.cat([torch.ones_like(m.alpha[:, :1]), m.alpha], -1)
    pairs = torch.einsum("na,nb->nab", m.query, linear).flatten(1)
    return torch.einsum("np,nq->npq", pairs, powers).flatten(1)
