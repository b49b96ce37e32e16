"""Fidelity: the held-out R^2 of a family's predictions against the network's, and what is made of it.

The tolerances of the verdict are the named constants below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats.averages import mean_with_error
from interp.stats.bootstrap import error_and_bound, r_squared

__all__ = [
    "EXACT", "EXPLODED", "NEGLIGIBLE", "RECOGNIZED", "RECOGNIZED_LOWER", "SAID", "TENFOLD", "Score",
    "bootstrap_fidelity",
]  # fmt: skip

RECOGNIZED = 0.95  # fidelity from which a family is said to explain the network …
RECOGNIZED_LOWER = 0.90  # … provided the lower end of its interval reaches this
NEGLIGIBLE = 1e-6  # share of the variance below which a smaller family needs no further term
SAID = 0.001  # of the variance: a smaller gain is said to be none
TENFOLD = 10.0  # a larger family that leaves this many times less is the better account even of a small remainder
EXPLODED = 10.0  # times the mean square of the network and its own square there: an error that counts as no more
EXACT = 1e-12  # share of the variance that rounding may leave: the network is the family


@dataclass(frozen=True, kw_only=True)
class Score:
    """Fidelity on held-out prompts with a 95 % bootstrap interval over prompts. None when the network is constant. On
    ``exploded`` of the ``prompts`` the algorithm's error is beyond bounds where the network is not. ``left``: how much
    each prompt moves 1 - fidelity, times their number, to first order; its mean is 1 - fidelity."""

    fidelity: float | None
    interval: tuple[float | None, float | None]
    exploded: int = 0
    prompts: int = 0
    left: Float[Tensor, " prompt"] | None = field(default=None, compare=False, repr=False)

    @property
    def unexplained(self) -> float:
        return float("inf") if self.fidelity is None else 1.0 - self.fidelity

    def gain(self, other: Score, end: int) -> float:
        """By how much it leaves less than another (0), or two standard errors below (-1) or above (1) of the difference
        on the same prompts."""
        value = other.unexplained - self.unexplained
        if end == 0 or self.left is None or other.left is None or len(self.left) != len(other.left):
            return value
        return value + 2 * end * (mean_with_error(other.left - self.left)[1] or 0.0)

    @property
    def recognized(self) -> bool:
        return self.reaches(RECOGNIZED)

    def reaches(self, bar: float, end: int = 0) -> bool:
        """Whether it is at least ``bar``, read at the lower end of its interval (-1), itself (0) or the upper (1); the
        lower end is never below RECOGNIZED_LOWER."""
        low, high = self.interval
        value = (self.fidelity, high, low)[end]
        return value is not None and low is not None and value >= bar and low >= min(bar, RECOGNIZED_LOWER)


def bootstrap_fidelity(
    prediction: Float[Tensor, "prompt output"],
    reference: Float[Tensor, "prompt output"],
    seed: int,
    weight: Float[Tensor, " prompt"] | None = None,
    cap: float = math.inf,
) -> Score:
    """The R^2 of ``prediction`` for ``reference`` over prompts (see ``interp.stats.bootstrap.r_squared``).
    With a ``cap`` none decides alone: an error counts as at most so many times the square of the reference there and on
    average, and where it is larger the algorithm has exploded."""
    fidelity, interval = r_squared(prediction, reference, weight, cap=cap, seed=seed)
    error, bound = error_and_bound(prediction, reference, weight, cap)
    exploded, left = int((error > bound).sum()), None
    if fidelity is not None:
        w = 1.0 if weight is None else weight[:, None]
        square = (w * (reference - reference.median(0).values)).square().sum(1)
        left = (
            torch.minimum(error, bound) / error.minimum(bound).mean().clamp_min(1e-300) - square / square.mean() + 1.0
        )
        left = (1.0 - fidelity) * left
    return Score(
        fidelity=fidelity, interval=interval, exploded=exploded, prompts=len(reference) * (cap < math.inf), left=left
    )
