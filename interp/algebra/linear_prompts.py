"""The prompts of a task on which a network is what the analysis takes it for: linear maps of reasonable size."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.algebra.sensitivity import Prompts
from interp.algebra.unrolling import label_indices, unclipped
from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import Examples
from interp.models.transformer import LinearTransformer

__all__ = ["DIVERGED", "finite_and_clipped", "gram_prompts", "linear_prompts"]

P = TypeVar("P", bound=Examples)

DIVERGED = 1e60  # activations beyond this are divergence: their fourth powers no longer fit float64
FEWEST_KEPT = 0.9  # share of the prompts that must neither diverge nor be clipped


def gram_prompts(prompts: Examples, spec: ModelSpec) -> Prompts:
    grams = prompts.grams(spec)
    return Prompts(grams.gram, grams.query, tuple(label_indices(spec)[1]), spec.readout.sign)


def finite_and_clipped(
    model: LinearTransformer, prompts: Examples
) -> tuple[Bool[Tensor, " prompt"], Bool[Tensor, " prompt"]]:
    """Which prompts do not diverge, and which of those meet the model's clip."""
    grams = prompts.grams(model.spec)
    trajectory = forward(head_layers(model, prompts.context), grams.gram, grams.query)
    sizes = [value.abs().flatten(1).amax(-1) for value in (*trajectory.maps, *trajectory.grams, trajectory.queries[-1])]
    finite = (torch.stack(sizes) < DIVERGED).all(0)  # False for NaN too
    return finite, finite & ~unclipped(model, trajectory, *prompts.inputs(model.spec))


def linear_prompts(model: LinearTransformer, prompts: P) -> P:
    """The prompts that the model runs as linear maps; none of them when too many meet its clip. Without one divergence
    is kept."""
    if model.spec.clip is None:
        return prompts
    finite, clipped = finite_and_clipped(model, prompts)
    kept = prompts[finite & ~clipped]
    return kept if kept.count >= FEWEST_KEPT * prompts.count else kept[:0]
