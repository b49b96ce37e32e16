"""The matrices of weight maps as text that a page can carry: exact while that fits, else thinned openly.

Numbers are kept in the file's own precision while the page stays within ``SMALL`` bytes. Beyond that they become
integers of 16 bits down to 8, times a scale of each matrix (finite x -> scale * round(x / scale)); beyond ``LARGE``
bytes means of square groups of cells, which do not cross the borders of channels. What is computed from the weights
(coefficients, counts) is exact in any case, but singular values, which have 7 digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from interp.reports.heatmaps import encoded
from interp.reports.numbers import number, plain
from interp.results.plain_data import to_plain
from interp.results.weight_maps import LAYER_MAPS, MATRICES, CheckpointMaps, Gauge, MapCoefficient, WeightMaps

__all__ = ["LARGE", "SMALL", "PageData", "page_data"]

SMALL = 25_000_000  # bytes of a page that opens quickly
LARGE = 50_000_000  # and of one that still opens
_BASE64 = 4 / 3
_BITS = tuple(range(16, 7, -1))


@dataclass(frozen=True, kw_only=True)
class PageData:
    """``content`` is what the page's script reads. ``bits`` is 0 for exact numbers; ``group`` the side of the groups
    of cells shown as one; ``error`` the largest change of a number; ``relative`` the same over its matrix's largest."""

    content: dict[str, Any]
    bits: int
    group: int
    error: float
    relative: float

    def words(self) -> str:
        """What was thinned, in a sentence."""
        if not self.bits:
            return "All numbers are exact, but singular values, which have 7 digits."
        grouped = f"Each cell is the mean of up to {self.group} x {self.group} numbers of a block. "
        return (
            f"{grouped if self.group > 1 else ''}To keep the file small, the page holds numbers of {self.bits} bits: a "
            f"number after ≈ is off by at most {number(self.error, 2)}, and by at most "
            f"{number(100 * self.relative, 2)} % of the largest number of its matrix. Coefficients "
            "and counts are exact, and singular values to 7 digits."
        )


def page_data(weight_maps: WeightMaps, overhead: int) -> PageData:
    """``overhead``: bytes of the page beside the matrices and what is said about them."""
    frame = _frame(weight_maps)
    spent = overhead + sum(len(json.dumps(entry)) for entry in frame["checkpoints"])
    matrices = [_matrices(entry) for entry in weight_maps.checkpoints]
    exact = sum(m.nbytes for entry in matrices for m in entry.values())
    count = sum(m.size for entry in matrices for m in entry.values())
    bits, group = 0, 1
    if spent + exact * _BASE64 > SMALL:
        fits = [b for budget in (SMALL, LARGE) for b in _BITS if spent + count * b / 8 * _BASE64 <= budget]
        bits = fits[0] if fits else _BITS[-1]
        if not fits:
            room = max(LARGE - spent, 1_000_000) / (bits / 8 * _BASE64)
            group = max(2, math.ceil(math.sqrt(count / room)))
    grid = _Grid.of(weight_maps, group)
    frame |= {"width": grid.width, "names": grid.names, "starts": grid.starts, "bits": bits, "group": group}
    error, relative = 0.0, 0.0
    for shown, entry, parts in zip(frame["checkpoints"], weight_maps.checkpoints, matrices, strict=True):
        shown["weights"] = {}
        for name, matrix in parts.items():
            shown["weights"][name], *off = _packed(grid.pooled(matrix), bits)
            error, relative = max(error, off[0]), max(relative, off[1])
        shown["live"] = {
            "maps": _bits(grid.any(entry.live_maps, axes=2)),
            "channels": _bits(grid.any(entry.live_channels, axes=1)),
        }
    return PageData(content=frame, bits=bits, group=group, error=error, relative=relative)


def _matrices(entry: CheckpointMaps) -> dict[str, NDArray[np.floating[Any]]]:
    return {"Q": entry.Q, "P": entry.P, **{name: entry.maps[name] for name in LAYER_MAPS}}


# --- everything but the matrices ------------------------------------------------------------------------------------


def _frame(weight_maps: WeightMaps) -> dict[str, Any]:
    return {
        "kind": weight_maps.kind, "tokens": [[plain(name), size] for name, size in weight_maps.tokens],
        "layers": weight_maps.checkpoints[0].layers, "heads": weight_maps.checkpoints[0].heads,
        "fullWidth": weight_maps.width, "coefficients": list(map(_coefficient, weight_maps.coefficients)),
        "checkpoints": list(map(_checkpoint, weight_maps.checkpoints)),
    }  # fmt: skip


def _coefficient(entry: MapCoefficient) -> dict[str, Any]:
    return {
        "name": plain(entry.name), "row": entry.row, "keyRow": entry.key_row, "keyColumn": entry.key_column,
        "column": entry.column, "trace": entry.trace,
    }  # fmt: skip


