"""How much must be added to the omegas and traces to account for a network by its weights.

What is left of a layer's weight tensor is cut to its k leading singular directions (k rank-one heads, see
``interp.evidence.remainder``), in all layers at once: the family "equivariant and k more directions per layer". The
smallest k whose predictions follow the network's says whether what is left is of low rank where it matters, not only in
energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, weight_tensor
from interp.algebra.sensitivity import Prompts, predict
from interp.evidence.remainder import NOTHING, projected, remainder_tensor
from interp.identify.score import bootstrap_fidelity
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.results import Absorption

__all__ = ["TensorLayers", "absorption"]

WIDEST = 17  # D up to which all singular directions of the D^2 x D^2 remainder are computed
WHOLE = 0.999  # fidelity from which more directions are not tried


@dataclass(frozen=True, eq=False)
class TensorLayers:
    """Layers given by their weight tensors in full: (T - r I)[a, e] = s * sum_bc K[a, b, c, e] G[b, c]."""

    K: Float[Tensor, "layer D D D D"]
    scale: float
    residual: float

    @property
    def layers(self) -> int:
        return self.K.shape[0]

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        return self.scale * torch.einsum("abce,nbc->nae", self.K[layer], gram)

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        total = torch.einsum("abce,nae->nbc", self.K[layer], cotangent)
        return 0.5 * self.scale * (total + total.mT)


def absorption(
    network: HeadLayers,
    spec: ModelSpec,
    live: LiveCoordinates,
    prompts: Prompts,
    reference: Float[Tensor, "prompt output"],
    seed: int,
) -> tuple[Absorption, ...]:
    """Rows for k = 0, 1, 2, 4, 8, ... until the network is accounted for; none for a network with nothing left over,
    or too wide. ``reference`` is what the network predicts on ``prompts``."""
    if spec.width > WIDEST:
        return ()
    D = spec.width
    rest, parts = [], []
    coefficients = projected(network, live, (*omega_maps(spec), *trace_maps(spec)))[0].coefficients
    for layer in range(network.layers):
        reached, read = live.maps[layer].double(), live.channels[layer].double()
        whole = torch.einsum(
            "abce,ae,b,c->abce", weight_tensor(network.P[layer], network.Q[layer]), reached, read, read
        )
        left = remainder_tensor(network, spec, live, layer, coefficients[layer])
        if not bool(torch.isfinite(whole).all()) or not bool(torch.isfinite(left).all()):
            return ()
        rest.append((whole - left, float(left.square().sum()), float(whole.square().sum())))
        parts.append(torch.linalg.svd(left.permute(0, 3, 1, 2).reshape(D * D, D * D)))
    if all(energy <= NOTHING * total for _, energy, total in rest):
        return ()
    rows: list[Absorption] = []
    for k in (0, *(2**power for power in range((D * D - 1).bit_length())), D * D):
        cut = [
            (U[:, :k] * S[:k] @ Vh[:k]).reshape(D, D, D, D).permute(0, 2, 3, 1) + base
            for (U, S, Vh), (base, _, _) in zip(parts, rest, strict=True)
        ]
        layers = TensorLayers(torch.stack(cut), network.scale, network.residual)
        score = bootstrap_fidelity(predict(layers, prompts), reference, seed)
        rows.append(Absorption(directions=k, fidelity=score.fidelity, fidelity_ci=score.interval))
        if score.fidelity is not None and score.fidelity >= WHOLE:
            break
    return tuple(rows)
