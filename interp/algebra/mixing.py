"""Layers between two networks, in the products of their weights.

A layer is linear in its weight tensor K, so (1 - t) K_one + t K_other makes the update (1 - t) times the one's plus t
times the other's, whatever the heads of either look like. With t = 0 or 1 layer by layer, single layers are swapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from interp.algebra.basis import Matrices
from interp.models.gram import LayerMaps

__all__ = ["IdleLayers", "MixedLayers", "swapped"]


@dataclass(frozen=True, eq=False)
class IdleLayers:
    """Layers that do nothing: T = r I."""

    layers: int
    residual: float
    scale: float = 1.0

    def update(self, layer: int, gram: Matrices) -> Matrices:
        return torch.zeros_like(gram)

    def pullback(self, layer: int, cotangent: Matrices) -> Matrices:
        return torch.zeros_like(cotangent)


@dataclass(frozen=True, eq=False)
class MixedLayers:
    """Layer l is (1 - shares[l]) of ``one`` and shares[l] of ``other``; a layer that is wholly one of them is exactly
    that."""

    one: LayerMaps
    other: LayerMaps
    shares: tuple[float, ...]

    @property
    def residual(self) -> float:
        return self.one.residual

    @property
    def scale(self) -> float:
        return self.one.scale

    @property
    def layers(self) -> int:
        return self.one.layers

    def _mixed(self, layer: int, value: Callable[[LayerMaps], Matrices]) -> Matrices:
        share = self.shares[layer]
        if share in (0.0, 1.0):
            return value(self.other if share else self.one)
        return torch.lerp(value(self.one), value(self.other), share)

    def update(self, layer: int, gram: Matrices) -> Matrices:
        return self._mixed(layer, lambda layers: layers.update(layer, gram))

    def pullback(self, layer: int, cotangent: Matrices) -> Matrices:
        return self._mixed(layer, lambda layers: layers.pullback(layer, cotangent))


def swapped(network: LayerMaps, other: LayerMaps, layer: int) -> MixedLayers:
    """The network with one layer taken from elsewhere."""
    return MixedLayers(network, other, tuple(float(index == layer) for index in range(network.layers)))
