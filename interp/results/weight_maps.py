"""What the weight explorer shows: the result of ``interp.weight_maps.explore``, for reports and the command line.

Arrays are numpy, in the file's own precision for Q and P and float64 for what is computed from them. Nothing here
knows of models; NaN means "there is no such number", except in Q and P, where it is what the file holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from interp.results.document import CheckpointInfo
from interp.results.plain_data import to_plain

__all__ = ["LAYER_MAPS", "MATRICES", "CheckpointMaps", "Gauge", "MapCoefficient", "WeightMaps"]

MATRICES = ("Q", "P")
LAYER_MAPS = ("copy", "trace", "left")
SHARES = ("block_scalar", "trace", "residual")


@dataclass(frozen=True, kw_only=True)
class MapCoefficient:
    """One gauge-free coefficient of a layer: the block (key row, key column) of the Gram matrix that it multiplies, and
    the block (row, column) of T - I that it is added to, all as channel indices. ``trace``: the trace of the block."""

    name: str  # "omega_xx", "tau_x:yy", or for tokens of many channels "omega_x<-x,y.y"
    row: int
    key_row: int
    key_column: int
    column: int
    trace: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Gauge:
    """Another way to write the same network: head h of it is ``factor`` P and Q / ``factor`` of the file's head
    ``order``."""

    order: Int[np.ndarray, "layer head"]
    factor: Float[np.ndarray, "layer head"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckpointMaps:
    """One checkpoint.

    ``maps``, layer by layer, free of gauge (K_l of ``interp.algebra.gauge``, T the layer's map, G the Gram matrix):
    copy[a, e] = d T[a, e] / d G[a, e], trace[a, b] = d T[a, a] / d G[b, b], and left[a, e], the size (root of the sum
    of squares over b, c) of what K[a, b, c, e] holds beside the ``coefficients``. Without the factor s in front.
    """

    info: CheckpointInfo
    step: int | None  # of training, from the file's provenance or its name
    weights_sha256: str  # of Q and P as float64: equal weights, whatever the file
    same_as: int | None  # the earlier checkpoint with the same weights
    Q: NDArray[np.floating[Any]]  # layer head row column
    P: NDArray[np.floating[Any]]
    maps: Mapping[str, Float[np.ndarray, "layer row column"]]
    scalars: Mapping[str, Float[np.ndarray, "layer head channel channel"]]  # of Q and P: trace / size; NaN: no identity
    spectra: Mapping[str, Float[np.ndarray, "*owner value"]]  # singular values, falling: Q, P, Q.rest, P.rest, and maps
    canonical: Gauge  # ||P|| = ||Q||, the largest entry of Q positive, heads by falling size
    coefficients: Float[np.ndarray, "layer coefficient"]
    shares: Float[np.ndarray, "layer 3"]  # of ||K||^2: block-scalar, trace, left
    live_maps: Bool[np.ndarray, "layer row column"]  # whether T[a, e] can move the prediction
    live_channels: Bool[np.ndarray, "layer row"]  # whether the Gram matrix is ever non-zero there
    live_how: str
    to_first: Gauge | None  # in the gauge of the first checkpoint; None for the first itself
    difference_spectra: Mapping[str, Float[np.ndarray, "*owner value"]]  # of this one, so aligned, minus the first
    distance: Float[np.ndarray, " layer"]  # ||K - K_first|| / ||K_first||, live coordinates of either
    head_distance: Float[np.ndarray, "layer head"]  # ||(P, Q) - (P, Q)_first|| / ||(P, Q)_first||, aligned

    @property
    def layers(self) -> int:
        return self.Q.shape[0]

    @property
    def heads(self) -> int:
        return self.Q.shape[1]

    def counts(self) -> dict[str, int]:
        """How many numbers of Q and P are NaN, infinite, and dead."""
        numbers = np.stack([self.Q, self.P])
        return {
            "numbers": numbers.size,
            "nan": int(np.isnan(numbers).sum()),
            "inf": int(np.isinf(numbers).sum()),
            "dead": sum(int(self.dead(name).sum()) for name in MATRICES) * self.heads,
        }

    def dead(self, name: str) -> Bool[np.ndarray, "layer row column"]:
        """The cells of a matrix or map that no prediction depends on."""
        T, source = self.live_maps, self.live_channels[:, None, :]
        live = {
            "Q": np.any(T, axis=1)[:, :, None] & source,
            "P": np.any(T, axis=2)[:, :, None] & source,
            "copy": T & source & self.live_channels[:, :, None],
            "trace": np.diagonal(T, axis1=1, axis2=2)[:, :, None] & source,
            "left": T,
        }
        return ~live[name]


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightMaps:
    """What one page shows: one checkpoint, two to compare (the first is A, the second B), or steps of a training."""

    checkpoints: tuple[CheckpointMaps, ...]
    tokens: tuple[tuple[str, int], ...]
    coefficients: tuple[MapCoefficient, ...]
    notes: tuple[str, ...]
    command: str | None

    @property
    def width(self) -> int:
        return sum(size for _, size in self.tokens)

    @property
    def kind(self) -> str:
        return ("single", "pair")[len(self.checkpoints) - 1] if len(self.checkpoints) < 3 else "steps"

    def coordinates(self) -> list[str]:
        """x[0], x[1], …, y: the name of every coordinate of a token."""
        return [f"{name}[{i}]" if size > 1 else name for name, size in self.tokens for i in range(size)]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document, without the matrices. Not a number is null."""
        names = [entry.name for entry in self.coefficients]
        return {
            "schema": "interp-probe-explore/1",
            "kind": self.kind,
            "tokens": [[name, size] for name, size in self.tokens],
            "checkpoints": [
                {
                    "name": entry.info.name,
                    "sha256": entry.info.sha256,
                    "weights_sha256": entry.weights_sha256,
                    "step": entry.step,
                    "same_as": None if entry.same_as is None else self.checkpoints[entry.same_as].info.name,
                    "layers": entry.layers,
                    "heads": entry.info.heads,
                    "dtype": entry.info.dtype,
                    "counts": entry.counts(),
                    "dead_cells": entry.live_how,
                    "coefficients": _named(names, entry.coefficients),
                    "split": _named(SHARES, entry.shares),
                    "distance_to_first": to_plain(entry.distance.tolist()),
                    "notes": list(entry.info.notes),
                }
                for entry in self.checkpoints
            ],
            "notes": list(self.notes),
            "command": self.command,
        }

    def difference(self) -> dict[str, Any]:
        """The JSON document of ``diff``: the last checkpoint against the first, aligned."""
        a, b = self.checkpoints[0], self.checkpoints[-1]
        names = [entry.name for entry in self.coefficients]
        gauge = b.to_first or b.canonical
        heads = zip(gauge.order.tolist(), gauge.factor.tolist(), b.head_distance.tolist(), strict=True)
        layers = [
            {
                "index": layer,
                "distance": float(b.distance[layer]),
                "heads": [
                    {"a": head, "b": order, "factor": factor, "distance": distance}
                    for head, (order, factor, distance) in enumerate(zip(*of_layer, strict=True))
                ],
                "coefficients": {
                    name: {"a": before, "b": after}
                    for name, before, after in zip(
                        names, a.coefficients[layer].tolist(), b.coefficients[layer].tolist(), strict=True
                    )
                },
            }
            for layer, of_layer in enumerate(heads)
        ]
        return {
            "schema": "interp-probe-diff/1",
            "a": {"name": a.info.name, "sha256": a.info.sha256},
            "b": {"name": b.info.name, "sha256": b.info.sha256},
            "same_weights": a.weights_sha256 == b.weights_sha256,
            "layers": to_plain(layers),
            "notes": list(self.notes),
        }


def _named(names: Sequence[str], rows: Float[np.ndarray, "layer value"]) -> list[dict[str, float | None]]:
    return [dict(zip(names, to_plain(row), strict=True)) for row in rows.tolist()]
