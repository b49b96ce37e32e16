"""Safe readers of the headers of array files, told apart by content, never by extension.

Nothing is unpickled: pickles are read by ``interp.checkpoints.pickles``, which runs nothing and describes arrays
without making them.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import deserialize, safe_open

from interp.checkpoints.arrays import FAULTS, ArrayFile, ArrayInfo, first_line
from interp.checkpoints.locating import beginning
from interp.checkpoints.mistaken import described
from interp.checkpoints.msgpack import looks_like_msgpack, read_msgpack
from interp.checkpoints.naming import namings
from interp.checkpoints.pickles import Damaged, read_pickle
from interp.checkpoints.stored import MEMORY, StoredArray, Stream
from interp.checkpoints.torch_archive import LEGACY_START, read_legacy, read_zip
from interp.checkpoints.trees import Tree, Way, tree_of
from interp.errors import UnreadableFile, visible
from interp.models.tensors import Tensor

__all__ = ["scan"]

_SAFETENSORS_HEADER_LIMIT = 100_000_000  # bytes, as the format itself has it
_SAFETENSORS_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
_INDEX_LIMIT = 1_000_000  # bytes
_MOST_FILES = 1000
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NAMELESS = "the file's single array has no name; it is called W"


@dataclass(frozen=True)
class _Source:
    """A file, or what it is once unpacked."""

    path: Path
    label: str
    size: int
    start: bytes
    data: bytes | None = None  # unpacked

    def opened(self) -> Stream:
        return io.BytesIO(self.data) if self.data is not None else open(self.path, "rb")

    def content(self) -> bytes:
        """All bytes. Raises UnreadableFile when they are more than memory is meant for."""
        if self.size > MEMORY:
            raise UnreadableFile(
                f"{self.label} has {self.size} bytes, over the limit of {MEMORY} for a file of this kind; "
                "is this a linear transformer?"
            )
        with self.opened() as file:
            return file.read()


@dataclass(frozen=True)
class _Found:
    """What a reader found: arrays by way, and how each is read."""

    format: str
    arrays: Mapping[Way, ArrayInfo]
    reader: Callable[[str], Tensor]
    tree: Tree = field(default_factory=Tree)
    metadata: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    parts: tuple[Path, ...] = ()


def scan(path: str | os.PathLike[str]) -> ArrayFile:
    """Read the header of a safetensors file (or the index of several), ``.npy``, ``.npz``, torch file, pickle of arrays
    or MessagePack of flax, as it is or in gzip, whatever it is called.

    Raises UnreadableFile for anything else: missing, empty, truncated, a folder, too large, or not safe to read.
    """
    place = Path(path)
    label = visible(str(path), 300)
    size, start = beginning(place)
    try:
        str(place).encode()
    except UnicodeEncodeError:  # the reader of safetensors takes no other names
        raise UnreadableFile(f"the name {label} is not UTF-8, expected one that is; rename the file") from None
    source = _Source(place, label, size, start)
    packed = start.startswith(b"\x1f\x8b")
    if packed:
        source = _unpacked(source)
    try:
        found = _reader_of(source)(source)
    except Damaged as error:
        raise UnreadableFile(f"{label} is damaged or of another kind than it looks: {first_line(error)}") from error
    own = {".".join(way): info for way, info in found.arrays.items()}
    named = namings({way: info.is_weight for way, info in found.arrays.items()}, found.tree.left_out)
    return ArrayFile(
        path=place,
        format=found.format + (", gzip" if packed else ""),
        size=size,
        everything=own,
        reader=found.reader,
        namings=named,
        naming=named[-1],
        metadata=found.metadata or {},
        said=found.tree.said,
        left_out=(*found.notes, *_left_out(found.tree, named[-1].names)),
        parts=found.parts,
    )


def _reader_of(source: _Source) -> Callable[[_Source], _Found]:
    start = source.start
    if start[8:9] == b"{":
        return _safetensors
    if start.startswith(b"\x93NUMPY"):
        return _npy
    if start.startswith(b"PK\x03\x04"):
        return _zip
    if start.startswith(LEGACY_START):
        return _torch_legacy
    if start.startswith(_PICKLE_STARTS) or (start[:1] in (b"(", b"c", b"}", b"]") and _ends_as_pickle(source)):
        return _pickle
    if looks_like_msgpack(start):
        return _msgpack
    if start.lstrip().startswith(b"{") and b"weight_map" in _beginning_of(source):
        return _index
    raise UnreadableFile(described(source.label, source.size, start))


def _ends_as_pickle(source: _Source) -> bool:
    with source.opened() as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"."


def _beginning_of(source: _Source) -> bytes:
    with source.opened() as file:
        return file.read(_INDEX_LIMIT)


def _unpacked(source: _Source) -> _Source:
    try:
        with gzip.open(source.path) as file:
            data = file.read(MEMORY + 1)
    except FAULTS as error:
        raise UnreadableFile(f"{source.label} is a damaged or truncated gzip file: {first_line(error)}") from error
    if len(data) > MEMORY:
        raise UnreadableFile(
            f"{source.label} holds more than {MEMORY} bytes once unpacked; is this a linear transformer?"
        )
    return _Source(source.path, source.label, len(data), data[:600], data)


def _left_out(tree: Tree, names: Mapping[str, str]) -> tuple[str, ...]:
    """Objects wherever they are, and plain values where the weights are."""
    inside = {own.removesuffix(name) for name, own in names.items() if own.endswith(name)}
    here = min(inside, key=len, default="")
    said = [
        visible(name or "the content", 100) + (f" ({visible(what, 100)})" if what else "")
        for name, what in tree.left_out.items()
        if what or name.startswith(here)
    ]
    more = f" and {len(said) - 8} more" if len(said) > 8 else ""
    return (f"left out, not arrays: {', '.join(said[:8])}{more}",) if said else ()


# safetensors ---------------------------------------------------------------------------------------------------------


def _safetensors(source: _Source) -> _Found:
    (header,) = struct.unpack("<Q", source.start[:8])
    if header > min(source.size - 8, _SAFETENSORS_HEADER_LIMIT):
        raise UnreadableFile(
            f"{source.label} looks like safetensors, but declares a header of {header} bytes in a file of "
            f"{source.size}; it is truncated or damaged"
        )
    arrays: dict[Way, ArrayInfo] = {}
    try:
        if source.data is not None:
            return _safetensors_in_memory(source.data, header)
        with safe_open(source.path, framework="np") as file:  # the header alone, so that torch is not imported
            for name in file.keys():  # noqa: SIM118 - no mapping
                shape, dtype = file.get_slice(name).get_shape(), str(file.get_slice(name).get_dtype())
                arrays[(name,)] = ArrayInfo(shape=tuple(shape), dtype=_SAFETENSORS_DTYPES.get(dtype, dtype))
            metadata = dict(file.metadata() or {})
    except FAULTS as error:
        raise UnreadableFile(
            f"{source.label} is a damaged or truncated safetensors file: {first_line(error)}"
        ) from error

    def read(name: str) -> Tensor:
        with safe_open(source.path, framework="pt") as file:
            return file.get_tensor(name)

    return _Found("safetensors", arrays, read, _facts(metadata), metadata)


def _safetensors_in_memory(data: bytes, header: int) -> _Found:
    arrays, stored = {}, {}
    for name, entry in deserialize(data):
        dtype = _SAFETENSORS_DTYPES.get(str(entry["dtype"]), str(entry["dtype"]))
        arrays[(name,)] = ArrayInfo(shape=tuple(entry["shape"]), dtype=dtype)
        stored[name] = entry["data"]
    metadata = json.loads(data[8 : 8 + header]).get("__metadata__", {})

    def read(name: str) -> Tensor:
        import torch

        info = arrays[(name,)]
        return torch.frombuffer(bytearray(stored[name]), dtype=getattr(torch, info.dtype)).reshape(info.shape)

    return _Found("safetensors", arrays, read, _facts(metadata), metadata)


def _facts(metadata: Mapping[str, str]) -> Tree:
    """What the metadata say, but for the description of a canonical file, which is read on its own."""
    return Tree(said={key: value[:200] for key, value in metadata.items() if key != "interp"})


def _index(source: _Source) -> _Found:
    """The index of a checkpoint in several files: by array, in which of the files beside it the array is."""
    try:
        named = json.loads(source.content()) if source.size <= _INDEX_LIMIT else None
    except (ValueError, RecursionError):
        named = None
    places = named.get("weight_map") if isinstance(named, dict) else None
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise Damaged("it looks like the index of a checkpoint in several files, but has no list of them")
    files = sorted(set(places.values()))
    if (
        not files
        or len(files) > _MOST_FILES
        or any(Path(file).name != file or not file.isprintable() for file in files)
    ):
        raise Damaged(f"its list names {len(files)} files, expected 1 to {_MOST_FILES} names of files beside it")
    shards = {}
    for file in files:
        shard = source.path.with_name(file)
        if _is_index(shard):
            raise Damaged(f"its part {file!r} is an index again")
        shards[file] = scan(shard)
    missing = [name for name, file in places.items() if name not in shards[file].everything]
    if missing:
        raise Damaged(f"{places[missing[0]]} does not hold {missing[0]!r}, as the index says")
    arrays = {(name,): shards[file].everything[name] for name, file in places.items()}
    format = f"{shards[files[0]].format}, {len(files)} files"
    parts = tuple(shard.path for shard in shards.values())
    return _Found(format, arrays, lambda name: shards[places[name]].reader(name), parts=parts)


def _is_index(path: Path) -> bool:
    return beginning(path)[1].lstrip().startswith(b"{")


# numpy ---------------------------------------------------------------------------------------------------------------


def _npy_header(file: Stream, label: str, size: int) -> ArrayInfo | None:
    """The header of the ``.npy`` stream of ``size`` bytes at the beginning of ``file``; None for Python objects."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2
            version = np.lib.format.read_magic(file)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f".npy version {version} holds records, not plain numbers")
            shape, _, dtype = readers[version](file)
    except FAULTS as error:
        raise UnreadableFile(f"{label} is damaged or truncated: {first_line(error)}") from error
    if dtype.hasobject:
        return None
    expected, present = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or expected != present:
        raise UnreadableFile(
            f"{label} declares {dtype} {shape}, so {expected} bytes of data, and holds {present}; "
            "it is truncated or damaged"
        )
    return ArrayInfo(shape=tuple(shape), dtype=dtype.name)


