"""Networks replaced by block-scalar heads of fewer and fewer numbers, and by networks in between.

As published: the 16 block means of each product, 32 numbers per head, nothing fitted; halfway, the products of every
head averaged. The paper calls both almost lossless: ratios of losses of 1. Beside them the dearest of these numbers
alone, numbers fitted again, and the way from the network to its block means in steps.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from interp.algebra.channels import channel_size
from interp.evidence.sparse_heads import costs, dearest, refitted
from interp.families.block_scalar import FEW
from interp.families.channel_heads import free_numbers, live_channels
from interp.identify.networks import SequenceHalf
from interp.identify.run import Run
from interp.papers.mesa_networks import losses, means, mixed, ratio_row, subject_of
from interp.papers.paper import Progress
from interp.stats.averages import mean_with_error

__all__ = ["BAR", "COMPARED", "compression_rows", "network_rows"]

BAR = 1.05  # a compressed or interpolated network may have 5 % more than the loss of its own network
NETWORKS = ("lsa-1", "lsa-2", "lsa-4", "lsa-6", "lsa-6-key-40")
ALL = 32  # numbers of a head of four channels
FEWER = (16, 8, 4)
FITTED, COMPARED = 96, 1024  # sequences that numbers are fitted to, and that ratios are measured on
ALPHAS = (0.1, 0.25, 0.75, 0.9)  # beside the half and the whole


def compression_rows(seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Every network; ``ours`` is a ratio of losses, ``loss`` the loss itself."""
    rows = []
    for name in NETWORKS:
        subject = subject_of(name)
        if subject is not None:
            rows += network_rows(name, subject, COMPARED, seed, progress)
    return rows


def network_rows(name: str, run: Run, sequences: int, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Fitted and ranked on FITTED sequences, scored on ``sequences`` others."""
    model, spec, size = run.model, run.spec, channel_size(run.spec)
    fitted, _ = SequenceHalf.of(model, run.task.sample(FITTED, seed + 2))
    drawn = run.task.sample(sequences, seed + 1)
    whole, blocks = losses(spec, model.Q, model.P, drawn), means(model)
    heads = model.layers * model.heads
    rows = []

    def add(words: str, judged: bool, Q: Tensor, P: Tensor, **more: Any) -> None:
        replaced = losses(spec, Q, P, drawn)
        loss, _ = mean_with_error(replaced)
        bar = BAR if judged else None
        rows.append(ratio_row(f"{name}, {words}", replaced, whole, bar, network=name, loss=loss, **more))

    progress(f"{name}: block means, and halfway to them")
    add("compressed", True, *mixed(model, blocks, 1.0), kind="published", per_head=ALL, numbers=ALL * heads)
    add("interpolated", True, *mixed(model, blocks, 0.5), kind="interpolated", alpha=0.5)
    for alpha in ALPHAS:
        add(f"interpolated, alpha {alpha}", False, *mixed(model, blocks, alpha), kind="interpolated", alpha=alpha)
    progress(f"{name}: what its numbers cost")
    free = free_numbers(live_channels(spec, model.Q, model.P, fitted.tokens[:FEW], size), model.heads)
    ranking = costs(spec, blocks, free, fitted, seed)
    for count in FEWER:
        few, _ = dearest(blocks, ranking, count * heads)
        made = few.heads.weights(size)
        add(f"block means, {count} per head", False, *made, kind="published", per_head=count, numbers=few.numbers)
    for count, few in refitted(run, blocks, free, fitted, (ALL, *FEWER), seed):
        progress(f"{name}: {count} numbers per head fitted")
        made = few.heads.weights(size)
        add(f"refitted, {count} per head", False, *made, kind="refit", per_head=count, numbers=few.numbers)
    return rows
