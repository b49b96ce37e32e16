"""The canonical checkpoint: round trip bit for bit, header first, and clear refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.checkpoints import arrays
from interp.checkpoints.canonical import read_header, write_checkpoint
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.errors import LayoutError, UnreadableFile, UsageError
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
FIELDS: dict[str, Any] = {
    "format": "interp-linear-transformer",
    "version": 1,
    "tokens": [["x", 2], ["y", 1]],
    "attention": {"keys": "context", "scale": "1"},
    "residual": True,
    "clip": None,
    "readout": {"channel": "y", "sign": -1},
    "task": {"name": "noisy_regression", "dim": 2, "context": 20, "noise": {"uniform": [0, 5]}},
    "provenance": {},
}


def model(dtype: torch.dtype = torch.float32, **fields: Any) -> LinearTransformer:
    generator = torch.Generator().manual_seed(0)
    Q, P = torch.randn(2, 2, 3, 3, 3, generator=generator, dtype=torch.float64).to(dtype)
    return LinearTransformer(spec=ModelSpec(tokens=(("x", 2), ("y", 1)), **fields), Q=Q, P=P)


def write_raw(path: Path, fields: Any, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A file with exactly these metadata, whatever they are."""
    text = fields if isinstance(fields, str) else json.dumps(fields)
    if tensors is None:
        tensors = {"Q": torch.zeros(2, 2, 3, 3), "P": torch.zeros(2, 2, 3, 3)}
    safetensors.torch.save_file(tensors, path, metadata={"interp": text})
    return path


def bits(value: torch.Tensor) -> torch.Tensor:
    return value.view(INTEGERS[value.element_size()])


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_is_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    # All bit patterns of the dtype are equally likely: subnormals, infinities, NaN payloads, minus zero.
    size = torch.tensor([], dtype=dtype).element_size()
    low, high = torch.iinfo(INTEGERS[size]).min, torch.iinfo(INTEGERS[size]).max
    generator = torch.Generator().manual_seed(1)
    Q, P = torch.randint(low, high, (2, 4, 3, 11, 11), generator=generator, dtype=INTEGERS[size]).view(dtype)
    spec = ModelSpec(tokens=(("x", 10), ("y", 1)))
    write_checkpoint(LinearTransformer(spec=spec, Q=Q, P=P), tmp_path / "m")
    opened = open_checkpoint(str(tmp_path / "m"))
    assert opened.model.Q.dtype == dtype
    assert torch.equal(bits(opened.model.Q), bits(Q))
    assert torch.equal(bits(opened.model.P), bits(P))
    assert (opened.layout, opened.dtype, opened.name, opened.notes) == ("canonical", str(dtype)[6:], "m", ())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.fixed_dictionaries(
    {
        "tokens": st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 3), min_size=1, max_size=4),
        "attention": st.fixed_dictionaries(
            {
                "keys": st.sampled_from(["context", "causal", "all"]),
                "scale": st.sampled_from(["1", "1/n", "1/(n+1)"]) | st.floats(allow_nan=False, allow_infinity=False),
            }
        ),
        "residual": st.booleans(),
        "clip": st.none() | st.floats(min_value=1e-3, max_value=1e9),
        "sign": st.sampled_from([-1, 1]),
        "task": st.none() | st.dictionaries(st.text(), json_values, max_size=3),
        "provenance": st.dictionaries(st.text(), json_values, max_size=3),
    }
)


