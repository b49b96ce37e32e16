"""The recovered algorithm as a LaTeX document: its update, its numbers, its certificate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from interp.reports.emit.certificate import HEADING, disagreement_rows, origin, sources
from interp.reports.emit.description import describe
from interp.reports.emit.languages import register_language
from interp.reports.numbers import DASH, estimate, number, plain
from interp.results import Certificate, Recovered
from interp.results.notation import Notation
from interp.results.update import shape

__all__ = ["emit", "latex_text"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"\ensuremath{\pm}", DASH: "---", '"': "''",
}  # fmt: skip


def latex_text(text: str) -> str:
    made = "".join(_SPECIAL.get(c, c) for c in plain(text))
    return made.encode("ascii", "replace").decode()


def _name(name: str) -> str:
    return name if len(name) == 1 and name.isalpha() and name.isascii() else rf"\text{{{latex_text(name)}}}"


LATEX = Notation(
    words={
        "omega": r"{0}^{{\ell}}_{{{1}}}", "named": r"{0}^{{\ell}}", "transposed": r"{0}^\top",
        "moment": "M_{{{0}, {1}}}", "times": r"{0}\, {1}", "becomes": r"{0} &\leftarrow {1}", "minus": "-",
        "all": "e[a]", "sum": r"s \sum_j {0}_j {1}_j^\top", "token": "{0}", "inner": r"\langle {0}, {1} \rangle",
        "outer": "{1} {0}", "apply": "{0} {1}", "trace": r"\operatorname{{tr}}({0})\, {1}",
        "blocks": r"(M \odot {0}) {1}",
        "products": r"s \sum_{{b, g, e}} {0}_{{abge}} \sum_j e_j[b] \, \langle e_j[g], e[e] \rangle",
        "coefficient": "{0} {1}", "projection": r"\Pi {1}", "written": r"\Pi' {1}", "mean": r"\bar {0}",
        "deviation": r"({0} - \bar {0})", "slope": r"\tfrac{{C}}{{V}} {1}",
        "fitted": r"(1 - h) \tfrac{{n + 1}}{{n}} {1}",
    },
    letters={
        "Sigma": r"\Sigma", "alpha": r"\alpha", "lambda": r"\lambda", "omega": r"\omega", "tau": r"\tau",
        "Omega": r"\Omega", "eta": r"\eta", "gamma": r"\gamma", "phi": r"\varphi",
    },
    typeset=lambda formula: "$" + re.sub(r"(?<!\\)\bsum_", r"\\sum_", formula) + "$",
    prose=latex_text,
    name=_name,
)  # fmt: skip


@register_language("latex")
def emit(certificate: Certificate) -> str:
    """A whole document for pdflatex, ASCII only, that needs geometry, amsmath and longtable."""
    intro, equations, rest = describe(certificate.recovered, LATEX)
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{amsmath,longtable}",
        r"\begin{document}",
        rf"\section*{{{latex_text(origin(certificate))}}}",
        intro,
        r"\begin{align*}",
        " \\\\\n".join(equations),
        r"\end{align*}",
        rest,
        "",
        *_numbers(certificate.recovered),
        *_arrays(certificate.recovered),
        r"\section*{Where it comes from}",
        r"\begin{description}",
        *(rf"\item[{latex_text(what)}] \sloppy {_breakable(text)}" for what, text in sources(certificate)),
        r"\end{description}",
        r"\section*{How far it can be trusted}",
        f"{latex_text(HEADING)}.",
        r"{\footnotesize\setlength{\tabcolsep}{3pt}",
        *_table([[latex_text(cell) for cell in row] for row in disagreement_rows(certificate)]),
        "}",
        r"\end{document}",
        "",
    ]
    return "\n".join(lines)


def _breakable(text: str) -> str:
    """Long words, such as hashes, may be broken anywhere."""
    return " ".join(
        r"\allowbreak ".join(latex_text(word[i : i + 16]) for i in range(0, len(word), 16)) for word in text.split(" ")
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first row is the header; a row that is short ends in a cell that runs over the rest."""
    columns = len(rows[0])
    yield r"\begin{longtable}{l" + "r" * (columns - 1) + "}"
    for index, row in enumerate(rows):
        cells = list(row)
        if len(cells) < columns:
            cells[-1] = rf"\multicolumn{{{columns - len(cells) + 1}}}{{l}}{{{cells[-1]}}}"
        yield " & ".join(cells) + (r" \\ \hline" if index == 0 else r" \\")
    yield r"\end{longtable}"


def _numbers(recovered: Recovered) -> Iterator[str]:
    """Coefficients that are one number, of all layers, and what is to be said of single ones."""
    single = {(layer, term.name): term for layer, term in recovered.terms() if term.number is not None}
    if not single:
        return
    names = [t.name for u in shape(recovered.updates) for t in u.terms if t.number is not None]
    cells = {key: latex_text(estimate(term.number, term.stderr)) for key, term in single.items()}
    rows = [[str(k), *(cells.get((k, name), "---") for name in names)] for k in range(len(recovered.updates))]
    yield from _table([[r"layer $\ell$", *(f"${LATEX.symbol(name)}$" for name in names)], *rows])
    doubts = {f"{name} of layer {k}: {t.undetermined}." for (k, name), t in single.items() if t.undetermined}
    yield latex_text(" ".join(["± is one standard error; — never reaches the prediction.", *sorted(doubts)]))


def _arrays(recovered: Recovered) -> Iterator[str]:
    matrices: dict[str, list[Any]] = {}
    for layer, term in recovered.terms():
        if term.array is not None:
            yield from _array(rf"{LATEX.letter(term.name)}^{{{layer}}}", term.array)
            if term.stderr is not None:
                yield f"Standard errors are {latex_text(number(term.stderr, 1))} or less."
        for factor in term.factors:
            if factor.matrix is not None:
                matrices[rf"S{chr(39) * (factor.name == 'written')}^{{{layer}}}"] = factor.matrix
    for name, matrix in matrices.items():
        yield from _array(name, matrix)


def _latex_number(value: float) -> str:
    mantissa, _, power = number(value, 4).partition("e")
    return rf"{mantissa} \cdot 10^{{{power}}}" if power else mantissa


def _array(name: str, array: list[Any], index: str = "") -> Iterator[str]:
    """A matrix, or of an array of more indices its matrices over the last two that are not 0."""
    if isinstance(array[0][0], list):
        for first, part in enumerate(array):
            yield from _array(name, part, f"{index}{first}")
        return
    if not any(value for row in array for value in row):
        return
    columns = max(len(array[0]), 10)
    yield r"\[\setcounter{MaxMatrixCols}{" + str(columns) + "}"
    yield rf"{name}_{{{index}}} = \begin{{pmatrix}}"
    yield " \\\\\n".join(" & ".join(map(_latex_number, row)) for row in array)
    yield r"\end{pmatrix}\]"
