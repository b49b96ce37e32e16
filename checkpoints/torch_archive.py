"""torch's ``.pt`` files, zip archives and those of before torch 1.6: a pickle of the structure, and blocks of numbers
beside it. The pickle is read by ``interp.checkpoints.pickles``, which runs nothing; torch's own reader is not used."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from interp.checkpoints.pickles import READ, Damaged, Global, Storage, read_pickle
from interp.checkpoints.stored import ITEM_SIZES, Stream

__all__ = ["LEGACY_START", "Opened", "read_legacy", "read_zip"]

LEGACY_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # the pickle of torch's magic number
_STRUCTURE_LIMIT = 2**26  # bytes of the pickle that says how tensors lie in the blocks

_STORAGES = {
    "Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Untyped": "uint8", "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32",
}  # fmt: skip

Opened = Callable[[], Stream]


def read_zip(opened: Opened, archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> Any:
    """The content of a zip archive of torch, its tensors described and not read. ``record``: the member data.pkl.

    Raises Damaged."""
    if record.file_size > _STRUCTURE_LIMIT:
        raise Damaged(f"its structure takes {record.file_size} bytes, over the limit of {_STRUCTURE_LIMIT}")
    folder = record.filename.removesuffix("data.pkl")
    members = {member.filename: member for member in archive.infolist()}
    order = members.get(f"{folder}byteorder")
    swapped = order is not None and order.file_size < 100 and archive.read(order).strip() == b"big"

    def storage(identity: Any) -> Any:
        kind, key, _ = _storage(identity)
        member = members.get(f"{folder}data/{key}")
        if member is None:
            raise Damaged(f"the block {key!r} of numbers is missing")

        def bytes_at(start: int, stop: int) -> bytes:
            with opened() as file, zipfile.ZipFile(file) as again, again.open(member.filename) as content:
                content.seek(start)
                return content.read(stop - start)

        return Storage(kind, member.file_size, bytes_at, swapped)

    with archive.open(record) as file:
        return read_pickle(file, storage)


def read_legacy(opened: Opened) -> Any:
    """The content of a file as torch wrote it before version 1.6: five pickles, then the blocks, one after the other.

    Raises Damaged."""
    blocks: dict[str, tuple[int, int]] = {}  # by key: where the numbers begin, and their bytes
    needed: dict[str, int] = {}

    def storage(identity: Any) -> Any:
        if isinstance(identity, tuple) and identity[:1] == ("module",):  # a class with its source code, never run
            return Global(getattr(identity[1], "name", "module"))
        kind, key, count = _storage(identity)
        size = count * ITEM_SIZES.get(kind, 1)
        needed[key] = max(needed.get(key, 0), size)

        def bytes_at(start: int, stop: int) -> bytes:
            with opened() as file:
                file.seek(blocks[key][0] + start)
                return file.read(stop - start)

        return Storage(kind, size, bytes_at)

    with opened() as file:
        for _ in range(2):  # magic number and version of the format
            read_pickle(file)
        system = read_pickle(file)
        if isinstance(system, dict) and system.get("little_endian") is False:
            raise Damaged("it was written on a big-endian machine; save it again as safetensors")
        content = read_pickle(file, storage)
        keys = read_pickle(file)
        end = file.seek(0, os.SEEK_END) if not isinstance(keys, list) else None
        for key in keys if isinstance(keys, list) else []:
            count = file.read(8)
            start = file.tell()
            size = needed.get(key, 0) if isinstance(key, str) else 0
            blocks[key] = (start, size)
            end = file.seek(0, os.SEEK_END)
            if len(count) < 8 or struct.unpack("<q", count)[0] < 0 or start + size > end:
                raise Damaged("it ends before its numbers do")
            file.seek(start + size)
    if missing := needed.keys() - blocks.keys():
        raise Damaged(f"the block {min(missing)!r} of numbers is missing")
    return content


def _storage(identity: Any) -> tuple[str, str, int]:
    """Dtype, key and count of a block, of ("storage", torch.FloatStorage, key, place, count, …)."""
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] not in ("storage", b"storage"):
        raise Damaged("a block of numbers is described as nothing that torch writes")
    _, kind, key, _, count, *view = identity
    name = kind.name.rpartition(".")[2].removesuffix("Storage") if isinstance(kind, Global) else ""
    if not isinstance(key, str) or type(count) is not int or not 0 <= count < 2**63 or view not in ([], [None]):
        raise Damaged("a block of numbers is described as nothing that torch writes")
    return _STORAGES.get(name, name.lower() or "unknown"), key, count


def _storage_in_bytes(data: bytes) -> Any:
    """A tensor in a plain pickle keeps its numbers as the bytes of a file of torch within the file."""
    content = read_legacy(lambda: io.BytesIO(data))
    return content if isinstance(content, Storage) else None


READ["torch.storage._load_from_bytes"] = _storage_in_bytes
