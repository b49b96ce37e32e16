"""``interp-probe reproduce``: a paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.running import expect_writable, progress_line, run_command, use_one_thread, wide_console
from interp.papers.paper import Paper, about, make_anew, paper_named, paper_names, shipped_results

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.reports.page import Page
    from interp.results import Section, Table

__all__ = ["command"]

WIDE = 40  # characters of a cell that holds a sentence
_HELP = "Reproduce the figures of a PAPER. Cells that --cells may name are said with each."


@click.command("reproduce", help="\n\n".join((_HELP, *(f"{name}: {about(name)}" for name in paper_names()))))
@click.argument("paper", type=click.Choice(paper_names()))
@click.option(
    "--cells",
    metavar="NAMES",
    help="Make these anew, e.g. diag-l4-u5,gdpp-l2-c13, or 'all'. Without it: show what ships.",
)
@click.option("--out", metavar="RESULTS.json", help="Where results are kept [default: PAPER.json].")
@click.option("--report", metavar="OUT.html", help="Also write the tables and curves as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(paper: str, cells: str | None, out: str | None, report: str | None, as_json: bool) -> None:
    target = Path(out or f"{paper}.json")
    if report is not None:
        expect_writable("--report", report)
    with progress_line() as progress:
        progress("loading")
        reproduced = paper_named(paper)
        if cells is None:
            results = shipped_results(paper)
        else:
            wanted = reproduced.chosen(cells)
            expect_writable("--out", target)
            use_one_thread()
            results = make_anew(reproduced, wanted, target, progress)
        sections = reproduced.sections(results)
        if report is not None:
            progress("writing the report")
            recorded = [entry["provenance"] for entry in results.values() if "provenance" in entry]
            _page(reproduced, sections, dict(recorded[0]) if recorded else {}).write(report)
    if as_json:
        click.echo(json.dumps({"paper": paper, **reproduced.document(results)}, allow_nan=False))
        return
    _print(sections)
    for name, value in (("Results", target if cells is not None else None), ("Report", report)):
        if value is not None:
            click.echo(f"\n{name}: {value}")


def _page(paper: Paper, sections: Sequence[Section], recorded: dict[str, object]) -> Page:
    from interp.reports.html import render_figures

    tables = [section for section in sections if section.figure is None]
    return render_figures(
        paper.title,
        [section.figure for section in sections if section.figure is not None],
        source=paper.source,
        found=[section.finding for section in tables if section.finding],
        parts=tables,
        command=run_command(),
        recorded={"measured with": {key: value for key, value in recorded.items() if key != "recipe"}},
    )


def _print(sections: Sequence[Section]) -> None:
    from rich.console import Group

    from interp.reports.terminal_layout import items, section, show

    console = wide_console()
    for part in sections:
        tables = _tables(part.table, console.width - 2) if part.table is not None else ()
        notes = [items(part.notes)] if part.notes else []
        show(Group(*section(part.title, part.finding, *tables, *notes)), console)


def _tables(table: Table, width: int) -> Iterator[RenderableType]:
    """In a line each; one that is too wide is divided, and every part begins with the first two columns, which say what
    a row is. A column of sentences is wrapped instead."""
    from interp.reports.terminal_layout import Columns

    taken = [2 + max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    widest = max(range(len(taken)), key=taken.__getitem__)
    parts = [[0, 1]]
    for k in range(2, len(taken)):
        if taken[widest] < WIDE and len(parts[-1]) > 2 and sum(taken[i] for i in (*parts[-1], k)) > width + 2:
            parts.append([0, 1])
        parts[-1].append(k)
    for part in parts:
        shown = Columns(*(table.header[k] for k in part), wraps=widest if taken[widest] >= WIDE else None)
        for row in table.rows:
            shown.add(*(row[k] for k in part))
        yield shown
