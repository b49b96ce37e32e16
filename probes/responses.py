"""The implicit weights of a causal model, prefix by prefix: how a token that comes next would be answered.

With causal keys every token of a prompt passes through a map of its own, which one token cannot determine. So the
context is held fixed, and other queries (x, 0) are put after its first t tokens, one at a time. They change nothing
before them, so one pass over the prompt serves all; each attends to the t tokens and to itself,

    e <- clip(r e + s sum_h P_h (G_t^l + e e^T) Q_h^T e),      G_t^l = sum_{j < t} e_j^l (e_j^l)^T,

and its label after l layers is regressed on x by least squares without intercept (answers are odd in x):

    y^l(x) ~ -<w_t^l, x>.

The query is one of its own keys, and a clip cuts, so answers need not be linear in x: R^2, every query being predicted
from the fit to the others, says how far they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.stats.bootstrap import explained

__all__ = ["PrefixResponse", "prefix_responses", "queries", "split"]

QUERIES = 4  # per coordinate of x
ROUNDING = 1e-24  # share of the queries' mean square below which answers are rounding


@dataclass(frozen=True, eq=False)
class PrefixResponse:
    """After ``layer`` layers and the first t tokens. ``error`` and ``spread`` are sums of squares over the queries: of
    answers minus their predictions from the other queries, and of the answers."""

    layer: int
    w: Float[Tensor, "prompt weights"]
    error: Float[Tensor, " prompt"]
    spread: Float[Tensor, " prompt"]

    @property
    def r2(self) -> tuple[float | None, tuple[float | None, float | None]]:
        """How linear the answers are over all prompts, with its interval; None where there are no answers."""
        return explained(self.error, self.spread)


def queries(context: Float[Tensor, "prompt context D"], spec: ModelSpec) -> Float[Tensor, "query dim"]:
    """Inputs as large as those of the context's tokens, coordinate by coordinate; up to their size always alike."""
    x = context[..., split(spec)[0]]
    dim = x.shape[-1]
    drawn = torch.randn(QUERIES * dim, dim, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return drawn * x.square().mean((0, 1)).sqrt()


def prefix_responses(
    model: LinearTransformer,
    layers: Sequence[Float[Tensor, "prompt position D"]],
    x: Float[Tensor, "query input"],
    prefix: int,
) -> list[PrefixResponse]:
    """One entry per layer, 0 to L, from the ``layers`` of a whole sequence: its tokens before and after every layer."""
    spec = model.spec
    inputs, label = split(spec)
    scale = spec.attention.factor(layers[0].shape[1])
    start = x.new_zeros(len(x), spec.width)
    start[:, inputs] = x
    tokens = start.expand(layers[0].shape[0], -1, -1)
    out = [_fitted(0, tokens[..., label], x)]
    for layer in range(model.layers):
        seen = layers[layer][:, :prefix]
        gram = seen.mT @ seen
        change = torch.zeros_like(tokens)
        for P, Q in zip(model.P[layer], model.Q[layer], strict=True):
            asked = tokens @ Q  # rows Q_h^T e
            own = (tokens * asked).sum(-1, keepdim=True)
            change = change + (asked @ gram + own * tokens) @ P.mT
        tokens = (tokens if spec.residual else 0.0) + scale * change
        if spec.clip is not None:
            tokens = tokens.clamp(-spec.clip, spec.clip)
        out.append(_fitted(layer + 1, tokens[..., label], x))
    return out


def _fitted(
    layer: int, answers: Float[Tensor, "prompt query label"], x: Float[Tensor, "query input"]
) -> PrefixResponse:
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    coefficients = (right.mT / values) @ (left.mT @ answers)
    freedom = 1.0 - left.square().sum(-1)
    missed = (answers - x @ coefficients).square().sum(-1) / freedom**2
    spread = answers.square().sum((-1, -2))
    said = spread > ROUNDING * float(x.square().sum())
    return PrefixResponse(
        layer, -coefficients.mT.flatten(1), torch.where(said, missed.sum(-1), 0.0), torch.where(said, spread, 0.0)
    )


def split(spec: ModelSpec) -> tuple[list[int], list[int]]:
    """Positions of the inputs and of the label (the read-out channel) inside a token."""
    channel = spec.channel(spec.readout.channel).indices
    label = list(range(channel.start, channel.stop))
    return [i for i in range(spec.width) if i not in label], label
