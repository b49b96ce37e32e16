"""How much more a probe finds in a model than in its controls, with paired intervals.

The model and every control are scored on the same held-out sequences and on the same resamples of them, so what they
share cancels in a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.special import stdtrit
from torch import Tensor

from interp.probes.held_out import HeldOut
from interp.probes.intervals import difference, score
from interp.stats.bootstrap import Estimate

__all__ = ["Selectivity", "above", "above_untrained"]

FEWEST_MODELS = 3  # with fewer, nothing is known of how they differ
TINY = 1e-12  # an unexplained share below this is rounding


@dataclass(frozen=True, eq=False)
class Selectivity:
    """``control``: the R^2 of a control; ``gap``: the R^2 of the model minus it, with its interval."""

    control: Float[Tensor, "*streams_cells"]
    gap: Estimate


def above(model: HeldOut, control: HeldOut, outputs: slice, seed: int) -> Selectivity:
    """Against one control."""
    value = score(control, outputs, seed).r2.value
    return Selectivity(value, difference(model, control, outputs, seed))


def above_untrained(model: HeldOut, untrained: Sequence[HeldOut], outputs: slice, seed: int) -> Selectivity:
    """Against untrained models, as a prediction interval: it holds 0, 95 times in 100, when the model is one more of
    them, so the spread between untrained models counts, and not only the error of their mean.

    A probe that does worse than the mean of the target counts as 0, in the model and in the untrained ones: there is no
    measure in how badly a fit to heavy tails fails. With u_s the R^2 of untrained model s, z_s = log(1 - u_s) is taken
    to be normal (R^2 itself is bounded by 1), so a further model has z within mean +- t_{S-1} sd sqrt(1 + 1/S). The
    control is 1 - exp(mean z), one minus the geometric mean of the unexplained shares. The sampling error, as in the
    paired differences to the untrained models one by one, is added to both sides in quadrature.
    """
    own = score(model, outputs, seed).r2
    if len(untrained) < FEWEST_MODELS:
        unknown = torch.full_like(own.value, torch.nan)
        return Selectivity(unknown, Estimate(unknown, unknown, unknown))
    stacked = _stacked(untrained)
    others = score(stacked, outputs, seed).r2.value
    paired = difference(replace(model, squared_error=model.squared_error[:, None]), stacked, outputs, seed)
    failed = ~(others > 0)
    alone = torch.where(own.value > 0, (own.high - own.low) / 2, 0.0)  # where the control is exactly 0
    half = torch.where(failed, alone, (paired.high - paired.low) / 2).mean(0)

    value = own.value.clamp(0.0, 1.0 - TINY)
    z = (1.0 - torch.where(failed, 0.0, others).clamp_max(1.0 - TINY)).log()
    reach = float(stdtrit(len(z) - 1, 0.975)) * z.std(0) * math.sqrt(1 + 1 / len(z))
    control, least, most = (1.0 - (z.mean(0) + side).clamp_max(0.0).exp() for side in (0.0, reach, -reach))
    gap = value - control
    return Selectivity(
        control, Estimate(gap, gap - torch.hypot(most - control, half), gap + torch.hypot(control - least, half))
    )


def _stacked(held_out: Sequence[HeldOut]) -> HeldOut:
    """Several networks as streams of one, on the groups that none of them lost."""
    common = held_out[0].group
    for other in held_out[1:]:
        common = common[torch.isin(common, other.group)]
    kept = [torch.isin(other.group, common) for other in held_out]
    first, at = held_out[0], kept[0]
    return HeldOut(
        group=common,
        count=first.count[at],
        squared_error=torch.stack([o.squared_error[k] for o, k in zip(held_out, kept, strict=True)], 1),
        y_mean=first.y_mean[at],
        yy=first.yy[at],
    )
