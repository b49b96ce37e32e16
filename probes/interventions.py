"""What the causal checks report: one row per intervention. Values are None with a ``reason``; intervals are 95 %
bootstrap intervals over prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Erasure", "Interval", "Transplant", "with_error"]

Interval = tuple[float | None, float | None]


def with_error(name: str, figure: tuple[Any, Any], error: str = "") -> dict[str, Any]:
    """Two fields of a row: a figure, and beside it its interval, NAME_ci, or what stands for ``error``."""
    return {name: figure[0], error or f"{name}_ci": figure[1]}


@dataclass(frozen=True, kw_only=True)
class Transplant:
    """The implicit model of another prompt, put in place after ``layer`` layers (1 to L).

    ``kind``: "weights" (w alone) or "state" (all that the layers made of the other prompt). With p, p' the predictions
    before and after, and p* the expected one, ``effect`` is sum (p' - p)(p* - p) / sum (p* - p)^2 and ``error`` is
    sum (p' - p*)^2 / sum (p* - p)^2: 1 and 0 when predictions follow. ``own``: sum (p' - p)^2 / sum (p* - p)^2 when a
    prompt gets what it had (0). ``random`` and ``random_error``: of random weights as far away, None for "state". Their
    effect is 0 after the last layer; before it, later layers also react to labels that are off at all, but only the
    right weights have error 0. ``fired``: in how many of the ``prompts`` the hook changed the tokens.
    """

    layer: int
    kind: str
    effect: float | None = None
    effect_ci: Interval = (None, None)
    error: float | None = None
    own: float | None = None
    random: float | None = None
    random_ci: Interval = (None, None)
    random_error: float | None = None
    fired: int = 0
    prompts: int
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """A decoded target erased from one token after ``layer`` layers, in closed form (LEACE), on held-out prompts.

    ``rank``: how many directions it takes. ``r2`` and ``r2_erased``: held-out R^2 of a linear probe before, and of one
    fitted anew after. ``loss``: mean squared error of the prediction before; ``effect``: what it gains by the erasure,
    in units of ``null``, the mean square of what is to be predicted. ``random``: the same for a random subspace of the
    same rank. ``fired``: in how many of the ``prompts`` the hook changed the token.
    """

    layer: int
    target: str
    position: int | None  # of the token; None: the query
    rank: int = 0
    r2: float | None = None
    r2_erased: float | None = None
    loss: float | None = None
    null: float | None = None
    effect: float | None = None
    effect_ci: Interval = (None, None)
    random: float | None = None
    random_ci: Interval = (None, None)
    fired: int = 0
    prompts: int
    reason: str | None = None
    r2_ci: Interval = (None, None)
    r2_erased_ci: Interval = (None, None)
