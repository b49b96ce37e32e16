"""EAGLE: filling in the hidden block of a matrix by conditioning its visible blocks, layer by layer.

For X = [[A, C], [B, ?]] and D_0 = 0, with Ã = A S, B̃ = B S and rho = |Ã|_2^-2, all from the old values:

    A <- A - eta rho Ã Ã^T Ã S^T        B <- B - eta rho B̃ Ã^T Ã S^T
    C <- C - gamma rho Ã Ã^T C          D <- D + gamma rho B̃ Ã^T C

D converges to the Nystrom estimate B A^+ C (also for a rank-deficient A). With eta = 1/3, gamma = 1 and S = I it takes
O(log kappa(A) + log log 1/eps) iterations: A is driven to a partial isometry, with quadratic convergence at the end.

- ``sketch``: S, a new n x r matrix of orthonormal columns in every iteration (the regime of limited computation);
- ``stable``: A and B are scaled so that |A|_2 = 1, and after each update by 1/(1 - eta), which is 3/2: then rho = 1
  always, and nothing underflows. The null space of a rank-deficient A is amplified too, so not for long runs of those;
- ``machines``: A and B in blocks of columns, one per machine, that share C and D; each updates with its own block, and
  C and D are averaged (the distributed regime);
- ``estimate``: W <- W + gamma rho (B - W A) A^T instead of C and D, W -> B A^+ (appendix D); W C_0 is D.

Source: Lutz et al., arXiv 2509.19702, algorithm 1 and appendices D and F; eta = 1/3, gamma = 1 with the exact rho is
their theory's convention (the paper also writes it as eta = 1, gamma = 3, rho = 1/(3 |A|^2)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError

__all__ = ["EagleState", "diversity", "eagle", "estimate", "machines", "random_sketches", "solve", "update"]

ETA, GAMMA = 1.0 / 3.0, 1.0

Sketch = Callable[[int], Float[Tensor, "n r"]]  # by iteration


@dataclass(frozen=True, eq=False)
class EagleState:
    """The four blocks after some iterations."""

    A: Float[Tensor, "d n"]
    B: Float[Tensor, "query n"]
    C: Float[Tensor, "d out"]
    D: Float[Tensor, "query out"]


def inverse_square_norm(A: Float[Tensor, "d n"], power: int | None = None) -> float:
    """rho = |A|_2^-2, exactly or by so many steps of power iteration (from below, so rho from above). 0 for A = 0."""
    if power is None:
        small = A.mT @ A if A.shape[1] <= A.shape[0] else A @ A.mT
        top = float(torch.linalg.eigvalsh(small)[-1])
    else:
        v = A.sum(0) + A.abs().sum(0)
        for _ in range(power):
            v = A.mT @ (A @ (v / v.norm().clamp_min(1e-300)))
        top = float(v.norm())
    return 1.0 / top if top > 0 else 0.0


def update(
    state: EagleState,
    eta: float = ETA,
    gamma: float = GAMMA,
    rho: float | None = None,
    S: Float[Tensor, "n r"] | None = None,
    frozen: bool = False,
) -> EagleState:
    """One iteration. ``rho`` None: |A S|_2^-2. ``frozen``: A and B stay as they are."""
    A, B, C, D = state.A, state.B, state.C, state.D
    At, Bt = (A, B) if S is None else (A @ S, B @ S)
    rho = inverse_square_norm(At) if rho is None else rho
    AC = At.mT @ C
    C, D = C - gamma * rho * (At @ AC), D + gamma * rho * (Bt @ AC)
    if not frozen:
        step = eta * rho * (At.mT @ At)
        step = step if S is None else step @ S.mT
        A, B = A - At @ step, B - Bt @ step
    return EagleState(A, B, C, D)


def eagle(
    A: Float[Tensor, "d n"],
    B: Float[Tensor, "query n"],
    C: Float[Tensor, "d out"],
    *,
    eta: float = ETA,
    gamma: float = GAMMA,
    sketch: Sketch | None = None,
    stable: bool = False,
    power: int | None = None,
) -> Iterator[EagleState]:
    """The states, the first before any iteration, without end. ``power``: see ``inverse_square_norm``.

    Raises UsageError for blocks that do not fit together, and for the stable form of a sketched iteration or with eta
    outside (0, 1).
    """
    _require(A, B, C)
    if stable and (sketch is not None or not 0 < eta < 1):
        raise UsageError(f"the stable form has no sketch and 0 < eta < 1, not eta = {eta!r} with sketch {sketch!r}")
    state = EagleState(A, B, C, C.new_zeros(B.shape[0], C.shape[1]))
    if stable:
        root = inverse_square_norm(A, power) ** 0.5
        state = EagleState(A * root, B * root, C, state.D)
    iteration = 0
    while True:
        yield state
        S = None if sketch is None else sketch(iteration)
        known = (
            1.0
            if stable
            else None
            if power is None
            else inverse_square_norm(state.A if S is None else state.A @ S, power)
        )
        state = update(state, eta, gamma, known, S)
        if stable:
            state = EagleState(state.A / (1 - eta), state.B / (1 - eta), state.C, state.D)
        iteration += 1


def machines(
    blocks: Sequence[tuple[Float[Tensor, "d _"], Float[Tensor, "query _"]]],
    C: Float[Tensor, "d out"],
    *,
    eta: float = ETA,
    gamma: float = GAMMA,
    freeze: float | None = None,
) -> Iterator[Float[Tensor, "query out"]]:
    """D_0 = 0, D_1, …, of the distributed iteration on ``blocks`` = [(A^mu, B^mu)], in one process.

    Every machine uses its own rho. ``freeze``: a machine leaves A^mu and B^mu as they are once |I - rho E|_F^2 on the
    range of A^mu is below it; from then on an iteration costs it two thin products.
    """
    if not blocks:
        raise UsageError("got no blocks, expected (A, B) of one machine or more")
    for A, B in blocks:
        _require(A, B, C)
    held, C, D = [Machine.of(A, B) for A, B in blocks], C, C.new_zeros(blocks[0][1].shape[0], C.shape[1])
    while True:
        yield D
        moved = [machine.step(C, D, eta, gamma, freeze) for machine in held]
        C, D = (torch.stack(parts).mean(0) for parts in zip(*moved, strict=True))


@dataclass(eq=False)
class Machine:
    """What one machine holds: its columns of A and B, and whether it has stopped changing them."""

    A: Float[Tensor, "d n"]
    B: Float[Tensor, "query n"]
    frozen: bool
    rho: float

    @classmethod
    def of(cls, A: Tensor, B: Tensor) -> Machine:
        return cls(A, B, False, inverse_square_norm(A))

    def step(
        self, C: Tensor, D: Tensor, eta: float, gamma: float, freeze: float | None
    ) -> tuple[Float[Tensor, "d out"], Float[Tensor, "query out"]]:
        """Update the own block; its proposals for C and D."""
        after = update(EagleState(self.A, self.B, C, D), eta, gamma, self.rho, frozen=self.frozen)
        if not self.frozen:
            self.A, self.B, self.rho = after.A, after.B, inverse_square_norm(after.A)
            self.frozen = freeze is not None and self._distance() < freeze
        return after.C, after.D

    def _distance(self) -> float:
        """|P - rho E|_F^2, P the projector on the range of E = A^T A."""
        values = self.rho * torch.linalg.eigvalsh(self.A.mT @ self.A)
        return float((1.0 - values[values > 1e-10]).square().sum())


def estimate(
    A: Float[Tensor, "d n"],
    B: Float[Tensor, "query n"],
    *,
    eta: float = ETA,
    gamma: float = GAMMA,
    power: int | None = None,
) -> Iterator[Float[Tensor, "query d"]]:
    """W_0 = 0, W_1, … -> B A^+, the form without C and D: W_l C_0 is the D_l of ``eagle``."""
    W = B.new_zeros(B.shape[0], A.shape[0])
    while True:
        yield W
        rho = inverse_square_norm(A, power)
        W = W + gamma * rho * ((B - W @ A) @ A.mT)
        step = eta * rho * (A.mT @ A)
        A, B = A - A @ step, B - B @ step


def solve(
    A: Float[Tensor, "d n"],
    B: Float[Tensor, "query n"],
    C: Float[Tensor, "d out"],
    *,
    tolerance: float,
    iterations: int = 1000,
    stable: bool = False,
    power: int | None = None,
) -> tuple[Float[Tensor, "query out"], int]:
    """Iterate until |D_l - D_{l-1}|_F < tolerance; D and the number of iterations. Raises UsageError when they are not
    enough."""
    before = None
    for iteration, state in enumerate(eagle(A, B, C, stable=stable, power=power)):
        if before is not None and float((state.D - before).norm()) < tolerance and iteration > 1:
            return state.D, iteration
        if iteration == iterations:
            break
        before = state.D
    raise UsageError(f"D still moves by {tolerance:g} or more after {iterations} iterations; raise either of them")


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


def _require(A: Tensor, B: Tensor, C: Tensor) -> None:
    if A.ndim != 2 or B.ndim != 2 or C.ndim != 2 or A.shape[1] != B.shape[1] or A.shape[0] != C.shape[0]:
        raise UsageError(
            f"A, B and C have shapes {tuple(A.shape)}, {tuple(B.shape)} and {tuple(C.shape)}, expected (d, n), (d', n) "
            "and (d, n')"
        )
