"""An affine map of every token to another size, before the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float

from interp.errors import LayoutError
from interp.models.layers.registry import Layer, Shape, Site, register_layer
from interp.models.numbers import is_count
from interp.models.tensors import Tensor

__all__ = ["Embedding"]


@register_layer
@dataclass(frozen=True, kw_only=True)
class Embedding(Layer):
    """e_i = W t_i + b in R^D, with D = ``size``. Tensors: "embedding.weight" (D, token), "embedding.bias" (D)."""

    name: ClassVar = "embedding"
    words: ClassVar = "an embedding"
    path: ClassVar = "embed"
    stage: ClassVar = "start"
    points: ClassVar = ("embed.hook_embed",)
    keeps_channels: ClassVar = False

    size: int

    def __post_init__(self) -> None:
        if not is_count(self.size):
            raise LayoutError(f"embedding is {self.size!r}, expected null or a width, a whole number of 1 or more")

    @classmethod
    def from_dict(cls, value: Any) -> Embedding:
        return cls(size=value)

    def to_dict(self) -> int:
        return self.size

    def stream(self, width: int) -> int:
        return self.size

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        return {"weight": (stream, width), "bias": (stream,)}

    def run(self, tokens: Float[Tensor, "batch pos token"], site: Site) -> Float[Tensor, "batch pos D"]:
        return site.at("embed.hook_embed", tokens @ site.weights["weight"].mT + site.weights["bias"])
