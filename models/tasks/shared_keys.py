"""Prompts of examples (x_i, y_i) and queries (x_t, 0), as tokens and as Gram matrices: what several tasks share."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.specification import ModelSpec
from interp.models.tasks.protocol import GramPrompts

__all__ = ["example_tokens", "grams_of", "require_example_model"]


def require_example_model(spec: ModelSpec, name: str, dim: int, outputs: int) -> None:
    """Raise LayoutError for a model that does not read labels ``outputs`` wide of queries among shared keys."""
    _require_channels(spec, dim, outputs)
    if spec.attention.keys == "causal":
        raise LayoutError(
            f"attention.keys is 'causal' and task.name is {name!r}, expected keys 'context' or 'all': causal models of "
            "this task have no families yet; interp-probe inspect shows what the file holds"
        )
    if spec.readout.channel != "y":
        raise LayoutError(f"readout.channel is {spec.readout.channel!r}, expected 'y', the label that {name} asks for")


def _require_channels(spec: ModelSpec, dim: int, outputs: int) -> None:
    sizes = dict(spec.tokens)
    if sizes != {"x": dim, "y": outputs}:
        raise LayoutError(f"the model's channels are {sizes}, but the task needs x: {dim} and y: {outputs}")


def example_tokens(
    spec: ModelSpec,
    x: Float[Tensor, "prompt context dim"],
    y: Float[Tensor, "prompt context output"],
    query: Float[Tensor, "prompt query dim"],
) -> tuple[Float[Tensor, "prompt context D"], Float[Tensor, "prompt query D"]]:
    """Tokens (x_i, y_i) and (x_t, 0), laid out as ``spec`` names its channels."""
    _require_channels(spec, x.shape[-1], y.shape[-1])
    inputs, label = spec.channel("x").indices, spec.channel("y").indices
    context = x.new_zeros(*x.shape[:2], spec.width)
    context[..., inputs], context[..., label] = x, y
    queries = x.new_zeros(*query.shape[:2], spec.width)
    queries[..., inputs] = query
    return context, queries


def grams_of(
    spec: ModelSpec, context: Float[Tensor, "prompt context D"], query: Float[Tensor, "prompt query D"]
) -> GramPrompts:
    """Gram matrices of the keys; with keys = "all" the queries are among them."""
    gram = context.mT @ context
    if spec.attention.keys == "all":
        gram = gram + query.mT @ query
    return GramPrompts(gram=gram, query=query, context=context.shape[1])
