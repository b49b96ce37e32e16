"""Tensors from torch's zip ``.pt`` files, by torch's weights-only reader, on the CPU, with nothing unpickled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.checkpoints.locating import shown
from interp.errors import UnreadableFile

__all__ = ["WRAPPERS", "dtype_of", "read_tensors"]

# Entries of training checkpoints that hold the model, in order of preference.
WRAPPERS = (
    "model_state_dict", "state_dict", "model", "module", "network", "net", "params", "weights",
    "ema_state_dict", "ema", "hist_dict",
)  # fmt: skip

_ENTRY_LIMIT = 100_000
_DEPTH_LIMIT = 50


class _IgnoredDtype:
    """Stands for numpy.dtype: numpy's own would take its flags from the file on trust."""

    def __init__(self, *description: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _ignored_scalar(*description: Any) -> None:
    """Stands for the constructor of numpy scalars (a loss, a step count): read over, not built."""


# Numpy scalars sit in many training checkpoints and are refused by the plain weights-only reader.
_STAND_INS = [
    (_IgnoredDtype, "numpy.dtype"),
    (_ignored_scalar, "numpy.core.multiarray.scalar"),
    (_ignored_scalar, "numpy._core.multiarray.scalar"),
]


def read_tensors(path: Path, label: str) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """All tensors of the archive by dotted name, mapped rather than read, and notes on what was unwrapped or left out.

    A lone tensor is named W. Raises UnreadableFile when the archive is damaged or needs any Python object to be built.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < (2, 10):  # CVE-2025-32434, CVE-2026-24747: the weights-only reader ran code from the file
        raise UnreadableFile(
            f"torch {torch.__version__} cannot read {label} safely; install torch>=2.10, or save it as safetensors"
        )
    # torch.load takes a path that ends so for a safetensors file, whatever is in it; a stream it cannot map.
    mapped = not path.name.endswith(".safetensors")
    try:
        with torch.serialization.safe_globals(_STAND_INS), open(path, "rb") as file:
            content = torch.load(path if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a hostile stream can make the reader raise anything
        raise UnreadableFile(_refusal(label, str(error))) from error
    if isinstance(content, Tensor):
        return {"W": content.detach()}, ("the file's single array has no name; it is called W",)
    content, notes = _unwrap(content, label)
    tensors: dict[str, Tensor] = {}
    others = []
    for name, value in _leaves(content, label):
        if isinstance(value, Tensor):
            if name in tensors:
                raise UnreadableFile(f"{label} holds two tensors that would both be called {name!r}; rename one")
            tensors[name] = value.detach()
        else:
            others.append(shown(name))
    if not tensors:
        raise UnreadableFile(f"{label} is a torch file that holds no tensors, expected a state dict")
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(f"left out, not arrays: {', '.join(others[:8])}{more}")
    return tensors, tuple(notes)


def _refusal(label: str, message: str) -> str:
    found = re.search(r"GLOBAL (\S+)|instance of ([\w.]+)|\bgot <class '([\w.]+)'>", message)
    if found:
        needed = next(group for group in found.groups() if group)
        return (
            f"{label} needs the Python object {needed}, which could run code, and nothing is ever unpickled; "
            "save the tensors alone: torch.save(model.state_dict(), PATH)"
        )
    line = next((text.strip() for text in message.splitlines() if text.strip()), "unreadable")
    return f"{label} is a damaged or unsupported torch file: {line[:200]}"


def _unwrap(content: Any, label: str) -> tuple[Any, list[str]]:
    notes = []
    for _ in range(_DEPTH_LIMIT):
        if not isinstance(content, dict):
            break
        # dict.get, not content.get: an OrderedDict from a file may carry attributes that hide its methods.
        wrapper = next((key for key in WRAPPERS if _holds_tensor(dict.get(content, key), label)), None)
        if wrapper is None:
            break
        keys = sorted(str(key) for key in dict.keys(content))
        beside = ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")
        notes.append(f"read the entry {wrapper!r} of a training checkpoint ({beside})")
        content = dict.get(content, wrapper)
    return content, notes


def _holds_tensor(value: Any, label: str) -> bool:
    return isinstance(value, dict) and any(isinstance(leaf, Tensor) for _, leaf in _leaves(value, label))


def _leaves(root: Any, label: str) -> Iterator[tuple[str, Any]]:
    """Whatever in nested dicts and lists is neither, by dotted name. A file can nest without end; this cannot."""
    stack: list[tuple[str, Any, int]] = [("", root, 0)]
    visited = 0
    while stack:
        prefix, node, depth = stack.pop()
        visited += 1
        if depth > _DEPTH_LIMIT or visited > _ENTRY_LIMIT:
            raise UnreadableFile(
                f"{label} has more than {_ENTRY_LIMIT} entries or nests them deeper than {_DEPTH_LIMIT}; "
                "expected a state dict"
            )
        if isinstance(node, dict):
            items = [(str(key), value) for key, value in dict.items(node)]
        elif isinstance(node, (list, tuple)):
            items = [(str(index), value) for index, value in enumerate(node)]
        else:
            yield prefix, node
            continue
        stack.extend((f"{prefix}.{key}" if prefix else key, value, depth + 1) for key, value in reversed(items))


def dtype_of(tensor: Tensor) -> str:
    """Torch's name of it, and what else keeps a tensor from being read as numbers."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')} {dtype}"
    return f"{dtype} without data" if tensor.is_meta else dtype
