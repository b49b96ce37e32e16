"""The classical solvers on the completion problem, beside EAGLE: W A = B in the least-squares sense, then D = W C.

How many iterations each takes until |D_l - D*|_F^2 / |D*|_F^2 falls below a tolerance, D* = B A^+ C:

- gradient descent on |W A - B|_F^2 / 2 with step 1/sigma_1(A)^2. Every singular direction shrinks by a factor of its
  own, (1 - sigma_i^2 / sigma_1^2) per iteration, so its count is found from the spectrum without running it;
- conjugate gradients on the normal equations W A A^T = B A^T, one system for each row of B;
- EAGLE with eta = 1/3 (``interp.solvers.eagle``);
- Newton-Schulz for the pseudo-inverse of A A^T: W_k = B A^T X_k.

Source: Lutz et al., arXiv 2509.19702, section 5 and appendix E.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.conjugate_gradients import conjugate_gradients
from interp.solvers.eagle import eagle
from interp.solvers.newton_schulz import inverse_iterates

__all__ = ["Completion", "counts", "curves", "planted_completion"]

MOST = 10**14  # iterations of gradient descent looked for


@dataclass(frozen=True, eq=False)
class Completion:
    """A completion problem with its known solution."""

    A: Float[Tensor, "d n"]
    B: Float[Tensor, "query n"]
    C: Float[Tensor, "d out"]
    D: Float[Tensor, "query out"]  # B A^+ C

    def error(self, D: Float[Tensor, "*iterate query out"]) -> Float[Tensor, "*iterate"]:
        """The relative squared error."""
        return (D - self.D).square().sum((-1, -2)) / self.D.square().sum()


@dataclass(frozen=True, kw_only=True)
class Count:
    """Iterations until the tolerance, or None, and the smallest error that was reached."""

    iterations: int | None
    least: float


def planted_completion(
    d: int, n: int, *, outputs: int, queries: int, kappa: float, seed: int, rank: int | None = None, even: bool = True
) -> Completion:
    """A = U diag(s) V^T with s from 1 down to 1/kappa, evenly spaced in the logarithm (``even``) or log-uniform at
    random (ends included), B = W A and C = A M for standard normal W and M (so rank X = rank A), each scaled to a
    Frobenius norm of 1."""
    generator = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    rank = min(d, n) if rank is None else rank
    U, V = torch.linalg.qr(normal(d, rank))[0], torch.linalg.qr(normal(n, rank))[0]
    place = torch.linspace(0, 1, rank, dtype=torch.float64)
    if not even:
        place[1:-1] = torch.rand(max(rank - 2, 0), generator=generator, dtype=torch.float64)
    s = kappa ** (-place)
    left, right = normal(queries, d) @ U, V.mT @ normal(n, outputs)
    B, C = (left * s) @ V.mT, U @ (s[:, None] * right)
    D = (left * s) @ right  # B A^+ C
    sizes = float(B.norm()), float(C.norm())
    return Completion((U * s) @ V.mT, B / sizes[0], C / sizes[1], D / sizes[0] / sizes[1])


def _errors(problem: Completion, few: int, many: int) -> dict[str, Float[Tensor, " iterate"]]:
    """After 0, 1, … iterations: ``few`` of the solvers that converge fast, ``many`` of conjugate gradients."""
    A, B, C = problem.A, problem.B, problem.C
    E, alpha = A @ A.mT, B @ A.mT
    iterates = {
        "eagle": torch.stack([state.D for state in islice(eagle(A, B, C), few + 1)]),
        "newton-schulz": alpha @ inverse_iterates(E[None], few)[:, 0] @ C,
        "cg": conjugate_gradients(E.expand(len(B), -1, -1), alpha, many) @ C,  # rows of W as prompts
    }
    return {name: problem.error(D) for name, D in iterates.items()}


def _descent(problem: Completion) -> Callable[[int], float]:
    """Gradient descent in the singular directions of A: the error after k iterations, for any k at once."""
    U, s, Vh = torch.linalg.svd(problem.A, full_matrices=False)
    kept = s > 1e-13 * s[0]
    rate = 1.0 - (s[kept] / s[0]).square()
    left, right = problem.B @ Vh[kept].mT / s[kept], U[:, kept].mT @ problem.C
    size = problem.D.square().sum()
    return lambda k: float(((left * rate**k) @ right).square().sum() / size)


def counts(problem: Completion, tolerance: float, most: int) -> dict[str, Count]:
    """Iterations of every solver to the tolerance; of those that are run, ``most`` at most."""
    out = {}
    for name, errors in _errors(problem, min(most, 200), most).items():
        reached = torch.nonzero(errors < tolerance).flatten()
        first = int(reached[0]) if len(reached) else None
        out[name] = Count(iterations=first, least=float(errors.nan_to_num(torch.inf).min()))
    descent, low, high = _descent(problem), 0, 1
    while descent(high) >= tolerance and high < MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if descent(middle) < tolerance else (middle, high)
    error = descent(high)
    out["gd"] = Count(iterations=high if error < tolerance else None, least=error)
    return out


def curves(problem: Completion, iterations: int) -> dict[str, list[float]]:
    """The relative squared error after 0, 1, … iterations of every solver."""
    descent = _descent(problem)
    ran = {name: errors.tolist() for name, errors in _errors(problem, iterations, iterations).items()}
    return ran | {"gd": [descent(k) for k in range(iterations + 1)]}
