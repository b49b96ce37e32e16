"""A layer kind in one file: inputs are centred on the mean of the examples. It is no linear map of one token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from interp.models.layers import Layer, Site, register_layer


@register_layer
@dataclass(frozen=True, kw_only=True)
class Centring(Layer):
    """x <- x - strength * mean of x over the context tokens; y stays."""

    name: ClassVar = "centring"
    words: ClassVar = "a centring layer"
    points: ClassVar = ("centring.hook_mean",)

    strength: float = 1.0

    def run(self, tokens: Tensor, site: Site) -> Tensor:
        x = site.channels["x"]
        mean = site.at("centring.hook_mean", tokens[:, : site.context, x].mean(1, keepdim=True))
        moved = torch.zeros_like(tokens)
        moved[..., x] = self.strength * mean
        return tokens - moved
