"""Parts of the weights of a layer: multiples of the identity, gauge-free maps and coefficients, what is left.

K is the tensor of ``interp.algebra.gauge``; T - r I = s sum_bc K[a, b, c, e] G[b, c] is the update of a layer
whose keys have the Gram matrix G.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Float

from interp.algebra.alignment import tensor_product_norms
from interp.algebra.basis import BasisMap, TraceMap, omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, project
from interp.errors import LayoutError
from interp.models.specification import Channel, ModelSpec
from interp.results.weight_maps import MapCoefficient

__all__ = [
    "LayerBasis",
    "block_scalar_part",
    "gauge_free_parts",
    "identity_multiples",
    "layer_basis",
    "singular_values",
]

MOST_COEFFICIENTS = 256


def _square_blocks(spec: ModelSpec) -> Iterator[tuple[int, Channel, int, Channel]]:
    """The channel-to-channel blocks that are square."""
    pairs = product(enumerate(spec.channels), repeat=2)
    return ((r, row, c, column) for (r, row), (c, column) in pairs if row.size == column.size)


def identity_multiples(
    matrix: Float[np.ndarray, "layer head D D"], spec: ModelSpec
) -> Float[np.ndarray, "layer head C C"]:
    """trace(block) / size of every channel-to-channel block; NaN for blocks that are not square."""
    out = np.full((*matrix.shape[:2], len(spec.channels), len(spec.channels)), np.nan)
    for r, row, c, column in _square_blocks(spec):
        out[:, :, r, c] = np.trace(matrix[:, :, row.indices, column.indices], axis1=2, axis2=3) / row.size
    return out


def block_scalar_part(
    scalars: Float[np.ndarray, "layer head C C"], spec: ModelSpec
) -> Float[np.ndarray, "layer head D D"]:
    """The nearest matrix whose channel-to-channel blocks are multiples of the identity."""
    out = np.zeros((*scalars.shape[:2], spec.width, spec.width))
    for r, row, c, column in _square_blocks(spec):
        steps = np.arange(row.size)
        out[:, :, row.start + steps, column.start + steps] = scalars[:, :, r, c, None]
    return out


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


@dataclass(frozen=True, kw_only=True)
class LayerBasis:
    """The coefficients of a layer, and the maps they multiply. Tokens with one input channel beside the label have the
    omegas and traces. For other tokens (``maps`` None) coefficients are sum_h p_h[r, b] q_h[e, c], with p and q the
    multiples of the identity in the blocks of P and Q; of many channels only those that copy a block of G to its own
    place."""

    spec: ModelSpec
    coefficients: tuple[MapCoefficient, ...]
    maps: tuple[BasisMap, ...] | None


def layer_basis(spec: ModelSpec) -> LayerBasis:
    channels = spec.channels
    try:
        maps: tuple[BasisMap, ...] = (*omega_maps(spec), *trace_maps(spec))
    except LayoutError:
        pairs = [(r, c) for r, _, c, _ in _square_blocks(spec)]
        if len(pairs) ** 2 > MOST_COEFFICIENTS:
            pairs = [(r, c) for r, c in pairs if r == c]
        every = [(r, b, e, c) for r, b in pairs for e, c in pairs][:MOST_COEFFICIENTS]
        coefficients = tuple(
            MapCoefficient(
                name="omega_{}<-{},{}.{}".format(*(channels[k].name for k in (r, e, b, c))),
                row=r, key_row=b, key_column=c, column=e,
            )
            for r, b, e, c in every
        )  # fmt: skip
        return LayerBasis(spec=spec, coefficients=coefficients, maps=None)
    label = [c.name for c in channels].index(spec.readout.channel)
    index = {"x": 1 - label, "y": label}
    named = []
    for basis in maps:
        row, column, trace = index[basis.name[0]], index[basis.name[-1]], isinstance(basis, TraceMap)
        key_row, to = (column, row) if trace else (row, column)
        name = f"{'tau' if trace else 'omega'}_{basis.name}"
        named.append(MapCoefficient(name=name, row=row, key_row=key_row, key_column=column, column=to, trace=trace))
    return LayerBasis(spec=spec, coefficients=tuple(named), maps=maps)


def gauge_free_parts(
    P: Float[np.ndarray, "layer head D D"],
    Q: Float[np.ndarray, "layer head D D"],
    scalars: Mapping[str, Float[np.ndarray, "layer head C C"]],
    basis: LayerBasis,
    live: LiveCoordinates,
) -> tuple[
    dict[str, Float[np.ndarray, "layer D D"]], Float[np.ndarray, "layer coefficient"], Float[np.ndarray, "layer 3"]
]:
    """Layer by layer the maps "copy" and "trace", and "left", the size of what the coefficients do not hold in every
    (a, e); the coefficients; and the shares of ||K||^2. NaN where a weight is not finite."""
    layers, D = P.shape[0], basis.spec.width
    # copy is d T[a, e] / d G[a, e], G symmetric: sum_h P[a, a] Q[e, e], and off the diagonal also P[a, e] Q[e, a].
    turned = np.where(np.eye(D, dtype=bool), 0.0, np.einsum("lhae,lhea->lae", P, Q))
    copy = np.einsum("lhaa,lhee->lae", P, Q) + turned
    trace = np.einsum("lhab,lhab->lab", P, Q)  # d T[a, a] / d G[b, b]
    left = np.full((layers, D, D), np.nan)
    coefficients, shares = np.full((layers, len(basis.coefficients)), np.nan), np.full((layers, 3), np.nan)
    for layer in np.flatnonzero(np.isfinite(copy).all((1, 2)) & np.isfinite(trace).all((1, 2))):
        if basis.maps is None:
            p, q = scalars["P"][layer], scalars["Q"][layer]
            coefficients[layer] = [
                np.sum(p[:, c.row, c.key_row] * q[:, c.column, c.key_column]) for c in basis.coefficients
            ]
            flat_P, flat_Q = (block_scalar_part(s[None], basis.spec)[0] for s in (p, q))
            # Block-scalar heads do not make an orthogonal part of the symmetrised K, so there are no shares.
            energy = tensor_product_norms(
                np.concatenate([P[layer] - flat_P, flat_P]), np.concatenate([Q[layer], Q[layer] - flat_Q])
            )
        else:
            coefficients[layer], energy, shares[layer] = _projected(P[layer], Q[layer], basis.maps, live, int(layer))
        left[layer] = np.sqrt(np.maximum(energy, 0.0))
    return {"copy": copy, "trace": trace, "left": left}, coefficients, shares


def _projected(
    P: Float[np.ndarray, "head D D"],
    Q: Float[np.ndarray, "head D D"],
    maps: tuple[BasisMap, ...],
    live: LiveCoordinates,
    layer: int,
) -> tuple[Float[np.ndarray, " coefficient"], Float[np.ndarray, "D D"], Float[np.ndarray, " 3"]]:
    """The coefficients of one layer by projection, the energy of what is left in every (a, e), and the shares."""
    energy = tensor_product_norms(P, Q)
    rounding = 1e-13 * energy.max(initial=0.0)  # of the sums: what remains where nothing is left
    tensors = torch.from_numpy(P), torch.from_numpy(Q)
    whole, omegas = project(*tensors, maps, live, layer), project(*tensors, maps[:4], live, layer)
    values, D = whole.coefficients.numpy(), P.shape[-1]
    # The non-zero entries of the symmetrised sum of basis tensors.
    flat, weights = [], []
    for basis, value in zip(maps, np.nan_to_num(values), strict=True):
        a, b, c, e = basis.entries().numpy().T
        flat += [((a * D + b) * D + c) * D + e, ((a * D + c) * D + b) * D + e]
        weights.append(np.full(2 * len(a), 0.5 * value))
    unique, where = np.unique(np.concatenate(flat), return_inverse=True)
    projected = np.bincount(where, np.concatenate(weights))
    a, b, c, e = np.unravel_index(unique, (D, D, D, D))
    K = 0.5 * ((P[:, a, b] * Q[:, e, c]).sum(0) + (P[:, a, c] * Q[:, e, b]).sum(0))
    np.add.at(energy, (a, e), (K - projected) ** 2 - K**2)
    energy[energy < rounding] = 0.0
    if not whole.energy > 0:
        return values, energy, np.full(3, np.nan)
    block = min(omegas.explained / whole.energy, 1.0)
    both = min(max(whole.explained / whole.energy, block), 1.0)
    return values, energy, np.array([block, both - block, 1.0 - both])
