"""The exact unrolling: the implicit linear model that a network holds after every layer.

With shared keys the tokens of a prompt all pass through the same maps, so e^l = C^l e^0 with C^l = T^{l-1} ... T^0.
Partitioned into inputs and label, C = [[M, u], [-w^T, a]], that is

    x_i^l = M^l x_i + u^l y_i ,      y_i^l = a^l y_i - <w^l, x_i>                          (versatile.md A3; theorem
    4.1)

exactly, with no probe. For labels of size k, u is (d, k), a is (k, k), and w is a matrix W of k rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import GramTrajectory
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

__all__ = ["ImplicitState", "implicit_states", "label_indices", "partition", "unclipped"]


@dataclass(frozen=True, eq=False)
class ImplicitState:
    """(M, u, w, a) of one layer; leading axes are prompts."""

    M: Float[Tensor, "*prompt input input"]
    u: Float[Tensor, "*prompt input label"]
    w: Float[Tensor, "*prompt label input"]
    a: Float[Tensor, "*prompt label label"]


def cumulative_maps(maps: tuple[Float[Tensor, "*prompt D D"], ...]) -> tuple[Float[Tensor, "*prompt D D"], ...]:
    """C^0 = I, C^1 = T^0, ..., C^L = T^{L-1} ... T^0."""
    out = [torch.eye(maps[0].shape[-1], dtype=maps[0].dtype).expand_as(maps[0])]
    for T in maps:
        out.append(T @ out[-1])
    return tuple(out)


def label_indices(spec: ModelSpec) -> tuple[list[int], list[int]]:
    """Positions of the inputs and of the label (the read-out channel) inside a token."""
    label = spec.channel(spec.readout.channel)
    inside = list(range(label.start, label.start + label.size))
    return [i for i in range(spec.width) if i not in inside], inside


def partition(cumulative: Float[Tensor, "*prompt D D"], spec: ModelSpec) -> ImplicitState:
    """Read (M, u, w, a) off C = [[M, u], [-w^T, a]]."""
    inputs, label = label_indices(spec)
    upper, lower = cumulative[..., inputs, :], cumulative[..., label, :]
    return ImplicitState(M=upper[..., inputs], u=upper[..., label], w=-lower[..., inputs], a=lower[..., label])


def implicit_states(trajectory: GramTrajectory, spec: ModelSpec) -> tuple[ImplicitState, ...]:
    """The implicit model before layer 0, 1, ..., L-1 and after the last layer."""
    return tuple(partition(C, spec) for C in cumulative_maps(trajectory.maps))


def unclipped(
    model: LinearTransformer,
    trajectory: GramTrajectory,
    context: Float[Tensor, "prompt context D"],
    query: Float[Tensor, "prompt query D"],
) -> Tensor:
    """Which prompts never meet the clip, so that the unrolling is exact for them (boolean, one per prompt)."""
    inside = torch.ones(context.shape[0], dtype=torch.bool)
    if model.spec.clip is None:
        return inside
    for C in cumulative_maps(trajectory.maps)[1:]:
        for tokens in (context, query):
            inside &= ((tokens @ C.mT).abs() <= model.spec.clip).flatten(1).all(-1)
    return inside
