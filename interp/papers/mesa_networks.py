"""The networks that ship, and their losses with any products Q and P in the place of their own."""

from __future__ import annotations

from torch import Tensor

from interp.algebra.channels import block_means
from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.families.channel_heads import BlockHeads
from interp.identify.sequence_identification import Subject, chunk_of, open_causal, predict_in_chunks
from interp.models.tasks import DynamicsPrompts

__all__ = ["MISSING", "half_errors", "losses", "means", "mixed", "subject_of"]

MISSING = "skipped, because no such model ships yet"
FEWEST = 64


def subject_of(name: str) -> Subject | None:
    """A shipped network, if it ships."""
    return open_causal(open_checkpoint(f"zoo:{name}"), FEWEST) if name in zoo_names() else None


def half_errors(prediction: Tensor, drawn: DynamicsPrompts) -> Tensor:
    """Half the squared error of every sequence, summed over coordinates, mean over positions."""
    return 0.5 * (prediction - drawn.target).square().sum(-1).mean(1)


def losses(subject: Subject, Q: Tensor, P: Tensor, drawn: DynamicsPrompts) -> Tensor:
    """Half the squared error of every sequence with these products."""
    tokens, chunk = drawn.inputs(subject.spec)[0], chunk_of(subject.model, drawn.context)
    return half_errors(predict_in_chunks(subject.spec, Q, P, tokens, chunk), drawn)


def means(subject: Subject) -> BlockHeads:
    """Its block means."""
    return BlockHeads(block_means(subject.model.Q, subject.size), block_means(subject.model.P, subject.size))


def mixed(subject: Subject, heads: BlockHeads, alpha: float) -> tuple[Tensor, Tensor]:
    """(1 - alpha) network + alpha heads, in the products Q and P of every head."""
    model = subject.model
    Q, P = heads.weights(subject.size)
    return (1.0 - alpha) * model.Q + alpha * Q, (1.0 - alpha) * model.P + alpha * P
