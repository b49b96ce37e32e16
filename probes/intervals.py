"""Held-out R^2 and mean squared error with 95 % cluster-bootstrap intervals over groups of sequences.

    R^2 = 1 - SSE / SST,   SSE = sum over rows and outputs of (y - yhat)^2,   SST = sum of (y - held-out mean of y)^2.

*What an interval covers*: the out-of-sample R^2 (or MSE) of the predictor that was fitted, over new sequences,
1 - E|y - yhat(x)|^2 / E|y - E y|^2. The fit is fixed; only the data it is scored on are resampled, in whole groups,
because rows of one sequence are not independent. It does not cover what a fit to other data would reach.

The interval is the expanded percentile interval (Hesterberg 2015, "What teachers should know about the bootstrap",
section 5.3): percentiles at the levels Phi(-+ t_{G-1} sqrt(G / (G-1))), which undo the narrowness of the bootstrap with
few groups G. Memory is constant: a resample weighs the sums of the groups, never the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm, t
from torch import Tensor

from interp.models.errors import UsageError
from interp.probes.held_out import HeldOut
from interp.probes.moments import along, shared

__all__ = [
    "FEWEST_GROUPS",
    "RESAMPLES",
    "Estimate",
    "Scores",
    "difference",
    "explained",
    "interval_of",
    "ratio",
    "resamples",
    "score",
]

RESAMPLES = 2000
FEWEST_GROUPS = 8  # with fewer held out, resamples take too few values for an interval
CONSTANT = 1e-12  # a standard deviation below this share of the mean's size is rounding


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values with the ends of their 95 % intervals; NaN where there is none."""

    value: Float[Tensor, "*streams_cells"]
    low: Float[Tensor, "*streams_cells"]
    high: Float[Tensor, "*streams_cells"]

    def at(self, *index: int) -> tuple[float | None, tuple[float | None, float | None]]:
        """One value and its interval, as plain numbers; None for what is not known."""
        value, low, high = (_plain(part[index]) for part in (self.value, self.low, self.high))
        return value, (low, high)


@dataclass(frozen=True, eq=False)
class Scores:
    """``mse`` and ``variance`` are per row, summed over the outputs: ``r2`` = 1 - mse / variance, NaN for a target that
    does not vary. ``groups`` and ``rows`` were held out."""

    r2: Estimate
    mse: Estimate
    variance: Float[Tensor, "*streams_cells"]
    groups: int
    rows: int


def score(held_out: HeldOut, outputs: slice = slice(None), seed: int = 0) -> Scores:
    """The scores of some of the outputs, taken together: those of a target, or one alone. Intervals are NaN when fewer
    than FEWEST_GROUPS groups are held out."""
    sums = _Sums.of(held_out, outputs)
    once = sums.weighted(torch.ones(1, sums.groups, dtype=torch.float64))
    many = sums.weighted(resamples(sums.groups, seed))
    return Scores(
        r2=_estimate(once.r2[0], many.r2, sums.groups),
        mse=_estimate(once.mse[0], many.mse, sums.groups),
        variance=once.variance[0],
        groups=sums.groups,
        rows=int(held_out.count.sum()),
    )


def difference(held_out: HeldOut, control: HeldOut, outputs: slice = slice(None), seed: int = 0) -> Estimate:
    """R^2 minus the control's R^2, paired: both are scored on the same groups, and every resample is the same for both.

    Axes of streams and cells that one of the two lacks are added on the left. Groups that only one of them has, because
    the other's rows all diverged, are left out of both.
    """
    common = held_out.group[torch.isin(held_out.group, control.group)]
    if not len(common):
        raise UsageError("the probe and its control share no group of held-out sequences; expected the same prompts")
    once, many = torch.ones(1, len(common), dtype=torch.float64), resamples(len(common), seed)
    real, other = (_Sums.of(side, outputs, torch.isin(side.group, common)) for side in (held_out, control))

    def gap(weight: Tensor) -> Tensor:
        left, right = real.weighted(weight).r2, other.weighted(weight).r2
        return shared(left, right) - shared(right, left)  # the axis of resamples stays first

    return _estimate(gap(once)[0], gap(many), len(common))


def ratio(
    top: Float[Tensor, " prompt"], bottom: Float[Tensor, " prompt"], seed: int = 0
) -> tuple[float | None, tuple[float | None, float | None]]:
    """sum top / sum bottom and its interval, every prompt being a group of its own."""
    drawn = resamples(len(top), seed)
    return interval_of(top.sum() / bottom.sum(), (drawn @ top) / (drawn @ bottom), len(top))


