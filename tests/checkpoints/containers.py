"""Checkpoints as other people's programs write them: of haiku, flax and jax, in gzip, in several files."""

from __future__ import annotations

import collections
import gzip
import io
import json
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch

Arrays = Mapping[str, np.ndarray]


def layer_arrays(layers: int = 2, D: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    """W_q, W_k, W_v and W_o of every layer, float32."""
    random = np.random.default_rng(seed)
    names = [f"layers.{layer}.W_{letter}" for layer in range(layers) for letter in "qkvo"]
    return {name: random.normal(size=(D, D)).astype(np.float32) for name in names}


SPEC = """
tokens = [["x", "D-1"], ["y", 1]]
weights = { Q = "layers.{l}.W_q.T @ layers.{l}.W_k", P = "layers.{l}.W_o @ layers.{l}.W_v" }
task = { name = "noisy_regression", dim = "D-1", context = 8, noise = { fixed = 0 } }
"""


@contextmanager
def modules_of_jax() -> Iterator[Callable[[np.ndarray], Any]]:
    """Modules that stand for jax and haiku while a pickle is written; gives what makes an array of jax."""
    array_module, haiku = types.ModuleType("jax._src.array"), types.ModuleType("haiku._src.data_structures")

    def _reconstruct_array(fun: Any, args: Any, arr_state: Any, aval_state: Any) -> Any:
        raise AssertionError("a pickle was executed")

    class ArrayImpl:
        def __init__(self, value: np.ndarray) -> None:
            self.value = value

        def __reduce__(self) -> tuple[Any, ...]:
            function, arguments, state = self.value.__reduce__()
            return _reconstruct_array, (function, arguments, state, {"weak_type": False})

    class FlatMapping:
        def __init__(self, mapping: Mapping[str, Any]) -> None:
            self.mapping = dict(mapping)

        def __reduce__(self) -> tuple[Any, ...]:
            return FlatMapping, (self.mapping,)

    for module, thing in ((array_module, _reconstruct_array), (array_module, ArrayImpl), (haiku, FlatMapping)):
        thing.__module__, thing.__qualname__ = module.__name__, thing.__name__
        setattr(module, thing.__name__, thing)
        sys.modules[module.__name__] = module
    parents = ("jax", "jax._src", "haiku", "haiku._src")
    sys.modules |= {name: types.ModuleType(name) for name in parents}
    array_module.FlatMapping = FlatMapping  # type: ignore[attr-defined]
    ArrayImpl.mapping = FlatMapping  # type: ignore[attr-defined]
    try:
        yield ArrayImpl
    finally:
        for name in (*parents, array_module.__name__, haiku.__name__):
            del sys.modules[name]


def haiku_pickle(arrays: Arrays, protocol: int) -> bytes:
    """{module: {parameter: array}} in immutable mappings, every array one of jax."""
    with modules_of_jax() as jax_array:
        modules: dict[str, dict[str, Any]] = collections.defaultdict(dict)
        for name, value in arrays.items():
            module, _, parameter = name.rpartition(".")
            modules[module][parameter] = jax_array(value)
        frozen = jax_array.mapping  # type: ignore[attr-defined]
        return pickle.dumps(frozen({name: frozen(inner) for name, inner in modules.items()}), protocol)


def nested(arrays: Arrays) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for name, value in arrays.items():
        *way, last = name.split(".")
        node = root
        for part in way:
            node = node.setdefault(part, {})
        node[last] = value
    return root


def flax_bytes(arrays: Arrays, **beside: Any) -> bytes:
    """As flax.serialization.to_bytes writes a state with params."""
    return packed({"params": nested(arrays), **beside})


def packed(value: Any) -> bytes:
    """MessagePack, as far as flax needs it."""
    if isinstance(value, dict):
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xda" + struct.pack(">H", len(text))) + text
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, bool) or value is None:
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    content = packed([list(value.shape), value.dtype.name, value.tobytes()])
    return b"\xc9" + struct.pack(">I", len(content)) + b"\x01" + content


def torch_bytes(content: Any, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}


def npy_of_objects(content: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, content, allow_pickle=True)
    return buffer.getvalue()


def npz_bytes(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def in_several_files(arrays: Arrays, folder: Path) -> Path:
    """Two files of safetensors and their index."""
    names = sorted(arrays)
    parts = {"a-00001-of-00002.safetensors": names[::2], "a-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        safetensors.numpy.save_file({name: arrays[name] for name in held}, folder / file)
    index = folder / "model.safetensors.index.json"
    places = {name: file for file, held in parts.items() for name in held}
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


WRITERS: dict[str, Callable[[Arrays], bytes]] = {
    **{f"haiku-{protocol}": lambda arrays, protocol=protocol: haiku_pickle(arrays, protocol) for protocol in range(6)},
    **{
        f"pickle-{protocol}": lambda arrays, protocol=protocol: pickle.dumps(dict(arrays), protocol)
        for protocol in range(6)
    },
    "flax": flax_bytes,
    "flax-train-state": lambda arrays: flax_bytes(arrays, step=3, opt_state={"0": {"mu": nested(arrays)}}),
    "torch": lambda arrays: torch_bytes(tensors(arrays)),
    "torch-legacy": lambda arrays: torch_bytes(tensors(arrays), zipped=False),
    "torch-parameters": lambda arrays: torch_bytes({k: torch.nn.Parameter(v) for k, v in tensors(arrays).items()}),
    "safetensors": lambda arrays: safetensors.numpy.save(dict(arrays)),
    "npz": lambda arrays: npz_bytes(**arrays),
    "npy-dictionary": lambda arrays: npy_of_objects(dict(arrays)),
    "npz-dictionary": lambda arrays: npz_bytes(params=np.array(dict(arrays), dtype=object)),
}
WRITERS |= {f"{name}-gzip": lambda arrays, write=write: gzip.compress(write(arrays)) for name, write in WRITERS.items()}
