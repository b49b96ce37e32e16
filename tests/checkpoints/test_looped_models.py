"""Looped networks: what is stored, what is run, and what a file may say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from interp.checkpoints.canonical import read_header, write_checkpoint
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.errors import LayoutError
from interp.models.closed_form import closed_form
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import SimpleRegression
from interp.models.transformer import LinearTransformer

DIM, STORED, LOOPS = 3, 2, 3


def spec_of(**fields: object) -> ModelSpec:
    task = {"name": "noisy_regression", "dim": DIM, "context": 6, "noise": {"uniform": [0, 1]}}
    return ModelSpec.from_dict({"tokens": [["x", DIM], ["y", 1]], "task": task, **fields})


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (STORED, 2, DIM + 1, DIM + 1)
    return {name: 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64) for name in ("Q", "P")}


@pytest.fixture
def looped() -> LinearTransformer:
    return LinearTransformer.unrolled(spec_of(loops=LOOPS), weights())


def test_a_looped_network_is_its_layers_copied_one_after_the_other(looped: LinearTransformer) -> None:
    Q, P = (torch.cat([w] * LOOPS) for w in weights().values())
    copied = LinearTransformer(spec=spec_of(), Q=Q, P=P)
    assert (looped.layers, looped.parameters) == (STORED * LOOPS, copied.parameters // LOOPS)
    context, query = torch.randn(2, 4, 6, DIM + 1, dtype=torch.float64)[:, :, :5].unbind()
    hooked = HookedLinearTransformer(looped)
    tokens = torch.cat([context, query], 1)
    assert torch.equal(hooked(context, query), HookedLinearTransformer(copied)(context, query))
    gram = context.mT @ context
    passed = forward(head_layers(looped, 5), gram, tokens).queries[-1]
    _, cache = hooked.run_with_cache(context, query)
    torch.testing.assert_close(cache[f"blocks.{STORED * LOOPS - 1}.hook_resid_post"], passed)


def test_every_pass_has_hook_points_of_its_own(looped: LinearTransformer) -> None:
    context, query = torch.randn(2, 1, 5, DIM + 1, dtype=torch.float64).unbind()
    hooked, seen = HookedLinearTransformer(looped), []
    names = [f"blocks.{layer}.hook_attn_out" for layer in range(1, STORED * LOOPS, STORED)]
    hooked.run_with_hooks(context, query, fwd_hooks=[(n, lambda t, hook: seen.append(hook.name)) for n in names])
    assert seen == names
    last = hooked.run_with_hooks(context, query, fwd_hooks=[(names[-1], lambda t, hook: 0 * t)])
    assert not torch.equal(last, hooked(context, query))


@pytest.mark.parametrize("build", [lambda: LinearTransformer.unrolled(spec_of(loops=LOOPS), weights()),
                                   lambda: looped_closed_form()])  # fmt: skip
def test_a_file_holds_one_pass(build: Callable[[], LinearTransformer], tmp_path: Path) -> None:
    model, path = build(), tmp_path / "m.safetensors"
    write_checkpoint(model, path)
    assert read_header(path).shape[0] == model.layers // model.spec.loops
    back = open_checkpoint(str(path))
    assert back.model.spec == model.spec
    found, expected = dict(back.model.named()), dict(model.named())
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    assert any("looped" in note for note in back.notes)
    assert inspect_checkpoint(str(path)).layers == model.layers


def looped_closed_form() -> LinearTransformer:
    """LayerNorm has tensors of every block, too; the embedding and the read-out are there once."""
    one = closed_form(SimpleRegression(context=6))
    return LinearTransformer.unrolled(dataclasses.replace(one.spec, loops=2), dict(one.named()))


def test_a_file_without_loops_is_as_it_was(tmp_path: Path) -> None:
    write_checkpoint(LinearTransformer(spec=spec_of(loops=1), **weights()), tmp_path / "m.safetensors")
    with safetensors.safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert "loops" not in json.loads(file.metadata()["interp"])
    assert not open_checkpoint(str(tmp_path / "m.safetensors")).notes


def test_a_spec_file_may_say_it(looped: LinearTransformer, tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", **{name: value.numpy() for name, value in weights().items()})
    (tmp_path / "spec.toml").write_text(
        'tokens = [["x", "D-1"], ["y", 1]]\nloops = 3\n[weights]\nQ = "Q[l, h]"\nP = "P[l, h]"\n'
    )
    model = open_checkpoint(str(tmp_path / "m.npz"), str(tmp_path / "spec.toml")).model
    assert model.spec.loops == LOOPS and torch.equal(model.Q, looped.Q) and torch.equal(model.P, looped.P)


def test_passes_that_differ_are_not_written(looped: LinearTransformer, tmp_path: Path) -> None:
    P = looped.P.clone()
    P[-1] *= 2
    with pytest.raises(LayoutError, match="P differs between passes"):
        write_checkpoint(dataclasses.replace(looped, P=P), tmp_path / "m.safetensors")


def test_weights_of_one_pass_alone_are_no_looped_model() -> None:
    with pytest.raises(LayoutError, match="unrolled"):
        LinearTransformer(spec=spec_of(loops=LOOPS), **weights())


def test_more_numbers_than_can_be_held_are_not_made() -> None:
    huge = {name: value.new_zeros(1).expand(STORED, 2**17, DIM + 1, DIM + 1) for name, value in weights().items()}
    with pytest.raises(LayoutError, match="loops is 1000"):
        LinearTransformer.unrolled(spec_of(loops=1000), huge)
