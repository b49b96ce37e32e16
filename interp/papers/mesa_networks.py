"""The networks that ship, and their losses with any products Q and P in the place of their own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from interp.algebra.channels import block_means, channel_size
from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.families.channel_heads import BlockHeads
from interp.identify.networks.causal_sequences import predict_in_chunks
from interp.identify.run import FEWEST_PROMPTS, Run
from interp.models.specification import ModelSpec
from interp.models.tasks import DynamicsPrompts
from interp.models.transformer import LinearTransformer
from interp.papers.comparison import row
from interp.stats.averages import ratio_with_error

__all__ = ["MISSING", "half_errors", "losses", "means", "mixed", "ratio_row", "subject_of"]

MISSING = "skipped, because no such model ships yet"


def subject_of(name: str) -> Run | None:
    """A shipped network, if it ships."""
    return Run.of(open_checkpoint(f"zoo:{name}"), FEWEST_PROMPTS) if name in zoo_names() else None


def half_errors(prediction: Tensor, drawn: DynamicsPrompts) -> Tensor:
    """Half the squared error of every sequence, summed over coordinates, mean over positions."""
    return 0.5 * (prediction - drawn.target).square().sum(-1).mean(1)


def losses(spec: ModelSpec, Q: Tensor, P: Tensor, drawn: DynamicsPrompts) -> Tensor:
    """Half the squared error of every sequence with these products."""
    return half_errors(predict_in_chunks(spec, Q, P, drawn.inputs(spec)[0]), drawn)


def means(model: LinearTransformer) -> BlockHeads:
    """Its block means."""
    size = channel_size(model.spec)
    return BlockHeads(block_means(model.Q, size), block_means(model.P, size))


def mixed(model: LinearTransformer, heads: BlockHeads, alpha: float) -> tuple[Tensor, Tensor]:
    """(1 - alpha) network + alpha heads, in the products Q and P of every head."""
    Q, P = heads.weights(channel_size(model.spec))
    return (1.0 - alpha) * model.Q + alpha * Q, (1.0 - alpha) * model.P + alpha * P


def ratio_row(cell: str, replaced: Tensor, whole: Tensor, bar: float | None, **more: Any) -> dict[str, Any]:
    """The losses with something in the network's place, as a multiple of its own, which is the paper's figure where
    there is a bar."""
    ratio, stderr = ratio_with_error(replaced, whole)
    return row(cell, None if bar is None else 1.0, ratio, stderr, bar, **more)
