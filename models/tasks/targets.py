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
from collections.abc import Iterable

from interp.errors import UsageError, did_you_mean
from interp.models.tasks.protocol import Task
from interp.models.tasks.target import Target

__all__ = ["MOST_STEPS", "find_targets", "register_target", "target_names", "targets_of"]

MOST_STEPS = 64  # of an iteration, and of tokens to look back


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
    >>> sorted({score.target for score in probe("zoo:gdpp-l4-u5", targets=["query-size"], prompts=64).probes})
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
