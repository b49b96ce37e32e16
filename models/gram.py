"""The forward pass on Gram matrices: exact, and independent of the number of context tokens.

If every token sees the same keys, a layer is one linear map of all tokens of a prompt, with G = sum_j e_j e_j^T:

    e_i <- T e_i ,   T = r I + s * sum_h P_h G Q_h^T ,   G <- T G T^T         (r = 1 with a residual stream, else 0)

so the whole network is a function of the D x D Gram matrix of the keys. The adjoint of the same recursion gives the
derivative of any output with respect to every layer map at the cost of about two more forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.layers import HeadLayers
from interp.models.transformer import LinearTransformer

__all__ = ["GramTrajectory", "HeadLayers", "LayerMaps", "adjoint", "forward", "head_layers"]


@runtime_checkable  # so that beartype can check it in tests
class LayerMaps(Protocol):
    """Layers as maps G -> T - r I. A network and a recovered algorithm are both of this kind."""

    @property
    def scale(self) -> float:
        """The factor s in front of every sum over keys."""
        ...

    @property
    def residual(self) -> float: ...

    @property
    def layers(self) -> int: ...

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        """T - r I of one layer."""
        ...

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        """The adjoint of ``update``: the (symmetric) derivative of <cotangent, update(G)> with respect to G."""
        ...


def head_layers(model: LinearTransformer, context: int) -> HeadLayers:
    """The layer maps of ``model`` for prompts of ``context`` context tokens.

    Raises UsageError for causal keys (each token has a map of its own),
    LayoutError for a model with a layer that has no linear map of a prompt.
    """
    model.require_maps("a Gram matrix")
    return model.spec.attention.maps(model.Q, model.P, context, model.spec.residual)


@dataclass(frozen=True, eq=False)
class GramTrajectory:
    """What a forward pass leaves behind. ``grams[l]`` and ``queries[l]`` are the state before layer l; ``queries[L]``
    is the output; ``maps[l]`` is T^l."""

    maps: tuple[Float[Tensor, "prompt D D"], ...]
    grams: tuple[Float[Tensor, "prompt D D"], ...]
    queries: tuple[Float[Tensor, "prompt query D"], ...]


def forward(
    layers: LayerMaps, gram: Float[Tensor, "prompt D D"], query: Float[Tensor, "prompt query D"]
) -> GramTrajectory:
    """Run the layers on the Gram matrix of the keys and on the query tokens (one per row)."""
    identity = layers.residual * torch.eye(gram.shape[-1], dtype=gram.dtype)
    maps, grams, queries = [], [gram], [query]
    for layer in range(layers.layers):
        T = identity + layers.update(layer, gram)
        query = query @ T.mT
        maps.append(T)
        queries.append(query)
        if layer + 1 < layers.layers:  # the last layer's keys are never read again
            gram = T @ gram @ T.mT
            gram = 0.5 * (gram + gram.mT)
            grams.append(gram)
    return GramTrajectory(tuple(maps), tuple(grams), tuple(queries))


def adjoint(
    layers: LayerMaps, trajectory: GramTrajectory, seed: Float[Tensor, "prompt query D"]
) -> list[Float[Tensor, "prompt D D"]]:
    """d f / d T^l for every layer l, where f = <seed, output tokens> and later layers react to the change.

    With v the cotangent of the query tokens and S that of the Gram matrix after layer l,
    d f / d T = sum_q v_q e_q^T + 2 S T G.
    """
    out: list[Tensor] = []
    v = seed
    S: Tensor | None = None
    for layer in reversed(range(layers.layers)):
        T, G, e = trajectory.maps[layer], trajectory.grams[layer], trajectory.queries[layer]
        gamma = v.mT @ e
        if S is not None:
            gamma = gamma + 2.0 * (S @ T @ G)
        out.append(gamma)
        if layer:
            direct = layers.pullback(layer, gamma)
            S = direct if S is None else direct + T.mT @ S @ T
            v = v @ T
    return out[::-1]
