"""Held-out R^2 and mean squared error of probes, with bootstrap intervals over groups (``interp.stats.bootstrap``).

    R^2 = 1 - SSE / SST,   SSE = sum over rows and outputs of (y - yhat)^2,   SST = sum of (y - held-out mean of y)^2.

The intervals cover the out-of-sample R^2 (or MSE) of the predictor that was fitted, over new sequences,
1 - E|y - yhat(x)|^2 / E|y - E y|^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.probes.held_out import HeldOut
from interp.probes.moments import along, shared
from interp.stats.bootstrap import Estimate, bootstrap

__all__ = ["Scores", "difference", "score"]

CONSTANT = 1e-12  # a standard deviation below this share of the mean's size is rounding


@dataclass(frozen=True, eq=False)
class Scores:
    """``mse`` and ``variance`` are per row, summed over the outputs: ``r2`` = 1 - mse / variance, NaN for a target that
    does not vary."""

    r2: Estimate
    mse: Estimate
    variance: Float[Tensor, "*streams_cells"]


def score(held_out: HeldOut, outputs: slice = slice(None), seed: int = 0) -> Scores:
    """The scores of some of the outputs, taken together: those of a target, or one alone. Intervals are NaN when fewer
    than FEWEST_GROUPS groups are held out."""
    sums = _Sums.of(held_out, outputs)

    def statistic(*totals: Tensor) -> Tensor:
        error, total = sums.squares(*totals)
        rows = along(totals[0], error)
        return torch.stack([1.0 - error / total, error / rows, total / rows], -1)

    found = bootstrap(statistic, *sums.parts, seed=seed)
    return Scores(r2=found.part(0), mse=found.part(1), variance=found.part(2).value)


def difference(held_out: HeldOut, control: HeldOut, outputs: slice = slice(None), seed: int = 0) -> Estimate:
    """R^2 minus the control's R^2, paired: both are scored on the same groups, and every resample is the same for both.

    Axes of streams and cells that one of the two lacks are added on the left. Groups that only one of them has, because
    the other's rows all diverged, are left out of both.
    """
    common = held_out.group[torch.isin(held_out.group, control.group)]
    if not len(common):
        raise UsageError("the probe and its control share no group of held-out sequences; expected the same prompts")
    real, other = (_Sums.of(side, outputs, torch.isin(side.group, common)) for side in (held_out, control))

    def gap(*totals: Tensor) -> Tensor:
        count = len(real.parts)
        sides = (side.squares(*part) for side, part in ((real, totals[:count]), (other, totals[count:])))
        left, right = (1.0 - error / total for error, total in sides)
        return shared(left, right) - shared(right, left)  # the axis of resamples stays first

    return bootstrap(gap, *real.parts, *other.parts, seed=seed)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Per group: the number of rows, squared errors, squares of the targets and their sums; the targets are taken from
    their mean over all groups. ``constant`` is what SST would be by rounding alone."""

    parts: tuple[Float[Tensor, "group ..."], ...]
    constant: Float[Tensor, "*cells"]

    @classmethod
    def of(cls, held_out: HeldOut, outputs: slice, groups: Tensor | slice = slice(None)) -> _Sums:
        count, y_mean = held_out.count[groups], held_out.y_mean[groups][..., outputs]
        centre = torch.tensordot(count, y_mean, 1) / count.sum()
        first = along(count, y_mean) * (y_mean - centre)
        squares = (held_out.yy[groups][..., outputs] + first * (y_mean - centre)).sum(-1)
        error = held_out.squared_error[groups][..., outputs].sum(-1)
        return cls((count, error, squares, first), CONSTANT**2 * count.sum() * (centre**2).sum(-1))

    def squares(self, rows: Tensor, error: Tensor, squares: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """SSE and SST (NaN for a target that does not vary) from sums over groups."""
        shift = first.square().sum(-1)
        total = squares - shift / along(rows, shift)
        total = torch.where(total > self.constant, total, torch.nan)
        return error, shared(total, error).expand_as(error)