def _npy_tensor(file: Stream) -> Tensor:
    import torch

    array: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _npy(source: _Source) -> _Found:
    with source.opened() as file:
        info = _npy_header(file, source.label, source.size)
        if info is None:
            return _of_tree("npy", tree_of(_objects(file)), source)

    def read(name: str) -> Tensor:
        with source.opened() as file:
            return _npy_tensor(file)

    return _Found("npy", {("W",): info}, read, notes=(_NAMELESS,))


def _objects(file: Stream) -> Any:
    """What the Python objects of an ``.npy`` stream hold, beyond its header."""
    return read_pickle(io.BytesIO(file.read(MEMORY)))


# zip: npz and torch --------------------------------------------------------------------------------------------------


def _zip(source: _Source) -> _Found:
    try:
        with source.opened() as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise UnreadableFile(
                    f"{source.label} is a zip archive with two members of one name; it is damaged or made up"
                )
            record = next((member for member in members if member.filename.rpartition("/")[2] == "data.pkl"), None)
            return _torch_zip(source, archive, record) if record is not None else _npz(source, archive)
    except Damaged:
        raise
    except FAULTS as error:
        raise UnreadableFile(f"{source.label} is a damaged or truncated zip archive: {first_line(error)}") from error


def _npz(source: _Source, archive: zipfile.ZipFile) -> _Found:
    plain = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    if not plain:
        raise UnreadableFile(f"{source.label} is a zip archive, but neither .npz nor a torch file")
    arrays: dict[Way, ArrayInfo] = {}
    objects: dict[str, Any] = {}
    for member in plain:
        with archive.open(member) as file:
            key = member.filename.removesuffix(".npy")
            info = _npy_header(file, f"{visible(key, 200)} in {source.label}", member.file_size)
            if info is not None:
                arrays[(key,)] = info
            else:
                objects[key] = _objects(file)
    tree = tree_of(objects)
    if not arrays:
        return _of_tree("npz", tree, source)
    if any(".".join(way) in objects or way in arrays for way in tree.arrays):
        raise UnreadableFile(f"{source.label} holds two arrays of one name; rename one")
    stored = {".".join(way): array for way, array in tree.arrays.items()}
    arrays |= {way: ArrayInfo(shape=array.shape, dtype=array.dtype) for way, array in tree.arrays.items()}

    def read(name: str) -> Tensor:
        if name in stored:
            return stored[name].tensor()
        with source.opened() as file, zipfile.ZipFile(file) as again, again.open(f"{name}.npy") as member:
            return _npy_tensor(member)

    others = {name: "" for name in archive.namelist() if not name.endswith(".npy")}
    return _Found("npz", arrays, read, Tree(said=tree.said, left_out={**tree.left_out, **others}))


