"""A layer kind from outside the package: run with hooks, saved and opened, and told apart where it has no map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.errors import LayoutError, UsageError
from interp.models.gram import head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.layers import LAYERS, Layer, Shape, Site, register_layer
from interp.models.specification import AttentionSpec, ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.token_pass import predict, run
from interp.models.transformer import LinearTransformer

TASK = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="fixed", values=(1.0,)))
PLAIN = ModelSpec(tokens=(("x", 3), ("y", 1)), attention=AttentionSpec(scale="1/n"), task=TASK.to_dict())


@dataclass(frozen=True, kw_only=True)
class Gate(Layer):
    """e <- strength * gate * e, entry by entry."""

    name: ClassVar = "gate"
    words: ClassVar = "a gate"
    path: ClassVar = "gate"
    points: ClassVar = ("gate.hook_out",)

    strength: float = 1.0

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        return {"values": (stream,)}

    def run(self, tokens: Tensor, site: Site) -> Tensor:
        return site.at("gate.hook_out", self.strength * site.weights["values"] * tokens)


@pytest.fixture
def gated() -> Iterator[LinearTransformer]:
    """A plain network with a gate in every block."""
    register_layer(Gate)
    generator = torch.Generator().manual_seed(0)
    Q, P = 0.4 * torch.randn(2, 2, 2, 4, 4, generator=generator, dtype=torch.float64)
    values = 1.0 + 0.3 * torch.randn(2, 4, generator=generator, dtype=torch.float64)
    spec = replace(PLAIN, added=(Gate(strength=0.5),))
    yield LinearTransformer(spec=spec, Q=Q, P=P, tensors={"gate.values": values})
    del LAYERS["gate"]


def test_the_pass_runs_it_with_its_hook_points(gated):
    inputs = TASK.sample(5, 0).inputs(gated.spec)
    hooked = HookedLinearTransformer(gated)
    out, cache = hooked.run_with_cache(*inputs)
    e = torch.cat(inputs, 1)
    for layer in range(2):
        attention = run(PLAIN, {"Q": gated.Q[layer : layer + 1], "P": gated.P[layer : layer + 1]}, e, 8, keep := Last())
        assert attention.shape == out.shape
        e = 0.5 * gated.tensors["gate.values"][layer] * keep.tokens
        torch.testing.assert_close(cache[f"blocks.{layer}.gate.hook_out"], e, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(out, PLAIN.read(e[:, 8:]), rtol=1e-12, atol=1e-13)
    shut = hooked.run_with_hooks(*inputs, fwd_hooks=[("blocks.1.gate.hook_out", lambda t, hook: 0 * t)])
    assert bool((shut == 0).all()) and bool((out != 0).any())


class Last:
    tokens: Tensor

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self.tokens = value
        return value


def test_it_is_saved_and_opened_again(gated, tmp_path: Path):
    path = tmp_path / "m.safetensors"
    write_checkpoint(gated, path)
    back = open_checkpoint(str(path)).model
    assert back.spec == gated.spec and back.spec.find(Gate) == Gate(strength=0.5)
    inputs = TASK.sample(3, 0).inputs(gated.spec)
    assert torch.equal(predict(back, *inputs), predict(gated, *inputs))
    with pytest.raises(LayoutError, match=r"gate.values has shape \(2, 3\), expected \(2, 4\)"):
        replace(gated, tensors={"gate.values": torch.ones(2, 3, dtype=torch.float64)})
    with pytest.raises(LayoutError, match=r"unknown field gate\.strenth"):
        ModelSpec.from_dict({**gated.spec.to_dict(), "gate": {"strenth": 1.0}})


def test_there_is_no_gram_pass_and_analyse_says_why(gated, tmp_path: Path):
    write_checkpoint(gated, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(str(tmp_path / "m.safetensors"))
    assert PLAIN.no_map is None and gated.spec.no_map is not None
    for attempt in (lambda: head_layers(gated, 8), lambda: analyse(checkpoint, 64, 0)):
        with pytest.raises(LayoutError, match="no linear map of a prompt for a gate"):
            attempt()


def test_a_file_with_a_kind_that_is_not_registered_is_refused():
    with pytest.raises(LayoutError, match="unknown field 'gate'"):
        ModelSpec.from_dict({**PLAIN.to_dict(), "gate": {}})


def test_names_are_taken_once(gated):
    register_layer(Gate)  # again, as a module that is imported twice does

    @dataclass(frozen=True, kw_only=True)
    class Other(Layer):
        name: ClassVar = "gate"

    with pytest.raises(UsageError, match="'gate' is registered already"):
        register_layer(Other)
    with pytest.raises(LayoutError, match="two layers of a kind"):
        replace(gated.spec, added=(Gate(), Gate()))
