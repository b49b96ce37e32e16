"""The gauge-free weight tensor, and the projection of a learned layer on the equivariant maps.

A network depends on its heads only through

    K[a, b, c, e] = sum_h P_h[a, b] Q_h[e, c],   symmetrised over (b, c) because G is symmetric,
    (T - r I)[a, e] = s * sum_bc K[a, b, c, e] G[b, c].

Head order, P -> kP with Q -> Q/k, and splitting a head leave K unchanged. Entries that never reach the prediction are
dead: they are found from the model's own derivatives and left out of every score. K is never formed (it has D^4
entries); norms and inner products come from the heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.algebra.basis import BasisMap, Matrices
from interp.models.gram import HeadLayers, adjoint, forward

__all__ = [
    "LiveCoordinates",
    "Projection",
    "beyond_rounding",
    "live_coordinates",
    "live_energy",
    "project",
    "regauged",
    "weight_tensor",
]

Heads = Float[Tensor, "head D D"]
ROUNDING = 1e-3  # a number that changes by this much (relative) from one gauge to another is rounding


def regauged(layers: HeadLayers) -> HeadLayers:
    """The same network with its heads in another order and rescaled: what changes in its results is rounding.

    Where heads cancel, as they may in a network that has been scrambled, 0 comes out as some 1e-17 times the numbers
    that cancelled, and no threshold known beforehand tells that from a small effect.
    """
    return HeadLayers(P=3.0 * layers.P.flip(1), Q=layers.Q.flip(1) / 3.0, scale=layers.scale, residual=layers.residual)


def beyond_rounding(value: Float[Tensor, "prompt ..."], again: Float[Tensor, "prompt ..."]) -> Bool[Tensor, "..."]:
    """Which entries of ``value`` are more than rounding on at least half of the prompts; ``again`` is its value in
    another gauge."""
    change = torch.where(value != 0, (value - again).abs() / value.abs(), torch.inf)
    return change.nan_to_num(torch.inf).median(0).values < ROUNDING


@dataclass(frozen=True, eq=False)
class LiveCoordinates:
    """Per layer: which (a, e) of T can move the prediction, and which channels of the Gram matrix are ever non-zero.

    K[a, b, c, e] is live if ``maps[l][a, e]`` and ``channels[l][b]`` and ``channels[l][c]``.
    """

    maps: Bool[Tensor, "layer D D"]
    channels: Bool[Tensor, "layer D"]

    def of(self, basis: BasisMap, layer: int) -> bool:
        """Whether the coefficient of ``basis`` in this layer can move the prediction."""
        return len(self.entries(basis, layer)) > 0

    def entries(self, basis: BasisMap, layer: int) -> Int[Tensor, "entry 4"]:
        """The live ones of ``basis``, index rows (a, b, c, e)."""
        rows = basis.entries()
        a, b, c, e = rows.unbind(-1)
        return rows[self.maps[layer][a, e] & self.channels[layer][b] & self.channels[layer][c]]


def live_coordinates(
    layers: HeadLayers, gram: Matrices, query: Float[Tensor, "prompt query D"], readout: Sequence[int]
) -> LiveCoordinates:
    """Find them from the model itself: (a, e) is live if d prediction / d T[a, e] is not 0 on the given prompts.

    Random combinations of the outputs are differentiated, one per prompt, so a derivative vanishes only if it does for
    every output.
    """
    generator = torch.Generator().manual_seed(0)  # any generic combination does; the result is a zero pattern
    seed = torch.zeros_like(query)
    seed[..., list(readout)] = torch.randn(*query.shape[:2], len(readout), generator=generator, dtype=query.dtype)
    networks = (layers, regauged(layers))
    trajectories = [forward(network, gram, query) for network in networks]
    gammas = zip(*(adjoint(n, t, seed) for n, t in zip(networks, trajectories, strict=True)), strict=True)
    grams = zip(*(t.grams for t in trajectories), strict=True)
    return LiveCoordinates(
        maps=torch.stack([beyond_rounding(*pair) for pair in gammas]),
        channels=torch.stack([beyond_rounding(*(g.diagonal(dim1=-2, dim2=-1) for g in pair)) for pair in grams]),
    )


def weight_tensor(P: Heads, Q: Heads) -> Float[Tensor, "D D D D"]:
    """K of one layer in full, symmetrised over its middle axes. D^4 numbers: for small D and for tests."""
    K = torch.einsum("hab,hec->abce", P, Q)
    return 0.5 * (K + K.transpose(1, 2))


@dataclass(frozen=True, eq=False)
class Projection:
    """Orthogonal projection of a layer's live K on the span of some basis maps."""

    coefficients: Float[Tensor, " map"]  # NaN for maps that are dead in this layer
    energy: float  # ||K||^2 over live coordinates
    explained: float  # ||projection||^2
    norms: Float[Tensor, " map"]  # ||map||, NaN where it is dead


