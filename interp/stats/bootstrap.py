"""95 % bootstrap intervals of what is computed from sums over groups: R^2, ratios, differences of two of them.

    statistic(sum of parts over groups),   for example   R^2 = 1 - sum error / (sum y^2 - (sum y)^2 / n)

*What an interval covers*: the figure of a predictor that is fixed, over new groups. Whole groups are resampled, because
rows of one group (a prompt, a set of sequences) are not independent. A fit to other data is not covered.

The interval is the expanded percentile interval (Hesterberg 2015, "What teachers should know about the bootstrap",
section 5.3): percentiles at the levels Phi(-+ t_{G-1} sqrt(G / (G-1))), which undo the narrowness of the bootstrap with
few groups G. With heavy tails one group alone may make the figure, though most resamples hold it: so the interval is
also made to hold the figure without any one group. Memory is constant: resamples are weights of the groups' sums, and
are drawn in blocks. More groups than MOST_GROUPS are put together to that many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm, t
from torch import Tensor

__all__ = [
    "FEWEST_GROUPS",
    "Estimate",
    "Interval",
    "bootstrap",
    "error_and_bound",
    "explained",
    "r_squared",
    "ratio",
    "resampled_sums",
    "share_explained",
]

RESAMPLES = 2000
MOST_GROUPS = 2048
FEWEST_GROUPS = 8  # with fewer, resamples take too few values for an interval
BLOCK = 2**22  # numbers of the resamples in memory at a time
CONSTANT = 1e-20  # share of the mean square below which a spread is rounding: the values are all the same

Interval = tuple[float | None, float | None]
Statistic = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values with the ends of their 95 % intervals; NaN where there is none."""

    value: Float[Tensor, "*figures"]
    low: Float[Tensor, "*figures"]
    high: Float[Tensor, "*figures"]

    def at(self, *index: int) -> tuple[float | None, Interval]:
        """One value and its interval, as plain numbers; None for what is not known."""
        value, low, high = (_plain(part[index]) for part in (self.value, self.low, self.high))
        return value, (low, high)

    def part(self, index: int) -> Estimate:
        """One entry of the last axis."""
        return Estimate(self.value[..., index], self.low[..., index], self.high[..., index])


def bootstrap(statistic: Statistic, *parts: Float[Tensor, "group ..."], seed: int) -> Estimate:
    """``statistic`` of the sums of ``parts`` over their groups, with its interval.

    It is called with one sum per part, each with an axis of resamples first, and returns that axis first. Where it is
    NaN a resample does not count; where most are, or with fewer than FEWEST_GROUPS groups, there is no interval.
    """
    parts = tuple(_put_together(part) for part in parts)
    groups = len(parts[0])
    value = statistic(*(part.sum(0, keepdim=True) for part in parts))[0]
    value = torch.where(value.isfinite(), value, torch.nan)
    if groups < FEWEST_GROUPS:
        return Estimate(value, torch.full_like(value, torch.nan), torch.full_like(value, torch.nan))
    draws = torch.cat([statistic(*(torch.tensordot(c, part, 1) for part in parts)) for c in _counts(groups, seed)])
    draws = torch.where(draws.isfinite(), draws, torch.nan)
    defined = value.isfinite() & (draws.isfinite().double().mean(0) > 0.5)
    level = norm.cdf(math.sqrt(groups / (groups - 1)) * t.ppf(0.025, groups - 1))
    ends = np.nanquantile(torch.where(defined, draws, 0.0).numpy(), np.array([level, 1.0 - level]), axis=0)
    without = statistic(*(_sums_of_others(part) for part in parts))
    without = torch.where(without.isfinite(), without, value)
    low, high = torch.from_numpy(ends)
    low, high = low.minimum(without.amin(0)), high.maximum(without.amax(0))
    return Estimate(value, torch.where(defined, low, torch.nan), torch.where(defined, high, torch.nan))


def ratio(
    top: Float[Tensor, " group"], bottom: Float[Tensor, " group"], seed: int = 0
) -> tuple[float | None, Interval]:
    """sum top / sum bottom and its interval."""
    return bootstrap(lambda a, b: a / b, top, bottom, seed=seed).at()


def explained(
    error: Float[Tensor, " group"], total: Float[Tensor, " group"], seed: int = 0
) -> tuple[float | None, Interval]:
    """1 - sum error / sum total and its interval, for totals about 0 or another fixed mean."""
    if not bool(torch.isfinite(torch.stack([error, total])).all()) or not float(total.sum()) > 0:
        return None, (None, None)
    return bootstrap(lambda a, b: 1.0 - a / b.clamp_min(1e-300), error, total, seed=seed).at()


