"""Gradient descent, momentum, Chebyshev, conjugate gradients, Newton-Schulz: independent implementations and theory."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import cg

from interp.errors import UsageError
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.solvers.chebyshev import chebyshev, chebyshev_steps
from interp.solvers.conjugate_gradients import conjugate_gradients, one_by_one
from interp.solvers.gradient_descent import gradient_descent, gradient_descent_gain, tune_constant_step
from interp.solvers.newton_schulz import inverse_iterates, newton_schulz
from interp.solvers.ridge import ols
from interp.solvers.statistics import RegressionStatistics, Spectrum
from interp.solvers.tuning import TuningSet


def planted(eigenvalues: list[float], count: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sigma with these eigenvalues in a random basis per prompt, a random solution w, and alpha = Sigma w."""
    generator = torch.Generator().manual_seed(seed)
    dim = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(count, dim, dim, generator=generator, dtype=torch.float64))[0]
    sigma = basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.mT
    sigma = 0.5 * (sigma + sigma.mT)
    w = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return sigma, w, torch.einsum("nij,nj->ni", sigma, w)


def data(count: int = 3, context: int = 9, dim: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, context, dim, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, context, generator=generator, dtype=torch.float64)


def relative_error(iterates: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(iterates - w, dim=-1) / torch.linalg.vector_norm(w, dim=-1)


def energy(sigma: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    return torch.einsum("...ni,nij,...nj->...n", error, sigma, error).clamp_min(0).sqrt()


# --- gradient descent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_descent_and_momentum_are_torch_sgd_on_the_loss_of_the_context(momentum: float) -> None:
    x, y = data()
    statistics = RegressionStatistics.from_data(x, y)
    w = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w], lr=0.03, momentum=momentum)
    expected = [w.detach().clone()]
    for _ in range(6):
        optimiser.zero_grad()
        (0.5 * (y - torch.einsum("ncd,nd->nc", x, w)).square().sum()).backward()
        optimiser.step()
        expected.append(w.detach().clone())
    iterates = gradient_descent(statistics.sigma, statistics.alpha, [0.03] * 6, momentum)
    torch.testing.assert_close(iterates, torch.stack(expected), rtol=1e-12, atol=1e-13)
    if momentum == 0.0:
        plain = gradient_descent(statistics.sigma, statistics.alpha, [0.03] * 6)
        torch.testing.assert_close(plain, torch.stack(expected), rtol=1e-12, atol=1e-13)


def test_the_gain_of_descent_is_what_it_does_to_each_eigen_direction() -> None:
    sigma, _, alpha = planted([0.0, 0.3, 2.0, 7.0])
    steps = (0.1, -0.02, 0.25)
    spectrum = Spectrum.of(sigma)
    gain = gradient_descent_gain(spectrum.values, steps)
    values = np.array([0.3, 2.0, 7.0])
    expected = (1 - (1 - 0.1 * values) * (1 + 0.02 * values) * (1 - 0.25 * values)) / values
    np.testing.assert_allclose(gain[0, 1:], expected, rtol=1e-10)
    assert float(gain[0, 0]) == pytest.approx(sum(steps), abs=1e-12)  # the limit of the division at eigenvalue 0
    torch.testing.assert_close(
        spectrum.filtered(gain, alpha), gradient_descent(sigma, alpha, steps)[-1], rtol=1e-10, atol=1e-12
    )


def test_momentum_at_its_optimum_converges_at_the_square_root_rate() -> None:
    sigma, w, alpha = planted([1.0, 4.0, 20.0, 100.0])
    root = math.sqrt(100.0)
    beta = ((root - 1) / (root + 1)) ** 2
    errors = torch.linalg.vector_norm(
        gradient_descent(sigma, alpha, [(2 / (root + 1)) ** 2] * 200, beta) - w, dim=-1
    ).amax(-1)
    rate = float((errors[160] / errors[80]) ** (1 / 80))
    # sqrt(beta) = 0.818 with a factor of k in front (double root): (160/80)^(1/80) = 1.009
    assert rate < math.sqrt(beta) * 1.015


