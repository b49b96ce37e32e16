"""The rotation-equivariant maps G -> T - I, as functions and as gauge-free tensors.

If the inputs x are isotropic the task is invariant under rotations of x, and by Schur's lemma an equivariant layer is a
combination of a short list of maps. For tokens (x: d, y: 1) the complete list has seven: four blocks of G copied to the
same place (coefficients omega_xx, omega_xy, omega_yx, omega_yy; first index = destination) and three traces times the
identity. Heads whose P and Q are block-scalar reach exactly the four omegas; the traces need d heads or more.

Both kinds serve any sizes of x and y, so vector labels use the same list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import LayoutError
from interp.models.specification import Channel, ModelSpec

__all__ = ["BasisLayers", "BasisMap", "BlockMap", "Matrices", "TraceMap", "omega_maps", "trace_maps"]


Matrices = Float[Tensor, "prompt D D"]


@dataclass(frozen=True)
class BlockMap:
    """T[row, column] = G[row, column]: one block of the Gram matrix, kept in its place, and changed by ``within``.

    Like every basis map it is linear, G -> B(G).
    """

    name: str
    row: Channel
    column: Channel

    def within(self, block: Float[Tensor, "prompt row column"]) -> Float[Tensor, "prompt row column"]:
        """What becomes of the block, by a linear map that is its own adjoint."""
        return block

    def _block(self, matrix: Matrices) -> Float[Tensor, "prompt row column"]:
        return matrix[:, self.row.indices, self.column.indices]

    def add_update(self, total: Matrices, gram: Matrices, weight: float) -> None:
        """total += weight * B(gram), in place."""
        self._block(total).add_(self.within(self._block(gram)), alpha=weight)

    def contract(self, cotangent: Matrices, gram: Matrices) -> Float[Tensor, " prompt"]:
        """<cotangent, B(gram)> without forming B(gram)."""
        return (self._block(cotangent) * self.within(self._block(gram))).sum((-1, -2))

    def add_pullback(self, total: Matrices, cotangent: Matrices, weight: float) -> None:
        """total += weight * B^*(cotangent), the symmetric derivative of <cotangent, B(G)> with respect to G."""
        block = self.within(self._block(cotangent))
        self._block(total).add_(block, alpha=0.5 * weight)
        self._block(total.mT).add_(block, alpha=0.5 * weight)

    def entries(self) -> Int[Tensor, "entry 4"]:
        """Index rows (a, b, c, e): the update adds G[b, c] to T[a, e]."""
        a, e = torch.cartesian_prod(_range(self.row), _range(self.column)).unbind(-1)
        return torch.stack([a, a, e, e], -1)


@dataclass(frozen=True)
class TraceMap:
    """T[row, row] = tr(G[traced, traced]) I."""

    name: str
    row: Channel
    traced: Channel

    def add_update(self, total: Matrices, gram: Matrices, weight: float) -> None:
        _diagonal(total, self.row).add_(_diagonal(gram, self.traced).sum(-1, keepdim=True), alpha=weight)

    def contract(self, cotangent: Matrices, gram: Matrices) -> Float[Tensor, " prompt"]:
        return _diagonal(cotangent, self.row).sum(-1) * _diagonal(gram, self.traced).sum(-1)

    def add_pullback(self, total: Matrices, cotangent: Matrices, weight: float) -> None:
        TraceMap(self.name, self.traced, self.row).add_update(total, cotangent, weight)

    def entries(self) -> Int[Tensor, "entry 4"]:
        a, b = torch.cartesian_prod(_range(self.row), _range(self.traced)).unbind(-1)
        return torch.stack([a, b, b, a], -1)


BasisMap = BlockMap | TraceMap


def _range(channel: Channel) -> Int[Tensor, " index"]:
    return torch.arange(channel.start, channel.start + channel.size)


def _diagonal(matrix: Matrices, channel: Channel) -> Float[Tensor, "prompt row"]:
    return matrix.diagonal(dim1=-2, dim2=-1)[:, channel.indices]


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
    parts = dict(zip("xy", _input_and_label(spec), strict=True))
    return tuple(BlockMap(r + c, parts[r], parts[c]) for r in "xy" for c in "xy")


def trace_maps(spec: ModelSpec) -> tuple[TraceMap, ...]:
    """The trace maps, named destination:traced. Those that equal an omega (channels of size 1) are left out."""
    x, y = _input_and_label(spec)
    maps = [TraceMap("x:xx", x, x), TraceMap("x:yy", x, y), TraceMap("y:xx", y, x), TraceMap("y:yy", y, y)]
    return tuple(m for m in maps if m.row != m.traced or m.row.size > 1)


@dataclass(frozen=True, eq=False)
class BasisLayers:
    """Layers of a recovered algorithm: T - r I = s * sum_k coefficients[l, k] B_lk(G). ``maps`` are the same for all
    layers, or ``by_layer`` has those of each. See ``models.gram.LayerMaps``."""

    maps: tuple[BasisMap, ...]
    coefficients: Float[Tensor, "layer map"]
    scale: float
    residual: float
    by_layer: tuple[tuple[BasisMap, ...], ...] | None = None

    @property
    def layers(self) -> int:
        return self.coefficients.shape[0]

    def _weighted(self, layer: int) -> Iterator[tuple[BasisMap, float]]:
        maps = self.maps if self.by_layer is None else self.by_layer[layer]
        return zip(maps, (self.scale * self.coefficients[layer]).tolist(), strict=True)

    def update(self, layer: int, gram: Matrices) -> Matrices:
        total = torch.zeros_like(gram)
        for basis, weight in self._weighted(layer):
            basis.add_update(total, gram, weight)
        return total

    def pullback(self, layer: int, cotangent: Matrices) -> Matrices:
        total = torch.zeros_like(cotangent)
        for basis, weight in self._weighted(layer):
            basis.add_pullback(total, cotangent, weight)
        return total