def r_squared(
    prediction: Float[Tensor, "group output"],
    reference: Float[Tensor, "group output"],
    weight: Float[Tensor, " group"] | None = None,
    *,
    cap: float = math.inf,
    seed: int,
) -> tuple[float | None, Interval]:
    """1 - sum w^2 (prediction - reference)^2 / sum w^2 (reference - mean)^2 with the mean weighted by w, taken anew for
    every resample; w is ``weight`` (None: 1). A group's error counts as at most ``cap`` times its square and the mean
    square together. None when the error is not finite, or the reference is constant."""
    weight = torch.ones_like(reference[:, 0]) if weight is None else weight
    w, centred = weight[:, None], reference - reference.median(0).values  # which no one group moves far
    error, bound = error_and_bound(prediction, reference, weight, cap)
    error = torch.minimum(error, bound)
    mean = (w * centred).sum(0) / w.sum()
    if not bool(torch.isfinite(error).all()) or not float((w * (centred - mean)).square().sum()) > 0:
        return None, (None, None)

    def statistic(error: Tensor, square: Tensor, second: Tensor, first: Tensor, w2: Tensor, w1: Tensor) -> Tensor:
        mean = first / w1[:, None]
        spread = square - (2.0 * mean * second - mean**2 * w2[:, None]).sum(1)
        return 1.0 - error / spread.clamp_min(1e-300)

    parts = (w * centred).square().sum(1), w**2 * centred, w * centred, weight**2, weight
    return bootstrap(statistic, error, *parts, seed=seed).at()


def error_and_bound(
    prediction: Float[Tensor, "group output"],
    reference: Float[Tensor, "group output"],
    weight: Float[Tensor, " group"] | None,
    cap: float,
) -> tuple[Float[Tensor, " group"], Float[Tensor, " group"]]:
    """Every group's weighted squared error (what is no number is infinite), and ``cap`` times its own square and the
    mean one."""
    w = 1.0 if weight is None else weight[:, None]
    error = (w * (prediction - reference)).square().sum(1).nan_to_num(math.inf, math.inf)
    square = (w * (reference - reference.median(0).values)).square().sum(1)
    return error, cap * (square + square.mean()) if cap < math.inf else torch.full_like(error, math.inf)


def share_explained(
    observed: Float[Tensor, " group"],
    predicted: Float[Tensor, " group"],
    weight: Float[Tensor, " group"] | None = None,
    *,
    seed: int,
) -> tuple[float | None, Interval]:
    """R^2 of ``predicted`` for ``observed``, squares weighted by ``weight``; None when either is the same for all
    groups."""
    share = torch.ones_like(observed) if weight is None else weight
    share = share / share.sum()
    for values in (observed, predicted):
        spread = float((share * (values - (share * values).sum()) ** 2).sum())
        if not spread > CONSTANT * float((share * values**2).sum()):
            return None, (None, None)
    error, centred = share * (observed - predicted) ** 2, observed - (share * observed).sum()
    if not bool(torch.isfinite(error).all()):
        return None, (None, None)

    def statistic(error: Tensor, square: Tensor, first: Tensor, share: Tensor) -> Tensor:
        return 1.0 - error / (square - first**2 / share.clamp_min(1e-300)).clamp_min(1e-300)

    return bootstrap(statistic, error, share * centred**2, share * centred, share, seed=seed).at()


def resampled_sums(part: Float[Tensor, "group ..."], seed: int) -> Float[Tensor, "resample ..."]:
    """The sums over the groups of every resample."""
    return torch.cat([torch.tensordot(counts, part, 1) for counts in _counts(len(part), seed)])


def _counts(groups: int, seed: int) -> Iterator[Float[Tensor, "resample group"]]:
    """How often each group is drawn, when as many as there are are drawn with replacement; RESAMPLES rows in blocks."""
    if groups * RESAMPLES <= BLOCK:
        yield _few_counts(groups, seed)
        return
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, RESAMPLES, rows := max(1, BLOCK // groups)):
        yield _drawn(min(rows, RESAMPLES - start), groups, generator)


@lru_cache(maxsize=2)  # the figures of one analysis share their groups and seed
def _few_counts(groups: int, seed: int) -> Float[Tensor, "resample group"]:
    return _drawn(RESAMPLES, groups, torch.Generator().manual_seed(seed))


def _drawn(rows: int, groups: int, generator: torch.Generator) -> Float[Tensor, "resample group"]:
    drawn = torch.randint(0, groups, (rows, groups), generator=generator)
    once = torch.ones((), dtype=torch.float64).expand_as(drawn)
    return torch.zeros(rows, groups, dtype=torch.float64).scatter_add_(1, drawn, once)


def _sums_of_others(values: Float[Tensor, "group ..."]) -> Float[Tensor, "group ..."]:
    """For every group the sum of all others, without cancellation."""
    before = torch.cat([torch.zeros_like(values[:1]), values[:-1].cumsum(0)])
    after = torch.cat([values[1:].flip(0).cumsum(0).flip(0), torch.zeros_like(values[:1])])
    return before + after


def _plain(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _put_together(part: Float[Tensor, "group ..."]) -> Float[Tensor, "fewer ..."]:
    groups = len(part)
    if groups <= MOST_GROUPS:
        return part
    into = torch.arange(groups) * MOST_GROUPS // groups
    return part.new_zeros(MOST_GROUPS, *part.shape[1:]).index_add(0, into, part)
