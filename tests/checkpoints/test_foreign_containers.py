"""Files of other programs: read without running anything, whatever they are called and whatever lies beside."""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from containers import (
    SPEC,
    WRITERS,
    flax_bytes,
    in_several_files,
    layer_arrays,
    nested,
    npz_bytes,
    packed,
    tensors,
    torch_bytes,
)

from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.scanning import scan
from interp.errors import InterpProbeError, UnreadableFile

ARRAYS = layer_arrays()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def spec(folder: Path, text: str = SPEC) -> str:
    (folder / "spec.toml").write_text(text)
    return str(folder / "spec.toml")


def assert_is_the_network(opened: Any, arrays: Mapping[str, np.ndarray] = ARRAYS) -> None:
    def at(layer: int, letter: str) -> torch.Tensor:
        return torch.from_numpy(arrays[f"layers.{layer}.W_{letter}"]).double()

    for layer in range(2):
        Q = at(layer, "q").T @ at(layer, "k")
        P = at(layer, "o") @ at(layer, "v")
        torch.testing.assert_close(opened.model.Q[layer, 0].double(), Q)
        torch.testing.assert_close(opened.model.P[layer, 0].double(), P)


@pytest.mark.parametrize("kind", WRITERS)
def test_every_container_gives_the_same_network(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "weights.whatever", WRITERS[kind](ARRAYS))
    assert_is_the_network(open_checkpoint(path, spec(tmp_path)))


def test_a_checkpoint_in_several_files(tmp_path: Path) -> None:
    index = in_several_files(ARRAYS, tmp_path)
    opened = open_checkpoint(index, spec(tmp_path))
    assert_is_the_network(opened)
    changed = {**ARRAYS, "layers.0.W_q": ARRAYS["layers.0.W_q"] + 1}
    assert open_checkpoint(in_several_files(changed, tmp_path), spec(tmp_path)).sha256 != opened.sha256


@pytest.mark.parametrize("place", ["../a.safetensors", "/etc/passwd", "none", "model.safetensors.index.json", 3])
def test_an_index_leads_nowhere_else(tmp_path: Path, place: Any) -> None:
    index = in_several_files(ARRAYS, tmp_path)
    index.write_text(index.read_text().replace('"a-00001-of-00002.safetensors"', json.dumps(place)))
    with pytest.raises(UnreadableFile):
        scan(index)


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))


