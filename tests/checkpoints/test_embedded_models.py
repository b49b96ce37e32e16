"""Canonical files with an embedding, LayerNorm and a flat read-out: optional, checked, and back bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from interp.checkpoints.canonical import read_header, write_checkpoint
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.errors import LayoutError, UnreadableFile
from interp.models.closed_form import closed_form, leverage_corrected
from interp.models.specification import ModelSpec
from interp.models.tasks import SimpleRegression

TASK = SimpleRegression(context=6)


@pytest.mark.parametrize("build", [closed_form, leverage_corrected])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip(tmp_path: Path, build: Callable[..., Any], dtype: torch.dtype) -> None:
    model = build(TASK).to(dtype)
    path = tmp_path / "m.safetensors"
    write_checkpoint(model, path)
    back = open_checkpoint(str(path)).model
    assert back.spec == model.spec
    found, expected = dict(back.named()), dict(model.named())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) and found[name].dtype == dtype for name in found)
    assert read_header(path).shape == (2, 2, 4, 4)
    assert inspect_checkpoint(str(path)).problem is None


def test_files_without_the_fields_do_not_mention_them() -> None:
    fields = ModelSpec(tokens=(("x", 2), ("y", 1))).to_dict()
    assert "embedding" not in fields and "layernorm" not in fields and "flat" not in fields["readout"]


def changed(tmp_path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> str:
    """The file of a construction after ``change`` of its fields and tensors."""
    path = tmp_path / "m.safetensors"
    write_checkpoint(leverage_corrected(TASK), path)
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, "pt") as file:
        fields = json.loads(file.metadata()["interp"])
    change(fields, tensors)
    safetensors.torch.save_file(tensors, path, metadata={"interp": json.dumps(fields)})
    return str(path)


def drop(name: str) -> Callable[..., None]:
    return lambda fields, tensors: tensors.pop(name)


def put(name: str, value: torch.Tensor) -> Callable[..., None]:
    return lambda fields, tensors: tensors.update({name: value})


def put_field(**new: Any) -> Callable[..., None]:
    return lambda fields, tensors: fields.update(new)


WIDE = {"dtype": torch.float64}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("embedding.weight"), "embedding.weight, .* which its fields ask for"),
        (drop("layernorm.gain"), "layernorm.gain"),
        (drop("readout.bias"), "readout.bias"),
        (put("surprise", torch.zeros(3, **WIDE)), "a newer interp-probe may know the others"),
        (put("embedding.weight", torch.zeros(4, 2, **WIDE)), r"embedding.weight has shape \(4, 2\), expected \(4, 3\)"),
        (put("readout.weight", torch.zeros(7, 3, **WIDE)), r"expected \(any, 4\)"),
        (put("readout.weight", torch.zeros(0, 4, **WIDE)), r"expected \(any, 4\)"),
        (put("layernorm.bias", torch.zeros(4, **WIDE)), r"layernorm.bias has shape \(4,\), expected \(2, 4\)"),
        (put("embedding.bias", torch.zeros(4, dtype=torch.float32)), "embedding.bias in float32"),
        (put_field(embedding=5), "the embedding leads to D = 5"),
        (put_field(embedding=None), "the channels .* add up to D = 3|expected Q, P"),
        (put_field(embedding=True), "embedding is True"),
        (put_field(embedding=0), "embedding is 0"),
        (put_field(layernorm={"placement": "inside"}), "layernorm.placement is 'inside'"),
        (put_field(layernorm={"eps": -1}), "layernorm.eps is -1"),
        (put_field(layernorm={"eps": 10**400}), "layernorm.eps is 1000"),
        (put_field(layernorm={"epsilon": 1}), "unknown field layernorm.epsilon"),
        (put_field(layernorm=[1]), "layernorm is"),
        (put_field(readout={"channel": "y", "sign": 1}), "expected true: embedded tokens have no channel"),
        (put_field(readout={"channel": "y", "sign": 1, "flat": 1}), "readout.flat is 1"),
        (put_field(attention={"keys": "causal", "scale": "1"}), "expected keys 'context' or 'all'"),
    ],
)
def test_what_contradicts_itself_is_a_layout_error(tmp_path: Path, change: Callable[..., None], said: str) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(LayoutError, match=said):
        open_checkpoint(path)
    assert inspect_checkpoint(path).problem is not None


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    weight = torch.zeros(7, 4, **WIDE)
    weight[2, 1] = float("nan")
    path = changed(tmp_path, put("readout.weight", weight))
    with pytest.raises(UnreadableFile, match=r"1 of 28 values of readout.weight .*at \[2, 1\]"):
        open_checkpoint(path).model.require_finite()
