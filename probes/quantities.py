"""What targets are made of: functions of a batch of prompts, each computed once however many targets share it.

Vectors with one row per prompt come as (prompt, size) in float64. A position is the index of a token; in a regression
prompt it counts the context, and None is the query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.tasks import DynamicsPrompts, RegressionPrompts

__all__ = ["DynamicsQuantities", "LeastNormSolver", "RegressionQuantities", "chebyshev_solve", "published_solve"]

INVERSE_LAMBDA = 1e-3  # 1/lambda of the mesa paper's probe targets
RANK_TOLERANCE = 1e-12  # eigenvalues below this share of the largest are rounding

# The comparator of the mesa paper's authors for tokens of four channels: alpha and beta of its six steps, learned on
# its task (papers' code, "constructed tokens"); not fitted to any network.
PUBLISHED_ALPHA = (1.0257748, 3.2508426, 3.2583678, 3.2122886, 2.694414, 1.2727231)
PUBLISHED_BETA = (0.0, 0.6787798, 0.30748147, 0.74470717, 1.8360422, 2.3438027)


@dataclass(frozen=True, eq=False)
class LeastNormSolver:
    """A^-1 for symmetric positive semi-definite matrices, factored once; where one is singular, the solution of least
    norm."""

    A: Float[Tensor, "prompt dim dim"]

    @cached_property
    def _factor(self) -> Float[Tensor, "prompt dim dim"] | None:
        factor, failed = torch.linalg.cholesky_ex(self.A)
        diagonal = torch.diagonal(factor, dim1=-2, dim2=-1)
        regular = (failed == 0) & (diagonal.amin(-1) ** 2 > RANK_TOLERANCE * diagonal.amax(-1) ** 2)
        return factor if bool(regular.all()) else None

    def solve(self, b: Float[Tensor, "prompt dim"]) -> Float[Tensor, "prompt dim"]:
        if self._factor is not None:
            return torch.cholesky_solve(b[..., None], self._factor).squeeze(-1)
        values, vectors = torch.linalg.eigh(self.A)
        determined = values > RANK_TOLERANCE * values[:, -1:]
        inverse = torch.where(determined, 1.0 / torch.where(determined, values, 1.0), 0.0)
        return (vectors @ (inverse[..., None] * (vectors.mT @ b[..., None]))).squeeze(-1)


def chebyshev_solve(
    A: Float[Tensor, "prompt dim dim"],
    b: Float[Tensor, "prompt dim"],
    floor: float | Float[Tensor, " prompt"],
    steps: int,
) -> Float[Tensor, "prompt dim"]:
    """``steps`` steps of Chebyshev iteration for A z = b from z = 0: a polynomial in A of degree steps - 1.

    The interval of eigenvalues is [max(floor, nu / steps^2), nu] with nu = |A|_F, an upper bound that a network could
    know, too: k steps resolve a condition number of about k^2. Source of the recurrence: Saad, "Iterative Methods for
    Sparse Linear Systems", algorithm 12.1.
    """
    norm = torch.linalg.vector_norm(A, dim=(-2, -1))[:, None]
    high = norm.clamp_min(1e-300)
    low = torch.maximum(torch.as_tensor(floor, dtype=A.dtype).reshape(-1, 1), high / steps**2).clamp_max(high)
    theta, delta = 0.5 * (high + low), 0.5 * (high - low)
    rho = delta / theta
    z, residual = torch.zeros_like(b), b
    direction = b / theta
    for step in range(steps):
        z = z + direction
        if step + 1 == steps:
            break
        residual = residual - (A @ direction[..., None]).squeeze(-1)
        factor = 1.0 / (2.0 * theta - delta * rho)
        direction = delta * factor * rho * direction + 2.0 * factor * residual
        rho = delta * factor
    return torch.where(norm > 0, z, 0.0)  # the solution of least norm


def published_solve(A: Float[Tensor, "prompt dim dim"], b: Float[Tensor, "prompt dim"]) -> Float[Tensor, "prompt dim"]:
    """The mesa authors' six learned steps, X_6 b / n with n = |A|_F and B = A / n:

    T_k = T_{k-1} (I - alpha_k B), X_k = X_{k-1} + T_k + beta_k (X_{k-1} - X_{k-2}), T_0 = X_0 = X_{-1} = I.
    """
    norm = torch.linalg.vector_norm(A, dim=(-2, -1))[:, None].clamp_min(1e-300)
    term = previous = total = b
    for alpha, beta in zip(PUBLISHED_ALPHA, PUBLISHED_BETA, strict=True):
        term = term - alpha / norm * (A @ term[..., None]).squeeze(-1)
        previous, total = total, total + term + beta * (total - previous)
    return total / norm


@dataclass(frozen=True, eq=False)
class RegressionQuantities:
    """Sigma = X^T X and alpha = X^T y over the context, and what follows from them; sigma is the noise level."""

    prompts: RegressionPrompts
    weight_std: float = 1.0

    def before(self, position: int) -> RegressionQuantities:
        """Those of the first ``position`` tokens, with the input of the next one as the query."""
        known = self.prompts
        prefix = replace(known, x=known.x[:, :position], y=known.y[:, :position], x_query=known.x[:, position])
        return RegressionQuantities(prefix, self.weight_std)

    @cached_property
    def covariance(self) -> Float[Tensor, "prompt dim dim"]:
        return self.prompts.x.mT @ self.prompts.x

    @cached_property
    def alpha(self) -> Float[Tensor, "prompt dim"]:
        return (self.prompts.x.mT @ self.prompts.y[..., None]).squeeze(-1)

    def _damped(self, penalty: Float[Tensor, " prompt"]) -> LeastNormSolver:
        """(Sigma + penalty I)^-1."""
        identity = torch.eye(self.prompts.x.shape[2], dtype=torch.float64)
        return LeastNormSolver(self.covariance + penalty[:, None, None] * identity)

    @cached_property
    def preconditioner(self) -> LeastNormSolver:
        """(Sigma + sigma^2 I)^-1."""
        return self._damped(self.prompts.sigma**2)

    @cached_property
    def w_ols(self) -> Float[Tensor, "prompt dim"]:
        return LeastNormSolver(self.covariance).solve(self.alpha)

    @cached_property
    def w_ridge(self) -> Float[Tensor, "prompt dim"]:
        optimal = self.preconditioner
        if self.weight_std != 1.0:
            optimal = self._damped((self.prompts.sigma / self.weight_std) ** 2)
        return optimal.solve(self.alpha)

    def x(self, position: int | None) -> Float[Tensor, "prompt dim"]:
        return self.prompts.x_query if position is None else self.prompts.x[:, position]

    def y(self, position: int | None) -> Float[Tensor, "prompt 1"]:
        """<w, x>, without noise."""
        return (self.prompts.w * self.x(position)).sum(-1, keepdim=True)

    def preconditioned(self, position: int | None, steps: int | None) -> Float[Tensor, "prompt dim"]:
        """(Sigma + sigma^2 I)^-1 x; by ``steps`` steps of Chebyshev iteration, or exactly."""
        if steps is None:
            return self.preconditioner.solve(self.x(position))
        return chebyshev_solve(self.preconditioner.A, self.x(position), self.prompts.sigma**2, steps)


@dataclass(frozen=True, eq=False)
class DynamicsQuantities:
    """States s_t, and A_t = S_{t-1} S_{t-1}^T + I / lambda with S_{t-1} = [s_0 .. s_{t-1}]."""

    prompts: DynamicsPrompts

    def state(self, position: int, offset: int = 0) -> Float[Tensor, "prompt dim"] | None:
        """s_{position + offset}; None before the first."""
        place = position + offset
        return self.prompts.states[:, place] if place >= 0 else None

    def past_moments(self, position: int) -> Float[Tensor, "prompt dim dim"]:
        past = self.prompts.states[:, :position]
        return past.mT @ past + INVERSE_LAMBDA * torch.eye(past.shape[2], dtype=torch.float64)

    def preconditioned(self, position: int, steps: int | None) -> Float[Tensor, "prompt dim"]:
        """A_t^-1 s_t; by ``steps`` steps of Chebyshev iteration, or exactly."""
        A, s = self.past_moments(position), self.prompts.states[:, position]
        return LeastNormSolver(A).solve(s) if steps is None else chebyshev_solve(A, s, INVERSE_LAMBDA, steps)

    def preconditioned_as_published(self, position: int) -> Float[Tensor, "prompt dim"]:
        return published_solve(self.past_moments(position), self.prompts.states[:, position])
