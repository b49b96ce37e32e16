"""Every table of a result as a pandas DataFrame.

A field of a result that holds rows (a tuple of dataclasses, or a mapping from names to them) is a table. Within a row a
dataclass or a mapping "field" becomes columns "field_key", a 95 % interval "x_ci" the columns "x_low" and "x_high", and
numbers in a list "field_0", "field_1", …. Rows within a row, and matrices, are tables of their own, which repeat what
identifies the row they belong to. What is not known is missing, never 0.

Fields can say more by their metadata: ``{"table": False}`` has no place in tables, and ``{"along": ("sigma",)}`` on a
field of rows says that the lists in these rows run along the list "sigma" beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.errors import UsageError, did_you_mean
from interp.results.section import Section

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tabular", "tables_of", "to_frame"]

IDENTIFYING = ("name", "statistic", "index", "layer", "head", "position", "channel")  # fields that say which row it is
COEFFICIENTS = {f"layers_{kind}": {"kind": kind} for kind in ("omega", "trace", "maps")}  # one table of the three

Row = dict[str, Any]


class Tabular:
    """A result whose tables can be asked for."""

    def tables(self) -> Mapping[str, pd.DataFrame]:
        """All tables of the result by name: "families", "evidence_losses", … One without rows is left out."""
        return tables_of(self)

    def to_frame(self, table: str) -> pd.DataFrame:
        """One of ``tables``. Raises UsageError when the result has none of this name."""
        every = self.tables()
        if table not in every:
            raise UsageError(f"the result has no table {table!r}; {did_you_mean(table, every)}")
        return every[table]


def tables_of(result: Any) -> dict[str, pd.DataFrame]:
    """The tables of a result by name. Layers' "omega", "trace" and "maps" are one, "coefficients"."""
    rows: dict[str, list[Row]] = {}
    frames: dict[str, pd.DataFrame] = {}
    for name, content in _contents(result, "", {}):
        if isinstance(content, Section):
            shown = content.figure.table if content.figure else content.table
            frames |= {name: shown.to_frame()} if shown else {}
        elif name in COEFFICIENTS:
            rows.setdefault("coefficients", []).append(COEFFICIENTS[name] | content)
        else:
            rows.setdefault(name, []).append(content)
    return {name: _frame(of_table) for name, of_table in rows.items()} | frames


def to_frame(rows: Iterable[Any]) -> pd.DataFrame:
    """Rows that are dataclasses of one kind, such as ``Analysis.families``, without the tables within them."""
    return _frame([_flat({k: v for k, v in _fields(row).items() if not _rows(v)}) for row in rows])


# --- walking through a result ---------------------------------------------------------------------------------------


def _contents(content: Any, path: str, above: Row, is_row: bool = False) -> Iterator[tuple[str, Row | Section]]:
    """(table, row) for ``content``, which is the result, something in it, or a row of the table ``path``, and for all
    that stands within it. ``above`` are columns that say where it stands."""
    if isinstance(content, Section):
        yield path, content
        for part in content.parts:
            yield from _contents(part, f"{path}_{part.name}", {})
        return
    fields = _fields(content)
    parts = {} if is_row else {k: v for k, v in fields.items() if _is_part(v)}  # parts of a row are columns of it
    apart = {k: v for k, v in fields.items() if k in parts or _rows(v) or _is_matrix(v)}
    if flat := _flat({k: v for k, v in fields.items() if k not in apart}):
        yield path or "result", above | flat
    table = path.rpartition("_")[2]
    where = above | {k: v for k, v in fields.items() if k in IDENTIFYING}
    if "index" in where:
        where = {table.removesuffix("s"): where.pop("index"), **where}
    for key, value in apart.items():
        name = f"{path}_{key}" if path else key
        if key in parts:
            yield from _contents(value, name, where)
        elif _is_matrix(value):
            yield from ((name, where | cell) for cell in _cells(value))
        along = {k: fields[k] for k in _along(content, key)}
        for number, (identity, row) in enumerate(_rows(value)):
            inner = _fields(row)
            if not identity and not inner.keys() & set(IDENTIFYING):
                identity = {"index": number}
            taken = inner.keys() | identity.keys()
            outer = {f"{table}_{k}" if k in taken else k: v for k, v in where.items()} | identity
            if along:
                lists = {k: inner.pop(k) for k, v in _fields(row).items() if isinstance(v, (list, tuple)) and v}
                yield from ((f"{name}_by_{next(iter(along))}", line) for line in _lines(inner, along | lists))
            if isinstance(row, Section):
                yield from _contents(row, f"{name}_{row.name}", {})
            else:
                yield from _contents(inner if along else row, name, outer, is_row=True)


