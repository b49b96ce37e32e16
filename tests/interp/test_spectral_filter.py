"""Spectral filters of solvers whose filter is known, and of networks that run them."""

from __future__ import annotations

import planting
import pytest
import torch
from torch import Tensor

from interp.evidence.noise_profile import readout_weights
from interp.evidence.spectral_filter import spectral_filters
from interp.models.gram import head_layers
from interp.models.tasks import NoisyRegression, RegressionPrompts, task_of
from interp.results import SpectralFilter
from interp.solvers.gradient_descent import gradient_descent
from interp.solvers.statistics import RegressionStatistics
from interp.stats.averages import quantile_bins


def task_for(noise: dict[str, object], dim: int = 3, context: int = 8, **fields: object) -> NoisyRegression:
    return NoisyRegression.from_dict({"dim": dim, "context": context, "noise": noise, **fields})


def filters(weights: list[Tensor], drawn: RegressionPrompts, task: NoisyRegression) -> tuple[SpectralFilter, ...]:
    return spectral_filters(weights, RegressionStatistics.from_data(drawn.x, drawn.y), drawn.sigma, task)


def pooled(drawn: RegressionPrompts, gain: Tensor) -> list[float]:
    """sum gain <v, w_ols>^2 / sum <v, w_ols>^2 in bins of the eigenvalues, one eigen-direction at a time."""
    values, tops, bottoms = [], [], []
    for x, y, gains in zip(drawn.x, drawn.y, gain, strict=True):
        eigenvalues, vectors = torch.linalg.eigh(x.T @ x)
        best = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        for value, vector, factor in zip(eigenvalues, vectors.T, gains, strict=True):
            values.append(float(value))
            bottoms.append(float((vector @ best) ** 2))
            tops.append(float(factor) * bottoms[-1])
    index = quantile_bins(torch.tensor(values, dtype=torch.float64)).tolist()
    return [
        sum(t for t, k in zip(tops, index, strict=True) if k == bin_)
        / sum(b for b, k in zip(bottoms, index, strict=True) if k == bin_)
        for bin_ in range(10)
    ]


def test_gradient_steps_filter_by_one_minus_a_power() -> None:
    """k layers of omega_yx = -eta keep 1 - (1 - eta eigenvalue)^k of least squares."""
    eta, spec = 0.04, planting.spec_for(3, 8, task={**planting.spec_for(3, 8).task, "noise": {"fixed": 1.5}})
    P, Q = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, -eta, 0.0]] * 3, dtype=torch.float64), 3)
    model = planting.LinearTransformer(spec=spec, P=P, Q=Q)
    task = task_of(spec.task)
    drawn = task.sample(120, 0)
    found = filters(list(readout_weights(head_layers(model, 8), drawn, spec)), drawn, task)
    assert [row.layer for row in found] == [1, 2, 3]
    values = torch.linalg.eigvalsh(drawn.x.mT @ drawn.x)
    for row in found:
        expected = pooled(drawn, 1 - (1 - eta * values) ** row.layer)
        assert [b.filter for b in row.bins] == pytest.approx(expected, rel=1e-9)
        assert [b.ridge for b in row.bins] == pytest.approx(pooled(drawn, values / (values + 1.5**2)), rel=1e-9)
        assert [b.eigenvalue for b in row.bins] == sorted(b.eigenvalue for b in row.bins)
        assert row.noise == (1.5, 1.5)
        # What is left is how much the filter varies inside a bin, a tenth of the eigenvalues.
        assert row.r2 is not None and 0.97 < row.r2 < 1.0


def test_ridge_with_the_true_noise_has_the_filter_shown_beside() -> None:
    task = task_for({"uniform": [0.0, 4.0]}, weight_std=2.0)
    drawn = task.sample(300, 1)
    found = filters([torch.zeros_like(drawn.w), task.oracle_weights(drawn)], drawn, task)
    for row in found:
        for b in row.bins:
            assert b.filter == pytest.approx(b.ridge, rel=1e-9) and 0 < b.ridge < 1
    low, _, high = found
    assert all(a.filter > b.filter for a, b in zip(low.bins, high.bins, strict=True))


def test_prompts_are_grouped_by_noise() -> None:
    def groups(noise: dict[str, object]) -> list[tuple[float, float]]:
        task = task_for(noise)
        drawn = task.sample(300, 2)
        return [row.noise for row in filters([drawn.w, drawn.w], drawn, task)]

    assert groups({"fixed": 1.0}) == [(1.0, 1.0)]
    assert groups({"uniform": [2.0, 2.0]}) == [(2.0, 2.0)]
    assert groups({"choice": [3.0, 1.0]}) == [(1.0, 1.0), (3.0, 3.0)]
    assert groups({"choice": [1.0, 2.0, 3.0, 4.0]}) == [(float(k), float(k)) for k in range(1, 5)]
    low, middle, high = groups({"uniform": [0.0, 5.0]})
    assert 0 <= low[0] < low[1] < middle[0] < middle[1] < high[0] < high[1] <= 5
    assert len(groups({"choice": [float(k) for k in range(9)]})) == 3


def test_errors_are_those_of_a_ratio_over_prompts() -> None:
    """Least squares plus noise of its own: the filter is 1 within the errors, and they are those of the jackknife."""
    task = task_for({"fixed": 1.0})
    drawn = task.sample(400, 3)
    noise = torch.randn(drawn.w.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best = torch.linalg.lstsq(drawn.x, drawn.y[..., None]).solution[..., 0]
    (row,) = filters([best, best + noise], drawn, task)
    assert row.r2 is not None and row.r2 < 0.9
    off = torch.tensor([(b.filter - 1) / b.stderr for b in row.bins if b.stderr is not None])
    assert len(off) == 10 and float(off.abs().max()) < 4 and 0.4 < float(off.std()) < 1.8


def test_directions_that_the_context_says_nothing_about_are_left_out() -> None:
    task = task_for({"fixed": 0.5}, dim=6, context=4)
    drawn = task.sample(100, 4)
    known = RegressionStatistics.from_data(drawn.x, drawn.y)
    w = gradient_descent(known.sigma, known.alpha, [0.05])
    (row,) = filters(list(w), drawn, task)
    assert len(row.bins) == 10 and all(b.eigenvalue > 0.001 for b in row.bins)
    assert row.bins[-1].filter == pytest.approx(0.05 * row.bins[-1].eigenvalue, rel=0.1)


def test_weights_that_are_zero_or_explode_have_no_r2() -> None:
    task = task_for({"fixed": 1.0})
    drawn = task.sample(50, 5)
    for w in (torch.zeros_like(drawn.w), torch.full_like(drawn.w, float("inf"))):
        (row,) = filters([drawn.w, w], drawn, task)
        assert row.r2 is None
