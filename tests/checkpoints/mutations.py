"""Inputs that nobody meant: files of every container and descriptions with every kind of wrong value, by seed."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import containers
import numpy as np
import safetensors.numpy

ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 1.5, -0.5, 1e308, 1e-320, 2**31, 2**63, 10**18, 10**400, float("nan"), float("inf"),
    "", "x", "D", "D-1", "1/D", "sqrt(D", "y" * 5000, "\x1b[31mEVIL\x1b]0;pwn\x07", "\u202egnp", "a\nb", "\x9b2J", "I",
    "W", "layers.{l}.W_q", "context", "all", "causal", "1/n", "noisy_regression", "linear_dynamics",
    "matrix_completion", "simple_regression", [], {}, [[]], [{}], {"a": {}}, {"": 1}, [1, 2], ["x", 3], [["x", 3]],
    {"fixed": 1}, {"uniform": [0, 1]}, {"uniform": [1, 0]}, {"choice": []}, {"channel": {}}, [None], [1e400],
)  # fmt: skip
HOSTILE = ("os system", "posix system", "builtins eval", "subprocess Popen", "builtins getattr", "os mkdir", "sys exit")
WORDS = [
    "I",
    "W",
    "layers.{l}.W_q",
    "layers.{l}.W_k",
    "layers.0.W_v",
    "layers.{l}.W_o",
    "layers.{h}.W_q",
    "'a'",
    "pad",
    "diag",
    "(",
    ")",
    "[",
    "]",
    ",",
    "@",
    "*",
    "-",
    ".T",
    "1",
    "2.5",
    "1e400",
    "l",
    "h",
    "0",
    "99",
    "-1",
    "{l}",
    "{l}{l}",
    "sqrt",
    "D",
    "+",
    "/",
    ":",
    "'",
    "\x1b",
    "é",
]

TASKS: tuple[dict[str, Any], ...] = (
    {"name": "noisy_regression", "dim": 3, "context": 6, "noise": {"uniform": [0, 1]}},
    {"name": "noisy_regression", "dim": 3, "context": 6, "noise": {"fixed": 0}, "covariance": [1, 2, 3]},
    {"name": "noisy_regression", "dim": 3, "context": 6, "noise": {"choice": [0, 1]}, "weight_std": 1},
)
FIELDS: dict[str, Any] = {
    "tokens": [["x", 3], ["y", 1]],
    "attention": {"keys": "context", "scale": "1"},
    "residual": True,
    "clip": None,
    "loops": 1,
    "readout": {"channel": "y", "sign": -1},
    "provenance": {"run": "a", "loss": 0.5},
}
DESCRIPTION: dict[str, Any] = {
    "tokens": [["x", "D-1"], ["y", 1]],
    "weights": {"Q": "layers.{l}.W_q.T @ layers.{l}.W_k", "P": "layers.{l}.W_o @ layers.{l}.W_v"},
    "attention": {"keys": "context", "scale": "1/n"},
    "residual": True,
    "loops": 1,
    "readout": {"channel": "y", "sign": -1},
    "tensors": {"layers.0.W_q": ["D", "D"]},
    "description": "a network",
    "provenance": {"run": "a"},
}


@dataclass(frozen=True)
class Input:
    """A file, and the description it is read with, if any."""

    kind: str
    content: bytes
    spec: str | None

    def write(self, folder: Path) -> list[str]:
        """Arguments of a command that reads it."""
        (folder / "input").write_bytes(self.content)
        if self.spec is None:
            return [str(folder / "input")]
        (folder / "spec.toml").write_text(self.spec, encoding="utf-8", errors="surrogatepass")
        return [str(folder / "input"), "--spec", str(folder / "spec.toml")]


def made(seed: int) -> Input:
    """The input of a seed."""
    rng = random.Random(seed)
    return rng.choice((_damaged, _damaged, _canonical, _canonical, _described, _described, _expression, _pickled))(rng)


def _plain_spec() -> str:
    return toml({**DESCRIPTION, "task": TASKS[0]})


def _damaged(rng: random.Random) -> Input:
    """A container with damaged bytes."""
    kind = rng.choice(list(containers.WRITERS))
    content = containers.WRITERS[kind](_arrays(rng))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        content = rng.choice(BYTES)(rng, content)
    return Input(f"damaged {kind}", content, _plain_spec())


def _canonical(rng: random.Random) -> Input:
    """A canonical file with one or two fields of another value."""
    fields = json.loads(json.dumps({**FIELDS, "task": rng.choice(TASKS)}))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        disturb(rng, fields)
    shape = rng.choice(((1, 1, 4, 4), (2, 2, 4, 4), *[(2, 1, 4, 4)] * 6, (0, 1, 4, 4), (4, 4), (1, 1, 4, 3)))
    arrays = {name: _numbers(rng, shape) for name in "QP"}
    if rng.random() < 0.1:
        arrays[rng.choice(("V", "\x1b[31m", "layernorm.weight"))] = np.ones(3)
    text = json.dumps({"format": "interp-linear-transformer", "version": 1, **fields})
    return Input("canonical", safetensors.numpy.save(arrays, {"interp": text}), None)


def _described(rng: random.Random) -> Input:
    """A sound file with a disturbed description, in any container."""
    fields = json.loads(json.dumps({**DESCRIPTION, "task": rng.choice(TASKS)}))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        disturb(rng, fields)
    kind = rng.choice(list(containers.WRITERS))
    content = containers.WRITERS[kind](_arrays(rng))
    return Input(f"described {kind}", content, toml(fields))


def _expression(rng: random.Random) -> Input:
    """Words of the language of weights in any order."""
    text = rng.choice(("", " ")).join(rng.choice(WORDS) for _ in range(rng.randint(1, 12)))
    weights = dict(DESCRIPTION["weights"]) | {rng.choice("QP"): text}
    arrays = _arrays(rng)
    return Input(
        "expression", safetensors.numpy.save(arrays), toml({**DESCRIPTION, "weights": weights, "task": TASKS[0]})
    )


def _pickled(rng: random.Random) -> Input:
    """A pickle whose names lead elsewhere, or whose steps are in disorder, on its own or within a file of torch."""
    arrays = _arrays(rng)
    beside = rng.choice((Canary(), {"a": Canary()}, [1, {"b": (Canary(),)}]))
    if rng.random() < 0.5:
        return Input("canary", pickle.dumps({"params": arrays, "x": beside}, rng.randint(0, 5)), _plain_spec())
    content = containers.torch_bytes({"model": containers.tensors(arrays), "x": beside}, zipped=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(buffer, "w") as target:
        for member in source.infolist():
            data = source.read(member)
            if member.filename.endswith("data.pkl"):
                for _ in range(rng.choice((0, 1, 2))):
                    data = rng.choice((_renamed, *BYTES))(rng, data)
            target.writestr(member.filename, data)
    return Input("torch structure", buffer.getvalue(), _plain_spec())


class Canary:
    """To unpickle it makes a folder, which the fuzzer looks for."""

    marker = "/tmp/never"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


# parts --------------------------------------------------------------------------------------------------------------


def _arrays(rng: random.Random) -> dict[str, np.ndarray]:
    arrays = containers.layer_arrays(rng.choice((1, 2, 3)), rng.choice((2, 4, 4, 7)), rng.randrange(100))
    if rng.random() < 0.1:
        name = rng.choice(("\x1b[2J", "module.n", "layers.0.norm.weight", "step", "a" * 3000, "layers.9.W_q", ""))
        arrays[name] = rng.choice((np.ones(3), np.zeros((0, 4)), np.array(3.0), np.full((4, 4), np.nan)))
    if rng.random() < 0.1:
        arrays["layers.0.W_q"] = _numbers(rng, rng.choice(((4, 4), (0, 0), (4,), (1, 4, 4), ())))
    return arrays


def _numbers(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(rng.randrange(1000)).normal(size=shape) * 0.1
    return np.asarray(values * rng.choice((1, 1, 1, 1, 0, 1e-310, 1e-160, 1e30, 1e200, np.nan)))


def disturb(rng: random.Random, fields: dict[str, Any]) -> None:
    """One value somewhere below is another, gone, or has company."""
    node: Any = fields
    while True:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.4:
            break
        node = node[key]
    what = rng.random()
    if what < 0.1 and isinstance(node, dict):
        del node[key]
    elif what < 0.25 and isinstance(node, dict):
        node[rng.choice(("new", "\x1b[31mEVIL", "a" * 3000, "", "\u202e", "name"))] = copy.deepcopy(rng.choice(ODD))
    elif what < 0.3:
        deep: Any = 1
        for _ in range(rng.choice((60, 300))):
            deep = [deep]
        node[key] = deep
    else:
        node[key] = copy.deepcopy(rng.choice(ODD))


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) or 1)]


def _drop(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + data[at + rng.randint(1, 16) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + data[at : at + rng.randint(1, 200)] * rng.randint(2, 20) + data[at:]


def _number(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data) or 1), rng.choice((4, 8))
    value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)) % 2 ** (8 * size)
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def _noise(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + rng.randbytes(rng.randint(1, 64)) + data[at:]


def _renamed(rng: random.Random, data: bytes) -> bytes:
    old = rng.choice(
        (b"torch._utils\n_rebuild_tensor_v2", b"collections\nOrderedDict", b"torch\nFloatStorage", b"posix\nmkdir")
    )
    return data.replace(old, rng.choice(HOSTILE).replace(" ", "\n").encode(), rng.choice((1, -1)))


BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _cut, _drop, _repeat, _number, _noise)


def toml(fields: dict[str, Any]) -> str:
    """A TOML document, as far as it can hold the values."""
    return "\n".join(f"{json.dumps(key)} = {_toml(value)}" for key, value in fields.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items() if entry is not None)
        return "{ " + inner + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(entry) for entry in value if entry is not None) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if value is not None else '"null"'
