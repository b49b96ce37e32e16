"""The numbers of the omega families, as layers that are linear in them, layer by layer. The families, smallest first:

    gd                  y <- y + omega_yx <alpha, x>                     one gradient step per layer (von Oswald 2022)
    gd++                + x <- x + omega_xx Sigma x                      conditions the inputs too (versatile.md A5)
    diag                + omega_xy, omega_yy                             all block-scalar heads (versatile.md A4)
    equivariant         + the trace terms                                every rotation-equivariant layer
    preconditioned-gd   y <- y + <alpha, Omega x>, Omega a d x d matrix  the answer to anisotropic inputs (Ahn et al.
    2023)

with Sigma = G_xx, alpha = G_xy, lambda = G_yy of the layer's own tokens. Coefficients are those of the gauge-free
tensor K, so the factor s of the attention is not part of them; the first index is the destination.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import BasisLayers, BasisMap, Matrices, omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, project
from interp.algebra.structure import MachineMap, Sketch, sketch_maps
from interp.identify.estimates import count
from interp.models.gram import HeadLayers, LayerMaps
from interp.models.specification import ModelSpec

__all__ = ["BasisParametrisation", "MatrixParametrisation", "SketchedParametrisation"]


@dataclass(frozen=True, eq=False)
class BasisParametrisation:
    """Any subset of the equivariant maps; ``live[l][k]`` says which have a say in layer l."""

    maps: tuple[BasisMap, ...]
    live: tuple[tuple[bool, ...], ...]
    scale: float
    residual: float

    by_layer: tuple[tuple[BasisMap, ...], ...] | None = None  # where layers have maps of their own, not ``maps``

    @classmethod
    def on(
        cls, maps: tuple[BasisMap, ...], spec: ModelSpec, live: LiveCoordinates, scale: float
    ) -> BasisParametrisation:
        alive = tuple(tuple(live.of(m, layer) for m in maps) for layer in range(len(live.maps)))
        return cls(maps, alive, scale, float(spec.residual))

    @classmethod
    def of(cls, names: Collection[str], spec: ModelSpec, live: LiveCoordinates, scale: float) -> BasisParametrisation:
        """The maps of these names: omegas "xx", "xy", "yx", "yy", and "traces" for all trace maps."""
        chosen: tuple[BasisMap, ...] = tuple(m for m in omega_maps(spec) if m.name in names)
        return cls.on(chosen + (trace_maps(spec) if "traces" in names else ()), spec, live, scale)

    @property
    def places(self) -> tuple[Sequence[int], ...]:
        ends = list(itertools.accumulate((sum(row) for row in self.live), initial=0))
        return tuple(range(*pair) for pair in itertools.pairwise(ends))

    @cached_property
    def index(self) -> Tensor:
        """Of every live coefficient of the table, row by row, its place in theta."""
        return torch.tensor([k for places in self.places for k in places], dtype=torch.long)

    def scaled(self, scale: float) -> BasisParametrisation:
        return replace(self, scale=scale)

    @property
    def machine_masks(self) -> tuple[Float[Tensor, "x x"], ...]:
        """1 for two positions in x on one machine, else 0; one mask for every map that is confined to machines."""
        return tuple(m.mask for m in self.maps if isinstance(m, MachineMap))

    @property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """The positions in x that each machine holds; none where x is not split."""
        return tuple(sorted({tuple(torch.nonzero(row).flatten().tolist()) for m in self.machine_masks for row in m}))

    @cached_property
    def mask(self) -> Tensor:
        return torch.tensor(self.live)

    def design(self, layer: int, gamma: Matrices, gram: Matrices) -> Float[Tensor, "prompt parameter"]:
        maps = self.maps if self.by_layer is None else self.by_layer[layer]
        columns = [m.contract(gamma, gram) for m, alive in zip(maps, self.live[layer], strict=True) if alive]
        return self.scale * torch.stack(columns, -1) if columns else gamma.new_zeros(gamma.shape[0], 0)

    def table(self, theta: Float[Tensor, " parameter"]) -> Float[Tensor, "layer map"]:
        """Parameters as a layer x map table, 0 where a coefficient is dead."""
        out = torch.zeros(self.mask.shape, dtype=torch.float64)
        out[self.mask] = theta[self.index]
        return out

    def flatten(self, table: Float[Tensor, "layer map"]) -> Float[Tensor, " parameter"]:
        """The parameters of a table, means where coefficients share one."""
        total, shares = table.new_zeros(2, count(self))
        total.index_add_(0, self.index, table[self.mask])
        return total / shares.index_add(0, self.index, torch.ones_like(table[self.mask]))

    def beyond(
        self, maps: Sequence[BasisMap], table: Float[Tensor, "layer map"], errors: Float[Tensor, "layer map"]
    ) -> Float[Tensor, "layer map"]:
        """What of a table of coefficients of ``maps``, these among them, is not of this form: those of other maps, and
        where coefficients share a parameter what is apart from their mean, weighted by 1 / errors^2."""
        names, weight = [m.name for m in maps], errors.clamp_min(1e-100) ** -2
        own = [names.index(m.name) for m in self.maps]
        mean = self.flatten((weight * table)[:, own]) / self.flatten(weight[:, own])
        out = table.clone()
        out[:, own] -= self.table(mean)
        return out

    def by_weights(self, layers: HeadLayers, live: LiveCoordinates) -> Float[Tensor, " parameter"]:
        """The projection of the weights of ``layers`` on the maps."""
        rows = [
            project(layers.P[layer], layers.Q[layer], self.maps, live, layer).coefficients
            for layer in range(layers.layers)
        ]
        return self.flatten(torch.stack(rows))

    def build(self, theta: Float[Tensor, " parameter"]) -> LayerMaps:
        return BasisLayers(self.maps, self.table(theta), self.scale, self.residual, self.by_layer)


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedParametrisation(BasisParametrisation):
    """gd++ that reads one subspace of x and writes another, which change from layer to layer; ``maps`` are those of the
    first layer."""

    sketch: Sketch

    @classmethod
    def on_sketch(cls, sketch: Sketch, spec: ModelSpec, live: LiveCoordinates, scale: float) -> SketchedParametrisation:
        by_layer = sketch_maps(spec, sketch)
        alive = tuple(tuple(live.of(m, i) for m in maps) for i, maps in enumerate(by_layer))
        return cls(by_layer[0], alive, scale, float(spec.residual), by_layer, sketch=sketch)


@dataclass(frozen=True, eq=False)
class MatrixParametrisation:
    """y <- y + <alpha, Omega_l x> with a free matrix per layer; theta is Omega flattened, layer by layer."""

    inputs: Sequence[int]
    label: int
    width: int
    layers: int
    scale: float
    residual: float

    @property
    def places(self) -> tuple[Sequence[int], ...]:
        size = len(self.inputs) ** 2
        return tuple(range(size * layer, size * (layer + 1)) for layer in range(self.layers))

    def scaled(self, scale: float) -> MatrixParametrisation:
        return replace(self, scale=scale)

    def design(self, layer: int, gamma: Matrices, gram: Matrices) -> Float[Tensor, "prompt parameter"]:
        # T[y, e] = s * sum_c Omega[c, e] G[y, c]
        x = list(self.inputs)
        return self.scale * (gram[:, self.label, x][:, :, None] * gamma[:, self.label, x][:, None, :]).flatten(1)

    def build(self, theta: Float[Tensor, " parameter"]) -> LayerMaps:
        d = len(self.inputs)
        index = torch.tensor(list(self.inputs))
        Q = torch.zeros(self.layers, 1, self.width, self.width, dtype=theta.dtype)
        Q[:, 0, index[:, None], index[None, :]] = theta.reshape(self.layers, d, d).mT
        P = torch.zeros_like(Q)
        P[..., self.label, self.label] = 1.0
        return HeadLayers(P=P, Q=Q, scale=self.scale, residual=self.residual)
