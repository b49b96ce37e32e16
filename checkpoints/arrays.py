"""The header of an array file: names, shapes and dtypes, and a way to read the arrays asked for.

``interp.checkpoints.scanning`` makes it, of every kind of file that can be read.
"""

from __future__ import annotations

import hashlib
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from safetensors import SafetensorError

from interp.checkpoints.naming import Naming
from interp.checkpoints.stored import MEMORY
from interp.errors import LayoutError, UnreadableFile, did_you_mean, visible
from interp.models.tensors import Tensor

__all__ = ["FAULTS", "FLOATS", "ArrayFile", "ArrayInfo", "file_sha256", "first_line"]

FLOATS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes, by torch's name

# What the readers of damaged files raise. zlib's own error and a struct's are no ValueError; a nested header is parsed
# by Python itself, whose stack may end.
FAULTS = (
    OSError, ValueError, RuntimeError, EOFError, NotImplementedError, OverflowError, MemoryError, KeyError, TypeError,
    IndexError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, SafetensorError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ArrayInfo:
    """What a header says of one array. ``dtype`` is torch's name for it, e.g. "bfloat16"."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_weight(self) -> bool:
        """Whether it may be one of weights, if of a kind that is not read: counters and seeds beside them are not."""
        return len(self.shape) > 0 and (self.dtype in FLOATS or " " in self.dtype)


@dataclass(frozen=True, kw_only=True)
class ArrayFile:
    """``arrays``: by the names in use. ``notes`` say what was dropped or left out on the way to them."""

    path: Path
    format: str  # "safetensors", "npy", "npz", "torch", "pickle" or "msgpack"; "…, gzip"
    size: int  # of the file, bytes
    everything: Mapping[str, ArrayInfo]  # by the file's own names
    reader: Callable[[str], Tensor]  # by the file's own names
    namings: tuple[Naming, ...]  # the file's own first
    naming: Naming
    metadata: Mapping[str, str] = field(default_factory=dict)  # of a safetensors file
    said: Mapping[str, str | int | bool] = field(default_factory=dict)  # short texts and numbers beside the arrays
    left_out: tuple[str, ...] = ()  # notes on what is no array
    parts: tuple[Path, ...] = ()  # of a checkpoint in several files, all but the index

    @property
    def arrays(self) -> dict[str, ArrayInfo]:
        return {name: self.everything[own] for name, own in self.naming.names.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.naming.notes, *self.left_out)

    def forms(self) -> list[ArrayFile]:
        """The same file under each of its namings, its own first."""
        return [replace(self, naming=naming) for naming in self.namings]

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes; of several files, of their SHA-256 one after the other."""
        hashes = [file_sha256(path) for path in (self.path, *self.parts)]
        return hashes[0] if not self.parts else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def seen(self, most: int = 12) -> str:
        """The arrays in words, for error messages: ``A float32 (3, 4), B float32 (7,)``."""
        parts = [f"{visible(name, 200)} {info.dtype} {info.shape}" for name, info in list(self.arrays.items())[:most]]
        if len(self.arrays) > most:
            parts.append(f"and {len(self.arrays) - most} more")
        return ", ".join(parts) or "no arrays"

    def load(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The named arrays, contiguous, on the CPU, in the dtype of the file.

        Raises LayoutError for a name the file does not hold or a dtype that is not one of ``FLOATS``, UnreadableFile
        for damaged data or more than ``MEMORY`` bytes in float64.
        """
        wanted = list(dict.fromkeys(names))
        arrays = self.arrays
        for name in wanted:
            if name not in arrays:
                raise LayoutError(f"{self.path} holds no array {name!r}; {did_you_mean(name, arrays)}")
            if arrays[name].dtype not in FLOATS:
                raise LayoutError(
                    f"{visible(name, 200)} in {self.path} has dtype {arrays[name].dtype}, "
                    f"expected one of {', '.join(FLOATS)}"
                )
        sizes = {name: 8 * math.prod(arrays[name].shape) for name in wanted}
        if sum(sizes.values()) > MEMORY:
            largest = max(sizes, key=lambda name: sizes[name])
            raise UnreadableFile(
                f"{self.path} declares {sum(sizes.values())} bytes of arrays, most in {visible(largest, 200)} "
                f"{arrays[largest].shape}, over the limit of {MEMORY}; is this a linear transformer?"
            )
        out = {}
        for name in wanted:
            try:
                tensor = self.reader(self.naming.names[name])
            except FAULTS as error:
                raise UnreadableFile(
                    f"{visible(name, 200)} in {self.path} cannot be read: {first_line(error)}"
                ) from error
            if tuple(tensor.shape) != arrays[name].shape:
                raise UnreadableFile(f"{self.path} changed while it was being read; try again")
            out[name] = tensor.detach().contiguous().clone()
        return out


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_line(error: BaseException) -> str:
    """What an error says first, short enough for a message."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
    return visible(text, 200).rstrip(".")
