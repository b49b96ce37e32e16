"""Attention pooling: all context tokens of one layer, pooled, to one target per prompt.

The published protocol of Akyurek et al., "What learning algorithm is in-context learning?" (arXiv 2211.15661, section 5
and appendix E),

    vhat = FF(sum_i alpha_i W_v e_i),   alpha = softmax(s_v),   trained on |v - vhat|^2 by Adam,

with learned scores s_v of the positions that do not depend on the input, and FF linear or an MLP with one hidden layer.
It differs from the paper in one thing: it is scored as every probe here is, on sequences that the fit has not seen.
Neither tokens nor targets are standardised, as published, so it can do worse than a regression only because of their
units.

Ridge regression on the second moments of the tokens, which are all that a layer of linear attention can read of its
keys, is the probe of kind "gram" (``interp.probes.across``). Second moments of the *inputs* hold X^T Y already: a score
is a finding about a layer only beside that of layer 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.probes.held_out import HeldOut
from interp.probes.ridge import held_out_groups

__all__ = ["AttentionPooling", "PooledProbe", "attention_pooled"]

LARGEST = 1e15  # attention pooling trains in float32, as published, where squares of larger values overflow


@dataclass(frozen=True, kw_only=True)
class AttentionPooling:
    """Sizes and training of the published probe; the defaults are the paper's. Where it says nothing of the number of
    steps and of the batch, they are those of the authors' code (20 x 100 steps) and of the models' training (64)."""

    readout: Literal["linear", "mlp"] = "mlp"
    projection: int = 512  # rows of W_v
    hidden: int = 512  # of the MLP, with GeLU
    learning_rate: float = 1e-3  # the paper chose it from 1e-2, 1e-3, 1e-4 on validation data
    batch: int = 64
    steps: int = 2000


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledProbe:
    """Errors on held-out sequences, with layers as streams: of the target, and of the same probe fitted to the target
    of another prompt ("shuffled", None when it was not asked for). ``dropped`` prompts were left out because a value in
    them was too large. ``in_sample`` is the mean squared error on the sequences that were fitted, summed over outputs,
    and ``attention`` holds alpha.
    """

    held_out: HeldOut
    shuffled: HeldOut | None
    dropped: int
    in_sample: Float[Tensor, " layer"]
    attention: Float[Tensor, "layer position"]


def attention_pooled(
    tokens: Float[Tensor, "layer prompt position D"],
    target: Float[Tensor, "prompt output"],
    group: Int[Tensor, " prompt"],
    settings: AttentionPooling | None = None,
    seed: int = 0,
    shuffle: bool = True,
) -> PooledProbe:
    """The published probe: one per layer, all trained side by side, and with ``shuffle`` as many of shuffled targets.
    Odd groups are held out, as by ``cross_fit``.

    Raises UsageError when too few prompts are left to fit and to score.
    """
    settings = settings or AttentionPooling()
    usable = (tokens.abs() < LARGEST).flatten(2).all(-1).all(0) & (target.abs() < LARGEST).all(-1)
    tokens, target, group = tokens[:, usable], target[usable], group[usable]
    apart = held_out_groups(int(group.max()) + 1)[group] if len(group) else torch.zeros(0, dtype=torch.bool)
    if not bool(apart.any()) or not bool((~apart).any()):
        raise UsageError(
            f"{len(group)} prompts in {len(group.unique())} groups are too few to fit and to score a pooled probe; "
            f"expected 2 groups or more"
        )
    # Layers with the target, then the same layers with the shuffled one: independent fits, since Adam works entry by
    # entry and the loss is a sum.
    layers = len(tokens)
    both = (target, target.roll(1, dims=0)) if shuffle else (target,)
    X = tokens.float().repeat(len(both), 1, 1, 1)
    Y = torch.stack(both).float().repeat_interleave(layers, dim=0)
    probe = _trained(X[:, ~apart], Y[:, ~apart], settings, seed)
    with torch.no_grad():
        prediction = probe(X[:, apart]).double().reshape(len(both), layers, -1, target.shape[-1])
        fitted = (probe(X[:, ~apart]) - Y[:, ~apart])[:layers].double().square().sum(-1).mean(-1)
    errors = (
        HeldOut.of_predictions(found, values[apart].double(), group[apart])
        for found, values in zip(prediction, both, strict=True)
    )
    return PooledProbe(
        held_out=next(errors),
        shuffled=next(errors, None),
        dropped=int((~usable).sum()),
        in_sample=fitted,
        attention=probe.scores[:layers].detach().double().softmax(-1),
    )


class _Pooling(torch.nn.Module):
    """Probes side by side, one per entry of the leading axis."""

    def __init__(
        self, fits: int, positions: int, width: int, outputs: int, settings: AttentionPooling, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        hidden = () if settings.readout == "linear" else (settings.hidden,)
        sizes = (width, settings.projection, *hidden, outputs)
        self.scores = torch.nn.Parameter(torch.zeros(fits, positions))
        self.weights = torch.nn.ParameterList(
            torch.randn(fits, before, after, generator=generator) / math.sqrt(before)
            for before, after in pairwise(sizes)
        )
        self.biases = torch.nn.ParameterList(torch.zeros(fits, 1, after) for after in sizes[2:])  # W_v has none

    def forward(self, tokens: Float[Tensor, "fit prompt position D"]) -> Float[Tensor, "fit prompt output"]:
        # W_v is linear, so the mean of the projected tokens is the projection of their mean.
        out = torch.einsum("fp,fbpd->fbd", self.scores.softmax(-1), tokens) @ self.weights[0]
        for index, (weight, bias) in enumerate(zip(list(self.weights)[1:], self.biases, strict=True)):
            out = (torch.nn.functional.gelu(out) if index else out) @ weight + bias
        return out


def _trained(
    X: Float[Tensor, "fit prompt position D"],
    Y: Float[Tensor, "fit prompt output"],
    settings: AttentionPooling,
    seed: int,
) -> _Pooling:
    probe = _Pooling(len(X), X.shape[2], X.shape[3], Y.shape[2], settings, seed)
    optimizer = torch.optim.Adam(probe.parameters(), lr=settings.learning_rate)
    generator = torch.Generator().manual_seed(seed + 1)
    for _ in range(settings.steps):
        rows = torch.randint(0, X.shape[1], (settings.batch,), generator=generator)
        optimizer.zero_grad()
        (probe(X[:, rows]) - Y[:, rows]).square().sum(-1).mean(-1).sum().backward()
        optimizer.step()
    return probe
