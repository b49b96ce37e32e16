"""Parts of the weights of a layer: multiples of the identity, gauge-free maps and coefficients, what is left.

K is the tensor of ``interp.algebra.gauge``; T - r I = s sum_bc K[a, b, c, e] G[b, c] is the update of a layer
whose keys have the Gram matrix G.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.algebra.alignment import tensor_product_norms
from interp.algebra.basis import BasisMap, omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, project
from interp.models.errors import LayoutError
from interp.models.specification import ModelSpec
from interp.results.explored import Coefficient

__all__ = [
    "block_scalar_part",
    "coefficients_of",
    "copy_map",
    "identity_multiples",
    "singular_values",
    "split",
    "trace_map",
]

MOST_COEFFICIENTS = 256


def identity_multiples(
    matrix: Float[np.ndarray, "layer head D D"], spec: ModelSpec
) -> Float[np.ndarray, "layer head C C"]:
    """trace(block) / size of every channel-to-channel block; NaN for blocks that are not square."""
    out = np.full((*matrix.shape[:2], len(spec.channels), len(spec.channels)), np.nan)
    for r, row in enumerate(spec.channels):
        for c, column in enumerate(spec.channels):
            if row.size == column.size:
                block = matrix[:, :, row.indices, column.indices]
                out[:, :, r, c] = np.trace(block, axis1=2, axis2=3) / row.size
    return out


def block_scalar_part(
    scalars: Float[np.ndarray, "layer head C C"], spec: ModelSpec
) -> Float[np.ndarray, "layer head D D"]:
    """The nearest matrix whose channel-to-channel blocks are multiples of the identity."""
    out = np.zeros((*scalars.shape[:2], spec.width, spec.width))
    for r, row in enumerate(spec.channels):
        for c, column in enumerate(spec.channels):
            if row.size == column.size:
                steps = np.arange(row.size)
                out[:, :, row.start + steps, column.start + steps] = scalars[:, :, r, c, None]
    return out


def copy_map(P: Float[np.ndarray, "head D D"], Q: Float[np.ndarray, "head D D"]) -> Float[np.ndarray, "D D"]:
    """d T[a, e] / d G[a, e], G symmetric: sum_h P[a, a] Q[e, e], and off the diagonal also P[a, e] Q[e, a]."""
    straight = np.einsum("haa,hee->ae", P, Q)
    turned = np.einsum("hae,hea->ae", P, Q)
    np.fill_diagonal(turned, 0.0)
    return straight + turned


def trace_map(P: Float[np.ndarray, "head D D"], Q: Float[np.ndarray, "head D D"]) -> Float[np.ndarray, "D D"]:
    """d T[a, a] / d G[b, b] = sum_h P[a, b] Q[a, b]."""
    return np.einsum("hab,hab->ab", P, Q)


def singular_values(
    matrices: Mapping[str, Float[np.ndarray, "*owner D D"]],
) -> dict[str, Float[np.ndarray, "*owner D"]]:
    out = {}
    for name, matrix in matrices.items():
        finite = np.isfinite(matrix).all((-2, -1))
        values = np.full(matrix.shape[:-1], np.nan)
        if finite.any():
            values[finite] = torch.linalg.svdvals(torch.from_numpy(matrix[finite])).numpy()
        out[name] = values
    return out


def coefficients_of(spec: ModelSpec) -> tuple[tuple[Coefficient, ...], tuple[BasisMap, ...] | None]:
    """The coefficients of a layer. With one input channel beside the label: the omegas and traces, and their basis
    maps. For other tokens: sum_h p_h[r, b] q_h[e, c], with p and q the multiples of the identity in the blocks of P and
    Q; of many channels only those that copy a block of G to its own place."""
    channels = [c.name for c in spec.channels]
    try:
        maps: tuple[BasisMap, ...] = (*omega_maps(spec), *trace_maps(spec))
    except LayoutError:
        same = [(r, c) for r, a in enumerate(spec.channels) for c, b in enumerate(spec.channels) if a.size == b.size]
        if len(same) ** 2 > MOST_COEFFICIENTS:
            same = [(r, c) for r, c in same if r == c]
        return tuple(
            Coefficient(
                name=f"omega_{channels[r]}<-{channels[e]},{channels[b]}.{channels[c]}",
                row=r,
                key_row=b,
                key_column=c,
                column=e,
            )
            for r, b in same
            for e, c in same
        )[:MOST_COEFFICIENTS], None
    label = channels.index(spec.readout.channel)
    index = {"x": 1 - label, "y": label}
    names = []
    for basis in maps:
        if ":" in basis.name:
            to, traced = index[basis.name[0]], index[basis.name[2]]
            names.append(
                Coefficient(name=f"tau_{basis.name}", row=to, key_row=traced, key_column=traced, column=to, trace=True)
            )
        else:
            to, source = index[basis.name[0]], index[basis.name[1]]
            names.append(Coefficient(name=f"omega_{basis.name}", row=to, key_row=to, key_column=source, column=source))
    return tuple(names), maps


def split(
    P: Float[np.ndarray, "head D D"],
    Q: Float[np.ndarray, "head D D"],
    names: tuple[Coefficient, ...],
    maps: tuple[BasisMap, ...] | None,
    scalars: Mapping[str, Float[np.ndarray, "layer head C C"]],
    live: LiveCoordinates,
    layer: int,
    spec: ModelSpec,
) -> tuple[Float[np.ndarray, " coefficient"], Float[np.ndarray, "D D"], Float[np.ndarray, " 3"]]:
    """The coefficients of one layer, the size of what is left in every (a, e), and the shares of ||K||^2."""
    total = tensor_product_norms(P, Q)
    if maps is None:
        p, q = scalars["P"][layer], scalars["Q"][layer]
        values = np.array([np.sum(p[:, c.row, c.key_row] * q[:, c.column, c.key_column]) for c in names])
        flat = [block_scalar_part(s[layer][None], spec)[0] for s in (scalars["P"], scalars["Q"])]
        left = tensor_product_norms(np.concatenate([P - flat[0], flat[0]]), np.concatenate([Q, Q - flat[1]]))
        share = np.full(3, np.nan)  # block-scalar heads do not make an orthogonal part of the symmetrised K
        return values, np.sqrt(np.maximum(left, 0.0)), share
    tensors = torch.from_numpy(P), torch.from_numpy(Q)
    found = project(*tensors, maps, live, layer)
    omegas = project(*tensors, maps[:4], live, layer)
    values = found.coefficients.numpy()
    projected = _entries(maps, values, spec.width)
    a, b, c, e = projected["index"].T
    K = 0.5 * ((P[:, a, b] * Q[:, e, c]).sum(0) + (P[:, a, c] * Q[:, e, b]).sum(0))
    left = total.copy()
    np.add.at(left, (a, e), (K - projected["value"]) ** 2 - K**2)
    # Where nothing is left, what remains is the rounding of the sums.
    left[left < 1e-13 * total.max(initial=0.0)] = 0.0
    if not found.energy > 0:
        return values, np.sqrt(np.maximum(left, 0.0)), np.full(3, np.nan)
    block = min(omegas.explained / found.energy, 1.0)
    whole = min(max(found.explained / found.energy, block), 1.0)
    return values, np.sqrt(np.maximum(left, 0.0)), np.array([block, whole - block, 1.0 - whole])


def _entries(maps: Sequence[BasisMap], values: Float[np.ndarray, " map"], D: int) -> dict[str, NDArray[Any]]:
    """The non-zero entries of the symmetrised sum of basis tensors: their indices (a, b, c, e) and values."""
    flat, weights = [], []
    for basis, value in zip(maps, np.nan_to_num(values), strict=True):
        a, b, c, e = basis.entries().numpy().T
        for left, right in ((b, c), (c, b)):
            flat.append(((a * D + left) * D + right) * D + e)
            weights.append(np.full(len(a), 0.5 * value))
    unique, where = np.unique(np.concatenate(flat), return_inverse=True)
    summed = np.bincount(where.ravel(), np.concatenate(weights))
    return {"index": np.stack(np.unravel_index(unique, (D, D, D, D)), -1), "value": summed}
