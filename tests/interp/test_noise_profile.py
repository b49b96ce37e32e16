"""Excess loss by noise level, against solvers run one prompt at a time and against plain losses."""

from __future__ import annotations

import math
from typing import Any

import planting
import pytest
import torch

from interp.evidence.noise_profile import noise_levels, noise_profile, readout_weights
from interp.models.gram import forward, head_layers
from interp.models.tasks import NoiseLaw, NoisyRegression, RegressionPrompts, task_of
from interp.results import NoiseProfile, ProfileSeries
from interp.solvers.baselines import Baseline
from interp.solvers.ridge import ConstRR

BASELINES = (Baseline("ols", "least squares", ConstRR(penalty=0.0).weights),)


def profile(model: planting.LinearTransformer, prompts: int, seed: int = 0) -> NoiseProfile:
    task = task_of(model.spec.task)
    layers = head_layers(model, task.context)

    def draw(law: NoisyRegression) -> RegressionPrompts:
        return law.sample(prompts, seed)

    return noise_profile(layers, layers, "recovered algorithm (gd)", model.spec, task, BASELINES, draw)


def series(found: NoiseProfile, name: str) -> ProfileSeries:
    return next(s for s in found.series if s.name == name)


def one_step(eta: float, dim: int, context: int, **fields: Any) -> planting.LinearTransformer:
    P, Q = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, -eta, 0.0]], dtype=torch.float64), dim)
    return planting.LinearTransformer(spec=planting.spec_for(dim, context, **fields), P=P, Q=Q)


@pytest.mark.parametrize(
    ("kind", "values", "levels", "contains"),
    [
        ("uniform", (0.0, 5.0), 13, (0.0, 0.5, 5.0, 6.0)),
        ("choice", (1.0, 3.0), 13, (0.0, 1.0, 3.0, 4.0)),
        ("choice", (1.0, 2.7), 15, (0.0, 1.0, 2.7, 3.7)),
        ("fixed", (0.0,), 13, (0.0, 1.0)),
        ("uniform", (2.0, 5.0), 13, (2.0, 5.0, 6.0)),
    ],
)
def test_the_grid_goes_one_beyond_the_noise_and_holds_the_levels_of_the_task(
    kind: str, values: tuple[float, ...], levels: int, contains: tuple[float, ...]
) -> None:
    grid = noise_levels(NoiseLaw(kind=kind, values=values))
    assert len(grid) == levels and list(grid) == sorted(grid)
    for value in contains:
        assert min(abs(value - point) for point in grid) < 1e-12
    assert grid[0] == 0.0 and grid[-1] == pytest.approx(max(values) + 1)


def test_a_profile_is_the_mean_distance_to_ridge_with_the_true_noise() -> None:
    """Every figure, from one prompt at a time: one gradient step, least squares, and the posterior mean."""
    eta, prompts = 0.03, 12
    model = one_step(eta, 3, 7)
    task = task_of(model.spec.task)
    found = profile(model, prompts, seed=4)
    assert found.prompts == (prompts,) * 13 and found.trained == (0.0, 5.0) and found.levels is None
    for column, sigma in enumerate(found.sigma):
        drawn = task.with_noise(NoiseLaw(kind="fixed", values=(sigma,))).sample(prompts, 4)
        expected: dict[str, list[float]] = {"network": [], "ols": [], "layer-0": []}
        for x, y in zip(drawn.x, drawn.y, strict=True):
            gram, alpha = x.T @ x, x.T @ y
            best = torch.linalg.solve(gram + sigma**2 * torch.eye(3, dtype=torch.float64), alpha)
            expected["network"].append(float((eta * alpha - best).square().sum()))
            expected["ols"].append(float((torch.linalg.solve(gram, alpha) - best).square().sum()))
            expected["layer-0"].append(float(best.square().sum()))
        for name, values in expected.items():
            row, each = series(found, name), torch.tensor(values, dtype=torch.float64)
            # Squares of differences of order 1, from two ways of solving: 1e-12 of the weights, squared or not.
            assert row.excess[column] == pytest.approx(float(each.mean()), rel=1e-9, abs=1e-12)
            assert row.stderr[column] == pytest.approx(float(each.std()) / math.sqrt(prompts), rel=1e-9, abs=1e-12)
    assert series(found, "recovered").excess == series(found, "network").excess == series(found, "layer-1").excess


