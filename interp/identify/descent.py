"""Does every step descend? An algorithm that is called gradient descent must lower the error of the examples.

With implicit weights w^l the error of a prompt's examples is sum_i (y_i - <w^l, x_i>)^2, with gradient -2 (alpha -
Sigma w^l) in w. A step descends when its change of w points down that slope. The next step reads the label channel that
the tokens carry, a y_i -+ <w^l, x_i>, so where more steps follow plain gradient descent, that residual must shrink too:
with a read-out of +y the tokens carry y + <w, x>, and every further step of the same sign makes it grow.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identify.course import Course
from interp.stats.averages import mean_with_error

__all__ = ["carried_residual_shrinks", "steps_descend"]

IDLE = 1e-3  # of the largest step: a step that is smaller is none
SURE = 2.0  # standard errors


def steps_descend(course: Course, sign: int) -> tuple[bool | None, ...]:
    """Whether each layer lowers the error of the examples to first order, on average over prompts of bounded
    influence; None for a layer that takes no step."""
    return _downhill(course, [sign * w for w in course.readouts])


def carried_residual_shrinks(course: Course) -> tuple[bool | None, ...]:
    """The same for the label channel of the examples as they carry it."""
    return _downhill(course, [-w for w in course.readouts])


def _downhill(course: Course, w: list[Float[Tensor, "prompt label input"]]) -> tuple[bool | None, ...]:
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
        down = mean is not None and error is not None and mean > SURE * error
        out.append(down if size > IDLE * max(sizes) else None)
    return tuple(out)
