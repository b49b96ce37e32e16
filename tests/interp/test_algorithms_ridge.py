"""The ridge family and its tunings, against scikit-learn, numpy and planted optima."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from interp.errors import UsageError
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.solvers.baselines import regression_baselines
from interp.solvers.ridge import ConstRR, TunedRR, ols, residual_variance, ridge, tune_const, tune_tuned
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet, minimise_positive, minimise_smooth


def prompts(count: int, context: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, context, dim, generator=generator, dtype=torch.float64)
    w = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, context, generator=generator, dtype=torch.float64)
    return x, torch.einsum("ncd,nd->nc", x, w) + 0.7 * noise


def tuning_set(noise: NoiseLaw, count: int = 4000, seed: int = 0, **task: object) -> TuningSet:
    regression = NoisyRegression(dim=5, context=12, noise=noise, **task)  # type: ignore[arg-type]
    sample = regression.sample(count, seed)
    covariance = None if regression.covariance is None else torch.tensor(regression.covariance, dtype=torch.float64)
    return TuningSet(RegressionStatistics.from_data(sample.x, sample.y), regression.oracle_weights(sample), covariance)


def test_statistics_are_sums_over_the_context() -> None:
    x, y = prompts(3, 7, 4)
    statistics = RegressionStatistics.from_data(x, y)
    for i in range(3):
        X, Y = x[i].numpy(), y[i].numpy()
        np.testing.assert_allclose(statistics.sigma[i], X.T @ X, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(statistics.alpha[i], X.T @ Y, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(statistics.lambda_[i], Y @ Y, rtol=1e-12)
    assert (statistics.count, statistics.dim, statistics.context) == (3, 4, 7)


@pytest.mark.parametrize("context", [3, 6, 20])
def test_ridge_is_scikit_learns_with_a_penalty_per_prompt(context: int) -> None:
    x, y = prompts(6, context, 6)
    statistics = RegressionStatistics.from_data(x, y)
    penalty = torch.tensor([0.01, 0.1, 1.0, 5.0, 25.0, 300.0], dtype=torch.float64)
    w = ridge(statistics.sigma, statistics.alpha, penalty)
    for i in range(6):
        expected = (
            Ridge(alpha=float(penalty[i]), fit_intercept=False, solver="svd").fit(x[i].numpy(), y[i].numpy()).coef_
        )
        # sklearn works on X, we on X^T X: the condition number (here below 1e5) is squared, 1e-16 * 1e5 < 1e-10
        np.testing.assert_allclose(w[i], expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(ridge(statistics.sigma, statistics.alpha, 5.0)[3], w[3], rtol=1e-13, atol=1e-14)
    constant = ConstRR(penalty=5.0).weights(statistics)
    torch.testing.assert_close(constant[3], w[3], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("context", [1, 3, 6, 20])
def test_ols_is_lstsq_also_when_it_must_choose_the_least_norm(context: int) -> None:
    x, y = prompts(5, context, 6)
    statistics = RegressionStatistics.from_data(x, y)
    w = ols(statistics.sigma, statistics.alpha)
    for i in range(5):
        expected = np.linalg.lstsq(x[i].numpy(), y[i].numpy(), rcond=None)[0]
        np.testing.assert_allclose(w[i], expected, rtol=1e-8, atol=1e-9)


def test_residual_variance_is_that_of_the_residuals() -> None:
    x, y = prompts(4, 15, 6)
    estimate = residual_variance(RegressionStatistics.from_data(x, y))
    for i in range(4):
        w = np.linalg.lstsq(x[i].numpy(), y[i].numpy(), rcond=None)[0]
        residual = y[i].numpy() - x[i].numpy() @ w
        np.testing.assert_allclose(estimate[i], residual @ residual / (15 - 6), rtol=1e-10)


def test_residual_variance_is_unbiased_also_when_inputs_are_linearly_dependent() -> None:
    x, y = prompts(4000, 8, 3)
    doubled = torch.cat([x, x[..., :2]], dim=-1)  # five inputs, rank three
    for inputs in (x, doubled):
        estimate = residual_variance(RegressionStatistics.from_data(inputs, y))
        stderr = float(estimate.std()) / math.sqrt(4000)
        assert abs(float(estimate.mean()) - 0.49) < 4 * stderr


def test_adarr_and_tunedrr_are_ridge_with_the_estimated_noise() -> None:
    x, y = prompts(50, 15, 6)
    statistics = RegressionStatistics.from_data(x, y)
    estimate = residual_variance(statistics)
    expected = torch.linalg.solve(statistics.sigma + estimate[:, None, None] * torch.eye(6), statistics.alpha)
    torch.testing.assert_close(TunedRR().weights(statistics), expected, rtol=1e-10, atol=1e-12)
    narrow = torch.linalg.solve(statistics.sigma + 4 * estimate[:, None, None] * torch.eye(6), statistics.alpha)
    torch.testing.assert_close(TunedRR(factor=4.0).weights(statistics), narrow, rtol=1e-10, atol=1e-12)
    penalty = (1.3 * estimate).clamp_max(0.6)
    assert 0 < int((penalty == 0.6).sum()) < 50  # the cap acts on some prompts only
    capped = torch.linalg.solve(statistics.sigma + penalty[:, None, None] * torch.eye(6), statistics.alpha)
    torch.testing.assert_close(TunedRR(factor=1.3, cap=0.6).weights(statistics), capped, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 10.0))
@settings(max_examples=25, deadline=None)
def test_rotating_or_scaling_the_inputs_rotates_or_scales_the_solution(seed: int, scale: float) -> None:
    x, y = prompts(4, 12, 5, seed)
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))[0]
    plain = RegressionStatistics.from_data(x, y)
    rotated = RegressionStatistics.from_data(scale * x @ rotation, y)
    w = ridge(plain.sigma, plain.alpha, 0.8)
    v = ridge(rotated.sigma, rotated.alpha, 0.8 * scale**2)
    torch.testing.assert_close(scale * v @ rotation.T, w, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(residual_variance(rotated), residual_variance(plain), rtol=1e-9, atol=1e-11)


def test_an_empty_context_direction_gives_zero_weights() -> None:
    zero = RegressionStatistics(
        sigma=torch.zeros(2, 3, 3, dtype=torch.float64),
        alpha=torch.zeros(2, 3, dtype=torch.float64),
        lambda_=torch.tensor([4.0, 8.0], dtype=torch.float64),
        context=4,
    )
    assert torch.equal(ols(zero.sigma, zero.alpha), zero.alpha)
    assert torch.equal(ridge(zero.sigma, zero.alpha, 2.0), zero.alpha)
    torch.testing.assert_close(residual_variance(zero), torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert torch.equal(TunedRR().weights(zero), zero.alpha)


def test_bad_arguments_are_one_clear_line() -> None:
    x, y = prompts(3, 4, 4)
    statistics = RegressionStatistics.from_data(x, y)
    with pytest.raises(UsageError, match="penalty reaches down to -1"):
        ridge(statistics.sigma, statistics.alpha, torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64))
    with pytest.raises(UsageError, match="4 context tokens of dimension 4 leave no degrees of freedom"):
        residual_variance(statistics)
    with pytest.raises(UsageError, match="context is 0"):
        RegressionStatistics(sigma=statistics.sigma, alpha=statistics.alpha, lambda_=statistics.lambda_, context=0)
    with pytest.raises(UsageError, match=r"oracle has shape \(2, 4\)"):
        TuningSet(statistics, statistics.alpha[:2])


# --- tuning ---------------------------------------------------------------------------------------------------------


def test_the_adjusted_loss_is_the_gap_to_the_oracle_in_half_mean_squared_error() -> None:
    task = NoisyRegression(
        dim=5, context=12, noise=NoiseLaw(kind="uniform", values=(0.0, 3.0)), covariance=(0.3, 0.5, 1.0, 2.0, 4.0)
    )
    sample = task.sample(30_000, 3)
    statistics = RegressionStatistics.from_data(sample.x, sample.y)
    oracle = task.oracle_weights(sample)
    tuning = TuningSet(statistics, oracle, torch.tensor(task.covariance, dtype=torch.float64))
    weights = ConstRR(penalty=6.0).weights(statistics)

    def half_square(w: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((w - sample.w) * sample.x_query).sum(-1).square()

    gaps = half_square(weights) - half_square(oracle)
    stderr = float(gaps.std()) / math.sqrt(sample.count)
    assert abs(tuning.loss(weights) - float(gaps.mean())) < 4 * stderr
    # what the reduction of variance is worth: a standard error several times smaller
    assert float(tuning.losses(weights).std()) / math.sqrt(sample.count) < 0.5 * stderr


@pytest.mark.parametrize("covariance", [None, (0.3, 0.5, 1.0, 2.0, 4.0)])
def test_the_loss_of_a_gain_is_the_loss_of_its_weights(covariance: tuple[float, ...] | None) -> None:
    tuning = tuning_set(NoiseLaw(kind="fixed", values=(1.0,)), covariance=covariance)
    gain = torch.rand(tuning.oracle.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = tuning.statistics.spectrum.filtered(gain, tuning.statistics.alpha)
    assert float(tuning.gain_loss(gain)) == pytest.approx(tuning.loss(weights), rel=1e-12)


@pytest.mark.parametrize("level", [0.2, 1.0, 6.0])
@pytest.mark.parametrize("covariance", [None, (0.3, 0.5, 1.0, 2.0, 4.0)])
def test_with_one_noise_level_constrr_finds_it(level: float, covariance: tuple[float, ...] | None) -> None:
    # the oracle is then itself ridge regression with penalty sigma^2 / tau^2
    tuning = tuning_set(NoiseLaw(kind="fixed", values=(level,)), covariance=covariance, weight_std=2.0)
    const = tune_const(tuning)
    assert const.penalty == pytest.approx(level**2 / 4.0, rel=1e-4)  # the search stops at a relative step of 1e-5
    assert tuning.loss(const.weights(tuning.statistics)) < 1e-9


def test_without_noise_constrr_is_least_squares_and_tunedrr_changes_nothing() -> None:
    tuning = tuning_set(NoiseLaw(kind="fixed", values=(0.0,)))
    assert tune_const(tuning) == ConstRR(penalty=0.0)
    assert tune_tuned(tuning) == TunedRR(factor=1.0, cap=math.inf)
    assert tuning.loss(TunedRR().weights(tuning.statistics)) < 1e-20


def test_tunedrr_finds_a_planted_factor_and_cap() -> None:
    tuning = tuning_set(NoiseLaw(kind="uniform", values=(0.0, 3.0)))
    planted = TunedRR(factor=1.7, cap=3.1)
    target = TuningSet(tuning.statistics, planted.weights(tuning.statistics))
    found = tune_tuned(target)
    assert (found.factor, found.cap) == pytest.approx((1.7, 3.1), rel=1e-3)
    assert target.loss(found.weights(tuning.statistics)) < 1e-8


def test_each_tuning_of_the_ridge_family_improves_on_what_it_contains() -> None:
    tuning = tuning_set(NoiseLaw(kind="uniform", values=(0.0, 4.0)))
    statistics = tuning.statistics
    best = tuning.loss(tune_tuned(tuning).weights(statistics))
    assert best < tuning.loss(TunedRR().weights(statistics)) < tuning.loss(tune_const(tuning).weights(statistics))
    penalty = tune_const(tuning).penalty
    below, at, above = (tuning.loss(ConstRR(penalty=c * penalty).weights(statistics)) for c in (0.98, 1.0, 1.02))
    assert below > at < above


def test_compass_search_leaves_the_grid_and_handles_a_tilted_valley() -> None:
    def bowl(a: float, b: float) -> float:
        u, v = math.log(a / 3.0), math.log(b / 700.0)
        return u * u + v * v + 1.6 * u * v

    assert minimise_positive(bowl, [[0.5, 1.0, 2.0], [10.0, 20.0, 40.0]]) == pytest.approx((3.0, 700.0), rel=1e-3)


def test_a_search_that_would_fall_for_ever_ends() -> None:
    tried: list[float] = []

    def valley(along: float, across: float) -> float:
        tried.append(along)
        return 1e-9 / along + math.log(across) ** 2

    found = minimise_positive(valley, [[1.0, 1.001], [0.5, 1.0]])
    assert found[1] == pytest.approx(1.0, abs=0.01) and found[0] > 1.0
    assert len(tried) < 2000


def test_smooth_minimisation_finds_the_bottom_of_rosenbrocks_valley() -> None:
    found, value = minimise_smooth(
        lambda p: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2, torch.tensor([-1.2, 1.0], dtype=torch.float64)
    )
    torch.testing.assert_close(found, torch.ones(2, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert value < 1e-12


# --- the registry ---------------------------------------------------------------------------------------------------


def test_the_registry_is_named_tuned_and_ordered() -> None:
    tuning = tuning_set(NoiseLaw(kind="uniform", values=(0.0, 3.0)))
    baselines = regression_baselines(tuning)
    assert [b.name for b in baselines] == ["null", "gd-1", "gd-2", "gd-4", "gd-8", "ols", "constrr", "adarr", "tunedrr"]
    loss = {b.name: tuning.loss(b.weights(tuning.statistics)) for b in baselines}
    assert loss["null"] == pytest.approx(float(0.5 * tuning.oracle.square().sum(-1).mean()))
    assert loss["null"] > loss["gd-1"] > loss["gd-2"] > loss["gd-4"] > loss["constrr"] > loss["adarr"] > loss["tunedrr"]
    assert loss["ols"] > loss["constrr"]


def test_the_registry_leaves_out_what_needs_residuals_when_there_are_none() -> None:
    x, y = prompts(200, 4, 5)
    statistics = RegressionStatistics.from_data(x, y)
    tuning = TuningSet(statistics, ridge(statistics.sigma, statistics.alpha, 0.49))
    baselines = regression_baselines(tuning)
    assert [b.name for b in baselines] == ["null", "gd-1", "gd-2", "gd-4", "gd-8", "ols", "constrr"]
    assert all(bool(torch.isfinite(b.weights(statistics)).all()) for b in baselines)
