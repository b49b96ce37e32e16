"""One target of probes; ``interp.models.tasks.targets`` says what there is to look for, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError

__all__ = ["KINDS", "Target", "chebyshev_target"]

KINDS = ("token", "within-prompt", "gram")  # of probes


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that a probe looks for.

    ``value(prompts, position)`` is (prompt, size), or None at positions where it is not defined. A position is the
    index of a token of the context or sequence, and None the query; for all but "token" probes it is None. ``kinds``
    are the probes that look for the target, and ``usual`` those that an analysis makes when nobody asks for more.
    ``needs`` names attributes of the prompts: a registered target belongs to every task whose prompts have them.
    ``numbered`` makes the target of another number, where the name ends in one: chebyshev-6, previous-1.
    """

    name: str
    formula: str
    source: str
    expectation: str  # what a network of linear layers is expected to show
    value: Callable[[Any, int | None], Float[Tensor, "prompt size"] | None]
    kinds: tuple[str, ...] = ("token",)
    usual: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    numbered: Callable[[int], Target] | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.kinds or not {*self.kinds, *self.usual} <= set(KINDS):
            raise UsageError(
                f"target {self.name!r} has the kinds {self.kinds!r} and {self.usual!r}, expected a name, and one or "
                f"more of {', '.join(KINDS)}"
            )


def chebyshev_target(inverse: str, value: Callable[[int, Any, int | None], Tensor], steps: int = 6) -> Target:
    """``inverse``, in words, by so many steps of Chebyshev iteration (six in the mesa paper): ``value(steps, prompts,
    position)``."""
    return Target(
        name=f"chebyshev-{steps}",
        formula=f"{inverse} by {steps} step{'s' * (steps > 1)} of Chebyshev iteration",
        source="arXiv 2309.05858, Methods (the steps there are learned)",
        expectation="closer to what so many layers can build than the exact inverse",
        value=partial(value, steps),
        numbered=partial(chebyshev_target, inverse, value),
    )
