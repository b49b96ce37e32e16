"""Does every step descend? An algorithm that is called gradient descent must lower the error of the examples.

With implicit weights w^l the error of a prompt's examples is sum_i (y_i - <w^l, x_i>)^2, with gradient -2 (alpha -
Sigma w^l) in w. A step descends when its change of w points down that slope. The next step reads the label channel that
the tokens carry, a y_i -+ <w^l, x_i>, so where more steps follow plain gradient descent, that residual must shrink too:
with a read-out of +y the tokens carry y + <w, x>, and every further step of the same sign makes it grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identify.course import Course
from interp.stats.averages import mean_with_error

__all__ = ["carried_residual_shrinks", "steps_ascend", "steps_descend"]

IDLE = 1e-3  # of the largest step: a step that is smaller is none
IDLE_IN_A_NETWORK = 1e-2  # the same of a network's own steps, which an algorithm follows no closer than that
SURE = 2.0  # standard errors

Readouts: TypeAlias = list[Float[Tensor, "prompt label input"]]


def steps_descend(course: Course, sign: int, end: int = 0) -> tuple[bool | None, ...]:
    """Whether each layer lowers the error of the examples to first order, on average over prompts of bounded
    influence; None for a layer that takes no step. ``end``: whether a doubt speaks for it (1) or against it (-1)."""
    return _downhill(course, [sign * w for w in course.readouts], end)


def steps_ascend(course: Course, sign: int, end: int = 0) -> tuple[bool | None, ...]:
    """Whether each layer of a network surely raises it."""
    w = [sign * w for w in course.readouts]
    return _slopes(course, w, IDLE_IN_A_NETWORK, lambda mean, error: mean < -SURE * (1 + end) * error)


def carried_residual_shrinks(course: Course, end: int = 0) -> tuple[bool | None, ...]:
    """As ``steps_descend``, for the label channel of the examples as they carry it."""
    return _downhill(course, [-w for w in course.readouts], end)


def _downhill(course: Course, w: Readouts, end: int) -> tuple[bool | None, ...]:
    return _slopes(course, w, IDLE, lambda mean, error: mean > SURE * (1 - end) * error)


def _slopes(course: Course, w: Readouts, idle: float, holds: Callable[[float, float], bool]) -> tuple[bool | None, ...]:
    """What ``holds`` of the mean cosine between a step and the slope down, and its standard error."""
    x, y = list(course.inputs), list(course.label)
    sigma, alpha = course.gram[:, x][:, :, x], course.gram[:, y][:, :, x]
    before = [torch.zeros_like(w[0]), *w[:-1]]
    steps = [after - at for after, at in zip(w, before, strict=True)]
    sizes = [float(step.flatten(1).norm(dim=1).median()) for step in steps]
    out: list[bool | None] = []
    for at, step, size in zip(before, steps, sizes, strict=True):
        slope = alpha - at @ sigma
        cosine = (slope * step).flatten(1).sum(1) / (
            slope.flatten(1).norm(dim=1) * step.flatten(1).norm(dim=1)
        ).clamp_min(1e-300)
        mean, error = mean_with_error(cosine)
        told = mean is not None and error is not None and holds(mean, error)
        out.append(told if size > idle * max(sizes) else None)
    return tuple(out)
