"""Averages over prompts with their standard errors, and the quantile bins they are taken in. What overflows is None."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from scipy.stats import norm
from torch import Tensor

__all__ = ["mean_with_error", "quantile_bins", "ratio_with_error", "wilson"]

BINS = 10


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


def wilson(found: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """The Wilson interval of a share, found / count."""
    z = float(norm.ppf(0.5 + level / 2))
    middle, spread = found + z**2 / 2, z * math.sqrt(found * (count - found) / count + z**2 / 4)
    return max(0.0, (middle - spread) / (count + z**2)), min(1.0, (middle + spread) / (count + z**2))
