"""A report in a terminal: the answer first, then how sure it is, then the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from interp.reports.registry import sections_of
from interp.reports.sections.probes import probe_report_sections
from interp.reports.sections.verdict import Head, head
from interp.reports.terminal_layout import Columns, items, line, section, show
from interp.results import Analysis, ProbeReport, Section, Table

__all__ = ["print_analysis", "print_probes"]

_TONES = {"good": "bold green", "caution": "bold yellow", "bad": "bold red"}


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print the report."""
    sections = (item for entry in sections_of(analysis) for item in _printed(entry))
    show(Group(*_verdict(head(analysis), analysis), *sections, *_provenance(analysis)), console)


def print_probes(report: ProbeReport, console: Console) -> None:
    """Print what can be read from the activations."""
    title = line(f"{report.checkpoint.name}: what its activations hold", "bold")
    sections = probe_report_sections(report)
    show(Group(title, *(item for entry in sections for item in _printed(entry)), *_provenance(report)), console)


def _verdict(verdict: Head, analysis: Analysis) -> Iterator[RenderableType]:
    facts = Grid.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in (("checkpoint", analysis.checkpoint.name), ("in words", verdict.lead), *verdict.facts):
        if value:
            facts.add_row(line(name[0].lower() + name[1:], "dim"), line(value))
    style = _TONES[verdict.tone]
    yield from (line(verdict.words.upper(), style), line(verdict.summary, style), Text(), facts)


def _printed(entry: Section) -> Iterator[RenderableType]:
    """What has a table stands under its own title; the other findings are a list under that of the group."""
    tables = [part for part in entry.parts if _stands_alone(part)]
    finding = entry.finding or (entry.figure.finding if entry.figure else "")
    rest = [part.finding or part.figure.finding for part in entry.parts if part not in tables and part.figure]
    body: list[RenderableType] = [line(text) for text in entry.formula]
    if entry.table is not None:
        body.append(_grid(entry.table))
    notes = entry.notes if entry.table is not None else ()
    if remarks := (*rest, *entry.remarks, *notes):
        body.append(items(remarks))
    if body or finding:
        yield from section(entry.title, finding, *body)
    for part in tables:
        yield from _printed(part)


def _stands_alone(part: Section) -> bool:
    return bool(part.table is not None or part.remarks or part.formula or part.parts or not part.figure)


def _grid(table: Table) -> Columns:
    """The column with the longest text gives way first."""
    columns = list(zip(*table.rows, strict=True)) or [()]
    wide = max(range(len(columns)), key=lambda k: max(map(len, columns[k]), default=0))
    grid = Columns(*table.header, wraps=wide)
    before = ""
    for k, (name, *cells) in enumerate(table.rows):
        grid.add("" if name == before and len(cells) > 1 else name, *cells, style="bold" * (k in table.marked))
        before = name
    return grid


def _provenance(result: Analysis | ProbeReport) -> tuple[RenderableType, ...]:
    checkpoint, recorded = result.checkpoint, result.provenance
    facts = [f"sha256 {checkpoint.sha256[:12]}", f"{checkpoint.layout} layout", checkpoint.dtype]
    facts += [f"{name} {recorded[name]}" for name in ("prompts", "seed") if recorded.get(name) is not None]
    facts += [str(recorded[name]) for name in ("tool", "time", "command") if recorded.get(name) is not None]
    return (Text(), line(" · ".join(facts), "dim"))
