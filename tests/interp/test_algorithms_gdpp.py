"""GD++: against a token-by-token implementation, and theorem 5.1 of arXiv 2402.14180."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.errors import UsageError
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.solvers.gdpp import GDPlusPlus, gdpp, gdpp_gain, next_eigenvalue, theorem_5_1, tune_gdpp
from interp.solvers.gradient_descent import gradient_descent
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet


def in_random_basis(eigenvalues: np.ndarray, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    dim = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(3, dim, dim, generator=generator, dtype=torch.float64))[0]
    sigma = basis @ torch.diag(torch.from_numpy(eigenvalues)) @ basis.mT
    w = torch.randn(3, dim, generator=generator, dtype=torch.float64)
    return 0.5 * (sigma + sigma.mT), w, torch.einsum("nij,nj->ni", sigma, w)


def test_gdpp_is_the_network_of_the_paper_token_by_token() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(7, generator=generator, dtype=torch.float64)
    query = torch.eye(3, dtype=torch.float64)  # one query per coordinate reads off the implicit weights
    xx, yx = (-0.03, 0.01, -0.02, 0.5), (-0.05, -0.1, 0.02, -0.04)
    iterates = gdpp((x.T @ x)[None], (x.T @ y)[None], xx, yx)
    inputs, labels, queries, answers = x, y, query, torch.zeros(3, dtype=torch.float64)
    for layer in range(4):
        sigma, alpha = inputs.T @ inputs, inputs.T @ labels
        labels, answers = labels + yx[layer] * inputs @ alpha, answers + yx[layer] * queries @ alpha
        inputs, queries = inputs + xx[layer] * inputs @ sigma, queries + xx[layer] * queries @ sigma
        torch.testing.assert_close(iterates[layer + 1, 0], -answers, rtol=1e-12, atol=1e-13)


@given(seed=st.integers(0, 10_000), layers=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_the_gain_is_what_gdpp_does_to_each_eigen_direction(seed: int, layers: int) -> None:
    rng = np.random.default_rng(seed)
    sigma, _, alpha = in_random_basis(rng.uniform(0.1, 5.0, 4), seed)
    xx, yx = rng.normal(0, 0.15, layers), rng.normal(0, 0.2, layers)
    spectrum = RegressionStatistics(sigma, alpha, alpha[:, 0], 9).spectrum
    direct = gdpp(sigma, alpha, xx.tolist(), yx.tolist())[-1]
    filtered = spectrum.filtered(gdpp_gain(spectrum.values, torch.from_numpy(xx), torch.from_numpy(yx)), alpha)
    scale = float(direct.abs().max()) + 1.0
    torch.testing.assert_close(filtered, direct, rtol=1e-10, atol=1e-10 * scale)


def test_without_preconditioning_gdpp_is_gradient_descent() -> None:
    sigma, _, alpha = in_random_basis(np.array([0.5, 1.0, 3.0]))
    steps = (0.2, 0.1, 0.3)
    iterates = gdpp(sigma, alpha, [0.0] * 3, [-s for s in steps])
    torch.testing.assert_close(iterates, gradient_descent(sigma, alpha, steps), rtol=1e-13, atol=1e-14)


def test_one_layer_maps_every_eigenvalue_exactly() -> None:
    values = np.array([0.2, 1.0, 2.5, 4.0])
    sigma, _, _ = in_random_basis(values)
    gamma = 0.07
    M = torch.eye(4, dtype=torch.float64) - gamma * sigma
    mapped = torch.linalg.eigvalsh(M @ sigma @ M.mT)  # the map is increasing below 1/(3 gamma) = 4.76
    expected = torch.from_numpy(values * (1 - gamma * values) ** 2)
    torch.testing.assert_close(mapped, expected.expand(3, -1), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(next_eigenvalue(torch.from_numpy(values), gamma), expected, rtol=1e-14, atol=0.0)


def condition_after_a_layer(kappa: float) -> float:
    low, high = next_eigenvalue(torch.tensor([1.0, kappa], dtype=torch.float64), 1 / (3 * kappa)).tolist()
    return high / low


def test_theorem_5_1_conditioning_near_one_squares_its_distance_to_one() -> None:
    for eps in (0.1, 0.03, 1e-2, 1e-3, 1e-4):
        kappa = condition_after_a_layer(1 + eps)
        assert kappa == pytest.approx((1 + eps) ** 3 / (1 + 1.5 * eps) ** 2, rel=1e-13)
        assert kappa <= 1 + 2 * eps**2  # the bound of the paper
        assert (kappa - 1) / eps**2 == pytest.approx(0.75, rel=3 * eps, abs=1e-7)  # its exact order


def test_theorem_5_1_conditioning_far_from_one_shrinks_by_a_constant() -> None:
    shrinkage = [condition_after_a_layer(kappa) / kappa for kappa in np.geomspace(1.1, 1e8, 60)]
    assert max(shrinkage) < 0.92  # at kappa = 1.1; towards 4/9 for large kappa
    assert shrinkage[-1] == pytest.approx(4 / 9, rel=1e-6)


@pytest.mark.parametrize("kappa", [1.0, 1.05, 10.0, 1e3])
def test_theorem_5_1_the_error_is_bounded_by_the_conditioning_reached(kappa: float) -> None:
    values = np.geomspace(1.0, kappa, 6) * 7.0
    sigma, w, alpha = in_random_basis(values)
    for layers in range(1, 22):
        schedule = theorem_5_1(float(values[0]), float(values[-1]), layers)
        assert schedule.omega_yx[:-1] == (0.0,) * (layers - 1)  # only the last layer touches the labels
        iterates = gdpp(sigma, alpha, schedule.omega_xx, schedule.omega_yx)
        assert not bool(iterates[:-1].any())
        reached = torch.tensor([1.0, kappa], dtype=torch.float64) * 7.0
        for xx in schedule.omega_xx[:-1]:
            assert -xx * float(reached[1]) == pytest.approx(1 / 3, rel=1e-12)
            reached = next_eigenvalue(reached, -xx)
        assert -schedule.omega_yx[-1] * float(reached[0]) == pytest.approx(1.0, rel=1e-12)
        bound = float(reached[1] / reached[0]) - 1
        error = torch.linalg.vector_norm(iterates[-1] - w, dim=-1) / torch.linalg.vector_norm(w, dim=-1)
        assert float(error.max()) <= bound + 1e-10


def test_theorem_5_1_layers_grow_as_log_kappa_plus_loglog_accuracy() -> None:
    def layers_needed(kappa: float, accuracy: float) -> int:
        count = 1
        while kappa - 1 > accuracy:
            kappa, count = condition_after_a_layer(kappa), count + 1
        return count

    by_kappa = [layers_needed(10.0**k, 1e-6) for k in range(1, 9)]
    increments = np.diff(by_kappa)
    # a decade of kappa costs log(10)/log(9/4) = 2.84 layers
    assert by_kappa[-1] - by_kappa[0] == pytest.approx(7 * math.log(10) / math.log(9 / 4), abs=1.0)
    assert set(increments.tolist()) <= {2, 3}
    # squaring the accuracy costs one layer
    assert [layers_needed(1.1, 10.0**-k) - layers_needed(1.1, 10.0 ** -(k // 2)) for k in (4, 8, 12)] == [1, 1, 1]


def test_tuning_recovers_a_planted_gdpp() -> None:
    task = NoisyRegression(dim=6, context=14, noise=NoiseLaw(kind="uniform", values=(0.0, 1.0)))
    sample = task.sample(1000, 0)
    statistics = RegressionStatistics.from_data(sample.x, sample.y)
    planted = GDPlusPlus(omega_xx=(-0.03, 0.0), omega_yx=(-0.02, -0.15))
    found = tune_gdpp(TuningSet(statistics, planted.weights(statistics)), 2, starts=4)
    assert found.omega_xx[0] == pytest.approx(-0.03, rel=1e-4)
    assert found.omega_yx == pytest.approx((-0.02, -0.15), rel=1e-4)


def test_tuned_gdpp_reaches_the_losses_of_table_1() -> None:
    """Noise in {1, 3}: 1.007, .305 and .222 with 1, 2, 3 layers (two layers have better minima than the paper's)."""
    task = NoisyRegression(dim=10, context=20, noise=NoiseLaw(kind="choice", values=(1.0, 3.0)))
    sample = task.sample(4000, 1)
    tuning = TuningSet(RegressionStatistics.from_data(sample.x, sample.y), task.oracle_weights(sample))
    losses, stderrs = [], []
    for layers in (1, 2, 3):
        weights = tune_gdpp(tuning, layers, starts=4).weights(tuning.statistics)
        losses.append(tuning.loss(weights))
        stderrs.append(float(tuning.losses(weights).std()) / math.sqrt(4000))
    assert losses[0] == pytest.approx(1.007, abs=4 * stderrs[0] + 0.0005)
    assert losses[1] < 0.305 + 4 * stderrs[1]
    assert losses[2] == pytest.approx(0.222, abs=4 * stderrs[2] + 0.0005)


def test_bad_arguments_are_one_clear_line() -> None:
    sigma, _, alpha = in_random_basis(np.array([1.0, 2.0]))
    with pytest.raises(UsageError, match="got 1 omega_xx and 2 omega_yx"):
        gdpp(sigma, alpha, [0.1], [0.1, 0.2])
    for smallest, largest, layers in ((0.0, 1.0, 2), (2.0, 1.0, 2), (1.0, 2.0, 0)):
        with pytest.raises(UsageError, match="expected 0 < smallest <= largest"):
            theorem_5_1(smallest, largest, layers)
    with pytest.raises(UsageError, match="layers = 0"):
        tune_gdpp(TuningSet(RegressionStatistics(sigma, alpha, alpha[:, 0], 4), alpha), 0)