def regression_tuning(level: NoiseLaw, covariance: tuple[float, ...] | None = None, count: int = 5000) -> TuningSet:
    task = NoisyRegression(dim=10, context=20, noise=level, covariance=covariance)
    sample = task.sample(count, 5)
    metric = None if covariance is None else torch.tensor(covariance, dtype=torch.float64)
    return TuningSet(RegressionStatistics.from_data(sample.x, sample.y), task.oracle_weights(sample), metric)


@pytest.mark.parametrize("covariance", [None, tuple(np.geomspace(0.2, 3.0, 10).tolist())])
def test_one_tuned_step_is_the_closed_form(covariance: tuple[float, ...] | None) -> None:
    tuning = regression_tuning(NoiseLaw(kind="uniform", values=(0.0, 2.0)), covariance)
    C = torch.ones(10, dtype=torch.float64) if tuning.covariance is None else tuning.covariance
    alpha = tuning.statistics.alpha
    best = float((alpha * C * tuning.oracle).sum() / (alpha * C * alpha).sum())  # the loss is quadratic in the step
    assert tune_constant_step(tuning, 1).steps == pytest.approx((best,), rel=1e-4)


def test_one_tuned_step_without_noise_has_the_loss_of_the_paper() -> None:
    tuning = regression_tuning(NoiseLaw(kind="fixed", values=(0.0,)), count=15_000)
    weights = tune_constant_step(tuning, 1).weights(tuning.statistics)
    stderr = float(tuning.losses(weights).std()) / math.sqrt(15_000)
    # E |w - eta Sigma w|^2 / 2 at the best eta, with E Sigma = n I and E Sigma^2 = n (n + d + 1) I
    assert abs(tuning.loss(weights) - 0.5 * 10 * (1 - 20 / 31)) < 4 * stderr


# --- Chebyshev ------------------------------------------------------------------------------------------------------


def chebyshev_polynomial(k: int, at: np.ndarray) -> np.ndarray:
    return np.polynomial.chebyshev.chebval(at, [0.0] * k + [1.0])


def test_chebyshev_multiplies_errors_by_its_polynomial() -> None:
    eigenvalues = [1.0, 1.7, 5.0, 9.0]
    sigma, w, alpha = planted(eigenvalues)
    iterates = chebyshev(sigma, alpha, 1.0, 9.0, 7)
    spectrum = Spectrum.of(sigma)
    start = spectrum.rotate(w)
    for k in range(8):
        factor = spectrum.rotate(w - iterates[k]) / start
        expected = chebyshev_polynomial(k, (5.0 - np.array(eigenvalues)) / 4.0) / chebyshev_polynomial(
            k, np.array(1.25)
        )
        np.testing.assert_allclose(factor, np.broadcast_to(expected, (4, 4)), rtol=1e-9, atol=1e-12)


def test_chebyshev_keeps_its_bound_for_any_eigenvalue_and_attains_it_at_the_ends() -> None:
    sigma, w, alpha = planted(np.linspace(2.0, 50.0, 12).tolist())
    errors = relative_error(chebyshev(sigma, alpha, 2.0, 50.0, 20), w)
    q = (math.sqrt(25.0) + 1) / (math.sqrt(25.0) - 1)
    bound = torch.tensor([2 / (q**k + q**-k) for k in range(21)], dtype=torch.float64)
    assert bool((errors <= bound[:, None] * (1 + 1e-9)).all())
    lone, w, alpha = planted([2.0, 2.0, 50.0, 50.0])
    errors = relative_error(chebyshev(lone, alpha, 2.0, 50.0, 20), w)
    torch.testing.assert_close(errors, bound[:, None].expand(-1, 4), rtol=1e-8, atol=1e-14)


