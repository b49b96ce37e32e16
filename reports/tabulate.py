"""Rows that have the same fields, as tables of text and as points of a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from interp.reports.numbers import estimate, interval, is_finite, number, percent
from interp.reports.plots import Bar, Point
from interp.results import Table

__all__ = ["points", "tabulate"]

Reader = str | Callable[[Any], str]


def tabulate(
    rows: Iterable[Any], columns: Mapping[str, Reader], marked: Callable[[Any], bool] = lambda row: False
) -> Table:
    """``columns`` by header: a function of the row, or the name of a field. A field stands with its interval or its
    standard error where the row has ``loss_ci`` or ``loss_stderr``, or with the field after a colon: "mse:stderr".
    "loss:3" has three digits, "share:%" is a percentage; "0.layer" is a field of the first of a row's parts."""
    entries = list(rows)
    return Table(
        header=tuple(columns),
        rows=tuple(tuple(_cell(row, reader) for reader in columns.values()) for row in entries),
        marked=tuple(k for k, row in enumerate(entries) if marked(row)),
    )


def points(
    rows: Iterable[Any], x: str, y: str, text: Callable[[Any, str], str], *, above: float | int = -math.inf
) -> list[Point]:
    """The rows whose field ``y`` is finite, and ``above`` that; ``text`` says a row, given the text of ``y``."""
    path, _, beside = y.partition(":")
    found = [(row, *_owner(row, path)) for row in rows]
    return [
        Point(_part(row, x), value, next(iter(_bars(owner, name, beside)), None), text(row, _cell(row, y)))
        for row, owner, name in found
        if is_finite(value := _part(owner, name)) and value > above
    ]


def _owner(row: Any, path: str) -> tuple[Any, str]:
    """What has the field at the end of a path such as "0.layer", and the field's name."""
    *owners, name = path.split(".")
    return reduce(_part, owners, row), name


def _part(row: Any, name: str) -> Any:
    return row[int(name)] if name.isdigit() else getattr(row, name)


def _bars(row: Any, name: str, beside: str) -> list[Bar]:
    """The interval or the standard error of a field, or the field ``beside`` it; none where the row has none."""
    names = (beside,) if beside else (f"{name}_ci", f"{name}_stderr")
    return [getattr(row, bar) for bar in names if hasattr(row, bar)]


def _cell(row: Any, reader: Reader) -> str:
    if callable(reader):
        return reader(row)
    path, _, how = reader.partition(":")
    owner, name = _owner(row, path)
    value = _part(owner, name)
    if how == "%":
        return percent(value)
    if how.isdigit():
        return number(value, int(how))
    bar = next(iter(_bars(owner, name, how)), None)
    if isinstance(bar, tuple):
        return interval(value, bar)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return estimate(value, bar) if bar is not None or value is None or isinstance(value, float) else str(value)
