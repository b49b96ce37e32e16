"""(A + penalty I)^-1 b for symmetric positive semi-definite matrices, exactly and by Chebyshev iteration."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.chebyshev import chebyshev
from interp.solvers.ridge import ols
from interp.solvers.statistics import RANK_TOLERANCE

__all__ = ["chebyshev_solve", "damped", "least_norm_solve", "ridge_solve"]

Penalty = float | Float[Tensor, " prompt"]


def damped(A: Float[Tensor, "prompt dim dim"], penalty: Penalty) -> Float[Tensor, "prompt dim dim"]:
    """A + penalty I."""
    penalty = torch.as_tensor(penalty, dtype=A.dtype).reshape(-1, 1, 1)
    return A + penalty * torch.eye(A.shape[-1], dtype=A.dtype)


def least_norm_solve(A: Float[Tensor, "prompt dim dim"], b: Float[Tensor, "prompt dim"]) -> Float[Tensor, "prompt dim"]:
    """A^-1 b; where a matrix is singular, the solution of least norm. Cholesky where it can be, for its speed."""
    factor, failed = torch.linalg.cholesky_ex(A)
    diagonal = torch.diagonal(factor, dim1=-2, dim2=-1)
    regular = (failed == 0) & (diagonal.amin(-1) ** 2 > RANK_TOLERANCE * diagonal.amax(-1) ** 2)
    return torch.cholesky_solve(b[..., None], factor).squeeze(-1) if bool(regular.all()) else ols(A, b)


def ridge_solve(
    A: Float[Tensor, "prompt dim dim"], b: Float[Tensor, "prompt dim"], penalty: Penalty
) -> Float[Tensor, "prompt dim"]:
    """(A + penalty I)^-1 b, or the solution of least norm."""
    return least_norm_solve(damped(A, penalty), b)


def chebyshev_solve(
    A: Float[Tensor, "prompt dim dim"], b: Float[Tensor, "prompt dim"], penalty: Penalty, steps: int
) -> Float[Tensor, "prompt dim"]:
    """``steps`` steps of Chebyshev iteration for (A + penalty I) z = b from z = 0: a polynomial of degree steps - 1.

    The interval of eigenvalues is [max(penalty, nu / steps^2), nu] with nu = |A + penalty I|_F, an upper bound that a
    network could know, too: k steps resolve a condition number of about k^2.
    """
    A = damped(A, penalty)
    norm = torch.linalg.vector_norm(A, dim=(-2, -1))
    high = norm.clamp_min(1e-300)
    low = torch.maximum(torch.as_tensor(penalty, dtype=A.dtype), high / steps**2).minimum(high)
    return torch.where(norm[:, None] > 0, chebyshev(A, b, low, high, steps)[-1], 0.0)  # 0: the solution of least norm
