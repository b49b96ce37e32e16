"""Networks that explode on a few of their prompts: what they do there decides neither fit, nor score, nor verdict."""

from __future__ import annotations

from dataclasses import replace

import planting
import planting_eagle
import pytest
import torch
from repeats import repeats
from torch import Tensor

from interp.algebra.sensitivity import Prompts, Sensitivities, bounded_weights, sensitivities
from interp.analysis import analyse
from interp.identify.score import Score, bootstrap_fidelity
from interp.models.gram import HeadLayers, head_layers
from interp.models.tasks import task_of

PROMPTS = 512


@pytest.fixture(autouse=True)
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses over as many prompts as the fits: no verdict here hangs on more."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


@pytest.mark.parametrize("explosion", [1e3, 1e6, 1e100])
def test_the_fidelity_is_not_that_of_one_prompt_on_which_the_network_explodes(explosion: float) -> None:
    generator = torch.Generator().manual_seed(0)
    reference, noise = torch.randn(2, 400, 1, generator=generator, dtype=torch.float64)
    reference[0], noise[0] = explosion, 0.0
    plain = bootstrap_fidelity(reference + noise, reference, 0)
    assert plain.fidelity == pytest.approx(1.0, abs=1e-3)  # 400 / explosion^2 is left
    assert plain.interval[0] is not None and plain.interval[0] < 0.2  # without that prompt it is about 0
    sizes = reference.abs().flatten()
    weight = (30 * sizes.median() / sizes).clamp(max=1.0)
    bounded = bootstrap_fidelity(reference + noise, reference, 0, weight)
    assert bounded.fidelity is not None and bounded.fidelity < 0.8
    assert bootstrap_fidelity(reference, reference, 0) == Score(fidelity=1.0, interval=(1.0, 1.0))


def small_network(count: int) -> tuple[HeadLayers, Prompts]:
    model = planting.random_planted(11, layers=2, subset=planting.OMEGAS, largest=4).model
    grams = task_of(model.spec.task).sample(count, 1).grams(model.spec)
    return head_layers(model, grams.context), Prompts(grams.gram, grams.query, (model.spec.width - 1,), -1)


def reach(network: HeadLayers, prompts: Prompts) -> Tensor:
    """sqrt(sum_l |d prediction / d T_l|^2 |T_l - 1|^2), from automatic derivatives of an own forward pass."""
    D = prompts.gram.shape[-1]
    moves = torch.zeros(network.layers, prompts.count, D, D, dtype=torch.float64, requires_grad=True)
    gram, query, sizes = prompts.gram, prompts.query[:, 0], []
    for layer, move in enumerate(moves):
        update = sum(P @ gram @ Q.T for P, Q in zip(network.P[layer], network.Q[layer], strict=True))
        assert isinstance(update, Tensor)
        sizes.append(update.square().sum((1, 2)))
        T = torch.eye(D, dtype=torch.float64) + update + move
        gram, query = T @ gram @ T.mT, (T @ query[..., None])[..., 0]
    (slopes,) = torch.autograd.grad(query[:, -1].sum(), moves)
    return (slopes.square().sum((2, 3)) * torch.stack(sizes)).sum(0).sqrt().detach()


def test_a_prompt_counts_less_where_it_or_its_reach_is_thirty_times_as_large_as_at_the_median() -> None:
    network, prompts = small_network(200)
    assert bool((bounded_weights(network, sensitivities(network, prompts)) == 1).all())
    gram, query = prompts.gram.clone(), prompts.query.clone()
    gram[0] *= 20.0  # the prediction is of degree four in the Gram matrix
    query[1] *= 1e3
    large = replace(prompts, gram=gram, query=query)
    sensed = sensitivities(network, large)
    size, far = sensed.prediction[:, 0].abs(), reach(network, large)
    expected = torch.stack([30 * size.median() / size, 30 * far.median() / far, torch.ones(200)]).amin(0)
    assert bool((expected[:2] < 0.5).all()) and bool((expected[2:] == 1).all())
    torch.testing.assert_close(bounded_weights(network, sensed), expected, rtol=1e-9, atol=0)


def test_a_calm_prediction_that_hangs_on_every_digit_of_a_weight_counts_little() -> None:
    network, prompts = small_network(200)
    sensed = sensitivities(network, prompts)
    gammas = tuple(tuple(gamma.clone() for gamma in row) for row in sensed.gammas)
    gammas[0][1][3] *= 1e8
    weight = bounded_weights(network, Sensitivities(sensed.prediction, sensed.trajectory, gammas))
    assert float(weight[3]) < 1e-4 and int((weight < 1).sum()) == 1


@pytest.mark.parametrize("seed", repeats([127, 90, 1122], 1))
def test_a_network_that_explodes_on_a_prompt_is_still_recovered(seed: int) -> None:
    """With squares that one prompt has for itself they are taken for equivariant, for diag, and for nothing."""
    subset = ("yx",) if seed == 127 else ("xx", "yx", "yy")
    planted = planting.random_planted(seed, subset=subset, largest=16, noise=1e-3)
    result = analyse(planting.checkpoint(planted.model), PROMPTS, verdict_only=True)
    assert result.verdict.algorithm == planted.right_verdict, result.families


@pytest.mark.parametrize(
    ("regime", "seed", "layers"), repeats([("full", 6, 4), ("machines", 23, 5), ("full", 27, 5)], 1)
)
def test_eagle_that_explodes_on_a_prompt_is_still_recovered(regime: str, seed: int, layers: int) -> None:
    """Its steps are as long as the largest of 1024 prompts allows, and one of the 256 held out is larger still: there
    its prediction is up to 1e44 times the usual, and the disturbed weights leave no digit of it. If it counts by its
    size alone, they are taken for diag and for nothing."""
    model = planting_eagle.plant(regime, seed=seed, layers=layers, heads=1).model
    P, Q = planting.disturb(model.P, model.Q, 1e-3, torch.Generator().manual_seed(seed))
    result = analyse(planting.checkpoint(replace(model, P=P, Q=Q)), PROMPTS, verdict_only=True)
    assert result.verdict.algorithm == "eagle", result.families
    assert "of 256 held-out prompts" in result.evidence.notes[0]
