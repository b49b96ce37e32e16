"""The tokens of a prompt before layer 0 and after every layer, and a pass with those of one layer edited."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor

from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import Prompts
from interp.models.transformer import LinearTransformer

__all__ = ["edited_run", "layer_tokens", "token_hooks"]


def token_hooks(layers: int) -> list[str]:
    """The hook points of the tokens, by layers run: 0, the input, to ``layers``."""
    return ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(layers))]


def layer_tokens(model: LinearTransformer, prompts: Prompts) -> list[Float[Tensor, "prompt position D"]]:
    """By layers run: the context first, then the queries."""
    names = token_hooks(model.layers)
    _, cache = HookedLinearTransformer(model).run_with_cache(*prompts.inputs(model.spec), names_filter=names)
    return [cache[name] for name in names]


def edited_run(
    hooked: HookedLinearTransformer, inputs: Sequence[Tensor], layer: int, edit: Callable[[Tensor], Tensor]
) -> tuple[Float[Tensor, "prompt query output"], int]:
    """The predictions when ``edit`` replaces the tokens after ``layer`` layers, and in how many prompts it changed any.
    Raises RuntimeError when the hook did not run exactly once."""
    fired: list[int] = []

    def replace(tokens: Tensor, *, hook: object) -> Tensor:
        edited = edit(tokens)
        fired.append(int((edited != tokens).flatten(1).any(-1).sum()))
        return edited

    name = token_hooks(layer)[-1]
    prediction = hooked.run_with_hooks(*inputs, fwd_hooks=[(name, replace)])
    if len(fired) != 1:
        raise RuntimeError(f"the hook on {name} ran {len(fired)} times in one forward pass")
    return prediction, fired[0]
