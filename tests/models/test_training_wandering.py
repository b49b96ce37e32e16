"""First-order training on Gram matrices: it descends, goes on from any state, and survives prompts that overflow."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.training.adam import Moving
from interp.models.training.objective import loss
from interp.models.training.parametrisation import parametrisation
from interp.models.training.sample import fresh_sample
from interp.models.training.wandering import LEG, wander

TASK = task_of({"name": "noisy_regression", "dim": 3, "context": 12, "noise": {"choice": [1, 3]}})
SPEC = ModelSpec(tokens=(("x", 3), ("y", 1)), task=TASK.to_dict())


@pytest.fixture(scope="module")
def sample():
    return fresh_sample(TASK, SPEC, 4096, seed=0)


@pytest.fixture
def family():
    return parametrisation("full", dim=3, heads=1, scale=1.0, residual=1.0)


def small(family, size: float = 0.02) -> Moving:
    generator = torch.Generator().manual_seed(1)
    return Moving(values=(size * torch.randn(2, family.size, generator=generator, dtype=torch.float64).float(),))


def test_it_descends_from_random_weights(family, sample):
    """Below the best single step of gradient descent; predicting 0 costs more than that."""
    end = wander(family, sample, small(family), lambda now: None, steps=1500, seed=0)
    oracle = sample.oracle
    step = torch.einsum("pi,pi->p", sample.gram[:, :3, 3], oracle).mean() / sample.gram[:, :3, 3].square().sum(1).mean()
    one_step = 0.5 * (step * sample.gram[:, :3, 3] - oracle).square().sum(1).mean()
    assert end.values[0].shape == (2, family.size)
    assert loss(family, end.values[0].double(), sample.cautious(1.0)) < 0.6 * float(one_step)
    assert float(one_step) < 0.5 * float(oracle.square().sum(1).mean())


def test_it_goes_on_from_every_state(family, sample):
    states: list[Moving] = []
    whole = wander(family, sample, small(family), states.append, steps=3 * LEG + 7, seed=0)
    assert [state.iteration for state in states] == [LEG, 2 * LEG, 3 * LEG, 3 * LEG + 7]
    for state in states:
        resumed = wander(family, sample, state, lambda now: None, steps=3 * LEG + 7, seed=0)
        assert torch.equal(resumed.values[0], whole.values[0])
    other = wander(family, sample, small(family), lambda now: None, steps=3 * LEG + 7, seed=1)
    assert not torch.equal(other.values[0], whole.values[0])


def test_prompts_that_overflow_change_nothing(family, sample):
    huge = dataclasses.replace(sample, gram=sample.gram * 1e30)
    start = small(family)
    end = wander(family, huge, start, lambda now: None, steps=20, seed=0)
    assert torch.equal(end.values[0], start.values[0])
    assert end.loss == float("inf")
