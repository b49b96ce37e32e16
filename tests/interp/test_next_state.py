"""Solvers that predict the next state, against sums written out, and the models that run the same algorithm."""

from __future__ import annotations

import pytest
import torch

from interp.errors import UsageError
from interp.models.constructions import gradient_step
from interp.models.tasks import LinearDynamics
from interp.models.token_pass import predict
from interp.solvers.next_state import INVERSE_LAMBDA, Pairs, line_search, tune_richardson

TASK = LinearDynamics(dim=3, context=12)
STATES = TASK.sample(40, 0).states


@pytest.mark.parametrize("lag", [0, 1])
def test_sums_over_the_pairs_known_at_every_position(lag):
    pairs = Pairs(STATES, lag)
    for t in range(TASK.context):
        A, B = torch.zeros(2, len(STATES), 3, 3, dtype=torch.float64)
        for j in range(t - lag):  # pairs (s_j, s_{j+1}), the newest of them (s_{t-1}, s_t)
            A = A + STATES[:, j, :, None] * STATES[:, j, None, :]
            B = B + STATES[:, j + 1, :, None] * STATES[:, j, None, :]
        torch.testing.assert_close(pairs.A[:, t], A)
        torch.testing.assert_close(pairs.B[:, t], B)


def test_the_gradient_step_is_the_one_of_proposition_1():
    task = LinearDynamics(dim=3, context=12, start=0.3)
    model, drawn = gradient_step(task, 0.07), task.sample(5, 1)
    network = predict(model, *drawn.inputs(model.spec))
    step = Pairs(drawn.states).gradient_step(0.07, task.start_matrix())
    torch.testing.assert_close(network, step, rtol=1e-12, atol=1e-13)


def test_the_line_search_finds_the_best_step():
    pairs, best = Pairs(STATES), line_search(Pairs(STATES)).eta

    def loss(eta: float) -> float:
        return float((pairs.gradient_step(eta) - STATES[:, 1:]).square().sum())

    assert loss(best) < min(loss(best - 1e-3), loss(best + 1e-3))


def test_ridge_solves_its_equation():
    pairs = Pairs(STATES)
    A = pairs.A[:, -1] + INVERSE_LAMBDA * torch.eye(3, dtype=torch.float64)
    W = torch.linalg.solve(A, pairs.B[:, -1].mT).mT
    torch.testing.assert_close(pairs.ridge()[:, -1], (W @ STATES[:, -2, :, None]).squeeze(-1), rtol=1e-8, atol=1e-10)


def test_many_untuned_steps_come_to_ridge_and_tuned_ones_are_better_than_as_many_untuned():
    pairs = Pairs(STATES)
    many = pairs.richardson(torch.ones(2000, dtype=torch.float64), torch.zeros(2000, dtype=torch.float64))
    # 2000 steps leave something of the worst conditioned of the sequences.
    torch.testing.assert_close(many[:, -1], pairs.ridge()[:, -1], rtol=1e-2, atol=5e-3)

    def loss(alpha: torch.Tensor, beta: torch.Tensor) -> float:
        return float((pairs.richardson(alpha, beta) - STATES[:, 1:]).square().mean())

    tuned = loss(*tune_richardson(pairs, 3))
    assert tuned < 0.9 * loss(torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    with pytest.raises(UsageError, match="as many of both"):
        pairs.richardson(torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
