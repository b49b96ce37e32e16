"""What a network of simple regression makes of prompts, layer by layer, with every part that is added up."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.models.tasks import Prompts
from interp.models.token_pass import Record, predict
from interp.models.transformer import LinearTransformer

__all__ = ["LayerPassage", "Passage", "passage_of"]


@dataclass(frozen=True, eq=False)
class LayerPassage:
    """One layer: the tokens before it, what each head adds, their sum z with the tokens, and the tokens after it."""

    before: Float[Tensor, "prompt token D"]
    parts: Float[Tensor, "head prompt token D"]
    mid: Float[Tensor, "prompt token D"]
    after: Float[Tensor, "prompt token D"]

    @property
    def scale(self) -> Float[Tensor, "prompt token"]:
        """The standard deviation over the entries of z, that LayerNorm divides by (without eps)."""
        return self.mid.std(-1, correction=0)


@dataclass(frozen=True, eq=False)
class Passage:
    layers: tuple[LayerPassage, ...]
    prediction: Float[Tensor, " prompt"]


def passage_of(model: LinearTransformer, prompts: Prompts) -> Passage:
    """The token-by-token pass, recorded."""
    record = Record("hook_resid_pre", "attn.hook_head_out", "hook_resid_post")
    prediction = predict(model, *prompts.inputs(model.spec), at=record)[:, 0, 0]
    layers = []
    for layer in range(model.layers):
        before, parts, after = (record[f"blocks.{layer}.{name}"] for name in record.wanted)
        mid = parts.sum(1) + (before if model.spec.residual else 0.0)
        layers.append(LayerPassage(before=before, parts=parts.transpose(0, 1), mid=mid, after=after))
    return Passage(layers=tuple(layers), prediction=prediction)
