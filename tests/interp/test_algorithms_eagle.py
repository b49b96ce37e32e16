"""EAGLE, the solver: its limit, its theory, its forms and its counts beside the classical solvers."""

from __future__ import annotations

import math
from itertools import islice, pairwise

import pytest
import torch
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.completion import Completion, counts, curves, planted_completion
from interp.solvers.eagle import diversity, eagle, estimate, machines, random_sketches
from interp.solvers.gradient_descent import gradient_descent
from interp.solvers.newton_schulz import newton_schulz


def states(problem: Completion, iterations: int, **how: object) -> list[Tensor]:
    return [state.D for state in islice(eagle(problem.A, problem.B, problem.C, **how), iterations + 1)]


def small(kappa: float = 30.0, **shape: int) -> Completion:
    fields = {"d": 12, "n": 9, "outputs": 3, "queries": 2, **shape}
    return planted_completion(**fields, kappa=kappa, seed=1)


def test_planted_problems_are_what_they_say() -> None:
    problem = planted_completion(8, 7, outputs=2, queries=3, kappa=50.0, seed=0, rank=5, even=False)
    s = torch.linalg.svdvals(problem.A)
    assert float(s[0]) == pytest.approx(1.0) and float(s[4]) == pytest.approx(1 / 50) and float(s[5]) < 1e-14
    torch.testing.assert_close(problem.D, problem.B @ torch.linalg.pinv(problem.A, rtol=1e-10) @ problem.C)
    assert float(problem.error(problem.D)) == 0 and float(problem.error(0 * problem.D)) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [{}, {"n": 12}, {"n": 20}, {"rank": 4}])
def test_the_limit_is_the_nystrom_estimate(shape: dict[str, int]) -> None:
    problem = small(**shape)
    assert float(problem.error(states(problem, 40)[-1])) < 1e-24


# The published theory's step sizes on evenly spaced logarithms of singular values, n = d = 100; +-1.
COUNTS = {1: 10, 2: 16, 3: 21, 4: 27, 5: 32}


@pytest.mark.parametrize("decade", COUNTS)
def test_iterations_grow_with_the_logarithm_of_the_condition_number(decade: int) -> None:
    problem = planted_completion(100, 100, outputs=2, queries=2, kappa=10.0**decade, seed=decade)
    errors = problem.error(torch.stack(states(problem, 40)))
    first = int(torch.nonzero(errors < 1e-18)[0])
    assert abs(first - COUNTS[decade]) <= 1
    steps = errors[: first + 1].log10().diff()  # each at most 3/4 of a decade at first; of second order at the end
    assert float(steps[-1]) < 1.5 * float(steps[-2]) < 2.0 * float(steps[-3]) < 0


def test_classical_solvers_are_counted_beside_it() -> None:
    problem = planted_completion(40, 40, outputs=2, queries=2, kappa=10.0, seed=3)
    found = counts(problem, 1e-18, 400)
    assert found["eagle"].iterations == 10
    assert (
        found["eagle"].iterations < found["newton-schulz"].iterations < found["cg"].iterations < found["gd"].iterations
    )
    # The count of gradient descent comes from the spectrum; here it is run.
    E, alpha = (problem.A @ problem.A.mT).expand(2, -1, -1), problem.B @ problem.A.mT
    run = gradient_descent(E, alpha, [1.0] * found["gd"].iterations)
    errors = problem.error(run @ problem.C)
    assert float(errors[-1]) < 1.01e-18 and float(errors[-2]) > 0.99e-18
    torch.testing.assert_close(curves(problem, 5)["gd"], errors[:6].tolist())
    by_rows = problem.error(newton_schulz(E, alpha, 5) @ problem.C)
    torch.testing.assert_close(curves(problem, 5)["newton-schulz"], by_rows.tolist())
    hard = counts(planted_completion(30, 30, outputs=1, queries=1, kappa=1e5, seed=1), 1e-18, 100)
    assert hard["cg"].iterations is None and hard["cg"].least > 1e-18 and hard["gd"].iterations > 1e10


def test_the_update_is_the_papers() -> None:
    """Lemmas 3 to 5: E' = E (I - eta rho E)^2, D - D* = -W* N C, eigenvectors stay."""
    problem = small()
    first, second, third = islice(eagle(problem.A, problem.B, problem.C), 3)
    W = problem.B @ torch.linalg.pinv(problem.A)
    N = torch.eye(12, dtype=torch.float64)
    for before, after in ((first, second), (second, third)):
        E = before.A @ before.A.mT
        rho = 1.0 / float(torch.linalg.matrix_norm(before.A, 2)) ** 2
        factor = torch.eye(12, dtype=torch.float64) - rho / 3 * E
        torch.testing.assert_close(after.A @ after.A.mT, E @ factor @ factor)
        torch.testing.assert_close(after.B @ after.A.mT, W @ after.A @ after.A.mT)
        N = N @ (torch.eye(12, dtype=torch.float64) - rho * E)
        torch.testing.assert_close(after.D - problem.D, -W @ N @ problem.C)


