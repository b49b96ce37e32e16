"""A reader of MessagePack, the format of flax checkpoints: bounded, and with no types but its own and flax's arrays.

https://github.com/msgpack/msgpack/blob/master/spec.md; flax puts an array into extension 1 and a numpy scalar into
extension 3, as the list [shape, name of the dtype, bytes of its numbers]."""

from __future__ import annotations

import struct
from typing import Any

from interp.checkpoints.pickles import Damaged, Inert
from interp.checkpoints.stored import ITEM_SIZES, StoredArray, row_strides

__all__ = ["looks_like_msgpack", "read_msgpack"]

_DEPTH_LIMIT = 50
_STEP_LIMIT = 300_000
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b",
    0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {0: ">B", 1: ">H", 2: ">I"}


def looks_like_msgpack(start: bytes) -> bool:
    """Whether a file begins with a mapping of one entry or more whose first key is text."""
    first = start[:1]
    skip = 1 if b"\x81" <= first <= b"\x8f" else {b"\xde": 3, b"\xdf": 5}.get(first)
    key = start[skip : skip + 1] if skip else b""
    return b"\xa0" <= key <= b"\xbf" or key in (b"\xd9", b"\xda")


def read_msgpack(data: bytes) -> Any:
    """The value that ``data`` holds. Raises Damaged."""
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (struct.error, UnicodeDecodeError, IndexError, TypeError) as error:
        raise Damaged(f"it is no MessagePack: {' '.join(str(error).split())[:200]}") from error
    if reader.at != len(data):
        raise Damaged(f"{len(data) - reader.at} bytes follow its end")
    return value


class _Reader:
    def __init__(self, data: bytes, steps: int = 0) -> None:
        self.data, self.at, self.steps = data, 0, steps

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise Damaged("it ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def value(self, depth: int) -> Any:
        """The next value; the kind is in its first byte."""
        self.steps += 1
        if depth > _DEPTH_LIMIT or self.steps > _STEP_LIMIT:
            raise Damaged(f"it nests deeper than {_DEPTH_LIMIT} or has more than {_STEP_LIMIT} values")
        kind = self.take(1)[0]
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 256
        if kind < 0x90 or kind in (0xDE, 0xDF):
            return self.mapping(kind & 15 if kind < 0x90 else self.number(_LENGTHS[kind - 0xDD]), depth)
        if kind < 0xA0 or kind in (0xDC, 0xDD):
            count = kind & 15 if kind < 0xA0 else self.number(_LENGTHS[kind - 0xDB])
            return [self.value(depth + 1) for _ in range(count)]
        if kind < 0xC0 or 0xD9 <= kind <= 0xDB:
            return self.take(kind & 31 if kind < 0xC0 else self.number(_LENGTHS[kind - 0xD9])).decode("utf-8")
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[kind]
        if 0xC4 <= kind <= 0xC6:
            return self.take(self.number(_LENGTHS[kind - 0xC4]))
        if 0xC7 <= kind <= 0xC9 or 0xD4 <= kind <= 0xD8:
            size = 1 << (kind - 0xD4) if kind >= 0xD4 else self.number(_LENGTHS[kind - 0xC7])
            return self.extension(self.number(">b"), self.take(size), depth)
        raise Damaged("it holds the byte 0xC1, which means nothing")

    def mapping(self, count: int, depth: int) -> dict[Any, Any]:
        made = {}
        for _ in range(count):
            key = self.value(depth + 1)
            made[key if isinstance(key, (str, int, bytes)) else f"<{type(key).__name__}>"] = self.value(depth + 1)
        return made

    def extension(self, code: int, data: bytes, depth: int) -> Any:
        inner = _Reader(data, self.steps)
        if code not in (1, 3):
            return Inert(f"extension {code} of MessagePack")
        parts = inner.value(depth + 1)
        self.steps = inner.steps
        if not isinstance(parts, list) or len(parts) != 3:
            raise Damaged("an array is not [shape, dtype, bytes]")
        shape, dtype, numbers = parts
        name = dtype.decode("ascii") if isinstance(dtype, bytes) else str(dtype)
        if not isinstance(shape, list) or not all(type(n) is int for n in shape) or not isinstance(numbers, bytes):
            raise Damaged("an array is not [shape, dtype, bytes]")
        array = StoredArray(shape=tuple(shape), dtype=name[:40])
        if name in ITEM_SIZES:
            array.strides, array.size = row_strides(array.shape), len(numbers)
            array.bytes_at = lambda start, stop: numbers[start:stop]
        return array
