"""Block-scalar heads of few numbers: those that cost least to do without go first, what is left is fitted again.

The cost of a number is what the squared difference to the network's predictions gains without it, to second order
(``interp.families.channel_heads.uncertainty``). Where the network is trained that is what the loss gains: there the
loss has no slope, and both have the same curvature. Von Oswald et al. (arXiv 2309.05858) keep the 16 numbers of every
product of a head, 32 per head, and fit nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from interp.families.channel_heads import BlockHeads, Free, Uncertainty, refit_heads, uncertainty
from interp.identify.networks import SequenceHalf
from interp.identify.run import Run
from interp.models.specification import ModelSpec

__all__ = ["Sparse", "costs", "dearest", "refitted"]

RANKED = 64  # sequences behind the costs


@dataclass(frozen=True, eq=False)
class Sparse:
    """``numbers`` of the heads may differ from 0."""

    heads: BlockHeads
    numbers: int


def costs(spec: ModelSpec, heads: BlockHeads, free: Free, half: SequenceHalf, seed: int) -> Uncertainty:
    """What every number costs."""
    return uncertainty(spec, heads, free, half.tokens[:RANKED], half.outputs[:RANKED], seed)


def dearest(heads: BlockHeads, known: Uncertainty, count: int) -> tuple[Sparse, Free]:
    """The ``count`` numbers of all heads that cost most, the others 0, and which they are."""
    sizes = torch.cat([known.cost_q.flatten(), known.cost_p.flatten()])
    mask = torch.zeros_like(sizes, dtype=torch.bool)
    mask[sizes.topk(min(count, len(sizes))).indices] = True
    mask &= sizes > 0  # what has no say costs nothing
    q, p = (part.view_as(heads.q) for part in mask.chunk(2))
    return Sparse(BlockHeads(heads.q * q, heads.p * p), int(mask.sum())), (q, p)


def refitted(
    run: Run, heads: BlockHeads, free: Free, half: SequenceHalf, per_head: Sequence[int], seed: int
) -> Iterator[tuple[int, Sparse]]:
    """``heads`` with so many numbers per head, in descending order and on average over all heads: each fitted to the
    network's predictions on ``half``, starting from the one before without its cheapest numbers."""
    now = Sparse(heads, int(free[0].sum() + free[1].sum()))
    for size in per_head:
        count = size * run.model.layers * run.model.heads
        if count < now.numbers:
            now, free = dearest(now.heads, costs(run.spec, now.heads, free, half, seed), count)
        now = Sparse(refit_heads(run.spec, now.heads, free, half.tokens, half.outputs, seed), now.numbers)
        yield size, now
