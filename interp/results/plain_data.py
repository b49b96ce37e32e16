"""Dataclasses to plain JSON data and back, by their annotations. Not a number becomes null."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any

from interp.errors import LayoutError

__all__ = ["from_plain", "to_plain"]


def to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: Any, value: Any, where: str) -> Any:
    """Inverse of ``to_plain`` for dataclasses of numbers, text, tuples, lists, tables and each other.

    ``where`` names the value in messages. Raises LayoutError for what does not fit its annotation.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise LayoutError(f"{where} is {type(value).__name__}, expected a table")
        hints = typing.get_type_hints(kind)
        fields = {f.name: f for f in dataclasses.fields(kind)}
        missing = [
            n
            for n, f in fields.items()
            if n not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise LayoutError(f"{where} has no {', '.join(missing)}")
        # is_dataclass speaks of classes and of their instances.
        return kind(**{n: from_plain(hints[n], value[n], f"{where}.{n}") for n in fields if n in value})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        *others, last = [a for a in args if a is not type(None)]
        for one in others:
            with contextlib.suppress(LayoutError):
                return from_plain(one, value, where)
        return from_plain(last, value, where)
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a list")
        if origin is list:
            return value
        item = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
        if len(item) != len(value):
            raise LayoutError(f"{where} has {len(value)} entries, expected {len(item)}")
        return tuple(from_plain(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(item, value, strict=True)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a table")
        return {k: from_plain(args[1], v, f"{where}.{k}") for k, v in value.items()}
    accepted = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}.get(kind)
    if accepted and (not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool)):
        expected = {bool: "true or false", int: "a whole number", float: "a number or null", str: "text"}[kind]
        raise LayoutError(f"{where} is {reprlib.repr(value)}, expected {expected}")
    if kind is not float:
        return value
    number = float(value) if abs(value) < 1e300 else math.inf  # JSON has whole numbers and powers that float has not
    if not math.isfinite(number):
        raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a finite number or null")
    return number
