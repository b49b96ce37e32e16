"""A network of linear layers with causal keys: every token is read out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.algebra.linear_prompts import DIVERGED, FEWEST_KEPT
from interp.identify.networks.halves import Half, Network
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import Prompts, Task
from interp.models.token_pass import run, states
from interp.models.transformer import LinearTransformer

__all__ = ["CausalSequences", "SequenceHalf", "predict_in_chunks"]

CHUNK_NUMBERS = 2**24  # attention scores in memory at a time
LOSS_SEQUENCES = 2048  # at most


def sequences_at_a_time(heads: int, context: int, width: int) -> int:
    """Sequences that fit in memory at a time."""
    return max(1, CHUNK_NUMBERS // (heads * context * (context + 2 * width)))


@torch.no_grad()
def predict_in_chunks(
    spec: ModelSpec, Q: Tensor, P: Tensor, tokens: Float[Tensor, "sequence pos D"]
) -> Float[Tensor, "sequence pos dim"]:
    chunk = sequences_at_a_time(Q.shape[1], tokens.shape[1], Q.shape[-1])
    return torch.cat([run(spec, {"Q": Q, "P": P}, some) for some in tokens.split(chunk)])


def _finite(prediction: Float[Tensor, "sequence pos dim"]) -> Bool[Tensor, " sequence"]:
    return (prediction.abs() < DIVERGED).flatten(1).all(1)  # False for NaN too


@dataclass(frozen=True, eq=False)
class SequenceHalf(Half):
    tokens: Float[Tensor, "sequence pos D"]

    @classmethod
    def of(cls, model: LinearTransformer, drawn: Prompts) -> tuple[SequenceHalf, int]:
        """The sequences on which the network does not diverge, and how many others there are."""
        (tokens,) = drawn.inputs(model.spec)
        prediction = predict_in_chunks(model.spec, model.Q, model.P, tokens)
        finite = _finite(prediction)
        lost = int((~finite).sum())
        if lost:
            drawn, tokens, prediction = drawn[finite], tokens[finite], prediction[finite]
        held = model.spec.read(tokens) * float(model.spec.residual)
        if len(held):
            # What cancelling heads leave of nothing is rounding, and nothing is fitted to it.
            before = model.spec.read(tokens).abs().amax().clamp_min(1e-300)
            held = torch.where((prediction - held).abs() < 1e-13 * before, prediction, held)
        ones = torch.ones(len(tokens), dtype=prediction.dtype)
        return cls(drawn, prediction.flatten(1), held.flatten(1), ones, tokens), lost

    def __getitem__(self, index: slice) -> SequenceHalf:
        parts = (self.drawn, self.prediction, self.held, self.weight, self.tokens)
        return SequenceHalf(*(part[index] for part in parts))

    @property
    def outputs(self) -> Float[Tensor, "sequence pos dim"]:
        """The network's prediction of every token."""
        return self.prediction.view_as(self.drawn.target)

    def unexplained(self, prediction: Float[Tensor, "sequence pos dim"]) -> float:
        error = (prediction.flatten(1) - self.prediction).square().sum()
        spread = (self.added - self.added.mean(0)).square().sum()
        return float(error / spread) if float(spread) > 0 and bool(error.isfinite()) else float("inf")


class CausalSequences(Network[SequenceHalf]):
    """See ``Network``."""

    @classmethod
    def of(cls, model: LinearTransformer, task: Task, prompts: int, seeds: Sequence[int]) -> CausalSequences | Skipped:
        if model.spec.no_map is not None or model.spec.attention.keys != "causal":
            return Skipped("its layers are not linear with causal keys")
        telling, notes = task.telling(), []
        if telling != task:
            notes.append("identified on sequences with a fresh W each, where a W known by heart is of no use")
        (fitted, lost), (held_out, more) = (SequenceHalf.of(model, telling.sample(prompts // 2, s)) for s in seeds[:2])
        lost += more
        if lost > (1.0 - FEWEST_KEPT) * 2 * (prompts // 2):
            return Skipped(
                f"{lost} of {2 * (prompts // 2)} sequences diverge (beyond {DIVERGED:g}): the network cannot be run on "
                "its own task"
            )
        if lost:
            notes.append(f"{lost} sequences diverge (beyond {DIVERGED:g}); they are left out of every figure")
        return cls(model, task, fitted, held_out, tuple(notes))

    def usable(self, prompts: Prompts) -> Bool[Tensor, " prompt"]:
        """Those on which no token diverges."""
        model = self.model
        return _finite(predict_in_chunks(model.spec, model.Q, model.P, *prompts.inputs(model.spec)))

    @torch.no_grad()
    def readouts(self, prompts: Prompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
        (tokens,), spec = prompts.inputs(self.model.spec), self.model.spec
        passage = states(spec, dict(self.model.named()), tokens)
        read = {f"layer-{layer}": spec.read(value).flatten(1) for layer, value in enumerate(passage)}
        return {"network": read[f"layer-{self.model.layers}"], **read}

    def held(self, readouts: Mapping[str, Tensor]) -> Float[Tensor, "prompt output"]:
        return readouts["layer-0"] * float(self.model.spec.residual)

    def loss_prompts(self, prompts: int) -> int:
        return min(prompts, LOSS_SEQUENCES)

    @property
    def chunk(self) -> int:
        model = self.model
        return min(self.task.most_prompts, sequences_at_a_time(model.heads, self.task.context, model.spec.width))
