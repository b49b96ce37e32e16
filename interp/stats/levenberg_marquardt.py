"""Levenberg-Marquardt: damped Gauss-Newton steps, each accepted or refused by the value it leads to.

    (H + mu diag(H)) step = -gradient

An objective gives its value at theta and, where a step starts, its gradient g and a positive curvature H (Gauss-Newton,
J^T J for a sum of squares / 2). mu grows with every refused step and falls with every accepted one (``Damping``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["NIELSEN", "Damping", "Evaluated", "Objective", "Point", "Progress", "Quadratic", "Stopping", "minimise"]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The objective near a point: value + <gradient, step> + 1/2 step^T curvature step."""

    gradient: Float[Tensor, " flat"]
    curvature: Float[Tensor, "flat flat"]


@runtime_checkable
class Point(Protocol):
    """The objective at one theta. What the value needs can be kept for the quadratic model."""

    @property
    def value(self) -> float:
        """Infinite where the objective overflows."""
        ...

    def quadratic(self) -> Quadratic: ...


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A ``Point`` of a value and a function."""

    value: float
    quadratic: Callable[[], Quadratic]


Objective = Callable[[Tensor], Point]


@dataclass(frozen=True, kw_only=True)
class Damping:
    """How mu follows the steps.

    A refusal multiplies mu by a growth factor, and the factor by ``acceleration`` (to at most 64) until a step is
    accepted. An accepted step divides mu by ``shrink``; with ``shrink`` None, by Nielsen's rule, it multiplies mu by
    max(1/5, 1 - (2 r - 1)^3), r the achieved share of the predicted decrease. ``floor`` is the least diag(H), as a
    share of the largest: a coordinate that nothing depends on has a zero row, and so stays where it is.
    """

    growth: float = 2.0
    acceleration: float = 2.0
    shrink: float | None = None
    least: float = 1e-12
    most: float = 1e8
    floor: float = 1e-9

    def accepted(self, damping: float, ratio: float) -> float:
        factor = max(1.0 / 5.0, 1.0 - (2.0 * ratio - 1.0) ** 3) if self.shrink is None else 1.0 / self.shrink
        return max(damping * factor, self.least)


NIELSEN = Damping()


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """A run ends after ``iterations``, after ``patience`` accepted steps in a row that each lowered the value by less
    than ``tolerance`` (relative), at a value of ``zero`` or less, or when no step of any length lowers the value.
    Below ``exact`` every decrease is worth a further step, so that a fit that becomes exact goes on to rounding."""

    iterations: int
    tolerance: float = 0.0
    patience: int = 1
    zero: float = 0.0
    exact: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """Everything a run needs to go on from where it is."""

    theta: Float[Tensor, "*shape"]
    loss: float = math.inf
    damping: float = 1e-2
    growth: float = 2.0  # by which the damping grows at the next refusal
    iteration: int = 0
    slow: int = 0  # accepted steps in a row below the tolerance
    done: bool = False


def minimise(
    objective: Objective,
    start: Progress,
    stopping: Stopping,
    damping: Damping = NIELSEN,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Lower the objective from ``start``. ``watch`` sees the state after every iteration."""
    now, point = start, objective(start.theta)
    while not now.done and now.iteration < stopping.iterations and not point.value <= stopping.zero:
        now, point = _iterate(objective, replace(now, loss=point.value), point, stopping, damping)
        watch(now)
    return replace(now, loss=point.value)


def _iterate(
    objective: Objective, now: Progress, point: Point, stopping: Stopping, rule: Damping
) -> tuple[Progress, Point]:
    """One accepted step, or none when no damping leads to one."""
    local = point.quadratic()
    diagonal = local.curvature.diagonal()
    metric = diagonal.clamp_min(rule.floor * float(diagonal.max()) + 1e-300)
    mu, growth = now.damping, now.growth
    while mu <= rule.most:
        step, predicted = _step(local, metric, mu)
        following = objective(now.theta + step.view_as(now.theta)) if predicted > 0 else None
        if following is not None and following.value < point.value:
            gain = point.value - following.value
            small = gain < stopping.tolerance * point.value and not following.value < stopping.exact
            slow = now.slow + 1 if small else 0
            return Progress(
                theta=now.theta + step.view_as(now.theta),
                loss=following.value,
                damping=rule.accepted(mu, min(gain / predicted, 1.0)),
                growth=rule.growth,
                iteration=now.iteration + 1,
                slow=slow,
                done=slow >= stopping.patience,
            ), following
        mu, growth = mu * growth, min(rule.acceleration * growth, 64.0)
    return replace(now, damping=mu, growth=growth, iteration=now.iteration + 1, done=True), point


def _step(local: Quadratic, metric: Tensor, damping: float) -> tuple[Tensor, float]:
    """The damped step and the decrease the quadratic model promises (0 when the matrix is not positive definite)."""
    root = metric.sqrt()  # in units where the diagonal is 1 the factorisation is as well conditioned as it can be
    scaled = local.curvature / root / root[:, None] + damping * torch.eye(len(root), dtype=root.dtype)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    if int(failed):
        return torch.zeros_like(local.gradient), 0.0
    step = -torch.cholesky_solve((local.gradient / root)[:, None], factor)[:, 0] / root
    predicted = float(-(local.gradient @ step) - 0.5 * step @ (local.curvature @ step))
    return step, predicted if predicted == predicted else 0.0
