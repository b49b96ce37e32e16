"""The solvers beside a causal network, on all three dynamics: none does better than the true W of the sequence."""

from __future__ import annotations

import pytest
import torch

from interp.models.tasks import LinearDynamics
from interp.models.tasks.linear_dynamics import DYNAMICS
from interp.solvers.next_state import PUBLISHED_ALPHA, PUBLISHED_BETA, LineSearch, TunedSolvers


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_nobody_does_better_than_the_true_dynamics(dynamics: str) -> None:
    """Contracting dynamics are clipped: W is not normal, and a few states would grow to 10^4."""
    task = LinearDynamics(dim=10, context=30, dynamics=dynamics)
    steps = [torch.tensor(values, dtype=torch.float64) for values in (PUBLISHED_ALPHA, PUBLISHED_BETA)]
    drawn = task.sample(1000, 0)
    assert bool((drawn.states.abs() <= task.limit).all())
    if dynamics == "contracting":
        assert float((drawn.W @ drawn.states[:, 0, :, None]).abs().max()) > 10 * task.limit
    solvers = TunedSolvers(LineSearch(0.01, 0.0), *steps, *steps)
    predicted = solvers.predict(drawn.states) | {"oracle": task.oracle(drawn)}
    losses = {name: float((value - drawn.target).square().sum(-1).mean()) for name, value in predicted.items()}
    assert min(losses, key=lambda name: losses[name]) == "oracle"
    assert losses["oracle"] <= 1.1 * task.dim * 0.01**2  # the noise, less what the clip cuts; +- 0.5 %
