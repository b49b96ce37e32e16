"""Predictions on Gram matrices, and their derivatives with respect to every layer map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import GramTrajectory, LayerMaps, adjoint, forward

__all__ = ["LARGEST", "Prompts", "Sensitivities", "bounded_weights", "differentiate", "predict", "sensitivities"]

LARGEST = 30.0  # times its median over prompts: the size of a prediction, and how far weights move it


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts for a fit: Gram matrices, query tokens, and which token coordinates are read (with which sign)."""

    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt query D"]
    readout: tuple[int, ...]
    sign: int

    def __getitem__(self, index: slice) -> Prompts:
        return Prompts(self.gram[index], self.query[index], self.readout, self.sign)

    @property
    def count(self) -> int:
        return self.gram.shape[0]

    @property
    def outputs(self) -> int:
        return self.query.shape[1] * len(self.readout)

    def read(self, tokens: Float[Tensor, "prompt query D"]) -> Float[Tensor, "prompt output"]:
        return self.sign * tokens[..., list(self.readout)].flatten(1)


def predict(layers: LayerMaps, prompts: Prompts) -> Float[Tensor, "prompt output"]:
    return prompts.read(forward(layers, prompts.gram, prompts.query).queries[-1])


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Predictions with their derivatives: ``gammas[o][l]`` is d prediction_o / d T^l, one matrix per prompt."""

    prediction: Float[Tensor, "prompt output"]
    trajectory: GramTrajectory
    gammas: tuple[tuple[Float[Tensor, "prompt D D"], ...], ...]


def sensitivities(layers: LayerMaps, prompts: Prompts) -> Sensitivities:
    return differentiate(layers, forward(layers, prompts.gram, prompts.query), prompts)


def differentiate(layers: LayerMaps, trajectory: GramTrajectory, prompts: Prompts) -> Sensitivities:
    gammas = []
    for query in range(prompts.query.shape[1]):
        for coordinate in prompts.readout:
            seed = torch.zeros_like(prompts.query)
            seed[:, query, coordinate] = prompts.sign
            gammas.append(tuple(adjoint(layers, trajectory, seed)))
    return Sensitivities(prompts.read(trajectory.queries[-1]), trajectory, tuple(gammas))


def bounded_weights(network: LayerMaps, sensed: Sensitivities) -> Float[Tensor, " prompt"]:
    """min(1, 30 m(p) / |p|, 30 m(k) / k): p the network's prediction, k^2 = sum_l |Gamma_l|^2 |T_l - r I|^2, m the
    median over prompts. ``sensed`` are the network's own sensitivities.

    k is what a change of its layers by one part, each in its worst direction, does to the prediction. A deep network
    can explode on one prompt in a hundred, where its last digit of a weight moves more than all else is. Unweighted
    squares would be of that prompt alone. Nearly all weights are 1, and none looks at a residual.
    """
    sizes, reach = sensed.prediction.norm(dim=1), torch.zeros_like(sensed.prediction[:, 0])
    for layer, gram in enumerate(sensed.trajectory.grams):
        size = network.update(layer, gram).flatten(1).norm(dim=-1)
        for gammas in sensed.gammas:
            reach = torch.hypot(reach, gammas[layer].flatten(1).norm(dim=-1) * size)
    return torch.minimum(_bounded(sizes), _bounded(reach))


def _bounded(sizes: Float[Tensor, " prompt"]) -> Float[Tensor, " prompt"]:
    typical = sizes.median()
    if not bool(typical > 0):
        return torch.ones_like(sizes)
    return (LARGEST * typical / sizes.clamp_min(1e-300)).clamp(max=1.0)
