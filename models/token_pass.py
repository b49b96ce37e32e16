"""The token-by-token forward pass: one implementation for every layer kind, for analysis, hooks and training.

It forms the scores of all pairs of tokens, as a model is defined, and shares nothing with the Gram maps
(``interp.models.gram``), so that each checks the other. It is differentiable in weights and tokens, in the precision of
its arguments. Every intermediate value passes ``at(name, value)``, which hands back what the pass goes on with; the
names are those of the hook points of ``interp.models.hooked``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.layers import At, Layer, Site
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

__all__ = ["Record", "point_names", "predict", "run", "states"]


def unchanged(name: str, value: Tensor) -> Tensor:
    return value


class Record(dict[str, Tensor]):
    """An ``at`` that keeps the values by name: all, or those whose names end in one of ``wanted``."""

    def __init__(self, *wanted: str) -> None:
        super().__init__()
        self.wanted = wanted

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if not self.wanted or name.endswith(self.wanted):
            self[name] = value
        return value


def point_names(spec: ModelSpec, layers: int) -> list[str]:
    """The named values of a pass, in order of execution."""
    within = ["hook_resid_pre", *(point for kind in spec.kinds("block") for point in kind.points), "hook_resid_post"]
    return [
        *(point for kind in spec.kinds("start") for point in kind.points),
        *(f"blocks.{layer}.{point}" for layer in range(layers) for point in within),
        *(point for kind in spec.kinds("end") for point in kind.points),
    ]


def run(
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    tokens: Float[Tensor, "batch pos token"],
    context: int | None = None,
    at: At = unchanged,
) -> Float[Tensor, "batch query output"]:
    """The predictions at the query tokens, or at every token of a causal model.

    ``weights`` by their names in the canonical checkpoint. ``tokens``: ``context`` context tokens, then the queries; in
    a causal model ``context`` is all of them (None).
    """
    context = tokens.shape[1] if context is None else context
    scored = slice(None) if spec.attention.keys == "causal" else slice(context, None)
    channels = {channel.name: channel.indices for channel in spec.channels}

    def site(kind: Layer, before: Tensor, layer: int | None = None) -> Site:
        shapes = kind.tensors(spec.width, spec.stream)
        own = {short: weights[kind.key(short)] for short in shapes}
        return Site(
            weights=own if layer is None else {short: value[layer] for short, value in own.items()},
            at=at if layer is None else lambda name, value: at(f"blocks.{layer}.{name}", value),
            before=before,
            context=context,
            residual=spec.residual,
            channels=channels,
            scored=scored,
        )

    for kind in spec.kinds("start"):
        tokens = kind.run(tokens, site(kind, tokens))
    for layer in range(len(weights["Q"])):
        before = tokens = at(f"blocks.{layer}.hook_resid_pre", tokens)
        for kind in spec.kinds("block"):
            tokens = kind.run(tokens, site(kind, before, layer))
        if spec.clip is not None:
            tokens = tokens.clamp(-spec.clip, spec.clip)
        tokens = at(f"blocks.{layer}.hook_resid_post", tokens)
    for kind in spec.kinds("end"):
        tokens = kind.run(tokens, site(kind, tokens))
    return tokens


def predict(
    model: LinearTransformer,
    tokens: Float[Tensor, "batch pos token"],
    query: Float[Tensor, "batch query token"] | None = None,
    *,
    at: At = unchanged,
) -> Float[Tensor, "batch query output"]:
    """``run`` on the inputs of a task: context and query, or the sequence alone for causal keys."""
    given = tokens if query is None else torch.cat([tokens, query], 1)
    return run(model.spec, dict(model.named()), given, tokens.shape[1], at)


def states(
    spec: ModelSpec, weights: Mapping[str, Tensor], tokens: Float[Tensor, "batch pos token"], context: int | None = None
) -> list[Float[Tensor, "batch pos D"]]:
    """The tokens before the first block and after every block."""
    record = Record("hook_resid_pre", "hook_resid_post")
    run(spec, weights, tokens, context, record)
    return [
        record["blocks.0.hook_resid_pre"],
        *(record[f"blocks.{layer}.hook_resid_post"] for layer in range(len(weights["Q"]))),
    ]
