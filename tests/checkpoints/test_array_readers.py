"""Readers of array files: by content, complete or not at all, and without running anything."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.checkpoints import arrays, locating
from interp.checkpoints.scanning import scan
from interp.errors import InterpProbeError, LayoutError, UnreadableFile

W = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


class Command(Payload):
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def save_bytes(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def npz_bytes(**named: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **named)
    return buffer.getvalue()


def npy_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


WRITERS: dict[str, Callable[[], bytes]] = {
    "safetensors": lambda: safetensors.torch.save({"A": W, "B": W.double()}),
    "npz": lambda: npz_bytes(A=W.numpy(), B=W.double().numpy()),
    "torch": lambda: save_bytes({"A": W, "B": W.double()}),
}


# reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt", ".ckpt", ""])
def test_the_format_is_told_by_content(tmp_path: Path, kind: str, suffix: str) -> None:
    found = scan(write(tmp_path / f"file{suffix}", WRITERS[kind]()))
    assert found.format == kind
    assert {name: (info.shape, info.dtype) for name, info in found.arrays.items()} == {
        "A": ((3, 4), "float32"),
        "B": ((3, 4), "float64"),
    }
    loaded = found.load(["B", "A"])
    assert torch.equal(loaded["A"], W) and torch.equal(loaded["B"], W.double())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["safetensors", "torch", "npy"])
def test_all_dtypes_come_back_as_they_are(tmp_path: Path, dtype: str, kind: str) -> None:
    if (dtype, kind) == ("bfloat16", "npy"):
        return  # numpy has no bfloat16
    value = W.to(getattr(torch, dtype))
    content = {
        "safetensors": lambda: safetensors.torch.save({"W": value}),
        "torch": lambda: save_bytes({"W": value}),
        "npy": lambda: npy_bytes(value.numpy()),
    }[kind]()
    found = scan(write(tmp_path / "f", content))
    assert found.arrays["W"].dtype == dtype
    loaded = found.load(["W"])["W"]
    assert loaded.dtype == value.dtype and torch.equal(loaded, value)


@pytest.mark.parametrize("array", [W.double().numpy().astype(">f8"), np.asfortranarray(W.double().numpy())])
def test_byte_order_and_memory_order_do_not_matter(tmp_path: Path, array: Any) -> None:
    for content in (npy_bytes(array), npz_bytes(W=array)):
        found = scan(write(tmp_path / "f", content))
        assert found.arrays["W"].dtype == "float64"
        assert torch.equal(found.load(["W"])["W"], W.double())


def test_views_are_read_as_what_they_show(tmp_path: Path) -> None:
    content = save_bytes({"T": W.T, "row": W[1], "tied": W, "wide": torch.ones(1, 1).expand(5, 6)})
    loaded = scan(write(tmp_path / "f", content)).load(["T", "row", "tied", "wide"])
    assert torch.equal(loaded["T"], W.T) and loaded["T"].is_contiguous()
    assert torch.equal(loaded["row"], W[1]) and torch.equal(loaded["tied"], W)
    assert torch.equal(loaded["wide"], torch.ones(5, 6))
    loaded["tied"].zero_()  # of our own memory, not of the file's
    assert torch.equal(scan(tmp_path / "f").load(["tied"])["tied"], W)


@pytest.mark.parametrize("content", [npy_bytes(W.numpy()), save_bytes(W), save_bytes(torch.nn.Parameter(W))])
def test_a_lone_array_is_called_W(tmp_path: Path, content: bytes) -> None:
    found = scan(write(tmp_path / "f", content))
    assert torch.equal(found.load(["W"])["W"], W)
    assert "called W" in found.notes[0]


def test_an_array_that_is_not_there_suggests_one_that_is(tmp_path: Path) -> None:
    found = scan(write(tmp_path / "f", npz_bytes(weights=W.numpy())))
    with pytest.raises(LayoutError, match="did you mean 'weights'"):
        found.load(["wieghts"])


@pytest.mark.parametrize(
    "array", [np.eye(3, dtype=int), np.eye(3, dtype=complex), np.eye(3, dtype=bool), np.array("a")]
)
def test_arrays_of_other_dtypes_are_listed_but_not_weights(tmp_path: Path, array: Any) -> None:
    found = scan(write(tmp_path / "f", npz_bytes(other=array, W=W.numpy())))
    assert torch.equal(found.load(["W"])["W"], W)
    with pytest.raises(LayoutError, match=r"other in .* has dtype"):
        found.load(["other"])


# training checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["model", "state_dict", "model_state_dict", "ema", "params", "hist_dict"])
def test_training_checkpoints_are_unwrapped(tmp_path: Path, wrapper: str) -> None:
    content = {wrapper: OrderedDict(W=W), "epoch": 3, "optimizer": {"state": {0: {"exp_avg": W}}}}
    found = scan(write(tmp_path / "f", save_bytes(content)))
    assert list(found.arrays) == ["W"]
    assert found.notes == (f"read the entry {wrapper!r} of a training checkpoint ({', '.join(sorted(content))})",)


def test_wrappers_nest_and_prefixes_are_stripped_repeatedly(tmp_path: Path) -> None:
    inner = {"module._orig_mod.model.module.layers.0.Q": W, "module._orig_mod.model.module.layers.0.P": W}
    found = scan(write(tmp_path / "f", save_bytes({"state_dict": {"model": inner}, "epoch": 1})))
    assert list(found.arrays) == ["layers.0.Q", "layers.0.P"]
    assert torch.equal(found.load(["layers.0.P"])["layers.0.P"], W)
    assert len(found.notes) == 3
    assert "'module._orig_mod.model.module.'" in found.notes[2]


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_prefixes_are_stripped_in_every_format(tmp_path: Path, kind: str) -> None:
    named = {"module.A": W, "module.B": W}
    content = (
        npz_bytes(**{k: v.numpy() for k, v in named.items()})
        if kind == "npz"
        else safetensors.torch.save({k: v.clone() for k, v in named.items()})
    )
    found = scan(write(tmp_path / "f", content))
    assert sorted(found.arrays) == ["A", "B"]
    assert torch.equal(found.load(["B"])["B"], W)


def test_a_prefix_that_not_all_names_have_stays(tmp_path: Path) -> None:
    found = scan(write(tmp_path / "f", npz_bytes(**{"model.A": W.numpy(), "B": W.numpy()})))
    assert set(found.arrays) == {"model.A", "B"}


def test_nested_entries_get_dotted_names(tmp_path: Path) -> None:
    content = {"layers": [{"Q": W}, {"Q": W}], "lr": 0.1, "name": "run"}
    found = scan(write(tmp_path / "f", save_bytes(content)))
    assert list(found.arrays) == ["layers.0.Q", "layers.1.Q"]
    assert found.notes == ("left out, not arrays: lr, name",)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numpy_scalars_beside_the_tensors_are_read_over(tmp_path: Path, module: bytes) -> None:
    content = {"model_state_dict": {"W": W}, "loss": np.float64(0.5), "n": np.int64(3), "ok": np.bool_(True)}
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(save_bytes(content))) as source,
        zipfile.ZipFile(buffer, "w") as target,
    ):  # the name of the constructor depends on the numpy that wrote the file
        for member in source.infolist():
            data = source.read(member)
            if member.filename.endswith("data.pkl"):
                assert b"multiarray\nscalar" in data
                data = data.replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")
                data = data.replace(b"numpy.core.multiarray\n", module + b"\n")
            target.writestr(member.filename, data)
    found = scan(write(tmp_path / "f", buffer.getvalue()))
    assert torch.equal(found.load(["W"])["W"], W)


def test_methods_hidden_by_the_file_are_not_called(tmp_path: Path) -> None:
    content = OrderedDict(W=W)
    content.__dict__.update(get=1, keys="no function")
    assert torch.equal(scan(write(tmp_path / "f", save_bytes(content))).load(["W"])["W"], W)


# what must not run ---------------------------------------------------------------------------------------------------


def hostile_files(marker: Path) -> dict[str, bytes]:
    objects = np.array([Payload(marker)], dtype=object)
    files = {
        "torch": save_bytes({"W": W, "x": Payload(marker)}),
        "torch-command": save_bytes({"W": W, "x": Command(marker)}),
        "torch-legacy": save_bytes({"W": W, "x": Payload(marker)}, _use_new_zipfile_serialization=False),
        "npy": npy_bytes(objects),
        "npz": npz_bytes(W=W.numpy(), x=objects),
    }
    return files | {f"pickle-{p}": pickle.dumps(Payload(marker), protocol=p) for p in range(6)}


@pytest.mark.parametrize("kind", list(hostile_files(Path("unused"))))
@pytest.mark.parametrize("suffix", ["", ".safetensors", ".pt", ".npz", ".npy", ".pkl"])
def test_nothing_is_unpickled(tmp_path: Path, kind: str, suffix: str) -> None:
    marker = tmp_path / "executed"
    path = write(tmp_path / f"file{suffix}", hostile_files(marker)[kind])
    if kind.startswith(("torch", "npz")):  # an array lies beside the object, which is left out
        found = scan(path)
        assert list(found.arrays) == ["W"] and torch.equal(found.load(["W"])["W"], W)
        assert any(("left out" in note and "os" in note) or "io" in note for note in found.notes)
    else:
        with pytest.raises(UnreadableFile, match="ever unpickled") as caught:
            scan(path)
        assert "\n" not in str(caught.value)
    assert not marker.exists()


def test_the_payload_would_run_if_it_were_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(marker))).close()
    assert marker.exists()


def test_objects_beside_the_weights_are_left_out_by_name(tmp_path: Path) -> None:
    content = save_bytes({"W": W, "args": argparse.Namespace(lr=1)})
    assert scan(write(tmp_path / "f", content)).notes == (
        "left out, not arrays: args (the Python object argparse.Namespace)",
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_module_is_read_as_its_state(tmp_path: Path, zipped: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ModuleDict({"a": torch.nn.LayerNorm(3)}))
    found = scan(write(tmp_path / "f", save_bytes(module, _use_new_zipfile_serialization=zipped)))
    state = module.state_dict()
    assert set(found.arrays) == set(state)
    assert all(torch.equal(value, state[name]) for name, value in found.load(state).items())


def test_a_refusal_names_the_object_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"argparse\.Namespace.*torch\.save\(model\.state_dict\(\)"):
        scan(write(tmp_path / "f", save_bytes({"args": argparse.Namespace(lr=1)})))


# damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*WRITERS, "npy"])
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    content = npy_bytes(W.numpy()) if kind == "npy" else WRITERS[kind]()
    step = max(1, len(content) // 60)
    for length in [*range(0, 20), *range(20, len(content), step), len(content) - 1]:
        path = write(tmp_path / "f", content[:length])
        with pytest.raises(UnreadableFile) as caught:
            scan(path)
        assert "\n" not in str(caught.value)


@settings(max_examples=150)
@given(kind=st.sampled_from(list(WRITERS)), place=st.floats(0, 1), value=st.integers(0, 255), count=st.integers(1, 8))
def test_damaged_bytes_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, kind: str, place: float, value: int, count: int
) -> None:
    content = bytearray(WRITERS[kind]())
    start = int(place * (len(content) - count))
    content[start : start + count] = bytes([value]) * count
    try:
        found = scan(write(tmp_path_factory.mktemp("d") / "f", bytes(content)))
        found.load(found.arrays)
    except InterpProbeError as error:
        assert error.exit_code in (3, 4)


@pytest.mark.parametrize("length", [0, 7, 2**24, 2**40, 2**62, 2**64 - 1])
def test_an_absurd_safetensors_header_is_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(UnreadableFile):
        scan(write(tmp_path / "f", struct.pack("<Q", length) + b'{"a":1}'))


def bomb(path: Path, shape: tuple[int, ...], written: int) -> Path:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("W.npy", "w") as file:
        file.write(header.getvalue())
        for _ in range(written // 2**20):
            file.write(bytes(2**20))
    return path


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableFile, match="declares"):
        scan(bomb(tmp_path / "lies", (10**6, 10**6), 2**20))
    monkeypatch.setattr(arrays, "MEMORY", 2**23)  # so that the test need not write gigabytes
    honest = scan(bomb(tmp_path / "honest", (2**21,), 2**24))
    assert honest.size < 2**16
    with pytest.raises(UnreadableFile, match=r"declares 16777216 bytes of arrays, most in W .*, over the limit"):
        honest.load(["W"])


def test_a_tensor_that_is_mostly_strides_is_not_unfolded(tmp_path: Path) -> None:
    found = scan(write(tmp_path / "f", save_bytes({"W": torch.zeros(1, 1).expand(10**6, 10**6)})))
    with pytest.raises(UnreadableFile, match="over the limit"):
        found.load(["W"])


def test_a_file_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "f", npy_bytes(W.numpy()))
    monkeypatch.setattr(locating, "LIMIT", 100)
    with pytest.raises(UnreadableFile, match="over the limit of 100"):
        scan(path)


def test_a_huge_sparse_file_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "f", WRITERS["safetensors"]())
    os.truncate(path, 2**40)
    with pytest.raises(UnreadableFile, match="over the limit"):
        scan(path)


def cyclic() -> dict[str, Any]:
    content: dict[str, Any] = {"W": W}
    content["model"] = content
    return content


def doubling() -> dict[str, Any]:
    branch: list[Any] = []
    for _ in range(40):
        branch = [branch, branch]
    return {"model": {"W": W, "b": branch}}


def deep() -> dict[str, Any]:
    content: dict[str, Any] = {"W": W}
    for _ in range(60):
        content = {"a": content}
    return content


@pytest.mark.parametrize("content", [cyclic(), doubling(), deep()])
def test_entries_without_end_are_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    with pytest.raises(UnreadableFile, match="more than 100000 entries or nests"):
        scan(write(tmp_path / "f", save_bytes(content)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "none of the formats"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file"),
        (save_bytes({"epoch": 1}), "holds no tensors"),
        (save_bytes({"a.b": W, "a": {"b": W}}), "both be called 'a.b'"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UnreadableFile, match=message):
        scan(write(tmp_path / "f", content))


def test_other_zip_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "f", "w") as archive:
        archive.writestr("readme.txt", "text")
    with pytest.raises(UnreadableFile, match=r"neither \.npz nor a torch file"):
        scan(tmp_path / "f")
    with zipfile.ZipFile(tmp_path / "g", "w") as archive:
        archive.writestr("archive/data.pkl", "")
        archive.writestr("archive/constants.pkl", "")
    with pytest.raises(UnreadableFile, match="TorchScript"):
        scan(tmp_path / "g")
    with zipfile.ZipFile(tmp_path / "h", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1000))
    with pytest.raises(UnreadableFile, match="compressed"):
        scan(tmp_path / "h")


def test_places_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "a\0b", "cannot be opened"),
        (tmp_path / ("n" * 300), "cannot be opened"),
    ):
        with pytest.raises(UnreadableFile, match=message) as caught:
            scan(place)
        assert str(caught.value).isprintable()


def test_tensors_without_plain_data_are_listed_not_read(tmp_path: Path) -> None:
    content = {"sparse": W.to_sparse(), "meta": torch.empty(3, device="meta"), "W": W}
    found = scan(write(tmp_path / "f", save_bytes(content)))
    for name in ("sparse", "meta"):
        with pytest.raises(LayoutError, match=f"{name} in .* has dtype"):
            found.load([name])
    assert torch.equal(found.load(["W"])["W"], W)


def test_names_from_a_file_cannot_drive_the_terminal(tmp_path: Path) -> None:
    found = scan(write(tmp_path / "f", npz_bytes(**{"a\x1b[2J\n": np.eye(2, dtype=int)})))
    assert found.seen().isprintable()
    with pytest.raises(LayoutError) as caught:
        found.load(["a\x1b[2J\n"])
    assert str(caught.value).isprintable()
