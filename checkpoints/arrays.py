"""Safe readers of array files, told apart by content, never by extension.

``scan`` reads only headers: names, shapes and dtypes. ``ArrayFile.load`` then reads the arrays asked for. Nothing is
unpickled: legacy pickles and object arrays are refused, zip ``.pt`` files go through torch's weights-only reader.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from interp.checkpoints.locating import LIMIT, beginning, shown
from interp.errors import LayoutError, UnreadableFile, did_you_mean
from interp.models.tensors import Tensor

__all__ = ["FLOATS", "ArrayFile", "ArrayInfo", "file_sha256", "scan"]

FLOATS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes, by torch's name
PREFIXES = ("module.", "_orig_mod.", "model.")  # left by DataParallel, torch.compile and trainer classes

_SAFETENSORS_HEADER_LIMIT = 100_000_000  # bytes, as the format itself has it
_SAFETENSORS_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ArrayInfo:
    """What a header says of one array. ``dtype`` is torch's name for it, e.g. "bfloat16"."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class ArrayFile:
    """The header of an array file. ``notes`` say what was unwrapped, stripped or left out on the way to ``arrays``."""

    path: Path
    format: str  # "safetensors", "npy", "npz" or "torch"
    size: int  # of the file, bytes
    arrays: Mapping[str, ArrayInfo]
    reader: Callable[[str], Tensor]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of a safetensors file
    notes: tuple[str, ...] = ()

    def seen(self, most: int = 12) -> str:
        """The arrays in words, for error messages: ``A float32 (3, 4), B float32 (7,)``."""
        parts = [f"{shown(name)} {info.dtype} {info.shape}" for name, info in list(self.arrays.items())[:most]]
        if len(self.arrays) > most:
            parts.append(f"and {len(self.arrays) - most} more")
        return ", ".join(parts) or "no arrays"

    def load(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The named arrays, contiguous, on the CPU, in the dtype of the file.

        Raises LayoutError for a name the file does not hold or a dtype that is not one of ``FLOATS``, UnreadableFile
        for damaged data or more than ``LIMIT`` bytes.
        """
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name not in self.arrays:
                raise LayoutError(f"{self.path} holds no array {name!r}; {did_you_mean(name, self.arrays)}")
            info = self.arrays[name]
            if info.dtype not in FLOATS:
                raise LayoutError(
                    f"{shown(name)} in {self.path} has dtype {info.dtype}, expected one of {', '.join(FLOATS)}"
                )
        sizes = {n: math.prod(self.arrays[n].shape) * FLOATS[self.arrays[n].dtype] for n in wanted}
        if sum(sizes.values()) > LIMIT:
            largest = max(sizes, key=lambda name: sizes[name])
            raise UnreadableFile(
                f"{self.path} declares {sum(sizes.values())} bytes of arrays, most in {shown(largest)} "
                f"{self.arrays[largest].shape}, over the limit of {LIMIT}; is this a linear transformer?"
            )
        out = {}
        for name in wanted:
            try:
                tensor = self.reader(name)
            except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
                raise UnreadableFile(f"{shown(name)} in {self.path} cannot be read: {_first_line(error)}") from error
            if tuple(tensor.shape) != self.arrays[name].shape:
                raise UnreadableFile(f"{self.path} changed while it was being read; try again")
            out[name] = tensor.detach().contiguous().clone()
        return out


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scan(path: str | os.PathLike[str]) -> ArrayFile:
    """Read the header of a safetensors, ``.npy``, ``.npz`` or torch zip file, whatever it is called.

    Raises UnreadableFile for anything else: missing, empty, truncated, a folder, too large, or not safe to read.
    """
    place = Path(path)
    label = shown(str(path))
    size, start = beginning(place)
    try:
        str(place).encode()
    except UnicodeEncodeError:  # the readers of safetensors and torch take no other names
        raise UnreadableFile(f"the name {label} is not UTF-8, expected one that is; rename the file") from None
    if start[8:9] == b"{":
        found = _scan_safetensors(place, label, size, start)
    elif start.startswith(b"\x93NUMPY"):
        found = _scan_npy(place, label, size)
    elif start.startswith(b"PK\x03\x04"):
        found = _scan_zip(place, label, size)
    elif start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise UnreadableFile(
            f"{label} is a Python pickle, which can run code and is never unpickled; save the tensors again with "
            "safetensors.torch.save_file, numpy.savez, or torch.save of a state dict (torch 1.6 or later)"
        )
    else:
        raise UnreadableFile(
            f"{label} ({size} bytes) is none of the formats that can be read: safetensors, .npy, .npz, torch zip .pt; "
            "its first bytes are not theirs, so it is another kind of file or damaged"
        )
    return _strip_prefixes(found)


def _first_line(error: BaseException) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
    return shown(text if len(text) <= 200 else text[:200] + "…").rstrip(".")


def _strip_prefixes(found: ArrayFile) -> ArrayFile:
    original = {name: name for name in found.arrays}  # short name: the file's own
    removed = []
    while prefix := next((p for p in PREFIXES if original and all(n.startswith(p) and n != p for n in original)), None):
        original = {name[len(prefix) :]: own for name, own in original.items()}
        removed.append(prefix)
    if not removed:
        return found
    reader = found.reader
    return replace(
        found,
        arrays={name: found.arrays[own] for name, own in original.items()},
        notes=(*found.notes, f"dropped the prefix {''.join(removed)!r} from every array name"),
        reader=lambda name: reader(original[name]),
    )


# safetensors ---------------------------------------------------------------------------------------------------------


def _scan_safetensors(path: Path, label: str, size: int, start: bytes) -> ArrayFile:
    (header,) = struct.unpack("<Q", start[:8])
    if header > min(size - 8, _SAFETENSORS_HEADER_LIMIT):
        raise UnreadableFile(
            f"{label} looks like safetensors, but declares a header of {header} bytes in a file of {size}; "
            "it is truncated or damaged"
        )
    arrays = {}
    try:
        with safe_open(path, framework="np") as file:  # the header alone, so that torch is not imported
            for name in file.keys():  # noqa: SIM118 - no mapping
                shape, dtype = file.get_slice(name).get_shape(), str(file.get_slice(name).get_dtype())
                arrays[name] = ArrayInfo(shape=tuple(shape), dtype=_SAFETENSORS_DTYPES.get(dtype, dtype))
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise UnreadableFile(f"{label} is a damaged or truncated safetensors file: {_first_line(error)}") from error

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            return file.get_tensor(name)

    return ArrayFile(path=path, format="safetensors", size=size, arrays=arrays, metadata=metadata, reader=read)


# numpy ---------------------------------------------------------------------------------------------------------------


_Stream = IO[bytes] | io.BufferedIOBase  # a file, or a member of a zip archive


def _npy_header(file: _Stream, label: str, size: int) -> ArrayInfo:
    """The header of the ``.npy`` stream of ``size`` bytes at the beginning of ``file``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2
            version = np.lib.format.read_magic(file)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f".npy version {version} holds records, not plain numbers")
            shape, _, dtype = readers[version](file)
    except (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UnreadableFile(f"{label} is damaged or truncated: {_first_line(error)}") from error
    if dtype.hasobject:
        raise UnreadableFile(
            f"{label} holds Python objects (a pickle, which can run code) and is never unpickled; save plain arrays: "
            "numpy.savez(PATH, name=array)"
        )
    expected, present = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or expected != present:
        raise UnreadableFile(
            f"{label} declares {dtype} {shape}, so {expected} bytes of data, and holds {present}; "
            "it is truncated or damaged"
        )
    return ArrayInfo(shape=tuple(shape), dtype=dtype.name)


def _npy_tensor(file: _Stream) -> Tensor:
    import torch

    array: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _scan_npy(path: Path, label: str, size: int) -> ArrayFile:
    with open(path, "rb") as file:
        info = _npy_header(file, label, size)

    def read(name: str) -> Tensor:
        with open(path, "rb") as file:
            return _npy_tensor(file)

    notes = ("the file's single array has no name; it is called W",)
    return ArrayFile(path=path, format="npy", size=size, arrays={"W": info}, notes=notes, reader=read)


# zip: npz and torch --------------------------------------------------------------------------------------------------


def _scan_zip(path: Path, label: str, size: int) -> ArrayFile:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.filename.rpartition("/")[2] == "data.pkl" for member in members):
                return _scan_torch(path, label, size, members)
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise UnreadableFile(f"{label} is a zip archive with two members of one name; it is damaged or made up")
            plain = [member for member in members if member.filename.endswith(".npy")]
            if not plain:
                raise UnreadableFile(f"{label} is a zip archive, but neither .npz nor a torch file")
            arrays = {}
            for member in plain:
                with archive.open(member) as file:
                    key = member.filename.removesuffix(".npy")
                    arrays[key] = _npy_header(file, f"{shown(key)} in {label}", member.file_size)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise UnreadableFile(f"{label} is a damaged or truncated zip archive: {_first_line(error)}") from error

    def read(name: str) -> Tensor:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            return _npy_tensor(file)

    others = [shown(n) for n in names if not n.endswith(".npy")]
    notes = (f"left out, not arrays: {', '.join(others[:8])}",) if others else ()
    return ArrayFile(path=path, format="npz", size=size, arrays=arrays, notes=notes, reader=read)


def _scan_torch(path: Path, label: str, size: int, members: list[zipfile.ZipInfo]) -> ArrayFile:
    if any(member.filename.rpartition("/")[2] == "constants.pkl" for member in members):
        raise UnreadableFile(f"{label} is a TorchScript archive, which holds code; save model.state_dict() instead")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise UnreadableFile(
            f"{label} is a compressed torch archive, which torch.save never writes; it is not safe to read"
        )
    from interp.checkpoints.torch_archive import dtype_of, read_tensors

    tensors, notes = read_tensors(path, label)
    arrays = {name: ArrayInfo(shape=tuple(tensor.shape), dtype=dtype_of(tensor)) for name, tensor in tensors.items()}
    return ArrayFile(path=path, format="torch", size=size, arrays=arrays, notes=notes, reader=tensors.__getitem__)
