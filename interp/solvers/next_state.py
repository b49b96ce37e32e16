"""Reference solvers that predict the next state of a linear system from the states so far.

With X_t = [s_0 .. s_{t-1}] and Y_t = [s_1 .. s_t] (the pairs known at time t), A_t = X_t X_t^T and B_t = Y_t X_t^T,

- one step of gradient descent on L_t(W) = |Y_t - W X_t|^2 / 2 from W_0:   f_t = (W_0 + eta (B_t - W_0 A_t)) s_t;
- exact ridge:   f_t = B_t (A_t + I / lambda)^-1 s_t;
- proposition 2: the inverse by K steps of second-order Richardson (Chebyshev) iteration with learned alpha, beta,

      A~ = (A_t + I / lambda) / c,  c = |A_t + I / lambda|_F,  T_0 = X_0 = X_{-1} = I,
      T_k = T_{k-1} (I - alpha_k A~),  X_k = X_{k-1} + T_k + beta_k (X_{k-1} - X_{k-2}),  f_t = B_t X_K s_t / c.

``lag`` 1 leaves the newest pair (s_{t-1}, s_t) out, as the authors' code does in their comparators of proposition 2 and
ridge (not in gradient descent); 0 uses all that the networks see. Source: von Oswald et al., arXiv 2309.05858.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.lbfgs import LBFGS
from interp.solvers.ridge import damped, ridge
from interp.stats.averages import ratio_with_error

__all__ = [
    "INVERSE_LAMBDA",
    "PUBLISHED_ALPHA",
    "PUBLISHED_BETA",
    "LineSearch",
    "Pairs",
    "TunedSolvers",
    "line_search",
    "richardson",
    "tune_richardson",
]

INVERSE_LAMBDA = 0.001  # of the paper's probes and comparators
# Learned by the authors for constructed tokens.
PUBLISHED_ALPHA = (1.0257748, 3.2508426, 3.2583678, 3.2122886, 2.694414, 1.2727231)
PUBLISHED_BETA = (0.0, 0.6787798, 0.30748147, 0.74470717, 1.8360422, 2.3438027)
TUNING = 80  # evaluations of L-BFGS
STEPS = 6  # of proposition 2, as in the paper


@dataclass(frozen=True, eq=False)
class Pairs:
    """The sums A_t and B_t of states s_0 .. s_T at t = 0 .. T - 1."""

    states: Float[Tensor, "sequence time dim"]
    lag: int = 0

    @property
    def current(self) -> Float[Tensor, "sequence pos dim"]:
        """s_t."""
        return self.states[:, :-1]

    @cached_property
    def A(self) -> Float[Tensor, "sequence pos dim dim"]:
        return self._sums(self.states[:, :-2])

    @cached_property
    def B(self) -> Float[Tensor, "sequence pos dim dim"]:
        return self._sums(self.states[:, 1:-1])

    def _sums(self, left: Tensor) -> Tensor:
        """Sums over the pairs known at time t of left (x) s, none at t = 0."""
        count, time, dim = self.states.shape
        products = torch.einsum("nti,ntj->ntij", left, self.states[:, :-2]).cumsum(1)
        known = self.states.new_zeros(count, time - 1, dim, dim)
        first = 1 + self.lag
        known[:, first:] = products[:, : time - 1 - first]
        return known

    @cached_property
    def descent(self) -> Float[Tensor, "sequence pos dim"]:
        """B_t s_t, the prediction of a step of size 1 from 0."""
        return _times(self.B, self.current)

    @cached_property
    def curvature(self) -> Float[Tensor, "sequence pos dim"]:
        """A_t s_t."""
        return _times(self.A, self.current)

    def gradient_step(self, eta: float, W_0: Float[Tensor, "dim dim"] | None = None) -> Tensor:
        if W_0 is None:
            return eta * self.descent
        return self.current @ W_0.T + eta * (self.descent - self.curvature @ W_0.T)

    @cached_property
    def damped(self) -> Float[Tensor, "sequence pos dim dim"]:
        return damped(self.A.flatten(0, 1), INVERSE_LAMBDA).view_as(self.A)

    def ridge(self) -> Float[Tensor, "sequence pos dim"]:
        solved = ridge(self.A.flatten(0, 1), self.current.flatten(0, 1), INVERSE_LAMBDA)
        return _times(self.B, solved.view_as(self.current))

    def richardson(self, alpha: Float[Tensor, " alpha"], beta: Float[Tensor, " beta"]) -> Tensor:
        """Proposition 2 with as many steps as there are alpha. Raises UsageError unless there are as many beta."""
        if alpha.shape != beta.shape:
            raise UsageError(f"got {tuple(alpha.shape)} alpha and {tuple(beta.shape)} beta, expected as many of both")
        return _times(self.B, richardson(self.damped, self.current, alpha, beta))


def _times(matrix: Float[Tensor, "*batch row column"], vector: Float[Tensor, "*batch column"]) -> Tensor:
    return (matrix @ vector[..., None]).squeeze(-1)


def richardson(
    A: Float[Tensor, "*batch dim dim"],
    b: Float[Tensor, "*batch dim"],
    alpha: Iterable[float | Tensor],
    beta: Iterable[float | Tensor],
) -> Float[Tensor, "*batch dim"]:
    """X_K b / c, close to A^-1 b, with A~ = A / c and c = |A|_F in the steps of proposition 2."""
    c = torch.linalg.vector_norm(A, dim=(-2, -1))[..., None]
    term = before = total = b
    for step, momentum in zip(alpha, beta, strict=True):
        term = term - step * _times(A, term) / c
        before, total = total, total + term + momentum * (total - before)
    return total / c


@dataclass(frozen=True)
class LineSearch:
    """The step size that is best for sequences of a task, and its standard error over sequences."""

    eta: float
    stderr: float


def line_search(pairs: Pairs) -> LineSearch:
    """argmin over eta of E |s_{t+1} - eta B_t s_t|^2: a regression without intercept."""
    top, bottom = ((pairs.descent * other).sum((1, 2)) for other in (pairs.states[:, 1:], pairs.descent))
    eta, stderr = ratio_with_error(top, bottom)
    if eta is None or stderr is None:
        raise UsageError("no sequence has two states or more before the last, so a step has no direction")
    return LineSearch(eta, stderr)


def tune_richardson(pairs: Pairs, steps: int) -> tuple[Float[Tensor, " step"], Float[Tensor, " step"]]:
    """alpha and beta that minimise the loss on these sequences, by L-BFGS from the published ones where there are as
    many, else from alpha = 1, beta = 0. (beta_1 has no effect and stays 0.)"""
    published = steps == len(PUBLISHED_ALPHA)
    start = (PUBLISHED_ALPHA, PUBLISHED_BETA) if published else ((1.0,) * steps, (0.0,) * steps)
    alpha, beta = (torch.tensor(values, dtype=pairs.states.dtype).requires_grad_() for values in start)
    optimiser = LBFGS([alpha, beta], max_iter=TUNING, max_eval=TUNING, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        alpha.grad = beta.grad = None
        loss = (pairs.richardson(alpha, beta) - pairs.states[:, 1:]).square().sum(-1).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    return alpha.detach(), beta.detach()


@dataclass(frozen=True, eq=False)
class TunedSolvers:
    """The solvers with what was tuned on sequences of a task. "lagged" leaves the newest pair out."""

    search: LineSearch
    alpha: Float[Tensor, " step"]
    beta: Float[Tensor, " step"]
    lagged_alpha: Float[Tensor, " step"]
    lagged_beta: Float[Tensor, " step"]

    @classmethod
    def of(cls, states: Float[Tensor, "sequence time dim"]) -> TunedSolvers:
        now, late = Pairs(states), Pairs(states, lag=1)
        return cls(line_search(now), *tune_richardson(now, STEPS), *tune_richardson(late, STEPS))

    def predict(self, states: Float[Tensor, "sequence time dim"]) -> dict[str, Float[Tensor, "sequence pos dim"]]:
        now, late = Pairs(states), Pairs(states, lag=1)
        return {
            "null": torch.zeros_like(now.current),
            "gd-1": now.gradient_step(self.search.eta),
            "prop-2-lagged": late.richardson(self.lagged_alpha, self.lagged_beta),
            "prop-2": now.richardson(self.alpha, self.beta),
            "ridge-lagged": late.ridge(),
            "ridge": now.ridge(),
        }

    @property
    def labels(self) -> dict[str, str]:
        learned = f"proposition 2, {len(self.alpha)} learned steps"
        return {
            "null": "predicting zero",
            "gd-1": f"one step of gradient descent, best step {self.search.eta:.4g}",
            "prop-2-lagged": f"{learned}, without the newest pair",
            "prop-2": learned,
            "ridge-lagged": "exact ridge without the newest pair",
            "ridge": "exact ridge",
        }