def test_chebyshev_takes_bounds_per_prompt_and_is_descent_with_chebyshev_steps() -> None:
    x, y = data(context=12)
    statistics = RegressionStatistics.from_data(x, y)
    values = statistics.spectrum.values
    iterates = chebyshev(statistics.sigma, statistics.alpha, values[:, 0], values[:, -1], 5)
    for i in range(3):
        one = slice(i, i + 1)
        steps = chebyshev_steps(float(values[i, 0]), float(values[i, -1]), 5)
        descent = gradient_descent(statistics.sigma[one], statistics.alpha[one], steps)[-1]
        torch.testing.assert_close(iterates[5, one], descent, rtol=1e-9, atol=1e-11)


def test_chebyshev_solves_a_multiple_of_the_identity_in_one_step() -> None:
    sigma, w, alpha = planted([3.0, 3.0, 3.0])
    iterates = chebyshev(sigma, alpha, 3.0, 3.0, 4)
    torch.testing.assert_close(iterates[1:], w.expand(4, -1, -1), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_chebyshev_refuses_bounds_that_are_none(bounds: tuple[float, float]) -> None:
    sigma, _, alpha = planted([1.0, 2.0])
    with pytest.raises(UsageError, match="0 < smallest <= largest"):
        chebyshev(sigma, alpha, *bounds, 3)
    with pytest.raises(UsageError, match="0 < smallest <= largest"):
        chebyshev_steps(*bounds, 3)


# --- conjugate gradients --------------------------------------------------------------------------------------------


def test_conjugate_gradients_are_scipys_iterates() -> None:
    x, y = data(context=12, dim=6)
    statistics = RegressionStatistics.from_data(x, y)
    iterates = conjugate_gradients(statistics.sigma, statistics.alpha, 5)
    for i in range(3):
        expected: list[np.ndarray] = []
        cg(
            statistics.sigma[i].numpy(), statistics.alpha[i].numpy(), rtol=0.0, maxiter=5,
            callback=lambda w, kept=expected: kept.append(w.copy()),
        )  # fmt: skip
        np.testing.assert_allclose(iterates[1:, i], np.stack(expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_conjugate_gradients_are_exact_after_as_many_steps_as_dimensions(dim: int) -> None:
    sigma, w, alpha = planted(np.linspace(1.0, 20.0, dim).tolist())
    iterates = conjugate_gradients(sigma, alpha, dim + 10)
    # rounding grows with the condition number (20) over d steps; later iterates must stay put
    for k in range(dim, dim + 11):
        torch.testing.assert_close(iterates[k], w, rtol=1e-9, atol=1e-10)


def test_conjugate_gradients_need_the_matrix_only_to_multiply_by_it() -> None:
    generator = torch.Generator().manual_seed(4)
    A, B = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    E = (A @ A.mT).expand(7, -1, -1)
    steps = one_by_one(lambda V: (V @ A) @ A.mT, B @ A.mT, A.square().sum().reshape(1, 1))
    torch.testing.assert_close(torch.stack(list(islice(steps, 9))), conjugate_gradients(E, B @ A.mT, 8))


def test_conjugate_gradients_need_one_step_per_distinct_eigenvalue() -> None:
    sigma, w, alpha = planted([2.0, 2.0, 2.0, 11.0, 11.0, 40.0])
    iterates = conjugate_gradients(sigma, alpha, 3)
    torch.testing.assert_close(iterates[3], w, rtol=1e-10, atol=1e-11)
    assert float((iterates[2] - w).abs().max()) > 1e-3


def test_no_method_that_multiplies_by_sigma_beats_conjugate_gradients_in_energy() -> None:
    sigma, w, alpha = planted(np.geomspace(1.0, 60.0, 9).tolist())
    best = energy(sigma, conjugate_gradients(sigma, alpha, 6) - w)
    for k in range(1, 7):  # the minimum over the Krylov space, by least squares
        krylov = [alpha]
        for _ in range(k - 1):
            krylov.append(torch.einsum("nij,nj->ni", sigma, krylov[-1]) / 60.0)
        basis = torch.linalg.qr(torch.stack(krylov, dim=-1))[0]
        w_k = (basis @ torch.linalg.solve(basis.mT @ sigma @ basis, basis.mT @ alpha[..., None]))[..., 0]
        torch.testing.assert_close(best[k], energy(sigma, w_k - w), rtol=1e-6, atol=1e-10)
    rivals = (
        chebyshev(sigma, alpha, 1.0, 60.0, 6),
        gradient_descent(sigma, alpha, [2 / 61.0] * 6),
        gradient_descent(sigma, alpha, [0.03] * 6, 0.5),
    )
    for rival in rivals:
        assert bool((energy(sigma, rival - w) >= best * (1 - 1e-9)).all())


def test_conjugate_gradients_find_the_least_norm_solution_and_stop_there() -> None:
    x, y = data(context=3, dim=6)
    statistics = RegressionStatistics.from_data(x, y)
    iterates = conjugate_gradients(statistics.sigma, statistics.alpha, 60)
    expected = ols(statistics.sigma, statistics.alpha)
    torch.testing.assert_close(iterates[3], expected, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(iterates[60], expected, rtol=1e-7, atol=1e-8)


# --- Newton-Schulz --------------------------------------------------------------------------------------------------


def test_newton_schulz_squares_the_residual_at_every_iteration() -> None:
    sigma, w, alpha = planted([2.0, 3.0, 5.0, 9.0])
    X = inverse_iterates(sigma, 14)
    residual = torch.eye(4, dtype=torch.float64) - sigma @ X
    torch.testing.assert_close(residual[1:], residual[:-1] @ residual[:-1], rtol=1e-9, atol=1e-12)
    size = torch.linalg.matrix_norm(residual, ord=2)
    assert bool((size[0] < 1).all()) and float(size[-1].max()) < 1e-12
    torch.testing.assert_close(newton_schulz(sigma, alpha, 14)[-1], w, rtol=1e-11, atol=1e-12)


def test_newton_schulz_converges_to_the_pseudo_inverse() -> None:
    x, y = data(context=3, dim=5)
    statistics = RegressionStatistics.from_data(x, y)
    X = inverse_iterates(statistics.sigma, 30)[-1]
    for i in range(3):
        np.testing.assert_allclose(X[i], np.linalg.pinv(statistics.sigma[i].numpy(), rcond=1e-10), rtol=1e-5, atol=1e-6)


def test_every_solver_returns_zero_for_an_empty_prompt() -> None:
    sigma, alpha = torch.zeros(2, 3, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    runs = (
        gradient_descent(sigma, alpha, [0.1] * 4),
        gradient_descent(sigma, alpha, [0.1] * 4, 0.9),
        chebyshev(sigma, alpha, 1.0, 2.0, 4),
        conjugate_gradients(sigma, alpha, 4),
        newton_schulz(sigma, alpha, 4),
    )
    for iterates in runs:
        assert iterates.shape == (5, 2, 3) and not bool(iterates.any())


def test_no_iterations_means_the_start_alone() -> None:
    sigma, _, alpha = planted([1.0, 2.0])
    runs = (
        gradient_descent(sigma, alpha, []),
        gradient_descent(sigma, alpha, [], 0.9),
        chebyshev(sigma, alpha, 1.0, 2.0, 0),
        conjugate_gradients(sigma, alpha, 0),
    )
    for iterates in runs:
        assert torch.equal(iterates, torch.zeros(1, 4, 2, dtype=torch.float64))
    with pytest.raises(UsageError, match="asked to tune 0 gradient descent steps"):
        tune_constant_step(TuningSet(RegressionStatistics(sigma, alpha, alpha[:, 0], 4), alpha), 0)
