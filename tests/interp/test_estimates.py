"""The three estimates: exact on planted networks, honest about what the data do not determine."""

from __future__ import annotations

import planting
import pytest
import torch

from interp.basis import BlockMap
from interp.estimates import Prompts, least_squares, output_estimate, predict, refit, sensitivities
from interp.families import BasisFamily
from interp.gauge import live_coordinates
from interp.models.gram import head_layers
from interp.models.tasks import task_from_dict


def on_prompts(model, count, seed):
    grams = task_from_dict(model.spec.task).sample(count, seed).grams(model.spec)
    return head_layers(model, grams.context), Prompts(grams.gram, grams.query, (model.spec.width - 1,), -1)


def diag_family(model, network, prompts):
    live = live_coordinates(network, prompts.gram[:32], prompts.query[:32], prompts.readout)
    return BasisFamily.named("diag", model.spec, live, network.scale)


def test_planted_omegas_are_recovered_by_output_and_by_refit():
    planted = planting.random_planted(3, layers=3, subset=planting.OMEGAS, largest=8)
    network, prompts = on_prompts(planted.model, 400, 1)
    family = diag_family(planted.model, network, prompts)
    truth = family.flatten(planted.omega)
    sensed = sensitivities(network, prompts)
    output = output_estimate(family, network, sensed)
    torch.testing.assert_close(output.theta, truth, rtol=1e-6, atol=0)
    # From a start that is 20 % off, so that the minimisation has something to do.
    refitted = refit(family, prompts, sensed.prediction, [1.2 * truth])
    torch.testing.assert_close(refitted.theta, truth, rtol=1e-6, atol=0)
    assert refitted.unexplained < 1e-18


def test_design_columns_are_the_derivatives_of_the_prediction():
    planted = planting.random_planted(5, layers=2, subset=planting.OMEGAS, largest=5)
    network, prompts = on_prompts(planted.model, 20, 2)
    family = diag_family(planted.model, network, prompts)
    theta = family.flatten(planted.omega)
    sensed = sensitivities(family.build(theta), prompts)
    columns = torch.cat(
        [family.design(layer, sensed.gammas[0][layer], sensed.trajectory.grams[layer]) for layer in range(2)], -1
    )
    for k in range(len(theta)):
        step = torch.zeros_like(theta)
        step[k] = 1e-6 * theta[k]
        ahead, behind = (predict(family.build(theta + sign * step), prompts)[:, 0] for sign in (1, -1))
        torch.testing.assert_close(columns[:, k], (ahead - behind) / (2 * step[k]), rtol=1e-6, atol=1e-6)


def test_standard_errors_are_those_of_hc3():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 1, 3, generator=generator, dtype=torch.float64)
    y = X[..., 0] + X[..., 1].abs() * torch.randn(40, 1, generator=generator, dtype=torch.float64)
    found = least_squares(X, y)
    x, inverse = X[:, 0], torch.linalg.inv(X[:, 0].T @ X[:, 0])
    theta = inverse @ x.T @ y[:, 0]
    meat = torch.zeros(3, 3, dtype=torch.float64)
    for row, target in zip(x, y[:, 0], strict=True):
        residual = (target - row @ theta) / (1 - row @ inverse @ row)
        meat += residual**2 * torch.outer(row, row)
    torch.testing.assert_close(found.theta, theta)
    torch.testing.assert_close(found.stderr, (inverse @ meat @ inverse).diagonal().sqrt(), rtol=1e-9, atol=1e-12)


def test_collinear_parameters_are_not_determined_and_name_each_other():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 1, 2, generator=generator, dtype=torch.float64)
    design = torch.cat([x, x[..., :1]], -1)
    found = least_squares(design, x.sum(-1))
    assert found.determined == (False, True, False)
    assert found.partners[0] == (2,)
    assert found.partners[2] == (0,)


def test_a_map_given_twice_shares_its_coefficient():
    planted = planting.random_planted(3, layers=2, subset=("yx",), largest=5)
    network, prompts = on_prompts(planted.model, 200, 1)
    x, y = planted.model.spec.channels
    twice = BasisFamily((BlockMap("yx", y, x), BlockMap("again", y, x)), ((True, True),) * 2, 1.0, 1.0)
    found = output_estimate(twice, network, sensitivities(network, prompts))
    assert not any(found.determined)


@pytest.mark.parametrize(("count", "reference"), [(500, 10_000), pytest.param(1000, 100_000, marks=pytest.mark.slow)])
def test_intervals_of_the_output_estimate_cover(count, reference):
    """Disturbed planted networks: 95 % intervals from ``count`` prompts against the value from ``reference`` others.

    The coefficients of one network are correlated, so the bounds are wider than those of the binomial law.
    """
    scores = []
    for seed in range(24 if count == 500 else 50):
        planted = planting.random_planted(seed + 500, layers=1 + seed % 4, subset=planting.OMEGAS, largest=6, noise=0.1)
        network, prompts = on_prompts(planted.model, count, 1)
        family = diag_family(planted.model, network, prompts)
        few = output_estimate(family, network, sensitivities(network, prompts))
        many_network, many = on_prompts(planted.model, reference, 2)
        truth = output_estimate(family, many_network, sensitivities(many_network, many))
        kept = torch.tensor(few.determined)
        scores.append(((few.theta - truth.theta) / few.stderr)[kept])
    inside = (torch.cat(scores).abs() < 1.96).double().mean()
    assert 0.90 <= float(inside) <= 0.99, (float(inside), len(torch.cat(scores)))