def _torch_zip(source: _Source, archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> _Found:
    members = archive.infolist()
    if any(member.filename.rpartition("/")[2] == "constants.pkl" for member in members):
        raise UnreadableFile(
            f"{source.label} is a TorchScript archive, which holds code; save model.state_dict() instead"
        )
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise UnreadableFile(
            f"{source.label} is a compressed torch archive, which torch.save never writes; it is not safe to read"
        )
    return _of_tree("torch", tree_of(read_zip(source.opened, archive, record)), source)


# pickles and MessagePack ---------------------------------------------------------------------------------------------


def _torch_legacy(source: _Source) -> _Found:
    return _of_tree("torch", tree_of(read_legacy(source.opened)), source)


def _pickle(source: _Source) -> _Found:
    return _of_tree("pickle", tree_of(read_pickle(io.BytesIO(source.content()))), source)


def _msgpack(source: _Source) -> _Found:
    return _of_tree("msgpack", tree_of(read_msgpack(source.content())), source)


def _of_tree(format: str, tree: Tree, source: _Source) -> _Found:
    """The arrays of a tree. Raises UnreadableFile when there are none."""
    if not tree.arrays:
        objects = sorted({what.removeprefix("the Python object ") for what in tree.left_out.values() if what})
        held = (
            f"; it holds {', '.join(visible(name, 100) for name in objects[:4])}, which could run code"
            if objects
            else ""
        )
        raise UnreadableFile(
            f"{source.label} is a {format} file that holds no tensors{held}, and is never unpickled; "
            "save the tensors alone: torch.save(model.state_dict(), PATH), or numpy.savez(PATH, **arrays)"
        )
    stored: dict[str, StoredArray] = {".".join(way): array for way, array in tree.arrays.items()}
    arrays = {way: ArrayInfo(shape=array.shape, dtype=array.dtype) for way, array in tree.arrays.items()}
    notes = (_NAMELESS,) if list(arrays) == [("W",)] and tree.nameless else ()
    return _Found(format, arrays, lambda name: stored[name].tensor(), tree, notes=notes)
