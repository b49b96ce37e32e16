"""First-order training from random weights: how a dense network finds valleys that no diagonal one lies near.

Rotation-invariant networks are a subspace that exact training does not leave, so a dense network that grows out of them
stays near. Adam from small random weights is not bound to it, and finds, for example, the three-layer network for two
noise levels that is a fifth better than every diagonal one. It runs on Gram matrices in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from interp.models.training.adam import Moving, adam, clip_norm, half_cosine, warm_up
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
    family: Parametrisation, sample: Sample, start: Moving, watch: Callable[[Moving], None], *, steps: int, seed: int
) -> Moving:
    """``steps`` steps of Adam on batches of ``sample``. A batch that overflows float32 changes nothing. ``watch`` sees
    the state after every leg, whose loss is the mean over the leg."""
    total = 0.5 * float(sample.oracle.square().sum(1).mean())
    single = sample.single().cautious(CAP * total)
    generator, now, losses = torch.Generator(), start, []

    def objective(step: int, values: Sequence[Tensor]) -> Tensor:
        if step % LEG == 0:
            generator.manual_seed(seed + step)
        batch = single[torch.randint(0, single.count, (BATCH,), generator=generator)]
        return (batch.weight * tamed_losses(family, values[0], batch)).mean()

    def seen(state: Moving) -> None:
        nonlocal now
        if state.taken > now.taken:
            losses.append(state.loss)
        now = state
        if state.iteration % LEG == 0 or state.iteration == steps:
            now = replace(state, loss=sum(losses) / len(losses) if losses else math.inf)
            losses.clear()
            watch(now)

    adam(
        start, objective, steps=steps, rate=lambda step: RATE * warm_up(step, WARM_UP) * half_cosine(step / steps),
        limit=clip_norm(CLIP), watch=seen, betas=(0.9, 0.99),
    )  # fmt: skip
    return now
