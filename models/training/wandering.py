"""First-order training from random weights: how a dense network finds valleys that no diagonal one lies near.

Rotation-invariant networks are a subspace that exact training does not leave, so a dense network that grows out of them
stays near. Adam from small random weights is not bound to it, and finds, for example, the three-layer network for two
noise levels that is a fifth better than every diagonal one. It runs on Gram matrices in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.training.levenberg_marquardt import Progress
from interp.models.training.objective import tamed_losses
from interp.models.training.parametrisation import Parametrisation
from interp.models.training.sample import Sample

__all__ = ["wander"]

BATCH = 512
RATE = 3e-3  # at the start; it falls to nothing along half a cosine
WARM_UP = 200  # steps
CLIP = 1.0  # of the gradient's norm
CAP = 0.2  # above this share of what predicting 0 costs, a prompt's loss counts by its logarithm
LEG = 100  # steps between two states that can be gone on from


def wander(
    family: Parametrisation,
    sample: Sample,
    start: Progress,
    *,
    steps: int,
    seed: int,
    watch: Callable[[Progress], None],
) -> Progress:
    """``steps`` steps of Adam on batches of ``sample``. A batch that overflows float32 changes nothing.

    The theta of the states that ``watch`` sees, and of a ``start`` that has iterations behind it, has the first and
    second moments of the gradient below its own rows. The end has not.
    """
    now, total = start, 0.5 * float(sample.oracle.square().sum(1).mean())
    single = sample.single().cautious(CAP * total)
    while now.iteration < steps:
        now = _leg(family, single, now, steps, seed)
        watch(now)
    return Progress(theta=_parts(now)[0], loss=now.loss, iteration=now.iteration, done=True)


def _parts(now: Progress) -> tuple[Tensor, Tensor, Tensor]:
    if now.iteration == 0:
        return now.theta, torch.zeros_like(now.theta), torch.zeros_like(now.theta)
    theta, first, second = now.theta.chunk(3)
    return theta, first, second


def _leg(family: Parametrisation, sample: Sample, now: Progress, steps: int, seed: int) -> Progress:
    theta, first, second = (part.float() for part in _parts(now))
    theta.requires_grad_()
    optimiser = torch.optim.Adam([theta], betas=(0.9, 0.99))
    optimiser.state[theta] = {"step": torch.tensor(float(now.iteration)), "exp_avg": first, "exp_avg_sq": second}
    generator = torch.Generator().manual_seed(seed + now.iteration)
    last, losses = min(now.iteration + LEG, steps), []
    for step in range(now.iteration, last):
        cosine = 0.5 * (1.0 + math.cos(math.pi * step / steps))
        optimiser.param_groups[0]["lr"] = min(1.0, (step + 1) / WARM_UP) * RATE * cosine
        batch = sample[torch.randint(0, sample.count, (BATCH,), generator=generator)]
        value = (batch.weight * tamed_losses(family, theta, batch)).mean()
        optimiser.zero_grad()
        value.backward()
        if bool(torch.isfinite(torch.nn.utils.clip_grad_norm_([theta], CLIP))):
            optimiser.step()
            losses.append(float(value.detach()))
    state: Float[Tensor, "row parameter"] = torch.cat([theta.detach(), first, second]).double()
    return Progress(theta=state, loss=sum(losses) / len(losses) if losses else math.inf, iteration=last)