def _fields(row: Any) -> Row:
    """What a row holds, by name, but for what has no place in tables."""
    if isinstance(row, Mapping):
        return dict(row)
    return {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.metadata.get("table", True)}


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _rows(value: Any) -> Sequence[tuple[Row, Any]]:
    """The rows that a field holds, with the column that names or numbers them; none when it holds something else."""
    if isinstance(value, Mapping):
        return [({"name": str(k)}, v) for k, v in value.items()] if all(map(_is_part, value.values())) else []
    if not isinstance(value, (list, tuple)):
        return []
    if all(_is_part(v) or isinstance(v, Mapping) for v in value):
        return [({}, v) for v in value]
    if all(isinstance(v, (list, tuple)) and v and all(map(_is_part, v)) for v in value):
        return [({"index": k}, row) for k, rows in enumerate(value) for row in rows]
    return []


def _is_matrix(value: Any) -> bool:
    """Lists of lists of numbers, of which some may be missing; not pairs of a name and a number."""
    if not isinstance(value, (list, tuple)) or _rows(value) or not any(isinstance(v, (list, tuple)) for v in value):
        return False
    return all(v is None or (isinstance(v, (list, tuple)) and not any(isinstance(n, str) for n in v)) for v in value)


def _cells(value: Any, *indices: int) -> Iterator[Row]:
    """The numbers of nested lists one by one: "axis_0", "axis_1", …, "value"."""
    if isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _cells(inner, *indices, number)
    else:
        yield {f"axis_{k}": index for k, index in enumerate(indices)} | {"value": value}


def _along(content: Any, name: str) -> Sequence[str]:
    """The lists beside the rows ``name`` that the lists in these rows run along."""
    fields = dataclasses.fields(content) if _is_part(content) else ()
    return next((f.metadata.get("along", ()) for f in fields if f.name == name), ())


def _lines(row: Row, lists: Row) -> Iterator[Row]:
    identity = {k: v for k, v in row.items() if k in IDENTIFYING}
    for number in range(min(map(len, lists.values()))):
        yield identity | {k: v[number] for k, v in lists.items()}


# --- rows to columns ------------------------------------------------------------------------------------------------


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Row:
    """Numbers and text by column."""
    columns: Row = {}
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if _is_part(value) or isinstance(value, Mapping):
            columns |= _flat(_fields(value), f"{name}_")
        elif not isinstance(value, (list, tuple)):
            columns[name] = value
        elif "_ci" in name and len(value) == 2:
            low = name.replace("_ci", "", 1)
            columns |= {f"{low}_low": value[0], f"{low}_high": value[1]}
        elif value and all(isinstance(v, str) for v in value):
            columns[name] = "; ".join(value)
        else:
            pairs = all(isinstance(v, (list, tuple)) and len(v) == 2 and isinstance(v[0], str) for v in value)
            columns |= _flat(dict(value) if pairs else {str(k): v for k, v in enumerate(value)}, f"{name}_")
    return columns


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    import pandas as pd  # slow to import

    names = dict.fromkeys(name for row in rows for name in row)
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    """With the type that keeps whole numbers whole and missing values missing."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    if kinds <= {int, float}:
        return [float("nan") if v is None else float(v) for v in values]
    return pd.array([None if v is None else str(v) for v in values], dtype="string")
