"""Means, ratios and bins over prompts, against their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.stats.averages import mean_with_error, quantile_bins, ratio_with_error


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_error_of_a_mean_is_the_spread_of_means() -> None:
    values = random(4000, 50, seed=0) ** 2
    errors = [mean_with_error(row)[1] for row in values[:200]]
    means = values.mean(1)
    # 4000 means have a standard deviation known to 1 %, and 200 errors average to about 2 %.
    assert sum(e for e in errors if e is not None) / 200 == pytest.approx(float(means.std()), rel=0.06)


def test_a_ratio_is_the_regression_through_the_origin_and_its_error_the_spread_of_it() -> None:
    x, noise = random(2000, 200, seed=1), random(2000, 200, seed=2)
    y = 0.7 * x + x.abs() * noise
    found = [ratio_with_error(a * b, a * a) for a, b in zip(x, y, strict=True)]
    slopes = torch.tensor([slope for slope, _ in found])
    expected = torch.linalg.lstsq(x[0, :, None], y[0, :, None]).solution
    assert found[0][0] == pytest.approx(float(expected), rel=1e-12)
    errors = torch.tensor([error for _, error in found])
    # Noise that grows with x: the textbook error would be too small by sqrt(3). 200 rows bias the estimate by a few %.
    assert float(errors.square().mean().sqrt()) == pytest.approx(float(slopes.std()), rel=0.08)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_finite_has_no_figure(bad: float) -> None:
    values = torch.tensor([1.0, bad, 2.0], dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    assert mean_with_error(values) == (None, None)
    assert ratio_with_error(values, ones) == (None, None)
    assert ratio_with_error(ones, values) == (None, None)
    assert ratio_with_error(ones, 0 * ones) == (None, None)
    assert mean_with_error(values[:0]) == (None, None)
    assert mean_with_error(values[:1]) == (1.0, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 12))
def test_bins_are_ordered_and_equal_values_share_one(raw: list[float], bins: int) -> None:
    values = torch.tensor(raw, dtype=torch.float64)
    index = quantile_bins(values, bins)
    assert int(index.min()) >= 0 and int(index.max()) < bins
    order = values.argsort()
    assert bool((index[order].diff() >= 0).all())
    for value in values.unique():
        assert len(index[values == value].unique()) == 1


def test_bins_of_distinct_values_hold_equally_many() -> None:
    counts = torch.bincount(quantile_bins(random(1000, seed=3)))
    assert counts.tolist() == [100] * 10
