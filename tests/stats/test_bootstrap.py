"""Bootstrap intervals: their levels, their coverage over many populations, and heavy tails."""

from __future__ import annotations

import pytest
import torch

from interp.stats import bootstrap as module
from interp.stats.bootstrap import bootstrap, explained, r_squared, ratio, resampled_sums, share_explained


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Phi(-t sqrt(G / (G - 1))), t the 97.5 % point of Student's t with G - 1 degrees of freedom: from tables.
LEVELS = {8: 0.0057375, 24: 0.0172940, 100: 0.0230644}


@pytest.mark.parametrize(("groups", "level"), LEVELS.items())
def test_the_ends_are_the_expanded_percentiles(groups: int, level: float) -> None:
    values = random(groups, seed=groups)
    got = bootstrap(lambda total: total / groups, values, seed=3)
    means = resampled_sums(values, seed=3) / groups
    low, high = torch.quantile(means, torch.tensor([level, 1 - level], dtype=torch.float64)).tolist()
    assert got.at() == (
        pytest.approx(float(values.mean())),
        (pytest.approx(low, rel=1e-4), pytest.approx(high, rel=1e-4)),
    )


@pytest.mark.parametrize("groups", [10, 40])
def test_intervals_hold_the_truth_in_95_of_100_populations(groups: int) -> None:
    """2000 populations of so few groups: plain percentiles of 10 groups hold it in 90 of 100."""
    x, noise = 2.0 + random(groups, 2000, seed=1), random(groups, 2000, seed=2)
    found = bootstrap(lambda product, square: product / square, x * (x + noise), x**2, seed=0)
    held = float(((found.low < 1.0) & (found.high > 1.0)).double().mean())
    assert 0.93 < held < 0.97


def test_blocks_do_not_change_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = random(50, 2, seed=0)
    whole = resampled_sums(values, seed=1)
    monkeypatch.setattr(module, "BLOCK", 50 * 300)
    torch.testing.assert_close(resampled_sums(values, seed=1), whole)


def test_an_r2_that_hangs_on_one_group_is_not_known() -> None:
    reference, noise = random(400, 1, seed=0), random(400, 1, seed=1)
    reference[7], noise[7] = 1e8, 0.0
    value, (low, high) = r_squared(reference + noise, reference, seed=0)
    assert value == pytest.approx(1.0, abs=1e-6)
    assert low is not None and high == pytest.approx(1.0, abs=1e-6)
    kept = torch.arange(400) != 7
    without = r_squared((reference + noise)[kept], reference[kept], seed=0)[0]
    assert without is not None and low <= without + 1e-6


def test_values_are_those_of_the_formulas() -> None:
    reference, guess, weight = random(60, 3, seed=0) + 5.0, random(60, 3, seed=1) + 5.0, random(60, seed=2).abs()
    w = weight[:, None]
    mean = (w * reference).sum(0) / w.sum()
    expected = 1 - float((w * (guess - reference)).square().sum() / (w * (reference - mean)).square().sum())
    assert r_squared(guess, reference, weight, seed=0)[0] == pytest.approx(expected, rel=1e-12)
    error, total = random(60, seed=3) ** 2, random(60, seed=4) ** 2
    share, (low, high) = ratio(error, total, seed=5)
    one_minus, (least, most) = explained(error, total, seed=5)
    assert share == pytest.approx(float(error.sum() / total.sum()))
    assert None not in (low, high, least, most, share)
    assert (one_minus, least, most) == tuple(pytest.approx(1 - v) for v in (share, high, low))
    assert r_squared(reference, reference, seed=0) == (1.0, (1.0, 1.0))
    assert r_squared(guess, torch.ones_like(guess), seed=0)[0] is None
    assert ratio(error[:7], total[:7])[1] == (None, None)


def test_share_explained() -> None:
    x, weight = random(500, seed=4), random(500, seed=5) ** 2
    assert share_explained(x, x, seed=0) == (1.0, (1.0, 1.0))
    assert share_explained(x, x, weight, seed=0)[0] == 1.0
    mean = float((weight * x).sum() / weight.sum())
    guess = 0.5 * x + random(500, seed=6)
    expected = 1 - float((weight * (x - guess) ** 2).sum() / (weight * (x - mean) ** 2).sum())
    assert share_explained(x, guess, weight, seed=0)[0] == pytest.approx(expected, rel=1e-12)
    nothing = (None, (None, None))
    assert share_explained(x, torch.full_like(x, 2.0), seed=0) == nothing
    assert share_explained(torch.full_like(x, 2.0), x, seed=0) == nothing
    assert share_explained(torch.full_like(x, 0.1) + 1e-16 * x, x, seed=0) == nothing  # rounding is not a spread


def test_the_interval_of_a_share_covers_what_more_prompts_would_give() -> None:
    """Weighted, about the mean of each resample: 95 % intervals hold the truth in about 95 of 100 samples."""
    x, weight, noise = (random(200, 300, seed=seed) for seed in (7, 8, 9))
    x, weight = 3.0 + x, weight**2
    guess = x + 0.5 * noise  # R^2 = 1 - 0.25
    rows = [share_explained(a, b, w, seed=1)[1] for a, b, w in zip(x, guess, weight, strict=True)]
    held = sum(low is not None and high is not None and low < 0.75 < high for low, high in rows)
    assert 178 <= held <= 199  # 190 +- 4 standard deviations
