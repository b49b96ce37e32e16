"""What can be looked for in the activations: targets by name, with the tasks, tokens and probes they are defined for.

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
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.models.errors import UsageError, did_you_mean
from interp.models.tasks import DynamicsPrompts, LinearDynamics, NoisyRegression, RegressionPrompts
from interp.probes.quantities import DynamicsQuantities, RegressionQuantities

__all__ = [
    "KINDS",
    "MOST_STEPS",
    "PUBLISHED",
    "Target",
    "default_targets",
    "find_targets",
    "quantities",
    "target_names",
]

KINDS = ("token", "within-prompt", "gram")
MOST_STEPS = 64  # of Chebyshev iteration, and of tokens to look back
STEPS = 6  # of Chebyshev iteration, as in the mesa paper
NEXT, PUBLISHED = "next", "preconditioned-published"  # the two targets of the mesa paper
REGRESSION, DYNAMICS = NoisyRegression.name, LinearDynamics.name
VERSATILE, AKYUREK, MESA = "arXiv 2402.14180", "arXiv 2211.15661", "arXiv 2309.05858"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One named target of one task.

    ``values(quantities, position)`` is (prompt, size), or None at positions where it is not defined. ``kinds`` are the
    probes that look for it; position is None for all but "token" probes.
    """

    name: str
    task: str
    formula: str
    source: str
    expectation: str
    kinds: tuple[str, ...]
    values: Callable[[Any, int | None], Float[Tensor, "prompt size"] | None]


WHOLE = ("within-prompt", "gram", "token")
EVEN = "at chance from one token (it does not change when the token changes sign); in the map of the prompt"
ODD = "in the query token where the network keeps or builds it"


def _regression_targets() -> Iterable[Target]:
    def add(name: str, formula: str, source: str, values: Any, expectation: str, kinds: tuple[str, ...]) -> Target:
        return Target(
            name=name, task=REGRESSION, formula=formula, source=source, expectation=expectation, kinds=kinds,
            values=values,
        )  # fmt: skip

    yield add("w", "w, the true weights", f"{AKYUREK}, released code", lambda q, p: q.prompts.w, EVEN, WHOLE)
    yield add("w-ols", "w_ols = Sigma^+ X^T y", f"{AKYUREK}, section 5", lambda q, p: q.w_ols, EVEN, WHOLE)
    yield add(
        "w-ridge", "w_ridge = (Sigma + sigma^2/tau^2 I)^-1 X^T y", f"{VERSATILE}, section 4",
        lambda q, p: q.w_ridge, EVEN, WHOLE,
    )  # fmt: skip
    yield add("alpha", "alpha = X^T y", f"{AKYUREK}, section 5", lambda q, p: q.alpha, EVEN, WHOLE)
    yield add(
        "noise", "sigma, the noise level of the prompt", f"{VERSATILE}, section 5",
        lambda q, p: q.prompts.sigma[:, None], EVEN, ("gram", "token"),
    )  # fmt: skip
    yield add("label", "<w, x>, the label without noise", "the task", lambda q, p: q.y(p), ODD, ("token",))
    yield add("current", "x of the token itself", f"{MESA}, code", lambda q, p: q.x(p), ODD, ("token",))
    yield add(
        "preconditioned", "(Sigma + sigma^2 I)^-1 x", f"{MESA}, section 3", lambda q, p: q.preconditioned(p, None), ODD,
        ("token",),
    )  # fmt: skip


def _dynamics_targets() -> Iterable[Target]:
    def add(name: str, formula: str, source: str, values: Any, expectation: str) -> Target:
        return Target(
            name=name, task=DYNAMICS, formula=formula, source=source, expectation=expectation, kinds=("token",),
            values=values,
        )  # fmt: skip

    yield add(
        NEXT, "s_{t+1}, the next state", f"{MESA}, Methods", lambda q, p: q.state(p, 1),
        "better with every layer, up to the noise, after enough states",
    )  # fmt: skip
    yield add("current", "s_t", f"{MESA}, code", lambda q, p: q.state(p), "in the tokens that keep it")
    yield add(
        "preconditioned", "(S_{t-1} S_{t-1}^T + I/lambda)^-1 s_t, 1/lambda = 0.001", f"{MESA}, Methods",
        lambda q, p: q.preconditioned(p, None), "better with depth, short of what few steps can reach",
    )  # fmt: skip
    yield add(
        PUBLISHED, "the same by the paper's six steps, whose sizes were learned", f"{MESA}, code",
        lambda q, p: q.preconditioned_as_published(p), "better with depth",
    )  # fmt: skip


