"""The read-out: a channel of the query's token, or a linear function of all tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from einops import einsum
from jaxtyping import Float

from interp.errors import LayoutError, UsageError, did_you_mean
from interp.models.layers.registry import Layer, Shape, Site, read_table, register_layer
from interp.models.skipped import Skipped
from interp.models.tensors import Tensor

__all__ = ["Readout"]


@register_layer
@dataclass(frozen=True, kw_only=True)
class Readout(Layer):
    """The prediction is ``sign`` times ``channel`` of the query token(s); for causal models, of every token.

    ``flat``: it is ``sign`` times a linear function of all tokens, sum_i <w_i, e_i> + b with the tensors
    "readout.weight" (n + 1, D) and "readout.bias" (1); ``channel`` then says what is predicted.
    """

    name: ClassVar = "readout"
    words: ClassVar = "a flat read-out"
    path: ClassVar = "unembed"
    stage: ClassVar = "end"

    channel: str = "y"
    sign: int = -1
    flat: bool = False

    def __post_init__(self) -> None:
        if self.sign not in (-1, 1) or isinstance(self.sign, bool):
            raise LayoutError(f"readout.sign is {self.sign!r}, expected 1 or -1")

    @classmethod
    def from_dict(cls, value: Any) -> Readout:
        fields = read_table(value, cls.name, ("channel", "sign", "flat"))
        if not isinstance(fields.get("flat", False), bool):
            raise LayoutError(f"readout.flat is {fields['flat']!r}, expected true or false")
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        return {"channel": self.channel, "sign": self.sign} | ({"flat": True} if self.flat else {})

    def fits(self, channels: Collection[str], layers: Mapping[str, Layer]) -> None:
        if self.channel not in channels:
            raise LayoutError(f"readout.channel is {self.channel!r}; {did_you_mean(str(self.channel), channels)}")
        if not self.flat and not all(layer.keeps_channels for layer in layers.values()):
            raise LayoutError(
                "the tokens are embedded but readout.flat is false, expected true: embedded tokens have no channel "
                f"{self.channel!r} to read out"
            )
        if self.flat and getattr(layers["attention"], "keys", None) == "causal":
            raise LayoutError("readout.flat is true and attention.keys 'causal', expected keys 'context' or 'all'")

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        return {"weight": (None, stream), "bias": (1,)} if self.flat else {}

    def run(self, tokens: Float[Tensor, "batch pos D"], site: Site) -> Float[Tensor, "batch query output"]:
        if not self.flat:
            return self.sign * tokens[:, site.scored, site.channels[self.channel]]
        weight = site.weights["weight"]
        if tokens.shape[1] != len(weight):
            raise UsageError(
                f"got prompts of {tokens.shape[1]} tokens, but the flat read-out has weights for {len(weight)}; "
                f"expected {len(weight) - 1} context tokens and one query"
            )
        return self.sign * (einsum(tokens, weight, "b i a, i a -> b") + site.weights["bias"])[:, None, None]

    @property
    def no_map(self) -> Skipped | None:
        return super().no_map if self.flat else None
