"""The forward pass of models with LayerNorm, for many prompts at once, with every part that is added up.

Within a layer every token sees the same keys, so a head is one linear map of all tokens, P_h G Q_h^T with G the Gram
matrix of the keys, and LayerNorm acts on each token alone:

    part_h(i) = s P_h G Q_h^T e_i ,   z_i = e_i + sum_h part_h(i) ,   e_i <- LN(z_i)  or  e_i + LN(z_i)

Nothing here is shared with the token-by-token pass of ``interp.models.hooked``, which it is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.specification import LayerNorm, ModelSpec
from interp.models.transformer import LinearTransformer

__all__ = ["LayerPassage", "Passage", "normalise", "run", "run_model"]

Normalisation = Callable[[int, Tensor], Tensor]  # layer and tokens z -> what stands for LN(z)


@dataclass(frozen=True, eq=False)
class LayerPassage:
    """One layer: the tokens before it, what each head adds, their sum z with the tokens, and the tokens after it."""

    before: Float[Tensor, "prompt token D"]
    parts: Float[Tensor, "head prompt token D"]
    mid: Float[Tensor, "prompt token D"]
    after: Float[Tensor, "prompt token D"]

    @property
    def scale(self) -> Float[Tensor, "prompt token"]:
        """The standard deviation over the entries of z, that LayerNorm divides by (without eps)."""
        return self.mid.std(-1, correction=0)


@dataclass(frozen=True, eq=False)
class Passage:
    layers: tuple[LayerPassage, ...]
    prediction: Float[Tensor, " prompt"]


def normalise(
    norm: LayerNorm, z: Float[Tensor, "*batch D"], gain: Tensor | None, bias: Tensor | None
) -> Float[Tensor, "*batch D"]:
    """LN(z), without what ``placement`` adds to it."""
    centred = z - z.mean(-1, keepdim=True)
    out = centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    return out if gain is None or bias is None else gain * out + bias


def run(
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    tokens: Float[Tensor, "*batch token channel"],
    keys: int,
    scale: float,
    replaced: Normalisation | None = None,
) -> Passage:
    """``weights`` by their names in the canonical checkpoint; ``keys``: the first tokens, that are attended to.
    ``replaced`` stands for LayerNorm where it is given."""
    norm, e, layers = spec.layernorm, tokens, []
    if spec.embedding is not None:
        e = tokens @ weights["embedding.weight"].mT + weights["embedding.bias"]
    for layer in range(weights["Q"].shape[0]):
        source = e[..., :keys, :]
        gram = source.mT @ source
        maps = [scale * (P @ gram @ Q.mT) for Q, P in zip(weights["Q"][layer], weights["P"][layer], strict=True)]
        parts = torch.stack([e @ T.mT for T in maps])
        z = (e if spec.residual else 0.0) + parts.sum(0)
        after = z
        if norm is not None:
            gain, bias = (weights[f"layernorm.{name}"][layer] if norm.affine else None for name in ("gain", "bias"))
            after = normalise(norm, z, gain, bias) if replaced is None else replaced(layer, z)
            after = e + after if norm.placement == "before-skip" else after
        if spec.clip is not None:
            after = after.clamp(-spec.clip, spec.clip)
        layers.append(LayerPassage(before=e, parts=parts, mid=z, after=after))
        e = after
    if spec.readout.flat:
        read = (e * weights["readout.weight"]).sum((-1, -2)) + weights["readout.bias"]
    else:
        read = e[..., -1, spec.channel(spec.readout.channel).start]
    return Passage(layers=tuple(layers), prediction=spec.readout.sign * read)


def run_model(
    model: LinearTransformer,
    context: Float[Tensor, "prompt context channel"],
    query: Float[Tensor, "prompt 1 channel"],
    replaced: Normalisation | None = None,
) -> Passage:
    """``run`` on the prompts of a task with one query, which is read out, and one label."""
    tokens, n = torch.cat([context, query], 1), context.shape[1]
    keys = n if model.spec.attention.keys == "context" else n + 1
    return run(model.spec, dict(model.named()), tokens, keys, model.spec.attention.factor(n), replaced)
