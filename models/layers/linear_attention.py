"""Linear attention: its fields, its token-by-token form, and its linear map of a prompt.

    update_i = s * sum_h sum_{j in J(i)} (e_i^T Q_h e_j) P_h e_j ,    Q_h = W_Q^T W_K ,  P_h = W_O W_V               (1)

Where all tokens see the same keys, with G = sum_j e_j e_j^T, that is a linear map of e_i: s * sum_h P_h G Q_h^T e_i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from einops import rearrange
from jaxtyping import Float

from interp.errors import LayoutError, UsageError, did_you_mean
from interp.models.layers.registry import Layer, Shape, Site, register_layer
from interp.models.numbers import is_number
from interp.models.tensors import Tensor

__all__ = ["SCALES", "AttentionSpec", "HeadLayers", "Keys"]

Keys = Literal["context", "causal", "all"]
SCALES = ("1", "1/n", "1/(n+1)")


@register_layer
@dataclass(frozen=True, kw_only=True)
class AttentionSpec(Layer):
    """Which tokens are attended to, and the factor s in front of the sum. Tensors: "Q" and "P", (layer, head, D, D)."""

    name: ClassVar = "attention"
    words: ClassVar = "linear attention"
    path: ClassVar = "attn"
    points: ClassVar = ("attn.hook_scores", "attn.hook_head_out", "hook_attn_out")

    keys: Keys = "context"
    scale: str | float | int = "1"

    def __post_init__(self) -> None:
        if self.keys not in get_args(Keys):
            raise LayoutError(
                f"attention.keys is {self.keys!r}, expected one of {', '.join(get_args(Keys))}; "
                f"{did_you_mean(str(self.keys), get_args(Keys))}"
            )
        if self.scale not in SCALES and not is_number(self.scale):
            raise LayoutError(
                f"attention.scale is {self.scale!r}, expected {', '.join(map(repr, SCALES))} or a finite number"
            )

    def factor(self, context: int) -> float:
        """The scale s for a prompt of ``context`` context tokens."""
        if isinstance(self.scale, str):
            return {"1": 1.0, "1/n": 1.0 / context, "1/(n+1)": 1.0 / (context + 1)}[self.scale]
        return float(self.scale)

    @property
    def no_map(self) -> None:
        return None

    @classmethod
    def key(cls, tensor: str) -> str:
        return tensor

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        return {"Q": (None, stream, stream), "P": (None, stream, stream)}

    def run(self, tokens: Float[Tensor, "batch pos D"], site: Site) -> Float[Tensor, "batch pos D"]:
        """Batched matrix products over all heads at once; scores are 0 for j > i where keys are "causal"."""
        Q, P = site.weights["Q"], site.weights["P"]
        keys = tokens[:, : site.context] if self.keys == "context" else tokens
        read = tokens @ rearrange(Q, "head dest source -> dest (head source)")
        written = keys @ rearrange(P, "head out source -> source (head out)")
        scores = rearrange(read, "batch pos (head D) -> batch (head pos) D", head=len(Q)) @ keys.mT
        scores = rearrange(scores, "batch (head dest) source -> batch head dest source", head=len(Q))
        scores = site.at("attn.hook_scores", scores.tril() if self.keys == "causal" else scores)
        values = rearrange(written, "batch source (head D) -> batch head source D", head=len(Q))
        parts = site.at("attn.hook_head_out", self.factor(site.context) * (scores @ values))
        update = site.at("hook_attn_out", parts.sum(1))
        return tokens + update if site.residual else update

    def maps(
        self, Q: Float[Tensor, "layer head D D"], P: Float[Tensor, "layer head D D"], context: int, residual: bool
    ) -> HeadLayers:
        """The linear maps of a prompt. Raises UsageError for causal keys, with which every token has its own map."""
        if self.keys == "causal":
            raise UsageError(
                "attention.keys is 'causal', expected 'context' or 'all': with causal keys tokens share no Gram matrix"
            )
        return HeadLayers(P=P, Q=Q, scale=self.factor(context), residual=1.0 if residual else 0.0)


@dataclass(frozen=True, eq=False)
class HeadLayers:
    """The layers of a network: T - r I = s * sum_h P_h G Q_h^T. A ``LayerMaps``."""

    P: Float[Tensor, "layer head D D"]
    Q: Float[Tensor, "layer head D D"]
    scale: float
    residual: float

    @property
    def layers(self) -> int:
        return self.P.shape[0]

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        heads = zip(self.P[layer], self.Q[layer], strict=True)
        return self.scale * sum((P @ gram @ Q.T for P, Q in heads), start=gram.new_zeros(()))

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        heads = zip(self.P[layer], self.Q[layer], strict=True)
        total = sum((P.T @ cotangent @ Q for P, Q in heads), start=cotangent.new_zeros(()))
        return 0.5 * self.scale * (total + total.mT)
