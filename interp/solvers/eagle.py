"""EAGLE: filling in the hidden block of a matrix by conditioning its visible blocks, layer by layer.

For X = [[A, C], [B, ?]] and D_0 = 0, with Ã = A S, B̃ = B S and rho = |Ã|_2^-2, all from the old values:

    A <- A - eta rho Ã Ã^T Ã S^T        B <- B - eta rho B̃ Ã^T Ã S^T
    C <- C - rho Ã Ã^T C                D <- D + rho B̃ Ã^T C

D converges to the Nystrom estimate B A^+ C (also for a rank-deficient A). With eta = 1/3 and S = I it takes
O(log kappa(A) + log log 1/eps) iterations: A is driven to a partial isometry, with quadratic convergence at the end.

- ``sketch``: S, a new n x r matrix of orthonormal columns in every iteration (the regime of limited computation);
- ``machines``: A and B in blocks of columns, one per machine, that share C and D; each updates with its own block, and
  C and D are averaged (the distributed regime);
- ``estimate``: W <- W + rho (B - W A) A^T instead of C and D, W -> B A^+ (appendix D); W C_0 is D.

Source: Lutz et al., arXiv 2509.19702, algorithm 1 and appendices D and F; eta = 1/3, gamma = 1 with the exact rho is
their theory's convention (the paper also writes it as eta = 1, gamma = 3, rho = 1/(3 |A|^2)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError

__all__ = ["diversity", "eagle", "estimate", "fixed_iterations", "machines", "random_sketches"]

ETA = 1.0 / 3.0

Sketch = Callable[[int], Float[Tensor, "n r"]]  # by iteration


@dataclass(frozen=True, eq=False)
class EagleState:
    """The four blocks after some iterations."""

    A: Float[Tensor, "*prompt d n"]
    B: Float[Tensor, "*prompt query n"]
    C: Float[Tensor, "*prompt d out"]
    D: Float[Tensor, "*prompt query out"]


def inverse_square_norm(A: Float[Tensor, "*prompt d n"]) -> Float[Tensor, "*prompt 1 1"]:
    """rho = |A|_2^-2."""
    small = A.mT @ A if A.shape[-1] <= A.shape[-2] else A @ A.mT
    return 1.0 / torch.linalg.eigvalsh(small)[..., -1, None, None].clamp_min(1e-300)


def _update(state: EagleState, eta: float, S: Float[Tensor, "n r"] | None = None) -> EagleState:
    A, B = state.A, state.B
    At, Bt = (A, B) if S is None else (A @ S, B @ S)
    rho = inverse_square_norm(At)
    AC, step = rho * (At.mT @ state.C), eta * rho * (At.mT @ At)
    step = step if S is None else step @ S.mT
    return EagleState(A - At @ step, B - Bt @ step, state.C - At @ AC, state.D + Bt @ AC)


def eagle(
    A: Float[Tensor, "*prompt d n"],
    B: Float[Tensor, "*prompt query n"],
    C: Float[Tensor, "*prompt d out"],
    eta: float = ETA,
    sketch: Sketch | None = None,
) -> Iterator[EagleState]:
    """The states, the first before any iteration, without end. With eta = 0 D follows gradient descent with step
    1/|A|_2^2."""
    state = EagleState(A, B, C, C.new_zeros(*B.shape[:-1], C.shape[-1]))
    for iteration in count():
        yield state
        state = _update(state, eta, None if sketch is None else sketch(iteration))


def fixed_iterations(
    A: Float[Tensor, "prompt d n"],
    B: Float[Tensor, "prompt query n"],
    C: Float[Tensor, "prompt d out"],
    iterations: int,
    eta: float = ETA,
) -> Float[Tensor, "prompt query out"]:
    """D after so many iterations on every prompt."""
    return next(islice(eagle(A, B, C, eta), iterations, None)).D


def machines(
    blocks: Sequence[tuple[Float[Tensor, "d _"], Float[Tensor, "query _"]]], C: Float[Tensor, "d out"]
) -> Iterator[Float[Tensor, "query out"]]:
    """D_0 = 0, D_1, …, of the distributed iteration on ``blocks`` = [(A^mu, B^mu)], in one process. Every machine uses
    its own rho."""
    if not blocks:
        raise UsageError("got no blocks, expected (A, B) of one machine or more")
    D = C.new_zeros(blocks[0][1].shape[0], C.shape[1])
    while True:
        yield D
        moved = [_update(EagleState(A, B, C, D), ETA) for A, B in blocks]
        blocks = [(state.A, state.B) for state in moved]
        C, D = (torch.stack(parts).mean(0) for parts in zip(*((s.C, s.D) for s in moved), strict=True))


def estimate(
    A: Float[Tensor, "d n"], B: Float[Tensor, "query n"], power: int | None = None
) -> Iterator[Float[Tensor, "query d"]]:
    """W_0 = 0, W_1, … -> B A^+, the form without C and D: W_l C_0 is the D_l of ``eagle``. ``power``: rho by so many
    steps of power iteration (from above), not exactly."""
    W = B.new_zeros(B.shape[0], A.shape[0])
    while True:
        yield W
        rho = inverse_square_norm(A) if power is None else 1.0 / _square_norm_by_powers(A, power)
        W = W + rho * ((B - W @ A) @ A.mT)
        step = ETA * rho * (A.mT @ A)
        A, B = A - A @ step, B - B @ step


def _square_norm_by_powers(A: Float[Tensor, "d n"], iterations: int) -> Float[Tensor, ""]:
    v = A.sum(0) + A.abs().sum(0)
    for _ in range(iterations):
        v = A.mT @ (A @ (v / v.norm().clamp_min(1e-300)))
    return v.norm().clamp_min(1e-300)


def random_sketches(n: int, r: int, seed: int) -> Sketch:
    """A new n x r matrix of orthonormal columns, uniformly at random, in every iteration."""
    generator = torch.Generator().manual_seed(seed)

    def sketch(iteration: int) -> Float[Tensor, "n r"]:
        return torch.linalg.qr(torch.randn(n, r, generator=generator, dtype=torch.float64))[0]

    return sketch


def diversity(blocks: Sequence[Float[Tensor, "d _"]]) -> float:
    """alpha, the smallest positive eigenvalue of the mean over machines of the projectors on range(A^mu).

    1 when all machines span the same range, 1/M when their ranges are orthogonal. The number of iterations grows as
    1/alpha (theorem 2)."""
    mean = torch.zeros(blocks[0].shape[0], blocks[0].shape[0], dtype=blocks[0].dtype)
    for A in blocks:
        U, s, _ = torch.linalg.svd(A, full_matrices=False)
        U = U[:, s > 1e-10 * s[0]]
        mean += U @ U.mT / len(blocks)
    values = torch.linalg.eigvalsh(mean)
    return float(values[values > 1e-10].min())