def test_the_error_falls_along_every_direction_though_that_of_d_may_rise() -> None:
    """D_l - D* = -W* N_l C_0, and N_l shrinks every singular direction of A in every iteration; along several at once
    the errors of D add up with signs."""
    problem = planted_completion(100, 100, outputs=2, queries=2, kappa=1e5, seed=5)
    U = torch.linalg.svd(problem.A)[0]
    rows = list(islice(eagle(problem.A, problem.B, problem.C), 33))
    along = torch.stack([(U.mT @ state.C).norm(dim=1) for state in rows])  # of N_l C_0
    assert bool((along[1:] <= along[:-1] * (1 + 1e-9) + 1e-13).all())
    errors = [float(problem.error(state.D)) for state in rows]
    assert any(after > before for before, after in pairwise(errors))
    W = (problem.B @ torch.linalg.pinv(problem.A, rtol=1e-14)) @ U
    for state in rows[:25:6]:
        torch.testing.assert_close(problem.D - state.D, W @ (U.mT @ state.C), rtol=0, atol=1e-8 * float(W.norm()))


def test_the_excess_of_the_condition_number_is_squared() -> None:
    """theta' = theta^2 (3 + 4 theta) / (2 + 3 theta)^2 <= 3/4 theta^2, theta = kappa(E) - 1 (lemma 7)."""
    problem = small(kappa=5.0)
    theta = []
    for state in islice(eagle(problem.A, problem.B, problem.C), 6):
        s = torch.linalg.svdvals(state.A)
        theta.append(float((s[0] / s[-1]) ** 2) - 1)
    for before, after in pairwise(theta):
        assert after == pytest.approx(before**2 * (3 + 4 * before) / (2 + 3 * before) ** 2, rel=1e-6, abs=1e-13)


def test_other_forms_give_the_same_iterates() -> None:
    problem = small()
    plain = states(problem, 12)
    for other in (
        states(problem, 12, sketch=lambda iteration: torch.eye(9, dtype=torch.float64)),
        list(islice(machines([(problem.A, problem.B)], problem.C), 13)),
        [W @ problem.C for W in islice(estimate(problem.A, problem.B), 13)],
    ):
        torch.testing.assert_close(torch.stack(other), torch.stack(plain), rtol=1e-9, atol=1e-12)


def test_sketches_converge_and_cost_iterations() -> None:
    """Superlinear in n/r: no more is claimed than that fewer columns take more iterations."""
    problem, needed = planted_completion(40, 40, outputs=2, queries=2, kappa=10.0, seed=2), []
    for r in (40, 20, 10):
        errors = problem.error(torch.stack(states(problem, 250, sketch=random_sketches(40, r, seed=0))))
        needed.append(int(torch.nonzero(errors < 1e-4)[0]))
    assert needed[0] < needed[1] < needed[2]


def split(alpha_blocks: int, d: int = 24, seed: int = 0) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
    """Blocks of thin, equally large, orthogonal column spaces: alpha = 1/M. Noiseless: [B D] = W [A C]."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    W, each = torch.randn(2, d, generator=generator, dtype=torch.float64), d // alpha_blocks
    blocks = []
    for mu in range(alpha_blocks):
        s = 10.0 ** -torch.linspace(0, 1, each, dtype=torch.float64)
        right = torch.linalg.qr(torch.randn(each, each, generator=generator, dtype=torch.float64))[0]
        A = (basis[:, mu * each : (mu + 1) * each] * s) @ right
        blocks.append((A, W @ A))
    C = torch.randn(d, 3, generator=generator, dtype=torch.float64)
    return blocks, C, W @ C


@pytest.mark.parametrize("count", [1, 2, 4])
def test_distributed_iterations_follow_the_diversity(count: int) -> None:
    blocks, C, D = split(count)
    assert diversity([A for A, _ in blocks]) == pytest.approx(1 / count)
    errors = [float((got - D).square().sum() / D.square().sum()) for got in islice(machines(blocks, C), 140)]
    needed = next(k for k, error in enumerate(errors) if error < 1e-12)
    # |N_l| <= (1 - alpha/2)^l is the paper's rate; in the limit it is (1 - alpha)^l, from the burn-in of 8 on.
    assert needed <= 12 + math.log(1e-6) / math.log(1 - 0.5 / count)
    assert needed >= (4 if count == 1 else math.log(1e-6) / math.log(1 - 1 / count))


def test_no_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match="no blocks"):
        next(machines([], small().C))
