"""A figure of a paper beside ours, with the bar for what counts as reproduced, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from interp.reports.numbers import DASH, estimate, interval, number
from interp.reports.plots import layout, log_axis
from interp.results import Figure, Panel, Section, Series, Table

__all__ = [
    "Row", "Rows", "drawn", "holds", "judged_table", "measured_table", "plotted", "row", "table_of", "within_bar",
]  # fmt: skip

Row = Mapping[str, Any]
Rows = Sequence[Row]
Column = str | Callable[[Row], str]
Axis = dict[str, Any]
Traces = Sequence[dict[str, Any]]
Panels = Iterable[Panel]


def row(
    name: str, paper: float | None, ours: float | None, stderr: float | None, bar: float | None, **more: Any
) -> dict[str, Any]:
    """``bar``: the largest ratio to the paper's figure with which it counts as reproduced; None: it is not judged. A
    figure of ours that is missing says ``why``; without a reason it diverged, which is not within any bar."""
    ratio = ours / paper if paper is not None and ours is not None else None
    unjudged = bar is None or (ours is None and "why" in more)
    return {
        "cell": name,
        "paper": paper,
        "ours": ours,
        "stderr": stderr,
        "ratio": ratio,
        "ratio_stderr": stderr / paper if paper is not None and stderr is not None else None,
        "within_bar": None if unjudged else ratio is not None and bar is not None and ratio <= bar,
        **more,
    }


def holds(row: Row) -> str:
    return {True: "yes", False: "no", None: DASH}[row["within_bar"]]


def table_of(rows: Iterable[Row], columns: Mapping[str, Column]) -> Table:
    """By heading, a field of the rows or what is written of a row."""
    cells = [partial(_plain, name=column) if isinstance(column, str) else column for column in columns.values()]
    return Table(header=tuple(columns), rows=tuple(tuple(cell(row) for cell in cells) for row in rows))


def judged_table(rows: Rows, more: Mapping[str, Column] = MappingProxyType({})) -> Table:
    return table_of(rows, {
        "what": "cell",
        "the paper's": "paper",
        "ours ± stderr": lambda row: row.get("why") or estimate(row["ours"], row["stderr"]),
        "ratio ± stderr": lambda row: estimate(row["ratio"], row["ratio_stderr"]),
        "within the bar": holds,
        **more,
    })  # fmt: skip


def within_bar(rows: Rows, what: str) -> str:
    """How many rows are within their bar, and which are not; ``what`` is said of those that are."""
    rows = [row for row in rows if row["within_bar"] is not None]
    failed = [f"{row['cell']}, {number(row['ours'], 3)}" for row in rows if not row["within_bar"]]
    tail = f" Not: {'; '.join(failed)}." if failed else ""
    return f"{len(rows) - len(failed)} of {len(rows)} {what}.{tail}"


def measured_table(rows: Rows, keys: Sequence[str] = ()) -> Table:
    """All fields of the rows, ``keys`` first. Fields "± NAME" and "NAME interval" stand with the value of that name."""
    names = dict.fromkeys((*keys, *(name for row in rows for name in row)))
    errors = {name for key in names for name in (f"± {key}", f"{key} interval")}
    return table_of(rows, {name: partial(_with_error, name=name) for name in names if name not in errors})


def _with_error(row: Row, name: str) -> str:
    value, error, bounds = row.get(name), row.get(f"± {name}"), row.get(f"{name} interval")
    if value is not None and error is not None:
        return estimate(value, error)
    return _plain(row, name) if value is None or bounds is None else interval(value, tuple(bounds))


def _plain(row: Row, name: str) -> str:
    value = row.get(name)
    return number(value, 3) if value is None or isinstance(value, float) else str(value)


def drawn(
    name: str, short: str, finding: str, description: str, panels: Panels, legend: Sequence[Series], table: Table
) -> Section:
    """A figure under the heading ``short``, and in a terminal the table of its numbers."""
    figure = Figure(
        name=name, short=short, finding=finding, description=description, panels=tuple(panels), legend=tuple(legend),
        table=table,
    )  # fmt: skip
    return Section(name=name, title=short, finding=finding, figure=figure, table=table)


def plotted(name: str, traces: Traces, across: Axis, up: str | Axis, height: int, title: str = "") -> Panel:
    """A panel; ``up`` is the title of a logarithmic axis of all values, or an axis."""
    if isinstance(up, str):
        up = log_axis(up, [y for trace in traces for y in trace["y"]], dense=False)
    return Panel(name=name, title=title, data=list(traces), layout=layout(across, up), height=height)
