"""The recovered algorithm as a LaTeX document: its update, its numbers, its certificate. Here is what all such
documents share; what differs from task to task is a ``LatexPart``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from interp.reports.certificate_text import Account, disagreement_rows, origin, sources
from interp.reports.numbers import DASH, number, plain
from interp.results import Certificate

__all__ = ["LatexPart", "latex_matrix", "latex_number", "latex_scale", "latex_source", "latex_text"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"\ensuremath{\pm}", DASH: "---", '"': "''",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LatexPart:
    """Lines: what it computes, and its numbers."""

    algorithm: tuple[str, ...]
    numbers: tuple[str, ...]


def latex_source(certificate: Certificate, part: LatexPart, account: Account) -> str:
    """A whole document for pdflatex, ASCII only, that needs geometry, amsmath and longtable."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{amsmath,longtable}",
        r"\begin{document}",
        rf"\section*{{{latex_text(origin(certificate))}}}",
        *part.algorithm,
        *part.numbers,
        r"\section*{Where it comes from}",
        r"\begin{description}",
        *(rf"\item[{latex_text(what)}] \sloppy {_breakable(text)}" for what, text in sources(certificate, account)),
        r"\end{description}",
        r"\section*{How far it can be trusted}",
        r"$|\text{algorithm} - \text{network}|$ on fresh prompts, in units of the root mean square of the network's",
        r"predictions there.",
        *_table(disagreement_rows(certificate)),
        r"\end{document}",
        "",
    ]
    return "\n".join(lines)


def latex_text(text: str) -> str:
    made = "".join(_SPECIAL.get(c, c) for c in plain(text))
    return made.encode("ascii", "replace").decode()


def _breakable(text: str) -> str:
    """Long words, such as hashes, may be broken anywhere."""
    return " ".join(
        r"\allowbreak ".join(latex_text(word[i : i + 16]) for i in range(0, len(word), 16)) for word in text.split(" ")
    )


def latex_scale(text: str) -> str:
    return text.replace("1/n", r"\tfrac{1}{n}").replace("1/(n+1)", r"\tfrac{1}{n+1}")


def latex_number(value: float, digits: int = 4) -> str:
    mantissa, _, power = number(value, digits).partition("e")
    return rf"{mantissa} \cdot 10^{{{power}}}" if power else mantissa


def latex_matrix(name: str, matrix: Sequence[Sequence[float]]) -> Iterator[str]:
    columns = max(len(matrix), *(len(row) for row in matrix), 10)
    yield r"\[\setcounter{MaxMatrixCols}{" + str(columns) + "}"
    yield rf"{name} = \begin{{pmatrix}}"
    yield " \\\\\n".join(" & ".join(latex_number(value) for value in row) for row in matrix)
    yield r"\end{pmatrix}\]"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = len(rows[0])
    yield r"{\footnotesize\setlength{\tabcolsep}{3pt}"
    yield r"\begin{longtable}{l" + "r" * (columns - 1) + "}"
    for index, row in enumerate(rows):
        cells = [latex_text(cell) for cell in row]
        if len(cells) < columns:
            cells[-1] = rf"\multicolumn{{{columns - len(cells) + 1}}}{{l}}{{{cells[-1]}}}"
        yield " & ".join(cells) + (r" \\ \hline" if index == 0 else r" \\")
    yield r"\end{longtable}}"