@settings(max_examples=60)
@given(drawn=fields)
def test_every_specification_comes_back_equal(tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("spec") / "m"
    readout = {"channel": next(iter(drawn["tokens"])), "sign": drawn.pop("sign")}
    spec = ModelSpec.from_dict({**drawn, "tokens": list(drawn["tokens"].items()), "readout": readout})
    weights = torch.zeros(1, 1, spec.width, spec.width)
    write_checkpoint(LinearTransformer(spec=spec, Q=weights, P=weights), path)
    assert open_checkpoint(str(path)).model.spec == spec
    assert read_header(path).spec == spec


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    write_checkpoint(model(provenance={"a": 1, "b": 2}), tmp_path / "one")
    write_checkpoint(model(provenance={"b": 2, "a": 1}), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_file_is_what_the_contract_says(tmp_path: Path) -> None:
    write_checkpoint(model(), tmp_path / "m")
    with safetensors.safe_open(tmp_path / "m", framework="pt") as file:
        metadata = file.metadata()
        assert set(file.keys()) == {"Q", "P"}
        assert torch.equal(file.get_tensor("Q"), model().Q)
    assert set(metadata) == {"interp"}
    assert json.loads(metadata["interp"]) == {**FIELDS, "task": None}


def test_optional_fields_may_be_absent(tmp_path: Path) -> None:
    fields = {key: FIELDS[key] for key in ("format", "version", "tokens")}
    assert open_checkpoint(str(write_raw(tmp_path / "m", fields))).model.spec == ModelSpec(tokens=(("x", 2), ("y", 1)))


def test_tied_strided_and_trained_weights_are_written_as_they_are(tmp_path: Path) -> None:
    weights = torch.randn(3, 3, 1, 1, dtype=torch.float64).permute(2, 3, 1, 0).requires_grad_()
    write_checkpoint(LinearTransformer(spec=model().spec, Q=weights, P=weights), tmp_path / "m")
    opened = open_checkpoint(str(tmp_path / "m")).model
    assert torch.equal(opened.Q, weights.detach()) and torch.equal(opened.P, weights.detach())
    assert not opened.Q.requires_grad


def test_header_is_read_without_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(model(torch.bfloat16), tmp_path / "m")

    def refuse(*_: object) -> None:
        raise AssertionError("the weights were read")

    monkeypatch.setattr(arrays.ArrayFile, "load", refuse)
    header = read_header(tmp_path / "m")
    assert (header.shape, header.dtype, header.spec) == ((2, 3, 3, 3), "bfloat16", model().spec)
    assert inspect_checkpoint(str(tmp_path / "m")).layout == "canonical"


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(model(), tmp_path / "m")
    old = (tmp_path / "m").read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(UsageError, match="Input/output error"):
        write_checkpoint(model(torch.float64), tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == old
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_provenance_that_is_not_json_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(UsageError, match="JSON"):
        write_checkpoint(model(provenance={"loss": value}), tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("as_installed")
def test_a_dtype_outside_the_format_is_refused(tmp_path: Path) -> None:
    weights = torch.zeros(1, 1, 3, 3)
    for Q, P in ((weights.to(torch.float8_e5m2), weights.to(torch.float8_e5m2)), (weights, weights.double())):
        with pytest.raises(LayoutError, match="expected both in one of float16"):
            write_checkpoint(LinearTransformer(spec=model().spec, Q=Q, P=P), tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2, expected at most 1"),
        ({"version": "1"}, "version '1'"),
        ({"version": True}, "version True"),
        ({"format": "other"}, "format 'other', expected 'interp-linear-transformer'"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"residal": True}, "did you mean 'residual'"),
        ({"tokens": [["x", 10], ["y", 1]]}, "add up to D = 11"),
        ({"attention": {"keys": "contxt"}}, "did you mean 'context'"),
        ({"readout": {"channel": "z"}}, "readout.channel is 'z'"),
        ({"task": 3}, "task is 3"),
        ({"attention": {"scale": 10**400}}, "attention.scale is 1000"),
        ({"clip": 10**400}, "clip is 1000"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_metadata_that_make_no_model(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_raw(tmp_path / "m", {**FIELDS, **change})
    for read in (lambda: open_checkpoint(str(path)), lambda: read_header(path)):
        with pytest.raises(LayoutError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value)
    problem = inspect_checkpoint(str(path)).problem
    assert problem is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '"interp-linear-transformer"'])
def test_metadata_that_are_no_table(tmp_path: Path, text: str) -> None:
    with pytest.raises(LayoutError):
        open_checkpoint(str(write_raw(tmp_path / "m", text)))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"Q": torch.zeros(2, 2, 3, 3)}, "expected Q and P alone"),
        ({"Q": torch.zeros(2, 2, 3, 3), "P": torch.zeros(2, 2, 3, 3), "E": torch.zeros(2)}, "a newer interp-probe"),
        ({"Q": torch.zeros(3, 3), "P": torch.zeros(3, 3)}, r"\(3, 3\), expected \(layers, heads, D, D\)"),
        ({"Q": torch.zeros(2, 2, 3, 4), "P": torch.zeros(2, 2, 3, 4)}, "add up to D = 3"),
        ({"Q": torch.zeros(2, 2, 3, 3), "P": torch.zeros(2, 1, 3, 3)}, "expected the same"),
        ({"Q": torch.zeros(0, 2, 3, 3), "P": torch.zeros(0, 2, 3, 3)}, "none of them 0"),
        ({"Q": torch.zeros(2, 2, 3, 3), "P": torch.zeros(2, 2, 3, 3).double()}, "Q in float32 and P in float64"),
        ({"Q": torch.zeros(2, 2, 3, 3).int(), "P": torch.zeros(2, 2, 3, 3).int()}, "Q in int32"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_tensors_that_make_no_model(tmp_path: Path, tensors: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        open_checkpoint(str(write_raw(tmp_path / "m", FIELDS, tensors)))


def test_nan_weights_open_and_are_refused_by_analyses(tmp_path: Path) -> None:
    broken = model()
    broken.Q[1, 2, 0, 0] = float("nan")
    write_checkpoint(broken, tmp_path / "m")
    opened = open_checkpoint(str(tmp_path / "m"))
    with pytest.raises(UnreadableFile, match="1 of 54 values of Q are NaN or infinite \\(first in layer 1, head 2\\)"):
        opened.model.require_finite()


def test_a_file_that_is_not_canonical_has_no_canonical_header(tmp_path: Path) -> None:
    safetensors.torch.save_file({"A": torch.zeros(3)}, tmp_path / "m", metadata={"format": "pt"})
    with pytest.raises(LayoutError, match="not a canonical checkpoint"):
        read_header(tmp_path / "m")
