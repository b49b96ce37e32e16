"""Tables of rows that have the same fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from interp.reports.numbers import estimate, interval, number
from interp.results import Table

__all__ = ["tabulate"]

Reader = str | Callable[[Any], str]


def tabulate(
    rows: Iterable[Any], columns: Mapping[str, Reader], marked: Callable[[Any], bool] = lambda row: False
) -> Table:
    """``columns`` by header: the name of a field, "loss", or with a number of digits, "loss:3"; or a function of the
    row. A field stands with its interval or its standard error where the row has ``loss_ci`` or ``loss_stderr``."""
    entries = list(rows)
    return Table(
        header=tuple(columns),
        rows=tuple(tuple(_cell(row, reader) for reader in columns.values()) for row in entries),
        marked=tuple(k for k, row in enumerate(entries) if marked(row)),
    )


def _cell(row: Any, reader: Reader) -> str:
    if callable(reader):
        return reader(row)
    name, _, digits = reader.partition(":")
    value = getattr(row, name)
    if digits:
        return number(value, int(digits))
    if hasattr(row, f"{name}_ci"):
        return interval(value, getattr(row, f"{name}_ci"))
    if hasattr(row, f"{name}_stderr"):
        return estimate(value, getattr(row, f"{name}_stderr"))
    return number(value) if value is None or isinstance(value, float) else str(value)
