"""Averages over prompts with their standard errors, and the quantile bins they are taken in. What overflows is None."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Interval", "mean_with_error", "quantile_bins", "ratio_with_error", "resampled_r2", "share_explained"]

BINS = 10
DRAWS = 1000  # of the bootstrap
Interval = tuple[float | None, float | None]
CONSTANT = 1e-20  # share of the mean square below which a spread is rounding: the values are all the same


def mean_with_error(values: Float[Tensor, " prompt"]) -> tuple[float | None, float | None]:
    """The mean and its standard error."""
    if len(values) == 0 or not bool(torch.isfinite(values).all()):
        return None, None
    return float(values.mean()), float(values.std()) / len(values) ** 0.5 if len(values) > 1 else None


def ratio_with_error(
    top: Float[Tensor, " prompt"], bottom: Float[Tensor, " prompt"]
) -> tuple[float | None, float | None]:
    """sum top / sum bottom, with the standard error of a ratio of means (delta method).

    With top = <x, y> and bottom = <x, x> it is the regression of y on x, one cluster per prompt.
    """
    if not bool((torch.isfinite(top) & torch.isfinite(bottom)).all()) or not float(bottom.sum()) > 0:
        return None, None
    ratio = float(top.sum() / bottom.sum())
    spread = (top - ratio * bottom) / bottom.mean()
    return ratio, float(spread.std()) / len(spread) ** 0.5 if len(spread) > 1 else None


def quantile_bins(values: Float[Tensor, "*shape"], bins: int = BINS) -> Int[Tensor, "*shape"]:
    """The quantile bin of every value. Equal values share a bin, so some may stay empty."""
    levels = torch.linspace(0, 1, bins + 1, dtype=values.dtype)[1:-1]
    return torch.bucketize(values.contiguous(), torch.quantile(values.flatten(), levels))


def share_explained(
    observed: Float[Tensor, " prompt"],
    predicted: Float[Tensor, " prompt"],
    weight: Float[Tensor, " prompt"] | None = None,
    *,
    seed: int,
) -> tuple[float | None, Interval]:
    """R^2 of ``predicted`` for ``observed`` over prompts, with its 95 % bootstrap interval; None when either is the
    same for all of them."""
    share = torch.ones_like(observed) if weight is None else weight
    share = share / share.sum()
    for values in (observed, predicted):
        spread = float((share * (values - (share * values).sum()) ** 2).sum())
        if not spread > CONSTANT * float((share * values**2).sum()):
            return None, (None, None)
    centred = observed - (share * observed).sum()  # the same R^2, without cancellation
    return resampled_r2(share * (observed - predicted) ** 2, share * centred**2, share, share * centred, seed=seed)


def resampled_r2(
    error: Float[Tensor, " prompt"],
    total: Float[Tensor, " prompt"],
    share: Float[Tensor, " prompt"] | None = None,
    first: Float[Tensor, " prompt"] | None = None,
    *,
    seed: int,
) -> tuple[float | None, Interval]:
    """1 - sum error / sum total over prompts with its 95 % bootstrap interval over whole prompts.

    With ``share`` and ``first``, the sums of the weights and of the weighted values, totals are those about the mean of
    each resample: sum total - (sum first)^2 / sum share.
    """
    if not bool(torch.isfinite(torch.stack([error, total])).all()) or not float(total.sum()) > 0:
        return None, (None, None)
    counts = _counts(len(error), seed)
    bottom = counts @ total
    if share is not None and first is not None:
        bottom = bottom - (counts @ first) ** 2 / (counts @ share).clamp_min(1e-300)
    ratios = 1.0 - (counts @ error) / bottom.clamp_min(1e-300)
    value = 1.0 - float(error.sum() / total.sum())
    if not bool(torch.isfinite(ratios).all()):
        return value, (None, None)
    low, high = torch.quantile(ratios, torch.tensor([0.025, 0.975], dtype=ratios.dtype)).tolist()
    return value, (low, high)


@lru_cache(maxsize=2)
def _counts(count: int, seed: int) -> Float[Tensor, "draw prompt"]:
    """How often each of ``count`` prompts is in each of the resamples."""
    draws = torch.randint(count, (DRAWS, count), generator=torch.Generator().manual_seed(seed))
    out = torch.zeros(DRAWS, count, dtype=torch.float64)
    return out.scatter_add_(1, draws, torch.ones_like(out))
