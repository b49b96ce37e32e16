"""A result as one JSON document ("interp-probe/1"), and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

from interp.errors import LayoutError, UnreadableFile
from interp.models.atomic import write_atomically
from interp.reports.registry import flattened, sections_of
from interp.reports.sections.probes import probe_report_sections
from interp.results import Analysis, ProbeReport, Section

__all__ = ["dumps", "load", "loads", "write"]


def dumps(analysis: Analysis | ProbeReport) -> str:
    """One JSON document; each top-level field has a line of its own. ``sections`` are what a page shows, in its order.

    Only ASCII is written (other characters as \\u escapes), so the text is UTF-8 whatever encoding the stream has.
    What is not a number is null.
    """
    fields = analysis.to_dict()
    sections = sections_of(analysis) if isinstance(analysis, Analysis) else probe_report_sections(analysis)
    ordered = {"schema": fields.pop("schema"), **fields, "sections": list(map(_section, flattened(sections)))}
    lines = [f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in ordered.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _section(entry: Section) -> dict[str, Any]:
    figure = entry.figure
    table = entry.table if figure is None else figure.table
    finding = entry.finding or ("" if figure is None else figure.finding)
    rows = None if table is None else {"header": table.header, "rows": table.rows}
    return {"name": entry.name, "title": entry.title, "finding": finding, "table": rows}


def loads(text: str, *, name: str = "the document") -> Analysis:
    """The Analysis of a JSON text. Raises UnreadableFile for what is not JSON, LayoutError for another document."""

    def refuse(constant: str) -> NoReturn:
        raise UnreadableFile(f"{name} holds {constant}, which JSON does not allow; what is not a number is null")

    try:
        fields: Any = json.loads(text, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableFile(f"{name} is not JSON ({error}); make it with interp-probe CHECKPOINT --json") from None
    if not isinstance(fields, dict):
        raise LayoutError(
            f"{name} holds a {type(fields).__name__}, expected an object; make it with interp-probe CHECKPOINT --json"
        )
    try:
        return Analysis.from_dict(fields)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise LayoutError(f"{name} contradicts itself ({error}); make it with interp-probe CHECKPOINT --json") from None


def load(path: str | os.PathLike[str]) -> Analysis:
    """Read a file that ``write`` or ``interp-probe --json`` made."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UnreadableFile(f"{os.fspath(path)} is not UTF-8 text, expected JSON from interp-probe --json") from None
    except OSError as error:
        raise UnreadableFile(f"cannot read {os.fspath(path)}: {error.strerror}") from None
    return loads(text, name=os.fspath(path))


def write(analysis: Analysis, path: str | os.PathLike[str]) -> None:
    """Write the document in one step. Raises UsageError when the place cannot be written."""
    write_atomically(path, f"{dumps(analysis)}\n")
