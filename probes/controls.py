"""What a probe finds where nothing was learned: untrained models of the same shape, and targets of other prompts.

A high score alone says little: the inputs hold much of what is looked for, and any network passes some of it on. So the
same probe reads models with random weights, and targets that belong to other sequences.

Random weights have the size of the trained model's matrix by matrix, and then, layer by layer, the size at which the
layer changes its tokens as much as the trained layer does: sum |delta e|^2 / sum |e|^2 over tokens and prompts is the
same. Sizes of matrices alone would not do: they depend on the gauge and on coordinates that nobody reads, and random
layers of that size, one after the other, overflow what they carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import Prompts
from interp.models.transformer import LinearTransformer

__all__ = ["shuffled", "untrained_models"]


def untrained_models(model: LinearTransformer, prompts: Prompts, seeds: Sequence[int]) -> tuple[LinearTransformer, ...]:
    """One model per seed: weights drawn independently from normal laws, each layer scaled on ``prompts`` as above."""
    inputs = prompts.inputs(model.spec)
    sizes, tokens = [], inputs
    for layer in range(model.layers):
        change, tokens = _step(model, layer, tokens)
        sizes.append(change)
    return tuple(_untrained(model, inputs, sizes, seed) for seed in seeds)


def _untrained(
    model: LinearTransformer, tokens: tuple[Tensor, ...], sizes: Sequence[float], seed: int
) -> LinearTransformer:
    generator = torch.Generator().manual_seed(seed)

    def drawn(weights: Tensor) -> Tensor:
        size = weights.square().mean((-1, -2), keepdim=True).sqrt()
        return size * torch.randn(weights.shape, generator=generator, dtype=weights.dtype)

    out = replace(model, P=drawn(model.P), Q=drawn(model.Q))
    for layer, wanted in enumerate(sizes):
        change, _ = _step(out, layer, tokens)
        if change > 0 and math.isfinite(wanted / change):  # else there is no size to go by: the draw is left as it is
            P = out.P.clone()
            P[layer] *= math.sqrt(wanted / change)
            out = replace(out, P=P)
        _, tokens = _step(out, layer, tokens)
    return out


def _step(model: LinearTransformer, layer: int, tokens: tuple[Tensor, ...]) -> tuple[float, tuple[Tensor, ...]]:
    """One layer alone: how much it changes its tokens, and the tokens after it."""
    cut, spec = slice(layer, layer + 1), replace(model.spec, loops=1)
    others = {name: value[cut] if name in spec.block_tensors else value for name, value in model.tensors.items()}
    alone = HookedLinearTransformer(replace(model, spec=spec, P=model.P[cut], Q=model.Q[cut], tensors=others))
    names = ["blocks.0.hook_resid_pre", "blocks.0.hook_attn_out", "blocks.0.hook_resid_post"]
    _, cache = alone.run_with_cache(*tokens, names_filter=names)
    before, change, after = (cache[name] for name in names)
    change = float(change.square().sum() / before.square().sum())
    return change, tuple(after.split([part.shape[1] for part in tokens], dim=1))


def shuffled(targets: Tensor) -> Tensor:
    """Targets (…, prompt, size) of other prompts: those of the next one, so that none keeps its own."""
    return targets.roll(1, dims=-2)