def project(P: Heads, Q: Heads, maps: Sequence[BasisMap], live: LiveCoordinates, layer: int) -> Projection:
    """Least-squares coefficients of K on the (symmetrised, live) tensors of ``maps``."""
    D = P.shape[-1]
    energy = live_energy(P, Q, live.maps[layer], live.channels[layer])
    rows, columns, inner = [], [], []
    alive = [k for k, basis in enumerate(maps) if live.of(basis, layer)]
    for row, k in enumerate(alive):
        a, b, c, e = live.entries(maps[k], layer).unbind(-1)
        K = 0.5 * ((P[:, a, b] * Q[:, e, c]).sum(0) + (P[:, a, c] * Q[:, e, b]).sum(0))
        inner.append(float(K.sum()))
        for left, right in ((b, c), (c, b)):
            columns.append((((a * D + left) * D + right) * D + e).numpy())
            rows.append(np.full(len(a), row))
    coefficients = torch.full((len(maps),), float("nan"), dtype=torch.float64)
    if not alive:
        return Projection(coefficients, energy, 0.0, coefficients)
    # Of the D^4 columns only those in use: a product of sparse arrays takes memory for every one it has.
    used, column = np.unique(np.concatenate(columns), return_inverse=True)
    values = np.full(len(column), 0.5)
    tensors = scipy.sparse.coo_array((values, (np.concatenate(rows), column)), shape=(len(alive), len(used))).tocsr()
    overlap = (tensors @ tensors.T).toarray()
    solution = np.linalg.lstsq(overlap, np.array(inner), rcond=1e-12)[0]
    coefficients[alive] = torch.from_numpy(solution)
    norms = torch.full_like(coefficients, float("nan"))
    norms[alive] = torch.from_numpy(np.sqrt(np.diag(overlap)))
    return Projection(coefficients, energy, float(solution @ np.array(inner)), norms)


def live_energy(P: Heads, Q: Heads, mask_ae: Bool[Tensor, "D D"], mask_b: Bool[Tensor, " D"]) -> float:
    """||K||^2 over live coordinates, row by row of the output channel a:

    1/2 sum_hk [ (P_h[a] . P_k[a]) tr(Q_h Q_k^T) + sum_e (Q_h[e] . P_k[a]) (Q_k[e] . P_h[a]) ], e live for a.
    """
    P, Q = P[:, :, mask_b], Q[:, :, mask_b]
    products = torch.einsum("hec,kec->ehk", Q, Q)  # Q_h[e] . Q_k[e]
    total = 0.0
    for a in torch.nonzero(mask_ae.any(1)).flatten().tolist():
        e, p = mask_ae[a], P[:, a]
        cross = torch.einsum("hec,kc->ehk", Q[:, e], p)
        total += 0.5 * float(((p @ p.T) * products[e].sum(0)).sum() + (cross * cross.mT).sum())
    return total
