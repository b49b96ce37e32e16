"""The momentum analogy: exact where it is planted, absent where it is not."""

from __future__ import annotations

import itertools

import planting
import pytest
import torch
from torch import Tensor

from interp.algebra.unrolling import ImplicitState, implicit_states
from interp.evidence.adaptation import gradient
from interp.evidence.momentum import increments, momentum_fits
from interp.models.gram import forward, head_layers
from interp.models.tasks import task_of
from interp.results import Momentum
from interp.solvers.gradient_descent import gradient_descent
from interp.solvers.statistics import RegressionStatistics

DIM = 4


def statistics(count: int, seed: int) -> RegressionStatistics:
    drawn = task_of(planting.spec_for(DIM, 9, 2.0).task).sample(count, seed)
    return RegressionStatistics.from_data(drawn.x, drawn.y)


def state(u: Tensor, w: Tensor) -> ImplicitState:
    return ImplicitState(
        M=torch.eye(DIM, dtype=u.dtype).expand(len(u), -1, -1),
        u=u[..., None],
        w=w[:, None],
        a=torch.ones(len(u), 1, 1, dtype=u.dtype),
    )


def with_momentum(known: RegressionStatistics, steps: list[tuple[float, float, float]]) -> list[ImplicitState]:
    """u' = (1 - beta) u + gamma g and w' = w - eta u, with (beta, gamma, eta) given for every layer."""
    u, w = torch.zeros_like(known.alpha), torch.zeros_like(known.alpha)
    states = [state(u, w)]
    for beta, gamma, eta in steps:
        g = gradient(states[-1], known)
        u, w = (1 - beta) * u + gamma * g, w - eta * u
        states.append(state(u, w))
    return states


STEPS = [(0.5, -1.0, 0.0), (0.2, -0.9, 0.03), (0.4, -1.1, 0.02), (0.9, -1.0, 0.04), (0.3, -1.0, 0.05)]


def fits(states: list[list[ImplicitState]], known: list[RegressionStatistics]) -> tuple[Momentum, ...]:
    return momentum_fits(*(increments(s, k) for s, k in zip(states, known, strict=True)), seed=0)


def test_gradient_descent_with_momentum_is_recovered() -> None:
    known = [statistics(60, seed) for seed in (1, 2)]
    found = fits([with_momentum(k, STEPS) for k in known], known)
    assert len(found) == len(STEPS)
    # w has not moved before layer 1, so that there u is parallel to g, and beta and gamma trade off.
    assert found[1].beta is found[1].gradient is None and found[1].eta == pytest.approx(STEPS[1][2], rel=1e-9)
    for row, (beta, gamma, eta) in zip(found[2:-1], STEPS[2:-1], strict=True):
        # Exact to rounding; u and g are close to parallel, which magnifies it.
        assert row.beta == pytest.approx(beta, abs=1e-9)
        assert row.gradient == pytest.approx(gamma, rel=1e-9)
        assert row.eta == pytest.approx(eta, rel=1e-9)
        assert row.u_r2 == row.eta_r2 == row.both_r2 == pytest.approx(1.0, abs=1e-12)
        assert row.beta_stderr is not None and row.beta_stderr < 1e-9
        assert row.step_r2 is not None and row.step_r2 < 0.999  # plain gradient descent is another algorithm
    first, last = found[0], found[-1]
    assert first.beta is first.eta is first.step_r2 is None and first.gradient == pytest.approx(-1.0)
    assert last.beta is last.gradient is last.u_r2 is None and last.eta == pytest.approx(0.05)


def test_polyaks_heavy_ball_is_the_momentum_of_the_paper() -> None:
    """w_{k+1} = w_k + eta g_k + mu (w_k - w_{k-1}): with u_{k+1} = -(w_{k+1} - w_k)/eta it is u' = mu u - g and
    w' = w - eta u', so that beta = 1 - mu, and w' - w = -eta mu u + eta g takes both terms."""
    eta, mu = 0.02, 0.7
    known = [statistics(60, seed) for seed in (3, 4)]
    both = []
    for k in known:
        w = gradient_descent(k.sigma, k.alpha, [eta] * 5, mu)
        u = [torch.zeros_like(w[0]), *(-(after - before) / eta for before, after in itertools.pairwise(w))]
        both.append([state(a, b) for a, b in zip(u, w, strict=True)])
    for row in fits(both, known)[1:-1]:
        assert row.beta == pytest.approx(1 - mu, abs=1e-9) and row.gradient == pytest.approx(-1.0, rel=1e-9)
        assert row.both_r2 == pytest.approx(1.0, abs=1e-12)
        assert row.eta_r2 is not None and row.eta_r2 < 0.995


def test_plain_gradient_descent_has_no_momentum() -> None:
    planted = planting.random_planted(3, layers=4, subset=("yx",), largest=6)
    found = _of_network(planted.model)
    for row, omega in zip(found, planted.omega.tolist(), strict=True):
        assert row.step == pytest.approx(-omega[2], rel=1e-9) and row.step_r2 == pytest.approx(1.0, abs=1e-12)
        assert row.beta is row.gradient is row.u_r2 is row.eta is row.eta_r2 is None
        assert row.both_r2 == row.step_r2


def test_the_first_layer_of_a_diag_network_starts_the_momentum() -> None:
    planted = planting.random_planted(8, layers=3, subset=("xx", "xy", "yx", "yy"), largest=6)
    found = _of_network(planted.model)
    _, xy, yx, _ = planted.omega[0].tolist()
    assert found[0].gradient == pytest.approx(xy, rel=1e-9) and found[0].step == pytest.approx(-yx, rel=1e-9)
    assert found[0].u_r2 == pytest.approx(1.0, abs=1e-12)
    for row in found[1:]:
        assert row.both_r2 is not None and row.step_r2 is not None and row.eta_r2 is not None
        assert max(row.step_r2, row.eta_r2) - 0.02 < row.both_r2 < 1.0  # held out, so by chance a little lower


def test_standard_errors_cover_the_truth() -> None:
    """Noise on w: eta within 2 standard errors in about 95 of 100 samples (binomial, 4 sigma: 86 or more)."""
    covered = 0
    for seed in range(100):
        known = [statistics(80, 2 * seed), statistics(10, 2 * seed + 1)]
        states = [with_momentum(k, STEPS[:3]) for k in known]
        noise = torch.randn(80, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        last = states[0][-1]
        noisy = state(last.u[..., 0], last.w[:, 0] + 0.3 * noise * last.w[:, 0].norm(dim=1, keepdim=True))
        row = fits([[*states[0][:-1], noisy], states[1]], known)[2]
        assert row.eta is not None and row.eta_stderr is not None
        covered += abs(row.eta - STEPS[2][2]) < 2 * row.eta_stderr
    assert covered >= 86


def test_a_network_that_stands_still_has_no_figures() -> None:
    known = [statistics(20, seed) for seed in (5, 6)]
    resting = [[state(torch.zeros_like(k.alpha), torch.zeros_like(k.alpha))] * 3 for k in known]
    for row in fits(resting, known):
        assert {value for name, value in vars(row).items() if name != "layer"} == {None, (None, None)}


def _of_network(model: planting.LinearTransformer) -> tuple[Momentum, ...]:
    task = task_of(model.spec.task)
    halves = []
    for seed in (1, 2):
        drawn = task.sample(200, seed)
        grams = drawn.grams(model.spec)
        states = implicit_states(forward(head_layers(model, task.context), grams.gram, grams.query), model.spec)
        halves.append(increments(states, RegressionStatistics.from_data(drawn.x, drawn.y)))
    return momentum_fits(*halves, seed=0)
