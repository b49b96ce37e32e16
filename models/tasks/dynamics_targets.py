"""What can be looked for in a network of linear dynamics: the targets of the mesa paper (arXiv 2309.05858), with
S_{t-1} = [s_0 .. s_{t-1}] the states before the token. See ``interp.models.tasks.targets``."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.models.tasks.target import Target, chebyshev_target
from interp.solvers.chebyshev import chebyshev_solve
from interp.solvers.next_state import INVERSE_LAMBDA, PUBLISHED_ALPHA, PUBLISHED_BETA, richardson
from interp.solvers.ridge import damped, ridge

__all__ = ["NEXT", "PUBLISHED", "dynamics_targets"]

NEXT, PUBLISHED = "next", "preconditioned-published"  # the two targets of the paper
MESA = "arXiv 2309.05858"


def dynamics_targets() -> tuple[Target, ...]:
    return (
        Target(
            name=NEXT, formula="s_{t+1}, the next state", source=f"{MESA}, Methods", usual=("token",),
            expectation="better with every layer, up to the noise, after enough states",
            value=lambda p, at: p.target[:, at],
        ),
        Target(
            name="current", formula="s_t", source=f"{MESA}, code", expectation="in the tokens that keep it",
            value=lambda p, at: p.states[:, at],
        ),
        Target(
            name="preconditioned", formula=f"(S_{{t-1}} S_{{t-1}}^T + I/lambda)^-1 s_t, 1/lambda = {INVERSE_LAMBDA}",
            source=f"{MESA}, Methods", expectation="better with depth, short of what few steps can reach",
            usual=("token",), value=lambda p, at: ridge(_past(p, at), p.states[:, at], INVERSE_LAMBDA),
        ),
        Target(
            name=PUBLISHED, formula="(S_{t-1} S_{t-1}^T + I/lambda)^-1 s_t by the paper's six steps of learned sizes",
            source=f"{MESA}, code", expectation="better with depth", usual=("token",), value=_as_published,
        ),
        chebyshev_target("(S_{t-1} S_{t-1}^T + I/lambda)^-1 s_t", _iterated),
        _previous(1),
    )  # fmt: skip


def _previous(lag: int) -> Target:
    return Target(
        name=f"previous-{lag}",
        formula=f"s_{{t-{lag}}}",
        source=f"{MESA}, Fig. 3 (copying)",
        expectation="in the tokens that hold it or that copied it",
        value=lambda p, at: p.states[:, at - lag] if at is not None and at >= lag else None,
        numbered=_previous,
    )


def _past(prompts: Any, position: int | None) -> Float[Tensor, "prompt dim dim"]:
    """S_{t-1} S_{t-1}^T."""
    past = prompts.states[:, :position]
    return past.mT @ past


def _iterated(steps: int, prompts: Any, position: int | None) -> Float[Tensor, "prompt dim"]:
    return chebyshev_solve(_past(prompts, position), prompts.states[:, position], INVERSE_LAMBDA, steps)


def _as_published(prompts: Any, position: int | None) -> Float[Tensor, "prompt dim"]:
    """By the six steps that the paper's authors learned on the task for tokens of four channels."""
    A = damped(_past(prompts, position), INVERSE_LAMBDA)
    return richardson(A, prompts.states[:, position], PUBLISHED_ALPHA, PUBLISHED_BETA)
