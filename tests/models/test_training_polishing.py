"""The choice among trained networks, which a few exploding prompts must neither decide nor escape."""

from __future__ import annotations

import math

import pytest
import torch

from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.training import Recipe
from interp.models.training.objective import adjusted_losses
from interp.models.training.polishing import polish, usual_mean
from interp.models.training.sample import fresh_sample
from interp.models.training.search import family_of
from interp.stats.levenberg_marquardt import Progress

COUNT = 1_000_000


def test_the_usual_mean_is_the_mean_of_bounded_losses():
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(COUNT, generator=generator, dtype=torch.float64)
    assert usual_mean(losses, torch.ones_like(losses)) == pytest.approx(float(losses.mean()), rel=1e-5)


@pytest.mark.parametrize("explosion", [1e30, math.inf, math.nan])
def test_the_usual_mean_leaves_out_what_is_rarer_than_one_in_a_billion_only(explosion):
    losses, weight = torch.ones(COUNT, dtype=torch.float64), torch.ones(COUNT, dtype=torch.float64)
    losses[7], weight[7] = explosion, 1e-4  # a probability of 1e-10
    assert usual_mean(losses, weight) == pytest.approx(1.0, rel=1e-6)
    losses[8], weight[8] = explosion, 0.0
    losses[9], weight[9] = 2.0, 1e-2  # of 1e-8
    assert usual_mean(losses, weight) == pytest.approx(1.0, rel=1e-5)
    weight[7] = 1.0  # of 1e-6
    assert usual_mean(losses, weight) > 1e20


def test_a_network_that_explodes_on_rare_prompts_is_not_chosen():
    """Gradient descent of two step sizes: the larger one diverges where the largest eigenvalue is above 2 / 0.03."""
    task = task_of({"name": "noisy_regression", "dim": 10, "context": 20, "noise": {"fixed": 0}})
    spec = ModelSpec(tokens=(("x", 10), ("y", 1)), task=task.to_dict())
    recipe = Recipe.from_dict(
        {
            "name": "two",
            "task": task.to_dict(),
            "model": {"parametrisation": "gd++", "layers": 20},
            "optimiser": {"prompts": [4096], "iterations": [1], "evaluation_prompts": 20_000},
        }
    )
    family, sample = family_of(recipe), fresh_sample(task, spec, 20_000, seed=3)
    calm, wild = (torch.tensor([[0.0, -step]] * 20, dtype=torch.float64) for step in (0.02, 0.03))
    losses = {size: adjusted_losses(family, theta, sample) for size, theta in (("calm", calm), ("wild", wild))}
    assert losses["wild"].median() < losses["calm"].median()
    assert losses["wild"].mean() > 10 * losses["calm"].mean()
    kept = [Progress(theta=wild, loss=1e-3), Progress(theta=calm, loss=2e-3)]
    chosen = polish(recipe, family, kept, lambda name, start, sample, iterations: start)
    assert torch.equal(chosen, calm)