BESIDE = {
    "array of losses": lambda: np.arange(5.0),
    "random state": lambda: {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.RandomState(0),
    },
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "namespace": lambda: argparse.Namespace(lr=0.1, nested=argparse.Namespace(a=1)),
    "path": lambda: pathlib.PurePosixPath("runs/1"),
    "loss module": lambda: {"criterion": Loss()},
    "device, dtype, size": lambda: [torch.device("cpu"), torch.float32, torch.Size([3])],
    "counter": lambda: collections.Counter("abc"),
    "set": lambda: {1, 2},
    "numpy scalar": lambda: np.float64(0.5),
    "exception": lambda: ValueError("a"),
    "function": lambda: os.path.join,
    "optimiser": lambda: torch.optim.Adam([torch.nn.Parameter(torch.ones(2, 2))]),
    "odd keys": lambda: {(1, "a"): 1, None: 2, 1.5: 3, b"k": 4, -1: 5},
    "sparse": lambda: torch.eye(3).to_sparse(),
    "complex": lambda: 1 + 2j,
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("what", BESIDE)
def test_what_lies_beside_the_weights_does_no_harm(tmp_path: Path, what: str, zipped: bool) -> None:
    content = {"model_state_dict": tensors(ARRAYS), "beside": BESIDE[what](), "epoch": 3}
    path = write(tmp_path / "f.pt", torch_bytes(content, zipped))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_is_the_network(open_checkpoint(path, spec(tmp_path)))


@pytest.mark.parametrize("what", BESIDE)
def test_the_same_in_a_pickle_of_arrays(tmp_path: Path, what: str) -> None:
    path = write(tmp_path / "f.pkl", pickle.dumps({"params": dict(ARRAYS), "beside": BESIDE[what]()}))
    assert_is_the_network(open_checkpoint(path, spec(tmp_path)))


def test_objects_left_out_are_named(tmp_path: Path) -> None:
    content = {"model": tensors(ARRAYS), "where": pathlib.PurePosixPath("a"), "args": argparse.Namespace(lr=1)}
    notes = " ".join(open_checkpoint(write(tmp_path / "f", torch_bytes(content)), spec(tmp_path)).notes)
    assert "pathlib.PurePosixPath" in notes and "argparse.Namespace" in notes


def test_objects_in_an_npz_beside_the_weights(tmp_path: Path) -> None:
    content = npz_bytes(**ARRAYS, config=np.array({"lr": 0.1}, dtype=object), names=np.array(["a", None], dtype=object))
    assert_is_the_network(open_checkpoint(write(tmp_path / "f", content), spec(tmp_path)))


def test_tensors_of_a_kind_that_is_not_read_are_listed(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on writing
        quantised = torch.quantize_per_tensor(torch.ones(3, 2), 0.1, 0, torch.qint8)
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    content = {"model": tensors(ARRAYS), "q": quantised, "n": ragged, "m": torch.empty(2, 2, device="meta")}
    path = write(tmp_path / "f", torch_bytes(content))
    opened = open_checkpoint(path, spec(tmp_path))
    assert_is_the_network(opened)
    found = scan(path).everything
    assert [found[name].dtype for name in "qnm"] == ["quantised qint8", "nested float32", "float32 without data"]
    assert {entry.name for entry in opened.unused} == {"q", "n", "m"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", ">f8"])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("protocol", range(6))
def test_numpy_arrays_in_pickles_come_back_as_they_are(tmp_path: Path, dtype: str, order: str, protocol: int) -> None:
    array = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(dtype)
    stored = {"a": np.asfortranarray(array) if order == "F" else array, "b": array[::2, 1:].copy()}
    found = scan(write(tmp_path / "f", pickle.dumps(stored, protocol))).load("ab")
    assert np.array_equal(found["a"].numpy(), array) and np.array_equal(found["b"].numpy(), array[::2, 1:])


def test_a_python_2_pickle_of_numpy(tmp_path: Path) -> None:
    """Its bytes are text, in Latin 1."""
    dtype = b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01K\x02K\x01\x86"
    content = b"\x80\x02}U\x01W" + array + dtype + b"\x89U\x08\x00\x00\x80?\x00\x00\x00@tbs."
    assert scan(write(tmp_path / "f", content)).load("W")["W"].tolist() == [[1.0], [2.0]]


# what must not run, and what must not grow --------------------------------------------------------------------------


CANARIES = {
    "os.system": lambda marker: (os.system, (f"touch {marker}",)),
    "eval": lambda marker: (eval, (f"open({str(marker)!r}, 'w')",)),
    "subprocess": lambda marker: (subprocess.Popen, (["touch", str(marker)],)),
    "getattr": lambda marker: (getattr, ("text", "upper")),
    "mkdir": lambda marker: (os.mkdir, (str(marker),)),
}


class Canary:
    def __init__(self, kind: str, marker: Path) -> None:
        self.call = CANARIES[kind](marker)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("kind", CANARIES)
def test_nothing_runs_in_any_container(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "it-ran"
    canary = Canary(kind, marker)
    contents = [
        torch_bytes({"model": tensors(ARRAYS), "x": canary}),
        torch_bytes({"model": tensors(ARRAYS), "x": canary}, zipped=False),
        *(pickle.dumps({"params": dict(ARRAYS), "x": canary}, protocol) for protocol in range(6)),
        npz_bytes(**ARRAYS, x=np.array([canary], dtype=object)),
    ]
    for number, content in enumerate(contents):
        assert_is_the_network(open_checkpoint(write(tmp_path / f"f{number}", content), spec(tmp_path)))
    assert not marker.exists()


def limited(path: Path, *arguments: str) -> tuple[int, str, int, float]:
    """Exit code, stderr, peak memory in MB and seconds of the command on a file, in a process of its own."""
    code = (
        "import re, sys\nfrom interp.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    status = open('/proc/self/status').read()\n"  # what getrusage says includes the process that started it
        "    print(end.code, int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024, file=sys.stderr)\n"
    )
    start = time.monotonic()
    command = [sys.executable, "-c", code, "unroll", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *lines, last = done.stderr.strip().splitlines()
    status, memory = map(int, last.split())
    return status, "\n".join(lines), memory, time.monotonic() - start


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory was used")
def test_memory_is_bounded_before_it_is_taken(tmp_path: Path) -> None:
    described = spec(tmp_path, re.sub("weights = .*", 'weights = { Q = "W", P = "I" }', SPEC))
    wide = torch.zeros(1, 1).expand(30000, 30000)
    status, message, memory, seconds = limited(write(tmp_path / "f", torch_bytes({"W": wide})), "--spec", described)
    assert status in (3, 4) and message.count("\n") == 0 and memory < 700, (message, memory)
    assert seconds < 60


def rebuilt(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """A file of torch whose tensor has a shape that torch would not make."""
    content = torch_bytes({"W": torch.zeros(7, 5)})

    def ints(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"\x8a\x09" + value.to_bytes(9, "little", signed=True) for value in values) + b"t"

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(buffer, "w") as target:
        for member in source.infolist():
            data = source.read(member)
            if member.filename.endswith("data.pkl"):
                assert data.count(b"K\x07K\x05\x86") == 1 and data.count(b"K\x05K\x01\x86") == 1
                data = data.replace(b"K\x07K\x05\x86", ints(shape)).replace(b"K\x05K\x01\x86", ints(strides))
            target.writestr(member.filename, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2**31, 2**31), (2**31, 1)),
        ((2**62, 2**62), (0, 0)),
        ((-3, 5), (5, 1)),
        ((3, 5), (-5, 1)),
        ((3, 5), (5,)),
        ((3, 5), (2**62, 1)),
        ((8, 5), (5, 1)),
        ((2**31, 0), (1, 1)),
    ],
)
def test_sizes_that_cannot_be(tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    path = write(tmp_path / "f", rebuilt(shape, strides))
    try:
        found = scan(path)
        found.load(["W"])
        assert 0 in shape
    except InterpProbeError as error:
        assert error.exit_code == 3 and "\n" not in str(error)


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if not kind.endswith(("-gzip", "0", "1"))])
def test_a_file_cut_short_is_refused_or_damaged(tmp_path: Path, kind: str) -> None:
    content = WRITERS[kind](ARRAYS)
    for length in range(1, len(content), max(1, len(content) // 25)):
        with pytest.raises(UnreadableFile) as caught:
            found = scan(write(tmp_path / "f", content[:length]))
            found.load(found.arrays)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        packed({"a": 1}),
        packed({"params": {"W": [1, 2]}}),
        flax_bytes(ARRAYS) + b"\0",
        b"\x81\xa1a" + b"\x91" * 60_000,
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\x80\x04" + b"]" * 60_000 + b"a" * 100_000 + b".",
        b"\x80\x04" + b"(" * 60_000 + b".",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80\x02]" + b"2" * 60_000 + b"e.",
        b"\x80\x04K\x01" + b"\x85" * 60_000 + b"}\x8c\x01a" + b"s.",
    ],
)
def test_streams_without_end_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    start = time.monotonic()
    with pytest.raises(UnreadableFile) as caught:
        scan(write(tmp_path / "f", content))
    assert str(caught.value).isprintable() and time.monotonic() - start < 5


def test_nested_is_what_the_writers_need() -> None:
    assert nested({"a.b": np.ones(1), "a.c": np.ones(1)}).keys() == {"a"}
