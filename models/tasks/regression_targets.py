"""What can be looked for in a network of linear regression. Sigma = X^T X and alpha = X^T y are sums over the context,
sigma is the noise level and tau the standard deviation of the weights; see ``interp.models.tasks.targets``."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.models.tasks.target import Target, chebyshev_target
from interp.solvers.chebyshev import chebyshev_solve
from interp.solvers.ridge import ols, ridge

__all__ = ["regression_targets"]

VERSATILE, AKYUREK, MESA = "arXiv 2402.14180", "arXiv 2211.15661", "arXiv 2309.05858"
WHOLE = ("within-prompt", "gram", "token")
USUAL = ("within-prompt", "token")
EVEN = "at chance from one token (it does not change when the token changes sign); in the map of the prompt"
ODD = "in the query token where the network keeps or builds it"


def regression_targets(weight_std: float) -> tuple[Target, ...]:
    """``weight_std`` is tau."""

    def w_ridge(p: Any, at: int | None) -> Float[Tensor, "prompt dim"]:
        return ridge(_sigma(p), _alpha(p), (p.sigma / weight_std) ** 2)

    return (
        Target(
            name="w", formula="w, the true weights", source=f"{AKYUREK}, released code", expectation=EVEN,
            kinds=WHOLE, usual=USUAL, value=lambda p, at: p.w,
        ),
        Target(
            name="w-ols", formula="w_ols = Sigma^+ X^T y", source=f"{AKYUREK}, section 5", expectation=EVEN,
            kinds=WHOLE, value=lambda p, at: ols(_sigma(p), _alpha(p)),
        ),
        Target(
            name="w-ridge", formula="w_ridge = (Sigma + sigma^2/tau^2 I)^-1 X^T y", source=f"{VERSATILE}, section 4",
            expectation=EVEN, kinds=WHOLE, usual=USUAL, value=w_ridge,
        ),
        Target(
            name="alpha", formula="alpha = X^T y", source=f"{AKYUREK}, section 5", expectation=EVEN, kinds=WHOLE,
            value=lambda p, at: _alpha(p),
        ),
        Target(
            name="noise", formula="sigma, the noise level of the prompt", source=f"{VERSATILE}, section 5",
            expectation=EVEN, kinds=("gram", "token"), value=lambda p, at: p.sigma[:, None],
        ),
        Target(
            name="label", formula="<w, x>, the label without noise", source="the task", expectation=ODD,
            usual=("token",), value=lambda p, at: (p.w * _x(p, at)).sum(-1, keepdim=True),
        ),
        Target(
            name="current", formula="x of the token itself", source=f"{MESA}, code", expectation=ODD, value=_x,
        ),
        Target(
            name="preconditioned", formula="(Sigma + sigma^2 I)^-1 x", source=f"{MESA}, section 3", expectation=ODD,
            usual=("token",), value=lambda p, at: ridge(_sigma(p), _x(p, at), p.sigma**2),
        ),
        chebyshev_target("(Sigma + sigma^2 I)^-1 x", _preconditioned),
    )  # fmt: skip


def _preconditioned(steps: int, prompts: Any, position: int | None) -> Float[Tensor, "prompt dim"]:
    return chebyshev_solve(_sigma(prompts), _x(prompts, position), prompts.sigma**2, steps)


def _x(prompts: Any, position: int | None) -> Float[Tensor, "prompt dim"]:
    return prompts.x_query if position is None else prompts.x[:, position]


def _sigma(prompts: Any) -> Float[Tensor, "prompt dim dim"]:
    return prompts.x.mT @ prompts.x


def _alpha(prompts: Any) -> Float[Tensor, "prompt dim"]:
    return (prompts.x.mT @ prompts.y[..., None]).squeeze(-1)
