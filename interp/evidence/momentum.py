"""How close the implicit model (u, w) comes to gradient descent with momentum.

Vladymyrov et al. (arXiv 2402.14180, section 4.4) liken a layer to u <- (1 - beta) u + grad f(w), w <- w - eta u, with
u the momentum. With g = a alpha - Sigma w the negative gradient at the layer's own (a, w), the increments are
regressed as

    u' - u = -beta u + gamma g ,        w' - w = -eta u      or   step g      or both,

one number of each kind per layer for all prompts, fitted on one half of them and scored on the other. The exact update
(lemma A.1) has matrices in place of beta, gamma, eta that depend on the prompt; R^2 says what one number leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import ImplicitState
from interp.evidence.adaptation import gradient
from interp.evidence.question import with_error
from interp.results import Momentum
from interp.solvers.statistics import RegressionStatistics
from interp.stats.bootstrap import Interval, explained
from interp.stats.least_squares import Estimate, least_squares

__all__ = ["Increments", "increments", "momentum_fits"]

_Score = tuple[float | None, Interval]  # R^2 and its interval
NO_FIT: tuple[Estimate | None, _Score] = (None, (None, (None, None)))
NOTHING = 1e-24  # share of the energy of u or w below which an increment, or u, is rounding


@dataclass(frozen=True, eq=False)
class Increments:
    """One layer on many prompts: u and g before it, and what it adds to u and w."""

    u: Float[Tensor, "prompt dim"]
    g: Float[Tensor, "prompt dim"]
    du: Float[Tensor, "prompt dim"]
    dw: Float[Tensor, "prompt dim"]


def increments(states: Sequence[ImplicitState], known: RegressionStatistics) -> list[Increments]:
    """One entry per layer, from the implicit model before and after it."""
    return [
        Increments(now.u[..., 0], gradient(now, known), (then.u - now.u)[..., 0], (then.w - now.w)[:, 0])
        for now, then in itertools.pairwise(states)
    ]


def momentum_fits(fitted: Sequence[Increments], held_out: Sequence[Increments], seed: int) -> tuple[Momentum, ...]:
    """One row per layer. u after the last layer is never read, so there beta and gamma are left out."""
    out = []
    for layer, (fit, test) in enumerate(zip(fitted, held_out, strict=True)):
        moving = float(fit.u.square().sum()) > NOTHING * float(fit.g.square().sum())
        last = layer + 1 == len(fitted)
        momentum, momentum_r2 = NO_FIT if last else _fit("ug" if moving else "g", "du", fit, test, seed)
        alone, alone_r2 = _fit("u", "dw", fit, test, seed) if moving else NO_FIT
        plain, plain_r2 = _fit("g", "dw", fit, test, seed)
        both_r2 = _fit("ug", "dw", fit, test, seed)[1] if moving else plain_r2
        out.append(
            Momentum(
                layer=layer,
                **with_error("beta", _number(momentum if moving else None, 0, sign=-1.0), "beta_stderr"),
                **with_error("gradient", _number(momentum, -1), "gradient_stderr"),
                **with_error("u_r2", momentum_r2),
                **with_error("eta", _number(alone, 0, sign=-1.0), "eta_stderr"),
                **with_error("eta_r2", alone_r2),
                **with_error("step", _number(plain, 0), "step_stderr"),
                **with_error("step_r2", plain_r2),
                **with_error("both_r2", both_r2),
            )
        )
    return tuple(out)


def _fit(terms: str, name: str, fit: Increments, test: Increments, seed: int) -> tuple[Estimate | None, _Score]:
    """The regression of an increment on u, g or both, without intercept (all have mean zero), and its R^2 on the
    held-out prompts with its interval; nothing when there is nothing to explain."""
    response, unseen = getattr(fit, name), getattr(test, name)
    design, unseen_design = (torch.stack([getattr(part, term) for term in terms], -1) for part in (fit, test))
    total = float(unseen.square().sum())
    if not 0 < total < float("inf") or not 0 < float(response.square().sum()) + float(design.square().sum()) < 1e300:
        return NO_FIT
    estimate = least_squares(design, response)
    error = (unseen - unseen_design @ estimate.theta).square().sum(-1)
    return estimate, explained(error, unseen.square().sum(-1), seed)


def _number(estimate: Estimate | None, k: int, sign: float = 1.0) -> tuple[float | None, float | None]:
    if estimate is None or not estimate.determined[k]:
        return None, None
    return sign * float(estimate.theta[k]), float(estimate.stderr[k])
