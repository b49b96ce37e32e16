"""Training samples: rare spectra come often, and no mean changes."""

from __future__ import annotations

import pytest
import torch

from interp.models.specification import AttentionSpec, ModelSpec
from interp.models.tasks import task_of
from interp.models.training.sample import fresh_sample, training_sample
from interp.models.training.tails import spread_norms, spread_spectra

COUNT = 20_000


def spectra(context: int, dim: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(COUNT, context, dim, generator=generator, dtype=torch.float64)
    return torch.linalg.eigvalsh(x.mT @ x)


def agree(a, b):
    """Means within 5 standard errors of their difference."""
    error = ((a.var() + b.var()) / COUNT) ** 0.5
    assert abs(float(a.mean() - b.mean())) < 5 * float(error)


@pytest.mark.parametrize(("context", "dim"), [(20, 10), (8, 3), (4, 3), (100, 10)])
def test_weighted_means_are_those_of_plain_spectra(context, dim):
    plain = spectra(context, dim)
    spread, weight = spread_spectra(plain, context, torch.Generator().manual_seed(1))
    fresh = spectra(context, dim, seed=2)
    assert float(weight.max()) <= 2.0
    assert bool((spread.diff(dim=1) >= 0).all())
    agree(weight, torch.ones(COUNT, dtype=torch.float64))
    for statistic in (
        lambda s: s.sum(1),
        lambda s: s[:, -1].square(),
        lambda s: s[:, 0].sqrt(),
        lambda s: (s[:, -1] > torch.quantile(plain[:, -1], 0.99)).double(),
        lambda s: (s[:, 0] < torch.quantile(plain[:, 0], 0.01)).double(),
        lambda s: s.log().sum(1),
    ):
        agree(weight * statistic(spread), statistic(fresh))


def test_rare_spectra_come_often():
    """Beyond the extremes of 20 000 plain spectra lies a good share of the spread ones, with small weights."""
    plain = spectra(20, 10)
    spread, weight = spread_spectra(plain, 20, torch.Generator().manual_seed(1))
    beyond = spread[:, -1] > plain[:, -1].max()
    assert float(beyond.double().mean()) > 0.05
    assert float(weight[beyond].sum()) < 20
    below = spread[:, 0] < plain[:, 0].min()
    assert float(below.double().mean()) > 0.001
    assert float(weight[below].sum()) < 20


def test_weighted_means_are_those_of_normal_vectors():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(COUNT, size, generator=generator, dtype=torch.float64) for size in (10, 20))
    wide, noise, weight = spread_norms(first, second, generator)
    assert float(weight.max()) <= 2.0
    plain = torch.randn(COUNT, 30, generator=generator, dtype=torch.float64)
    for statistic in (
        lambda a, b: torch.ones(COUNT, dtype=torch.float64),
        lambda a, b: a.square().sum(1),
        lambda a, b: b.square().sum(1).square(),
        lambda a, b: a[:, 0] * b[:, 0],
        lambda a, b: (a.square().sum(1) > 25).double(),
        lambda a, b: a.square().sum(1) * b.square().sum(1),
    ):
        agree(weight * statistic(wide, noise), statistic(plain[:, :10], plain[:, 10:]))
    assert float((wide.square().sum(1) > first.square().sum(1).max()).double().mean()) > 0.02


@pytest.mark.parametrize("weight_std", [1.0, 0.5])
def test_training_samples_have_the_moments_of_the_task(weight_std):
    task = task_of(
        {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 2]}, "weight_std": weight_std}
    )
    spec = ModelSpec(tokens=(("x", 3), ("y", 1)))
    a, b = training_sample(task, spec, COUNT, 1), fresh_sample(task, spec, COUNT, 2)
    for statistic in (
        lambda s: s.gram[:, 0, 0],
        lambda s: s.gram[:, 0, 1].square(),
        lambda s: s.gram[:, 0, 3].square(),
        lambda s: s.gram[:, 3, 3],
        lambda s: s.gram[:, 3, 3].square(),
        lambda s: s.gram[:, 0, 3] * s.gram[:, 1, 3] * s.gram[:, 0, 1],
        lambda s: s.gram[:, 3, 3] * s.gram[:, 0, 0],
        lambda s: s.oracle.square().sum(1),
        lambda s: s.oracle[:, 0] * s.gram[:, 0, 3],
        lambda s: s.query[:, 0].square().sum(1),
    ):
        agree(a.weight * statistic(a), b.weight * statistic(b))
    assert bool((torch.linalg.eigvalsh(a.gram) > -1e-9 * a.gram.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)).all())


@pytest.mark.parametrize(
    ("fields", "keys"),
    [({"covariance": [1.0, 2.0, 3.0]}, "context"), ({"context": 3}, "context"), ({}, "all")],
)
def test_other_tasks_get_plain_prompts(fields, keys):
    task = task_of({"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"fixed": 1}, **fields})
    spec = ModelSpec(tokens=(("x", 3), ("y", 1)), attention=AttentionSpec(keys=keys))
    a, b = training_sample(task, spec, 50, 1), fresh_sample(task, spec, 50, 1)
    assert torch.equal(a.gram, b.gram)
    assert torch.equal(a.weight, torch.ones(50, dtype=torch.float64))
