"""The forward pass of causal models on batches of sequences, without hooks: for training and for fits.

With keys J(i) = {j <= i} every token has its own map, but not its own pass: all heads' scores are one product,

    score_h(i, j) = e_i^T Q_h e_j  (0 for j > i),      e_i <- clip(r e_i + s * sum_h sum_j score_h(i, j) P_h e_j)

Two batched matrix products per layer, whatever the number of heads, in the precision of the arguments.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import LayoutError
from interp.models.specification import ModelSpec

__all__ = ["causal_passage", "causal_prediction", "causal_update"]


def causal_update(
    tokens: Float[Tensor, "batch pos D"], Q: Float[Tensor, "head D D"], P: Float[Tensor, "head D D"]
) -> Float[Tensor, "batch pos D"]:
    """sum_h sum_{j <= i} (e_i^T Q_h e_j) P_h e_j, before the scale."""
    (batch, pos, D), heads = tokens.shape, Q.shape[0]
    # Destinations of all heads side by side, (batch, head * pos, D), and likewise sources.
    read = (tokens @ Q.permute(1, 0, 2).reshape(D, heads * D)).reshape(batch, pos, heads, D).transpose(1, 2)
    written = (tokens @ P.permute(2, 0, 1).reshape(D, heads * D)).reshape(batch, pos, heads, D).transpose(1, 2)
    scores = torch.bmm(read.reshape(batch, heads * pos, D), tokens.mT).reshape(batch, heads, pos, pos)
    scores = scores.tril().transpose(1, 2).reshape(batch, pos, heads * pos)
    return torch.bmm(scores, written.reshape(batch, heads * pos, D))


def causal_passage(
    spec: ModelSpec,
    Q: Float[Tensor, "layer head D D"],
    P: Float[Tensor, "layer head D D"],
    tokens: Float[Tensor, "batch pos D"],
) -> list[Float[Tensor, "batch pos D"]]:
    """The tokens before the first layer and after every layer.

    Raises LayoutError for a model whose tokens share their keys, or that has more than attention layers.
    """
    if spec.attention.keys != "causal":
        raise LayoutError(f"attention.keys is {spec.attention.keys!r}, expected 'causal'")
    if spec.additions:
        raise LayoutError(
            f"the model has {' and '.join(spec.additions)}, expected causal attention layers alone; "
            f"HookedLinearTransformer runs such a model"
        )
    scale = spec.attention.factor(tokens.shape[1])
    passage = [tokens]
    for q, p in zip(Q, P, strict=True):
        update = scale * causal_update(tokens, q, p)
        tokens = tokens + update if spec.residual else update
        if spec.clip is not None:
            tokens = tokens.clamp(-spec.clip, spec.clip)
        passage.append(tokens)
    return passage


def causal_prediction(spec: ModelSpec, tokens: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos output"]:
    """What is read out of tokens: sign * read-out channel, at every position."""
    return spec.readout.sign * tokens[..., spec.channel(spec.readout.channel).indices]