@pytest.mark.parametrize("keys", ["context", "all"])
@pytest.mark.parametrize("covariance", [None, [0.05, 1.0, 4.0]])
def test_the_excess_is_what_the_loss_exceeds_the_oracles_by(keys: str, covariance: list[float] | None) -> None:
    """Also where the weights depend on the query (keys "all"), and with anisotropic inputs: within four standard
    errors of the mean difference of the squared errors on many other prompts."""
    fields: dict[str, Any] = {"attention": {"keys": keys}}
    if covariance is not None:
        fields["task"] = planting.spec_for(3, 7).to_dict()["task"] | {"covariance": covariance}
    model = one_step(0.03, 3, 7, **fields)
    task = task_of(model.spec.task)
    found = series(profile(model, 2500), "network")
    for place, sigma in ((0, 0.0), (5, 2.5), (12, 6.0)):
        drawn = task.with_noise(NoiseLaw(kind="fixed", values=(sigma,))).sample(80_000, 99)
        w = readout_weights(head_layers(model, task.context), drawn, model.spec)[-1]
        predicted, target = (w * drawn.x_query).sum(-1), drawn.target.flatten()
        gap = (predicted - target) ** 2 - (task.oracle(drawn).flatten() - target) ** 2
        excess, error = found.excess[place], found.stderr[place]
        assert excess is not None and error is not None
        spread = math.hypot(error, float(gap.std()) / math.sqrt(len(gap)))
        assert spread < 0.12 * excess  # sharp enough to notice a wrong metric
        assert abs(excess - float(gap.mean())) < 4 * spread


def test_with_the_query_among_the_keys_the_excess_is_that_of_its_own_query() -> None:
    """Then w depends on x_t: with G + x_t x_t^T for G one step is still eta alpha, but two steps are not two."""
    P, Q = planting.block_scalar_heads(torch.tensor([[-0.05, 0.0, -0.03, 0.0]] * 2, dtype=torch.float64), 3)
    spec = planting.spec_for(3, 7, attention={"keys": "all"})
    found = series(profile(planting.LinearTransformer(spec=spec, P=P, Q=Q), 40), "network")
    drawn = task_of(spec.task).with_noise(NoiseLaw(kind="fixed", values=(0.5,))).sample(40, 0)
    grams = drawn.grams(spec)
    layers = head_layers(planting.LinearTransformer(spec=spec, P=P, Q=Q), 7)
    predicted = -forward(layers, grams.gram, grams.query).queries[-1][:, 0, 3]
    expected = (predicted - task_of(spec.task).oracle(drawn).flatten()).square()
    assert found.excess[1] == pytest.approx(float(expected.mean()), rel=1e-9)


def test_a_readout_of_the_other_sign_predicts_the_same() -> None:
    """+y with omega_yx = +eta is the same step as -y with -eta."""
    flipped = one_step(-0.03, 3, 7, readout={"sign": 1})
    assert profile(flipped, 20).series[0].excess == pytest.approx(profile(one_step(0.03, 3, 7), 20).series[0].excess)


def test_readout_weights_predict_what_the_network_predicts() -> None:
    model = planting.random_planted(5, layers=3, largest=6).model
    task = task_of(model.spec.task)
    drawn = task.sample(20, 1)
    grams = drawn.grams(model.spec)
    trajectory = forward(head_layers(model, task.context), grams.gram, grams.query)
    for w, query in zip(
        readout_weights(head_layers(model, task.context), drawn, model.spec), trajectory.queries, strict=True
    ):
        torch.testing.assert_close((w * drawn.x_query).sum(-1), -query[:, 0, -1], rtol=1e-10, atol=1e-12)


def test_a_network_that_explodes_has_no_figure_there() -> None:
    found = profile(one_step(1e200, 2, 4), 16)
    assert set(series(found, "network").excess) == {None} == set(series(found, "network").stderr)
    assert None not in series(found, "ols").excess
