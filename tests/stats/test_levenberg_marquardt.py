"""Levenberg-Marquardt: on functions whose minimum is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from interp.stats.levenberg_marquardt import NIELSEN, Damping, Progress, Quadratic, Stopping, minimise

STEADY = Damping(growth=4.0, acceleration=1.0, shrink=10.0, least=1e-14)


@dataclass(frozen=True, eq=False)
class Squares:
    """1/2 |residual(theta)|^2."""

    residual: object
    theta: Tensor
    value: float

    def quadratic(self) -> Quadratic:
        J = torch.func.jacrev(self.residual)(self.theta)
        return Quadratic(J.mT @ self.residual(self.theta), J.mT @ J)


def squares(residual):
    return lambda theta: Squares(residual, theta, 0.5 * float(residual(theta).square().sum()))


def rosenbrock(theta):
    return torch.stack([10.0 * (theta[1] - theta[0] ** 2), 1.0 - theta[0]])


def powell(theta):
    a, b, c, d = theta
    return torch.stack([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


def start(*values, **others):
    return Progress(theta=torch.tensor(values, dtype=torch.float64), **others)


@pytest.mark.parametrize("damping", [NIELSEN, STEADY], ids=["nielsen", "steady"])
def test_it_reaches_known_minima_downhill(damping):
    losses = []
    end = minimise(
        squares(rosenbrock), start(-1.2, 1.0), Stopping(iterations=100), damping, lambda p: losses.append(p.loss)
    )
    assert end.theta.tolist() == pytest.approx([1.0, 1.0], abs=1e-8)
    assert all(later <= earlier for earlier, later in pairwise(losses))
    singular = minimise(squares(powell), start(3.0, -1.0, 0.0, 1.0), Stopping(iterations=100), damping)
    assert singular.loss < 1e-12


def test_a_coordinate_that_nothing_depends_on_stays():
    end = minimise(squares(lambda theta: theta[:1] - 3.0), start(0.0, 7.0), Stopping(iterations=50))
    assert end.theta.tolist() == [pytest.approx(3.0, abs=1e-6), 7.0]


def test_resuming_from_any_state_gives_what_one_run_gives():
    states = []
    whole = minimise(squares(rosenbrock), start(-1.2, 1.0), Stopping(iterations=12), watch=states.append)
    for state in states:
        again = minimise(squares(rosenbrock), state, Stopping(iterations=12))
        assert torch.equal(again.theta, whole.theta)
        assert (again.loss, again.iteration) == (whole.loss, whole.iteration)


def test_when_a_run_ends():
    objective = squares(lambda theta: torch.cat([rosenbrock(theta), torch.ones(1, dtype=theta.dtype)]))
    patient = minimise(objective, start(-1.2, 1.0), Stopping(iterations=100, tolerance=1e-3, patience=3))
    hasty = minimise(objective, start(-1.2, 1.0), Stopping(iterations=100, tolerance=1e-3))
    assert patient.done
    assert patient.slow == 3
    assert hasty.iteration < patient.iteration < 100
    # below "exact" the tolerance does not count, and "zero" ends the run
    near = squares(rosenbrock)
    exact = minimise(near, start(-1.2, 1.0), Stopping(iterations=100, tolerance=1.0, exact=1e9, zero=1e-20))
    assert exact.loss <= 1e-20
    assert minimise(near, exact, Stopping(iterations=200, zero=1e-20)).iteration == exact.iteration
    assert minimise(near, start(-1.2, 1.0), Stopping(iterations=100, tolerance=1.0)).iteration == 1


def test_where_no_step_helps_the_run_ends_where_it_is():
    def overflowing(theta):
        return replace(squares(rosenbrock)(theta), value=float("inf"))

    end = minimise(overflowing, start(-1.2, 1.0), Stopping(iterations=5))
    assert end.done
    assert end.theta.tolist() == [-1.2, 1.0]
    assert end.iteration == 1
