"""An array as a file stores it: bytes, where they begin, and how far apart its numbers are. Nothing is allocated before
the whole array is known to lie within the bytes that are there and below the bound on memory."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from interp.models.tensors import Tensor

__all__ = ["ITEM_SIZES", "MEMORY", "StoredArray", "Stream", "row_strides"]

Stream = IO[bytes] | io.BufferedIOBase  # a file, or a member of a zip archive

MEMORY = 2**26  # bytes of arrays read from one file; a linear transformer needs a few megabytes

ITEM_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(eq=False)
class StoredArray:
    """``bytes_at(start, stop)`` gives the bytes of the numbers; it is None for an array that is listed and never read,
    such as a sparse or quantised one. Filled in step by step by the pickle that describes it, hence not frozen."""

    shape: tuple[int, ...] = ()
    dtype: str = "nothing"  # torch's name of it, or in words what it is
    strides: tuple[int, ...] = ()  # in numbers
    offset: int = 0  # in numbers
    swapped: bool = False  # byte order other than little-endian
    size: int = 0  # bytes that there are
    members: list[Any] | None = None  # of an array of Python objects
    bytes_at: Callable[[int, int], bytes] | None = None

    @property
    def problem(self) -> str | None:
        """Why the description cannot be true, or None."""
        if not all(type(n) is int for n in (*self.shape, *self.strides, self.offset)):
            return "its sizes are not whole numbers"
        if len(self.shape) > 64 or min((*self.shape, *self.strides, self.offset, 0)) < 0:
            return f"its shape is {self.shape[:64]}, its strides {self.strides[:64]}"
        if self.bytes_at is None or 0 in self.shape:
            return None
        if len(self.strides) != len(self.shape):
            return f"it has {len(self.shape)} sizes and {len(self.strides)} strides"
        needed = self._numbers()[1] * ITEM_SIZES[self.dtype]
        return f"it needs {needed} bytes and the file has {self.size} for it" if needed > self.size else None

    def _numbers(self) -> tuple[int, int]:
        """The first number and the one after the last, counted from the beginning of the bytes."""
        steps = ((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        return self.offset, self.offset + sum(steps) + 1

    def tensor(self) -> Tensor:
        """The array on the CPU, in its own dtype. Raises ValueError for one that cannot be read."""
        import torch

        if self.bytes_at is None or self.dtype not in ITEM_SIZES:
            raise ValueError(f"it is {self.dtype}")
        if (problem := self.problem) is not None:
            raise ValueError(problem)
        item = ITEM_SIZES[self.dtype]
        dtype = getattr(torch, self.dtype)
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=dtype)
        start, stop = self._numbers()
        if max(stop - start, math.prod(self.shape)) * item > MEMORY:
            raise ValueError(f"it takes over {MEMORY} bytes")
        data = self.bytes_at(start * item, stop * item)
        if len(data) != (stop - start) * item:
            raise ValueError("its data end too early")
        if self.swapped and item > 1:
            parts = 2 if self.dtype.startswith("complex") else 1
            data = np.frombuffer(data, np.dtype(f"u{item // parts}")).byteswap().tobytes()
        return torch.frombuffer(bytearray(data), dtype=dtype).as_strided(self.shape, self.strides).clone()


def row_strides(shape: tuple[int, ...], columns_first: bool = False) -> tuple[int, ...]:
    """The strides of a dense array, its last axis (or its first) the one that moves fastest."""
    order = shape if columns_first else shape[::-1]
    steps = [math.prod(order[:axis]) for axis in range(len(order))]
    return tuple(steps if columns_first else steps[::-1])