def _checkpoint(entry: CheckpointMaps) -> dict[str, Any]:
    return {
        "name": plain(entry.info.name), "step": entry.step, "sameAs": entry.same_as, "dtype": entry.info.dtype,
        "liveHow": plain(entry.live_how), "counts": entry.counts(),
        "scalars": {name: _nulls(entry.scalars[name].reshape(*entry.scalars[name].shape[:2], -1)) for name in MATRICES},
        "spectra": _spectra(entry.spectra), "canonical": _gauge(entry.canonical),
        "toFirst": None if entry.to_first is None else _gauge(entry.to_first),
        "differenceSpectra": _spectra(entry.difference_spectra), "coefficients": _nulls(entry.coefficients),
        "shares": _nulls(entry.shares), "distance": _nulls(entry.distance),
        "headDistance": _nulls(entry.head_distance),
    }  # fmt: skip


def _gauge(gauge: Gauge) -> dict[str, Any]:
    return {"order": gauge.order.tolist(), "factor": gauge.factor.tolist()}


def _spectra(spectra: Mapping[str, Float[np.ndarray, "*owner value"]]) -> dict[str, str]:
    """In single precision: nobody reads more digits of a singular value from a curve."""
    return {name: encoded(values.astype("<f4")) for name, values in spectra.items()}


def _nulls(values: NDArray[Any]) -> Any:
    return to_plain(values.tolist())


# --- the matrices ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Grid:
    """The cells that are shown: coordinates, or runs of ``group`` of them within a channel."""

    runs: list[tuple[int, int]]  # first coordinate, and the one after the last
    names: list[str]
    starts: list[int]  # the first run of every channel

    @classmethod
    def of(cls, weight_maps: WeightMaps, group: int) -> _Grid:
        runs, names, starts, offset = [], [], [], 0
        for channel, size in weight_maps.tokens:
            starts.append(len(runs))
            for first in range(0, size, group):
                last = min(first + group, size) - 1
                runs.append((offset + first, offset + last + 1))
                index = f"[{first}]" if first == last else f"[{first}–{last}]"
                names.append(plain(channel) + (index if size > 1 else ""))
            offset += size
        return cls(runs, names, starts)

    @property
    def width(self) -> int:
        return len(self.runs)

    def pooled(self, matrix: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Means over groups of rows and columns; a group that holds NaN is NaN."""
        if self.width == matrix.shape[-1]:
            return matrix
        edges = [first for first, _ in self.runs]
        sizes = np.array([after - first for first, after in self.runs], dtype=np.float64)
        with np.errstate(all="ignore"):
            summed = np.add.reduceat(np.add.reduceat(matrix.astype(np.float64), edges, axis=-1), edges, axis=-2)
            return summed / (sizes[:, None] * sizes)

    def any(self, flags: NDArray[np.bool_], axes: int) -> NDArray[np.bool_]:
        edges = [first for first, _ in self.runs]
        for axis in range(1, axes + 1):
            flags = np.logical_or.reduceat(flags, edges, axis=-axis)
        return flags


def _packed(matrices: NDArray[np.floating[Any]], bits: int) -> tuple[dict[str, Any], float, float]:
    """Base64 of every matrix with its scale (none for exact numbers) and the bytes of an exact number (0 for others);
    the largest change of a number, and the same over its matrix's largest."""
    flat = matrices.reshape(-1, matrices.shape[-2] * matrices.shape[-1])
    if not bits:
        size = 4 if flat.dtype == np.float32 else 8
        return {"data": [encoded(m.astype(f"<f{size}")) for m in flat], "scale": [], "size": size}, 0.0, 0.0
    data, scales, error, relative = [], [], 0.0, 0.0
    half = 2 ** (bits - 1) - 1  # half is +Inf, -half is -Inf, -half - 1 is NaN
    for matrix in flat:
        values = matrix.astype(np.float64)
        finite = np.isfinite(values)
        largest = float(np.abs(values[finite]).max(initial=0.0))
        scale = largest / (half - 1)
        codes = np.zeros(values.shape, dtype=np.int64)
        if scale > 0:
            codes[finite] = np.rint(values[finite] / scale).astype(np.int64)
            off = float(np.abs(codes[finite] * scale - values[finite]).max(initial=0.0))
            error, relative = max(error, off), max(relative, off / largest)
        codes[np.isposinf(values)], codes[np.isneginf(values)] = half, -half
        codes[np.isnan(values)] = -half - 1
        data.append(encoded(_bit_stream(codes, bits)))
        scales.append(scale)
    return {"data": data, "scale": scales, "size": 0}, error, relative


def _bit_stream(codes: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """Two's complement in ``bits`` bits each, the lowest bit first."""
    unsigned = (codes & (2**bits - 1)).astype("<u4")
    single = np.unpackbits(unsigned.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")[:, :bits]
    return np.packbits(single.ravel(), bitorder="little")


def _bits(flags: NDArray[np.bool_]) -> str:
    return encoded(np.packbits(flags.ravel(), bitorder="little"))