def _chebyshev(task: str, steps: int) -> Target:
    matrix, x = ("Sigma + sigma^2 I", "x") if task == REGRESSION else ("S_{t-1} S_{t-1}^T + I/lambda", "s_t")
    return Target(
        name=f"chebyshev-{steps}",
        task=task,
        formula=f"({matrix})^-1 {x} by {steps} step{'s' * (steps > 1)} of Chebyshev iteration",
        source=f"{MESA}, Methods (the steps there are learned)",
        expectation="closer to what so many layers can build than the exact inverse",
        kinds=("token",),
        values=lambda q, p: q.preconditioned(p, steps),
    )


def _previous(task: str, lag: int) -> Target:
    return Target(
        name=f"previous-{lag}",
        task=task,
        formula=f"s_{{t-{lag}}}",
        source=f"{MESA}, Fig. 3 (copying)",
        expectation="in the tokens that hold it or that copied it",
        kinds=("token",),
        values=lambda q, p: q.state(p, -lag),
    )


# By task, in the order in which they are shown. A family takes a number: chebyshev-6, previous-1; by default the one
# that is given here.
TARGETS: dict[str, dict[str, Target]] = {
    REGRESSION: {t.name: t for t in _regression_targets()},
    DYNAMICS: {t.name: t for t in _dynamics_targets()},
}
FAMILIES: dict[str, dict[str, tuple[Callable[[str, int], Target], int]]] = {
    REGRESSION: {"chebyshev": (_chebyshev, STEPS)},
    DYNAMICS: {"chebyshev": (_chebyshev, STEPS), "previous": (_previous, 1)},
}


def target_names(task: str) -> tuple[str, ...]:
    """The targets of a task; K stands for a number."""
    return (*TARGETS[task], *(f"{family}-K" for family in FAMILIES[task]))


def default_targets(task: str) -> tuple[Target, ...]:
    """All of them, with six steps of Chebyshev iteration and one token back."""
    return (*TARGETS[task].values(), *(make(task, number) for make, number in FAMILIES[task].values()))


def find_targets(task: str, names: Iterable[str]) -> tuple[Target, ...]:
    """Targets by name. Raises UsageError for one that is unknown, or that does not apply to models of this task."""
    return tuple(_find(task, name) for name in dict.fromkeys(names))


def _find(task: str, name: str) -> Target:
    if name in TARGETS[task]:
        return TARGETS[task][name]
    family, dash, digits = name.rpartition("-")
    numbered = bool(dash) and re.fullmatch(r"\d{1,9}", digits) is not None
    if numbered and family in FAMILIES[task]:
        if not 1 <= int(digits) <= MOST_STEPS:
            raise UsageError(f"target {name!r} has the number {int(digits)}, expected 1 to {MOST_STEPS}")
        return FAMILIES[task][family][0](task, int(digits))
    applicable = ", ".join(target_names(task))
    elsewhere = [other for other in TARGETS if name in TARGETS[other] or (numbered and family in FAMILIES[other])]
    if elsewhere:
        raise UsageError(
            f"target {name!r} is for models of {' and '.join(elsewhere)}, this one's task is {task}; targets that "
            f"apply: {applicable}"
        )
    known = {n for other in TARGETS for n in (*TARGETS[other], *(f"{family}-{STEPS}" for family in FAMILIES[other]))}
    raise UsageError(f"no target is named {name!r}; {did_you_mean(name, known)}; targets that apply: {applicable}")


def quantities(
    prompts: RegressionPrompts | DynamicsPrompts, task: NoisyRegression | LinearDynamics
) -> RegressionQuantities | DynamicsQuantities:
    """What the targets of a batch of prompts are made of."""
    if isinstance(prompts, DynamicsPrompts):
        return DynamicsQuantities(prompts)
    return RegressionQuantities(prompts, getattr(task, "weight_std", 1.0))
