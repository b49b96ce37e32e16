"""Chebyshev iteration: the fastest gradient method when only bounds on the spectrum of Sigma are known.

With theta = (nu + mu)/2, delta = (nu - mu)/2 and eigenvalues in [mu, nu], the error after k steps is multiplied in each
eigen-direction by T_k((theta - value)/delta) / T_k(theta/delta), T_k the Chebyshev polynomial: at most

    2 / (q^k + q^-k),   q = (sqrt(kappa) + 1) / (sqrt(kappa) - 1),   kappa = nu/mu

Source: Saad, "Iterative Methods for Sparse Linear Systems", 2nd edition, algorithm 12.1.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.ridge import damped

__all__ = ["chebyshev", "chebyshev_solve", "chebyshev_steps"]


def chebyshev(
    sigma: Float[Tensor, "prompt dim dim"],
    alpha: Float[Tensor, "prompt dim"],
    smallest: float | Float[Tensor, " prompt"],
    largest: float | Float[Tensor, " prompt"],
    iterations: int,
) -> Float[Tensor, "iterate prompt dim"]:
    """The iterates w_0 = 0, …, w_k for Sigma w = alpha, with ``smallest`` <= eigenvalues of Sigma <= ``largest``."""
    low, high = (torch.as_tensor(bound, dtype=alpha.dtype).reshape(-1, 1) for bound in (smallest, largest))
    _require_bounds(float(low.min()), float((high - low).min()))
    theta, delta = 0.5 * (high + low), 0.5 * (high - low)
    # Saad's recurrence multiplied through by delta, so that delta = 0 (one eigenvalue, solved in one step) is allowed.
    rho, residual, direction = delta / theta, alpha, alpha / theta
    iterates = [torch.zeros_like(alpha)]
    for _ in range(iterations):
        iterates.append(iterates[-1] + direction)
        residual = residual - torch.einsum("nij,nj->ni", sigma, direction)
        factor = 1.0 / (2.0 * theta - delta * rho)
        direction = delta * factor * rho * direction + 2.0 * factor * residual
        rho = delta * factor
    return torch.stack(iterates)


def chebyshev_steps(smallest: float, largest: float, iterations: int) -> tuple[float, ...]:
    """Gradient descent steps whose last iterate is that of Chebyshev iteration:
    eta_j = 1/(theta - delta cos((2j-1) pi / 2k)), j = 1..k."""
    _require_bounds(smallest, largest - smallest)
    theta, delta = 0.5 * (largest + smallest), 0.5 * (largest - smallest)
    angles = ((2 * j - 1) * math.pi / (2 * iterations) for j in range(1, iterations + 1))
    return tuple(1.0 / (theta - delta * math.cos(angle)) for angle in angles)


def chebyshev_solve(
    A: Float[Tensor, "prompt dim dim"],
    b: Float[Tensor, "prompt dim"],
    penalty: float | Float[Tensor, " prompt"],
    steps: int,
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


def _require_bounds(smallest: float, difference: float) -> None:
    if not (smallest > 0 and difference >= 0):
        raise UsageError(
            f"the spectrum bounds have smallest = {smallest:.3g} and largest - smallest = {difference:.3g}, expected "
            f"0 < smallest <= largest"
        )
