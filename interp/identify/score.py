"""Fidelity: the held-out R^2 of a family's predictions against the network's, and what is made of it.

The tolerances of the verdict are the named constants below.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.stats.bootstrap import r_squared

__all__ = ["EXACT", "NEGLIGIBLE", "RECOGNIZED", "RECOGNIZED_LOWER", "SAID", "TENFOLD", "Score", "bootstrap_fidelity"]

RECOGNIZED = 0.95  # fidelity from which a family is said to explain the network …
RECOGNIZED_LOWER = 0.90  # … provided the lower end of its interval reaches this
NEGLIGIBLE = 1e-6  # share of the variance below which a smaller family needs no further term
SAID = 0.001  # of the variance: a smaller gain is said to be none
TENFOLD = 10.0  # a larger family that leaves this many times less is the better account even of a small remainder
EXACT = 1e-12  # share of the variance that rounding may leave: the network is the family


@dataclass(frozen=True, kw_only=True)
class Score:
    """Fidelity on held-out prompts with a 95 % bootstrap interval over prompts. None when the network is constant."""

    fidelity: float | None
    interval: tuple[float | None, float | None]

    @property
    def unexplained(self) -> float:
        return float("inf") if self.fidelity is None else 1.0 - self.fidelity

    @property
    def recognized(self) -> bool:
        lower = self.interval[0]
        return (
            self.fidelity is not None
            and lower is not None
            and self.fidelity >= RECOGNIZED
            and lower >= RECOGNIZED_LOWER
        )


def bootstrap_fidelity(
    prediction: Float[Tensor, "prompt output"],
    reference: Float[Tensor, "prompt output"],
    seed: int,
    weight: Float[Tensor, " prompt"] | None = None,
) -> Score:
    """The R^2 of ``prediction`` for ``reference`` over prompts (see ``interp.stats.bootstrap.r_squared``)."""
    fidelity, interval = r_squared(prediction, reference, weight, seed=seed)
    return Score(fidelity=fidelity, interval=interval)