def interval_of(
    value: Float[Tensor, ""], resampled: Float[Tensor, " resample"], groups: int
) -> tuple[float | None, tuple[float | None, float | None]]:
    """A figure with its interval, from its values on resamples of so many groups."""
    return _estimate(value, resampled, groups).at()


def explained(
    error: Float[Tensor, " prompt"], spread: Float[Tensor, " prompt"], seed: int = 0
) -> tuple[float | None, tuple[float | None, float | None]]:
    """R^2 = 1 - sum error / sum spread and its interval, every prompt being a group of its own."""
    missed, (low, high) = ratio(error, spread, seed)
    value, least, most = (None if part is None else 1.0 - part for part in (missed, high, low))
    return value, (least, most)


@dataclass(frozen=True, eq=False)
class _Weighted:
    r2: Float[Tensor, " resample *streams_cells"]
    mse: Float[Tensor, " resample *streams_cells"]
    variance: Float[Tensor, " resample *streams_cells"]


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the rows of every group; the means of the targets are taken from their mean over all groups."""

    count: Float[Tensor, " group"]
    squared_error: Float[Tensor, " group *streams_cells"]
    squares: Float[Tensor, " group *cells"]
    mean: Float[Tensor, "group *cells output"]
    constant: Float[Tensor, "*cells"]  # what SST would be by rounding alone

    @classmethod
    def of(cls, held_out: HeldOut, outputs: slice, groups: Tensor | slice = slice(None)) -> _Sums:
        count, y_mean = held_out.count[groups], held_out.y_mean[groups][..., outputs]
        if not y_mean.shape[-1]:
            raise UsageError(
                f"outputs are {outputs}, but there are {held_out.yy.shape[-1]}; expected one or more of them"
            )
        centre = torch.tensordot(count, y_mean, 1) / count.sum()
        squares = held_out.yy[groups][..., outputs] + along(count, y_mean) * (y_mean - centre) ** 2
        return cls(
            count=count,
            squared_error=held_out.squared_error[groups][..., outputs].sum(-1),
            squares=squares.sum(-1),
            mean=y_mean - centre,
            constant=CONSTANT**2 * count.sum() * (centre**2).sum(-1),
        )

    @property
    def groups(self) -> int:
        return len(self.count)

    def weighted(self, weight: Float[Tensor, "resample group"]) -> _Weighted:
        """The scores when every group is counted ``weight`` times."""
        rows = weight @ self.count
        error = torch.tensordot(weight, self.squared_error, 1)
        shift = torch.tensordot(weight * self.count, self.mean, 1).square().sum(-1)
        total = torch.tensordot(weight, self.squares, 1)
        total = total - shift / along(rows, shift)
        total = torch.where(total > self.constant, total, torch.nan)
        total = shared(total, error).expand_as(error)
        return _Weighted(1.0 - error / total, error / along(rows, error), total / along(rows, error))


@lru_cache(maxsize=2)  # the figures of one analysis share their groups and seed
def resamples(groups: int, seed: int) -> Float[Tensor, "resample group"]:
    """RESAMPLES times how often each group is drawn, when as many as there are are drawn with replacement. Shared: not
    to be changed."""
    drawn = torch.randint(0, groups, (RESAMPLES, groups), generator=torch.Generator().manual_seed(seed))
    once = torch.ones((), dtype=torch.float64).expand_as(drawn)
    return torch.zeros(RESAMPLES, groups, dtype=torch.float64).scatter_add_(1, drawn, once)


def _estimate(value: Tensor, resampled: Tensor, groups: int) -> Estimate:
    value = torch.where(value.isfinite(), value, torch.nan)
    if groups < FEWEST_GROUPS:
        return Estimate(value, torch.full_like(value, torch.nan), torch.full_like(value, torch.nan))
    level = norm.cdf(math.sqrt(groups / (groups - 1)) * t.ppf(0.025, groups - 1))
    known = torch.where(resampled.isfinite(), resampled, torch.nan)
    defined = value.isfinite() & (known.isfinite().double().mean(0) > 0.5)
    draws = torch.where(defined, known, 0.0).numpy()
    low, high = torch.from_numpy(np.nanquantile(draws, np.array([level, 1.0 - level]), axis=0))
    return Estimate(value, torch.where(defined, low, torch.nan), torch.where(defined, high, torch.nan))


def _plain(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
