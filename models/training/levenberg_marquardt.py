"""Levenberg-Marquardt on a fixed sample: damped Gauss-Newton steps, each accepted or refused on that same sample.

    (H + mu diag(H)) step = -gradient

mu follows Nielsen's rule: it falls with the ratio of achieved to predicted decrease, and grows ever faster when a step
is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.training.objective import linearise, loss
from interp.models.training.parametrisation import Parametrisation
from interp.models.training.sample import Sample

__all__ = ["Progress", "minimise"]

PATIENCE = 3  # accepted steps in a row below the tolerance that end a run


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """Everything a run needs to go on from where it is."""

    theta: Float[Tensor, "layer parameter"]
    loss: float = math.inf
    damping: float = 1e-2
    growth: float = 2.0  # by which the damping grows at the next refusal
    iteration: int = 0
    slow: int = 0  # accepted steps in a row below the tolerance
    done: bool = False


def minimise(
    family: Parametrisation,
    sample: Sample,
    start: Progress,
    *,
    iterations: int,
    tolerance: float,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Lower the mean adjusted loss on ``sample``. ``watch`` sees the state after every iteration.

    Ends after ``iterations``, after ``PATIENCE`` accepted steps that each lowered the loss by less than ``tolerance``
    (relative), or when no step of any length lowers it.
    """
    now = start
    while not now.done and now.iteration < iterations:
        local = linearise(family, now.theta, sample)
        diagonal = local.curvature.diagonal()
        # A coordinate that nothing depends on has a zero row; a small floor leaves it where it is.
        metric = diagonal.clamp_min(1e-9 * float(diagonal.max()) + 1e-300)
        while True:
            step, predicted = _step(local.curvature, local.gradient, metric, now.damping)
            theta = now.theta + step.view_as(now.theta)
            value = loss(family, theta, sample) if predicted > 0 else float("inf")
            if value < local.loss:
                gain = min((local.loss - value) / predicted, 1.0)
                small = local.loss - value < tolerance * local.loss
                now = replace(
                    now,
                    theta=theta,
                    loss=value,
                    damping=max(now.damping * max(1.0 / 5.0, 1.0 - (2.0 * gain - 1.0) ** 3), 1e-12),
                    growth=2.0,
                    slow=now.slow + 1 if small else 0,
                )
                break
            now = replace(now, damping=now.damping * now.growth, growth=min(2.0 * now.growth, 64.0))
            if now.damping > 1e8:
                now = replace(now, loss=local.loss, done=True)
                break
        now = replace(now, iteration=now.iteration + 1, done=now.done or now.slow >= PATIENCE)
        watch(now)
    return now


def _step(curvature: Tensor, gradient: Tensor, metric: Tensor, damping: float) -> tuple[Tensor, float]:
    """The damped step and the decrease the quadratic model promises (0 when the matrix is not positive definite)."""
    root = metric.sqrt()  # in units where the diagonal is 1 the factorisation is as well conditioned as it can be
    scaled = curvature / root / root[:, None] + damping * torch.eye(len(root), dtype=root.dtype)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    if int(failed):
        return torch.zeros_like(gradient), 0.0
    step = -torch.cholesky_solve((gradient / root)[:, None], factor)[:, 0] / root
    predicted = float(-(gradient @ step) - 0.5 * step @ (curvature @ step))
    return step, predicted if predicted == predicted else 0.0
