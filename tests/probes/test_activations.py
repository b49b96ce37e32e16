"""Activations on the Gram path against the hooked token-by-token forward pass, and chunks of prompts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interp.algebra.unrolling import implicit_states
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.tasks.linear_dynamics import LinearDynamics
from interp.models.transformer import LinearTransformer
from interp.probes.activations import Reader, stream

TASK = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="uniform", values=(0.0, 2.0)))
ALL = ("token", "within-prompt", "gram")


def model(size: float = 0.08, **fields: Any) -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK.to_dict(), **fields})
    weights = size * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=weights[0], Q=weights[1])


SETTINGS = [{}, {"attention": {"keys": "all", "scale": "1/n"}}, {"residual": False}]


@pytest.mark.parametrize("fields", SETTINGS)
def test_both_paths_agree(fields: dict[str, Any]) -> None:
    given, prompts = model(**fields), TASK.sample(20, 5)
    positions = (None, 0, 7)
    reader = Reader(given, ALL, positions)
    found = reader.read(prompts)
    hooked = reader._hooked(prompts)
    for layer in range(given.layers + 1):
        for position in positions:
            ours, theirs = found.features("token", layer, position), hooked.features("token", layer, position)
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            found.features("gram", layer, None), hooked.features("gram", layer, None), rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("fields", SETTINGS)
def test_implicit_weights_are_those_of_the_unrolling(fields: dict[str, Any]) -> None:
    given, prompts = model(**fields), TASK.sample(6, 5)
    grams = prompts.grams(given.spec)
    states = implicit_states(forward(head_layers(given, 8), grams.gram, grams.query), given.spec)
    found = Reader(given, ("within-prompt",), ()).read(prompts)
    for layer, state in enumerate(states):
        torch.testing.assert_close(found.features("within-prompt", layer, None), state.w[:, 0], rtol=1e-12, atol=1e-14)


def test_a_model_with_a_clip_is_read_through_its_hooks() -> None:
    given, prompts = model(clip=1.0), TASK.sample(6, 5)
    found = Reader(given, ("token",), (None, 2)).read(prompts)
    _, cache = HookedLinearTransformer(given).run_with_cache(*prompts.inputs(given.spec))
    torch.testing.assert_close(found.features("token", 3, None), cache["blocks.2.hook_resid_post"][:, -1])
    torch.testing.assert_close(found.features("token", 0, 2), cache["blocks.0.hook_resid_pre"][:, 2])
    assert float(found.features("token", 3, None).abs().max()) <= 1.0


def test_causal_models_of_both_tasks() -> None:
    dynamics = LinearDynamics(dim=2, context=7)
    spec = ModelSpec.from_dict(
        {"tokens": [[n, 2] for n in "abcd"], "attention": {"keys": "causal"}, "readout": {"channel": "a", "sign": 1}}
    )
    weights = 0.1 * torch.randn(2, 2, 1, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    given = LinearTransformer(spec=spec, P=weights[0], Q=weights[1])
    for causal, prompts, query in [
        (given, dynamics.sample(4, 0), None),
        (model(attention={"keys": "causal"}), TASK.sample(4, 0), 8),
    ]:
        inputs = prompts.inputs(causal.spec)
        _, cache = HookedLinearTransformer(causal).run_with_cache(*inputs)
        position = 5 if query is None else None
        found = Reader(causal, ("token",), (position,)).read(prompts)
        for layer in range(causal.layers):
            expected = cache[f"blocks.{layer}.hook_resid_post"][:, 5 if query is None else query]
            assert torch.equal(found.features("token", layer + 1, position), expected)


def test_chunks_depend_on_the_seed_and_their_number_alone() -> None:
    def inputs(count: int, seed: int) -> torch.Tensor:
        return torch.cat([p.inputs(model().spec)[0] for p in stream(TASK, count, seed, 16)])  # type: ignore[union-attr]

    whole, first, other = inputs(50, 3), inputs(32, 3), inputs(32, 4)
    assert whole.shape[0] == 50 and torch.equal(whole[:32], first)
    assert not torch.equal(first, other) and not torch.equal(first[:16], first[16:])
