"""What is left of a layer outside the omegas and traces: where it sits, of what rank it is, and what it does.

The weight tensor K[a, b, c, e] maps the Gram matrix G[b, c] to the update T[a, e]. As a matrix from (b, c) to (a, e)
the remainder has rank one where P and Q gain a rank-one part each: P = p p'^T and Q = q q'^T give (p x q)(p' x q')^T. A
block-scalar part has as many equal singular values as it has entries, so low rank and block-scalar are told apart.

Energy in the weights need not matter to the predictions, so layers are also swapped one at a time: the network with
this one layer replaced by its projection (the remainder taken out), and by the four omegas that best account for what
the layer does (output-weighted estimates), against the network as it is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import BasisLayers, BasisMap, omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, Projection, project, weight_tensor
from interp.algebra.mixing import swapped
from interp.algebra.sensitivity import Prompts, predict
from interp.algebra.unrolling import label_indices
from interp.families.omegas import OmegaFit
from interp.identify.score import Score, bootstrap_fidelity
from interp.models.gram import HeadLayers, LayerMaps
from interp.models.specification import ModelSpec
from interp.results import Remainder

__all__ = ["projected", "remainder_tensor", "remainders"]

WIDEST = 33  # D up to which the D^4 numbers of a weight tensor are formed
NOTHING = 1e-12  # share of the energy below which a remainder is rounding
LEADING = 5


def projected(
    network: HeadLayers, live: LiveCoordinates, maps: tuple[BasisMap, ...]
) -> tuple[BasisLayers, list[Projection]]:
    """The network with every layer's weight tensor projected on ``maps``."""
    projections = [project(network.P[i], network.Q[i], maps, live, i) for i in range(network.layers)]
    coefficients = torch.stack([p.coefficients for p in projections]).nan_to_num(0.0)
    return BasisLayers(maps, coefficients, network.scale, network.residual), projections


def remainders(
    network: HeadLayers,
    spec: ModelSpec,
    live: LiveCoordinates,
    diag: OmegaFit,
    held_out: Prompts,
    reference: Float[Tensor, "prompt output"],
    seed: int,
) -> tuple[Remainder, ...]:
    """One row per layer. ``diag`` is the fitted family of the four omegas, ``reference`` what the network predicts on
    ``held_out``."""
    layers, projections = projected(network, live, (*omega_maps(spec), *trace_maps(spec)))
    assert diag.parametrisation is not None and diag.output is not None  # diag is fitted to every network
    omegas = diag.parametrisation.build(diag.output.theta)

    def score(other: LayerMaps, layer: int) -> Score:
        return bootstrap_fidelity(predict(swapped(network, other, layer), held_out), reference, seed)

    out = []
    for layer, projection in enumerate(projections):
        without, replaced = score(layers, layer), score(omegas, layer)
        left = 1.0 - projection.explained / projection.energy if projection.energy > 0 else math.nan
        energy = left if math.isfinite(left) else None
        K, why = None, _hidden(energy, spec.width)
        if why is None:
            K = remainder_tensor(network, spec, live, layer, layers.coefficients[layer])
        out.append(
            Remainder(
                layer=layer,
                energy=None if energy is None else max(energy, 0.0),
                **_described(K, spec),
                projected_fidelity=without.fidelity,
                projected_ci=without.interval,
                omega_fidelity=replaced.fidelity,
                omega_ci=replaced.interval,
                why=why,
            )
        )
    return tuple(out)


def remainder_tensor(
    network: HeadLayers, spec: ModelSpec, live: LiveCoordinates, layer: int, coefficients: Float[Tensor, " map"]
) -> Float[Tensor, "D D D D"]:
    """The live part of K[a, b, c, e] of a layer, less its projection on the omegas and traces."""
    K = weight_tensor(network.P[layer], network.Q[layer])
    for value, basis in zip(coefficients, (*omega_maps(spec), *trace_maps(spec)), strict=True):
        a, b, c, e = basis.entries().unbind(-1)
        for left, right in ((b, c), (c, b)):
            K.index_put_((a, left, right, e), -0.5 * value.expand(len(a)), accumulate=True)
    reached, read = live.maps[layer].to(K.dtype), live.channels[layer].to(K.dtype)
    return torch.einsum("abce,ae,b,c->abce", K, reached, read, read)


def _hidden(energy: float | None, width: int) -> str | None:
    """Why the tensor of what is left is not described."""
    if energy is None:
        return "the layer has no say in the prediction, or its weights overflow"
    if energy < NOTHING:
        return "nothing is left over"
    return None if width <= WIDEST else f"left out: a weight tensor of {width}^4 numbers (beyond D = {WIDEST})"


def _described(K: Float[Tensor, "D D D D"] | None, spec: ModelSpec) -> dict[str, Any]:
    """Energy by block, participation ratio and leading shares of the tensor."""
    if K is None:
        return dict.fromkeys(("blocks", "rank", "leading"))
    matrix = K.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)  # (a, e) x (b, c)
    squares = torch.linalg.eigvalsh(matrix @ matrix.T).clamp_min(0.0).flip(0)  # of the singular values
    rank, leading = float(squares.sum() ** 2 / squares.square().sum()), squares[:LEADING] / squares.sum()
    return {"blocks": _blocks(K / K.norm(), spec), "rank": rank, "leading": tuple(leading.tolist())}


def _blocks(K: Float[Tensor, "D D D D"], spec: ModelSpec) -> dict[str, dict[str, float]]:
    """Energy by (destination a, source e) and by the block of the Gram matrix; xy stands for yx too."""
    x, y = label_indices(spec)
    channels = {"x": x, "y": y}

    def energy(a: str, b: str, c: str, e: str) -> float:
        return float(K[channels[a]][:, channels[b]][:, :, channels[c]][..., channels[e]].square().sum())

    return {
        a + e: {
            "xx": energy(a, "x", "x", e),
            "xy": energy(a, "x", "y", e) + energy(a, "y", "x", e),
            "yy": energy(a, "y", "y", e),
        }
        for a, e in ("xx", "xy", "yx", "yy")
    }
