"""The classical solvers on the completion problem, beside EAGLE: W A = B in the least-squares sense, then D = W C.

How many iterations each takes until |D_l - D*|_F^2 / |D*|_F^2 falls below a tolerance, D* = B A^+ C:

- gradient descent on |W A - B|_F^2 / 2 with step 1/sigma_1(A)^2. Every singular direction shrinks by a factor of its
  own, (1 - sigma_i^2 / sigma_1^2) per iteration, so its count is found from the spectrum without running it;
- conjugate gradients on the normal equations W A A^T = B A^T, one system for each row of B;
- EAGLE with eta = 1/3, gamma = 1 (``interp.solvers.eagle``);
- Newton-Schulz for the pseudo-inverse of A A^T: W_k = B A^T X_k.

Source: Lutz et al., arXiv 2509.19702, section 5 and appendix E.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.conjugate_gradients import conjugate_gradients
from interp.solvers.eagle import ETA, eagle
from interp.solvers.newton_schulz import inverse_iterates

__all__ = ["Completion", "Count", "counts", "curves", "fixed_iterations", "planted_completion"]

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
    """Iterations until the tolerance, or None with the smallest error that was reached in ``tried`` of them."""

    iterations: int | None
    tried: int
    least: float


def planted_completion(
    d: int, n: int, *, outputs: int, queries: int, kappa: float, seed: int, rank: int | None = None, even: bool = True
) -> Completion:
    """A = U diag(s) V^T with s from 1 down to 1/kappa, evenly spaced in the logarithm (``even``) or log-uniform at
    random (ends included), B = W A and C = A M for standard normal W and M (so rank X = rank A), each scaled to a
    Frobenius norm of 1."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

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


def _cg_errors(problem: Completion, iterations: int) -> Float[Tensor, " iterate"]:
    A = problem.A
    E = (A @ A.mT).expand(problem.B.shape[0], -1, -1)
    iterates = conjugate_gradients(E, problem.B @ A.mT, iterations)  # rows of W as prompts
    return problem.error(iterates @ problem.C)


def _eagle_errors(problem: Completion, iterations: int) -> Float[Tensor, " iterate"]:
    states: Iterator[Tensor] = (state.D for state in eagle(problem.A, problem.B, problem.C))
    return problem.error(torch.stack(list(islice(states, iterations + 1))))


def _newton_errors(problem: Completion, iterations: int) -> Float[Tensor, " iterate"]:
    A = problem.A
    inverses = inverse_iterates((A @ A.mT)[None], iterations)[:, 0]
    return problem.error(problem.B @ A.mT @ inverses @ problem.C)


class _Descent:
    """Gradient descent in the singular directions of A: the error after k iterations, for any k at once."""

    def __init__(self, problem: Completion) -> None:
        U, s, Vh = torch.linalg.svd(problem.A, full_matrices=False)
        kept = s > 1e-13 * s[0]
        self.rate = 1.0 - (s[kept] / s[0]).square()
        self.left = problem.B @ Vh[kept].mT / s[kept]
        self.right = U[:, kept].mT @ problem.C
        self.size = float(problem.D.square().sum())

    def error(self, k: int) -> float:
        return float(((self.left * self.rate**k) @ self.right).square().sum()) / self.size


def counts(problem: Completion, tolerance: float, most: int) -> dict[str, Count]:
    """Iterations of every solver to the tolerance; of those that are run, ``most`` at most."""
    out = {}
    for name, errors in (
        ("eagle", _eagle_errors(problem, min(most, 200))),
        ("newton-schulz", _newton_errors(problem, min(most, 200))),
        ("cg", _cg_errors(problem, most)),
    ):
        reached = torch.nonzero(errors < tolerance).flatten()
        first = int(reached[0]) if len(reached) else None
        out[name] = Count(iterations=first, tried=len(errors) - 1, least=float(errors.nan_to_num(torch.inf).min()))
    descent, low, high = _Descent(problem), 0, 1
    while descent.error(high) >= tolerance and high < MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if descent.error(middle) < tolerance else (middle, high)
    error = descent.error(high)
    out["gd"] = Count(iterations=high if error < tolerance else None, tried=high, least=error)
    return out


def curves(problem: Completion, iterations: int) -> dict[str, list[float]]:
    """The relative squared error after 0, 1, … iterations of every solver."""
    descent = _Descent(problem)
    return {
        "eagle": _eagle_errors(problem, iterations).tolist(),
        "newton-schulz": _newton_errors(problem, iterations).tolist(),
        "cg": _cg_errors(problem, iterations).tolist(),
        "gd": [descent.error(k) for k in range(iterations + 1)],
    }


def fixed_iterations(
    A: Float[Tensor, "prompt d n"],
    B: Float[Tensor, "prompt query n"],
    C: Float[Tensor, "prompt d out"],
    iterations: int,
    eta: float = ETA,
) -> Float[Tensor, "prompt query out"]:
    """D after so many iterations of EAGLE with gamma = 1 on every prompt; with eta = 0, of gradient descent with step
    1/|A|_2^2."""
    D = C.new_zeros(C.shape[0], B.shape[1], C.shape[2])
    for _ in range(iterations):
        E = A.mT @ A
        rho = 1.0 / torch.linalg.eigvalsh(E)[:, -1, None, None].clamp_min(1e-300)
        AC = rho * (A.mT @ C)
        C, D = C - A @ AC, D + B @ AC
        A, B = A - eta * rho * (A @ E), B - eta * rho * (B @ E)
    return D
