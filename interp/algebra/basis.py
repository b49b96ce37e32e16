"""The rotation-equivariant maps G -> T - I, as functions and as gauge-free tensors.

If the inputs x are isotropic the task is invariant under rotations of x, and by Schur's lemma an equivariant layer is a
combination of a short list of maps. For tokens (x: d, y: 1) the complete list has seven: four blocks of G copied to the
same place (coefficients omega_xx, omega_xy, omega_yx, omega_yy; first index = destination) and three traces times the
identity. Heads whose P and Q are block-scalar reach exactly the four omegas; the traces need d heads or more.

Both kinds serve any sizes of x and y, so vector labels use the same list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import LayoutError
from interp.models.specification import Channel, ModelSpec

__all__ = ["BasisLayers", "BasisMap", "BlockMap", "LayerwiseBasis", "TraceMap", "omega_maps", "trace_maps"]


@runtime_checkable
class BasisMap(Protocol):
    """A linear map from Gram matrices to updates."""

    @property
    def name(self) -> str: ...

    def add_update(self, total: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"], weight: float) -> None:
        """total += weight * B(gram), in place."""
        ...

    def contract(
        self, cotangent: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"]
    ) -> Float[Tensor, " prompt"]:
        """<cotangent, B(gram)> without forming B(gram)."""
        ...

    def add_pullback(
        self, total: Float[Tensor, "prompt D D"], cotangent: Float[Tensor, "prompt D D"], weight: float
    ) -> None:
        """total += weight * B^*(cotangent), the symmetric derivative of <cotangent, B(G)> with respect to G."""
        ...

    def entries(self) -> Int[Tensor, "entry 4"]:
        """Index rows (a, b, c, e): the update adds G[b, c] to T[a, e]."""
        ...


@dataclass(frozen=True)
class BlockMap:
    """T[row, column] = G[row, column]: one block of the Gram matrix, kept in its place."""

    name: str
    row: Channel
    column: Channel

    def add_update(self, total: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"], weight: float) -> None:
        block = (slice(None), self.row.indices, self.column.indices)
        total[block].add_(gram[block], alpha=weight)

    def contract(
        self, cotangent: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"]
    ) -> Float[Tensor, " prompt"]:
        block = (slice(None), self.row.indices, self.column.indices)
        return (cotangent[block] * gram[block]).sum((-1, -2))

    def add_pullback(
        self, total: Float[Tensor, "prompt D D"], cotangent: Float[Tensor, "prompt D D"], weight: float
    ) -> None:
        block = cotangent[:, self.row.indices, self.column.indices]
        total[:, self.row.indices, self.column.indices].add_(block, alpha=0.5 * weight)
        total[:, self.column.indices, self.row.indices].add_(block.mT, alpha=0.5 * weight)

    def entries(self) -> Int[Tensor, "entry 4"]:
        a, e = torch.cartesian_prod(_range(self.row), _range(self.column)).unbind(-1)
        return torch.stack([a, a, e, e], -1)


@dataclass(frozen=True)
class TraceMap:
    """T[row, row] = tr(G[traced, traced]) I."""

    name: str
    row: Channel
    traced: Channel

    def add_update(self, total: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"], weight: float) -> None:
        diagonal = total.diagonal(dim1=-2, dim2=-1)[:, self.row.indices]
        diagonal.add_(_trace(gram, self.traced)[:, None], alpha=weight)

    def contract(
        self, cotangent: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"]
    ) -> Float[Tensor, " prompt"]:
        return _trace(cotangent, self.row) * _trace(gram, self.traced)

    def add_pullback(
        self, total: Float[Tensor, "prompt D D"], cotangent: Float[Tensor, "prompt D D"], weight: float
    ) -> None:
        TraceMap(self.name, self.traced, self.row).add_update(total, cotangent, weight)

    def entries(self) -> Int[Tensor, "entry 4"]:
        a, b = torch.cartesian_prod(_range(self.row), _range(self.traced)).unbind(-1)
        return torch.stack([a, b, b, a], -1)


def _range(channel: Channel) -> Int[Tensor, " index"]:
    return torch.arange(channel.start, channel.start + channel.size)


def _trace(matrix: Float[Tensor, "prompt D D"], channel: Channel) -> Float[Tensor, " prompt"]:
    return matrix.diagonal(dim1=-2, dim2=-1)[:, channel.indices].sum(-1)


def _input_and_label(spec: ModelSpec) -> tuple[Channel, Channel]:
    label = spec.channel(spec.readout.channel)
    inputs = [c for c in spec.channels if c != label]
    if len(inputs) != 1:
        raise LayoutError(
            f"the tokens have channels {dict(spec.tokens)}; the omega families need exactly one input channel beside "
            f"the label {label.name!r}"
        )
    return inputs[0], label


def omega_maps(spec: ModelSpec) -> tuple[BlockMap, ...]:
    """The block-scalar maps xx (Sigma), xy (alpha), yx (alpha^T), yy (lambda)."""
    x, y = _input_and_label(spec)
    return tuple(
        BlockMap(r + c, {"x": x, "y": y}[r], {"x": x, "y": y}[c])
        for r, c in (("x", "x"), ("x", "y"), ("y", "x"), ("y", "y"))
    )


def trace_maps(spec: ModelSpec) -> tuple[TraceMap, ...]:
    """The trace maps, named destination:traced. Those that equal an omega (channels of size 1) are left out."""
    x, y = _input_and_label(spec)
    maps = [TraceMap("x:xx", x, x), TraceMap("x:yy", x, y), TraceMap("y:xx", y, x), TraceMap("y:yy", y, y)]
    return tuple(m for m in maps if m.row != m.traced or m.row.size > 1)


@dataclass(frozen=True, eq=False)
class BasisLayers:
    """Layers of a recovered algorithm: T - r I = s * sum_k coefficients[l, k] B_k(G). See ``models.gram.LayerMaps``."""

    maps: tuple[BasisMap, ...]
    coefficients: Float[Tensor, "layer map"]
    scale: float
    residual: float

    @property
    def layers(self) -> int:
        return self.coefficients.shape[0]

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        total = torch.zeros_like(gram)
        for value, basis in zip(self.coefficients[layer], self.maps, strict=True):
            basis.add_update(total, gram, self.scale * float(value))
        return total

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        total = torch.zeros_like(cotangent)
        for value, basis in zip(self.coefficients[layer], self.maps, strict=True):
            basis.add_pullback(total, cotangent, self.scale * float(value))
        return total


@dataclass(frozen=True, eq=False)
class LayerwiseBasis:
    """The same where every layer has maps of its own."""

    maps: tuple[tuple[BasisMap, ...], ...]
    coefficients: Float[Tensor, "layer map"]
    scale: float
    residual: float

    @property
    def layers(self) -> int:
        return self.coefficients.shape[0]

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        return self._alone(layer).update(0, gram)

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        return self._alone(layer).pullback(0, cotangent)

    def _alone(self, layer: int) -> BasisLayers:
        return BasisLayers(self.maps[layer], self.coefficients[layer : layer + 1], self.scale, self.residual)
