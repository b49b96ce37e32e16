"""What each layer does: a family's layers in the network's place one at a time, and what of the weights is in them.

A family describes the mechanism when, layer by layer, its layer can stand in for the network's (with coefficients from
the output-weighted estimate, not refitted through the whole network), and the weights hold little else. A coefficient
that is surely not 0, by the weights and by the trajectory fit, belongs to the mechanism, however little the prediction
would suffer without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import BasisMap
from interp.algebra.gauge import LiveCoordinates, project
from interp.algebra.mixing import swapped
from interp.identify.networks import SharedKeys
from interp.identify.score import Score
from interp.models.gram import HeadLayers, LayerMaps

__all__ = ["Mechanism", "mechanism", "weight_errors"]

STANDS_IN = 0.95  # R^2 of the prediction with one layer exchanged, for the layer to be the family's
OUTSIDE = 0.15  # share of a layer's live weight energy that may be outside the family


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism:
    """``swaps[l]``: the network's predictions with layer l exchanged, against its own; ``outside[l]``: the share of
    its live weight energy that the family does not hold (None: it has none)."""

    swaps: tuple[Score, ...]
    outside: tuple[float | None, ...]

    def holds(self, end: int = 0) -> bool:
        """``end``: of the intervals, where the scores are read (``Score.reaches``)."""
        return all(s.reaches(STANDS_IN, end) for s in self.swaps) and all(
            share is None or share <= OUTSIDE for share in self.outside
        )


def mechanism(family: LayerMaps, maps: Sequence[BasisMap], network: SharedKeys, seed: int) -> Mechanism:
    """``family``: its layers with coefficients of their own, not refitted together; ``maps``: what they are made of."""
    half, layers = network.judged, network.layers
    swaps, outside = [], []
    for layer in range(layers.layers):
        part = project(layers.P[layer], layers.Q[layer], maps, network.live, layer)
        outside.append(max(0.0, 1.0 - part.explained / part.energy) if part.energy > 0 else None)
        swaps.append(half.score(half.predicted(swapped(layers, family, layer)), seed))
    return Mechanism(swaps=tuple(swaps), outside=tuple(outside))


def weight_errors(
    layers: HeadLayers, maps: Sequence[BasisMap], live: LiveCoordinates
) -> tuple[Float[Tensor, "layer map"], Float[Tensor, "layer map"]]:
    """The projections of the weights on ``maps``, and their standard errors were the rest of the weights noise.

    The rest of K, of energy E over N live entries, is as if each entry had variance E / N. Noise of one head's P or Q
    is the same in many entries of K, at most D of one map together: so a standard error is D sqrt(E / N) / |map|.
    """
    values, errors = [], []
    for layer in range(layers.layers):
        part = project(layers.P[layer], layers.Q[layer], maps, live, layer)
        entries = float(live.maps[layer].sum()) * float(live.channels[layer].sum()) ** 2
        rest = max(part.energy - part.explained, 1e-24 * part.energy)
        values.append(part.coefficients)
        errors.append(live.maps.shape[-1] * (rest / max(entries, 1.0)) ** 0.5 / part.norms)
    return torch.stack(values), torch.stack(errors)
