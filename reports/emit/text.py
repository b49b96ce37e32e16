"""The recovered algorithm as plain text, ASCII only: it is also what an emitted Python file says of itself."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from interp.reports.emit.certificate import HEADING, disagreement_rows, origin, sources
from interp.reports.emit.description import describe
from interp.reports.emit.languages import register_language
from interp.reports.numbers import estimate, plain
from interp.results import Certificate, Recovered
from interp.results.notation import Notation

__all__ = ["WIDTH", "algorithm_lines", "ascii_text", "emit", "origin_lines"]

WIDTH = 100


def ascii_text(text: str) -> str:
    """Text that may come from a file, inside a docstring or a comment: one line, no escapes, no quotes that end it."""
    made = plain(text).replace("±", "+-").encode("ascii", "replace").decode()
    return made.replace("\\", "/").replace('"', "'")


ASCII = Notation(
    words={
        "omega": "w_{1}", "named": "{0}", "transposed": "{0}^T", "moment": "M[{0}, {1}]", "times": "{0} {1}",
        "becomes": "{0}  <-  {1}", "minus": "-", "all": "e[a]", "sum": "s sum_j {0}_j {1}_j^T",
        "token": "{0}", "inner": "<{0}, {1}>", "outer": "{1} {0}", "apply": "{0} {1}", "trace": "tr({0}) {1}",
        "blocks": "(M * {0}) {1}", "products": "s sum_bge {0}[a, b, g, e] sum_j e_j[b] <e_j[g], e[e]>",
        "coefficient": "{0} {1}", "projection": "Pi {1}", "written": "Pi' {1}", "mean": "mean({0})",
        "deviation": "({0} - mean({0}))", "slope": "(C / V) {1}", "fitted": "(1 - h) (n + 1) / n {1}",
    },
    letters={},
    typeset=lambda formula: formula.replace("{", "(").replace("}", ")"),
)  # fmt: skip


def algorithm_lines(recovered: Recovered) -> Iterator[str]:
    intro, equations, rest = describe(recovered, ASCII)
    yield from textwrap.wrap(ascii_text(intro), WIDTH)
    yield ""
    for equation in equations:
        yield from textwrap.wrap(ascii_text(equation), WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 12)
    yield ""
    yield from textwrap.wrap(ascii_text(rest), WIDTH)


def origin_lines(certificate: Certificate) -> Iterator[str]:
    yield "Where it comes from"
    for what, text in sources(certificate):
        yield from textwrap.wrap(
            ascii_text(text), WIDTH, initial_indent=f"    {what:12}", subsequent_indent=" " * 16,
            break_on_hyphens=False,
        )  # fmt: skip
    yield ""
    yield from textwrap.wrap(f"How far it can be trusted: {HEADING}", WIDTH)
    yield from _table([tuple(ascii_text(cell) for cell in row) for row in disagreement_rows(certificate)])


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A row that is short ends in a cell that runs over the rest."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[k]) for row in full) for k in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "    " + "  ".join([*cells, row[-1]])


def _numbers(recovered: Recovered) -> Iterator[str]:
    given = (entry for entry in recovered.terms() if entry[1].coefficient is not None)
    for layer, entries in itertools.groupby(given, key=lambda entry: entry[0]):
        yield f"Layer {layer}"
        for _, term in entries:
            doubt = f"  ({term.undetermined})" if term.undetermined else ""
            value = estimate(term.number, term.stderr) if term.array is None else repr(term.array)
            line = f"{ASCII.symbol(term.name)} = {value}{doubt}"
            yield from textwrap.wrap(ascii_text(line), WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)


@register_language("text")
def emit(certificate: Certificate) -> str:
    lines = [
        ascii_text(origin(certificate)),
        "",
        *algorithm_lines(certificate.recovered),
        "",
        *_numbers(certificate.recovered),
        "",
        *origin_lines(certificate),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"
