"""The recovered algorithm in HTML: its updates with their numbers, layer by layer; and a page of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from interp.reports.emit.certificate import HEADING, disagreement_rows, origin, sources
from interp.reports.emit.description import describe
from interp.reports.emit.languages import register_language
from interp.reports.numbers import estimate, plain, rounded
from interp.results import Analysis, Certificate, Recovered, Term
from interp.results.notation import PLAIN, Notation

__all__ = ["coefficient_note", "emit"]


def _typeset(formula: str) -> Markup:
    """Indices after _, exponents after ^ and 1.2e-3 as a power of ten; single letters are slanted."""
    text = str(escape(plain(formula)))
    text = re.sub(r"(?<![\w.])([a-zA-Z])(?![\w&;])", r"<i>\1</i>", text)
    text = re.sub(r"\b([a-zA-Z])_(?:\{([^}]*)\}|(\w))", lambda m: f"<i>{m[1]}<sub>{m[2] or m[3]}</sub></i>", text)
    text = re.sub(r"([αωτΩ∑])_([\w:]+)", r"\1<sub>\2</sub>", text)
    text = re.sub(r"\^(\w+|\?)|ᵀ", lambda m: f"<sup>{m[1] or 'T'}</sup>", text)
    return Markup(re.sub(r"(\d)e(-?\d+)", lambda m: f"{m[1]}·10<sup>{m[2].replace('-', '−')}</sup>", text))


HTML = Notation(
    words={
        **PLAIN.words, "token": "{0}_i", "outer": "{1} {0}", "sum": "s ∑_j {0}_j {1}_jᵀ", "trace": "tr({0}) {1}",
        "products": "s ∑ {0}[a, b, g, e] ∑_j e_j[b] ⟨e_j[g], e[e]⟩",
    },
    letters=PLAIN.letters,
    typeset=_typeset,
    prose=lambda text: Markup(escape(plain(text))),
)  # fmt: skip


def _size(term: Term) -> str:
    return rounded(abs(term.number or 0.0), term.stderr) + "^?" * (term.undetermined is not None)


def coefficient_note(analysis: Analysis) -> str | None:
    """Why the numbers of the table are not those of the recovered algorithm, where they are of another form."""
    recovered = analysis.recovered
    if recovered is None or recovered.family in ("diag", "equivariant", "preconditioned-gd"):
        return None
    split = analysis.completion is not None and analysis.completion.regime in ("machines", "sketch")
    whole = ", with one Σ over all of x" if split else ""
    return (
        f"Output and refit are those of all four ω together (family diag{whole}): they need not be the numbers of the "
        f"recovered algorithm ({recovered.family})"
    )


@register_language("html")
def emit(certificate: Certificate) -> str:
    """A page of its own, without scripts or styles."""
    recovered, title = certificate.recovered, escape(plain(origin(certificate)))
    intro, equations, rest = describe(recovered, HTML)
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>',
        f"<h1>{title}</h1>",
        f"<p>{intro}</p>",
        *(f"<p>{_typeset(equation)}</p>" for equation in equations),
        f"<p>{rest}</p>",
        *_numbers(recovered),
        "<h2>Where it comes from</h2>",
        "<dl>",
        *(f"<dt>{escape(what)}</dt><dd>{escape(plain(text))}</dd>" for what, text in sources(certificate)),
        "</dl>",
        "<h2>How far it can be trusted</h2>",
        f"<p>{escape(HEADING)}.</p>",
        "<table>",
        *_rows(disagreement_rows(certificate)),
        "</table>",
        "</body></html>",
        "",
    ]
    return "\n".join(lines)


def _rows(rows: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    for row in rows:
        span = len(rows[0]) - len(row) + 1
        cells = [f"<td>{escape(plain(cell))}</td>" for cell in row[:-1]]
        yield f'<tr>{"".join(cells)}<td colspan="{span}">{escape(plain(row[-1]))}</td></tr>'


def _numbers(recovered: Recovered) -> Iterator[str]:
    """One formula per channel and layer, with the numbers of the recovered algorithm;
    where coefficients are arrays, all of them one by one. What never reaches the prediction has no term."""
    terms = list(recovered.terms())
    if terms and all(term.number is not None for _, term in terms):
        for index, layer in enumerate(recovered.updates):
            lines = (_typeset(HTML.update(update, recovered.sizes, _size)) for update in layer)
            yield f"<p>Layer {index}: {'; '.join(lines)}</p>"
        return
    for layer, term in terms:
        if term.coefficient is not None:
            value = estimate(term.number, term.stderr) if term.array is None else json.dumps(term.array)
            said = escape(f" ({term.undetermined})" if term.undetermined else "")
            yield f"<p>{_typeset(HTML.symbol(term.name))} of layer {layer}{said}:</p><pre>{value}</pre>"
