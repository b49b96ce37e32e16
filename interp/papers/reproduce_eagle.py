"""``interp-probe reproduce eagle``: the paper's tables, the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.running import expect_writable, progress_line, run_command
from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError, did_you_mean

__all__ = ["reproduce_eagle"]


def reproduce_eagle(names: str | None, out: Path, report: str | None, as_json: bool) -> None:
    """``names``: the parts to measure anew, or "all". None: what ships."""
    from interp.papers.eagle import PARTS, measure, shipped_tables

    if report is not None:
        expect_writable("--report", report)
    tables = shipped_tables()
    if names is not None:
        wanted = list(PARTS) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
        for name in wanted:
            if name not in PARTS:
                raise UsageError(f"--cells has {name!r}; {did_you_mean(name, PARTS)}")
        expect_writable("--out", out)
        kept = _kept(out, PARTS)
        with progress_line() as progress:
            tables = {}
            for name in wanted:
                progress(f"measuring {name}")
                kept[name] = tables[name] = measure(name)
                ordered = {part: kept[part] for part in PARTS if part in kept}
                write_atomically(out, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    if report is not None:
        from interp.reports.eagle_page import eagle_page

        eagle_page(tables, run_command()).write(report)
    if as_json:
        click.echo(json.dumps({"paper": "eagle", "tables": tables}, allow_nan=False))
        return
    _print(tables)
    for name, value in (("Results", out if names is not None else None), ("Report", report)):
        if value is not None:
            click.echo(f"{name}: {value}")


def _kept(out: Path, parts: Collection[str]) -> dict[str, Any]:
    """The parts that the file of results holds already."""
    if not out.exists():
        return {}
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not found.keys() <= set(parts):
            raise ValueError(f"its parts are not of {', '.join(parts)}")
    except (OSError, ValueError) as error:
        raise UnreadableFile(
            f"{out} is not a table of results of eagle ({error}); delete it, or give another --out"
        ) from None
    return found


def _print(tables: Mapping[str, Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from interp.reports.reproduction_tables import measured_table

    for name, table in tables.items():
        click.echo(f"{name}: {table['title']}")
        measured = measured_table(table["rows"])
        left = [f"{next(iter(row.values()))}: {row['skipped']}" for row in table["rows"] if "skipped" in row]
        columns = dict(zip(measured.header, zip(*measured.rows, strict=True), strict=False))
        console = Console(highlight=False)
        for part in _parts(columns, console.width):
            shown = Table(box=None, pad_edge=False, header_style="bold")
            for heading in part:
                shown.add_column(heading, min_width=max(map(len, columns[heading])), overflow="fold")
            for row in zip(*(columns[heading] for heading in part), strict=True):
                shown.add_row(*row)
            console.print(shown)
        click.echo("".join(f"{line}\n" for line in left))


def _parts(columns: Mapping[str, Sequence[str]], width: int) -> list[list[str]]:
    """Headings of tables that are no wider than a line; each begins with the columns that say what a row is."""
    keys = [heading for k, heading in enumerate(columns) if k == 0 or heading in _KEYS]
    taken = {heading: 2 + max(map(len, (heading, *cells))) for heading, cells in columns.items()}
    parts = [keys.copy()]
    for heading in columns:
        if heading in keys:
            continue
        if len(parts[-1]) > len(keys) and sum(taken[name] for name in (*parts[-1], heading)) > width + 2:
            parts.append(keys.copy())
        parts[-1].append(heading)
    return parts


_KEYS = ("layers run",)
