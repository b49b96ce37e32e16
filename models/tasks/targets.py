"""What can be looked for in the activations of a network: targets, as functions of the prompts.

A task names its targets (``task.targets()``); anyone else registers one with ``register_target``, for every task whose
prompts have what it needs. Nothing else has to know of it: it is listed, probed for, and shown as all others are.

Which token can carry which target? In a network of linear layers with shared keys a token is a linear function of
itself, given the moments of the context: e_i^l = C^l(G) e_i. Change the sign of token i alone: G stays, e_i^l changes
sign. So what a linear probe reads from one token is odd in that token. The query's inputs, its preconditioned inputs
and its label are; w, the noise level, X^T y and other tokens are not, and a one-token probe of them must be at chance,
whatever the network has learned. They sit in the map, not in the token: the within-prompt probe reads the implicit
weights w^l of every prompt, the Gram probe the second moments of all tokens.

With causal keys a token sees other keys than its neighbours, and in a sequence previous states, the next state and
preconditioned states can all be there. In a prompt of regression they cannot: its tokens are drawn independently, so
the token "before" is one of many, and by the same change of its sign (which leaves every other token's keys and
moments as they are, causal or not, clipped or not) none of it is in any other token for a linear probe to find. A score
at chance, whatever the network, is no finding, so previous tokens are no target there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from interp.models.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from interp.models.tasks.protocol import Task

__all__ = ["KINDS", "MOST_STEPS", "Target", "find_targets", "register_target", "target_names", "targets_of"]

KINDS = ("token", "within-prompt", "gram")  # of probes
MOST_STEPS = 64  # of an iteration, and of tokens to look back


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


REGISTERED: dict[str, Target] = {}


def register_target(target: Target) -> Target:
    """Make a target known for every task whose prompts have all that it ``needs``. Its ``value`` maps prompts and a
    position to (prompt, size). Raises UsageError when another one is registered under this name.

    >>> from interp import probe, register_target
    >>> from interp.models.tasks import Target
    >>> size = Target(name="query-size", formula="|x_t|^2", source="an example", expectation="at chance",
    ...     needs=("x_query",), value=lambda prompts, at: prompts.x_query.square().sum(-1, keepdim=True))
    >>> register_target(size) is size
    True
    >>> sorted({score.target for score in probe("zoo:lsa-1", targets=["query-size"], prompts=128).probes})
    ['query-size']
    """
    if REGISTERED.get(target.name, target) is not target:
        raise UsageError(f"a target is registered as {target.name!r} already; give this one another name")
    REGISTERED[target.name] = target
    return target


def targets_of(task: Task) -> tuple[Target, ...]:
    """The targets that a task names, then those that were registered and fit its prompts. Raises UsageError when both
    have one name."""
    named = task.targets()
    if not REGISTERED:
        return named
    prompts = task.sample(1, 0)
    added = [t for t in REGISTERED.values() if all(hasattr(prompts, need) for need in t.needs)]
    for target in added:
        if any(target.name == other.name for other in named):
            raise UsageError(f"task {task.name!r} has a target {target.name!r} of its own; register another name")
    return (*named, *added)


def target_names(targets: Iterable[Target]) -> tuple[str, ...]:
    """Names for people; K stands for a number."""
    return tuple(f"{_stem(target)}-K" if target.numbered else target.name for target in targets)


def find_targets(task: Task, names: Iterable[str]) -> tuple[Target, ...]:
    """Targets of a task by name. Raises UsageError for one that it does not have."""
    known = targets_of(task)
    return tuple(_find(task.name, known, name) for name in dict.fromkeys(names))


def _find(task: str, known: tuple[Target, ...], name: str) -> Target:
    for target in known:
        if target.name == name:
            return target
    stem, _, digits = name.rpartition("-")
    for target in known:
        if target.numbered and stem == _stem(target) and re.fullmatch(r"\d{1,9}", digits):
            if not 1 <= int(digits) <= MOST_STEPS:
                raise UsageError(f"target {name!r} has the number {int(digits)}, expected 1 to {MOST_STEPS}")
            return target.numbered(int(digits))
    raise UsageError(
        f"models of {task} have no target {name!r}; {did_you_mean(name, (t.name for t in known))} Targets that apply: "
        f"{', '.join(target_names(known))}"
    )


def _stem(target: Target) -> str:
    return target.name.rpartition("-")[0]
