"""A small hooked network, and hooks, for the tests of the hook machinery."""

from __future__ import annotations

import torch
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

BATCH, LAYERS, HEADS, CONTEXT, QUERIES, WIDTH = 3, 2, 2, 4, 1, 3
SUFFIXES = ["hook_resid_pre", "attn.hook_scores", "attn.hook_head_out", "hook_attn_out", "hook_resid_post"]
NAMES = [f"blocks.{layer}.{suffix}" for layer in range(LAYERS) for suffix in SUFFIXES]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(keys: str = "context", scale_heads: tuple[float, float] = (1.0, 1.0)) -> HookedLinearTransformer:
    Q, P = 0.3 * normal(0, 2, LAYERS, HEADS, WIDTH, WIDTH)
    spec = ModelSpec.from_dict({"tokens": [["x", 2], ["y", 1]], "attention": {"keys": keys, "scale": "1/n"}})
    return HookedLinearTransformer(
        LinearTransformer(spec=spec, Q=Q, P=P * torch.tensor(scale_heads, dtype=P.dtype)[:, None, None])
    )


def double(tensor: Tensor, *, hook: HookPoint) -> Tensor:
    return 2 * tensor


def look(tensor: Tensor, *, hook: HookPoint) -> None:
    return None


def fail(tensor: Tensor, *, hook: HookPoint) -> None:
    raise ZeroDivisionError("in a hook")


def assert_clean(model: HookedLinearTransformer) -> None:
    """No hook is left, in the bookkeeping of transformer_lens or in torch's own."""
    assert model.list_hooks() == {}
    assert model.context_level == 0
    for point in model.hook_points():
        assert not point._forward_hooks and not point._backward_hooks
