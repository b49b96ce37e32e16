"""The recovered algorithm as a LaTeX document: its update, its numbers, its certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interp.reports.certificate_text import TERMS, disagreement_rows, names, origin, scale_text, sources, terms
from interp.reports.numbers import DASH, estimate, number, plain
from interp.results import Certificate, Recovered, RecoveredLayer

__all__ = ["latex_source"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"\ensuremath{\pm}", DASH: "---", '"': "''",
}  # fmt: skip


def latex_source(certificate: Certificate) -> str:
    """A whole document for pdflatex, ASCII only, that needs geometry, amsmath and longtable."""
    recovered = certificate.recovered
    keys = "the examples" if recovered.keys == "context" else "the examples and the query"
    scale = scale_text(recovered).replace("1/n", r"\tfrac{1}{n}").replace("1/(n+1)", r"\tfrac{1}{n+1}")
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{amsmath,longtable}",
        r"\begin{document}",
        rf"\section*{{{_escaped(origin(certificate))}}}",
        r"The examples $(x_j, y_j)$, $j = 1, \dots, n$, and the query $(x_t, 0)$ are the tokens. Layer $\ell$ updates",
        r"all of them at once:",
        *_update(recovered),
        r"with $\Sigma = s \sum_j x_j x_j^\top$, $\alpha = s \sum_j y_j x_j$ and $\lambda = s \sum_j y_j^2$,",
        rf"$s = {scale}$, summed over {keys} as they enter the layer.",
        rf"The prediction is ${'-' if recovered.sign < 0 else '+'}y_t$ after the last layer.",
        *_numbers(recovered),
        r"\section*{Where it comes from}",
        r"\begin{description}",
        *(rf"\item[{_escaped(what)}] \sloppy {_breakable(text)}" for what, text in sources(certificate)),
        r"\end{description}",
        r"\section*{How far it can be trusted}",
        r"$|\text{algorithm} - \text{network}|$ on fresh prompts, in units of the root mean square of the network's",
        r"predictions there.",
        *_table(disagreement_rows(certificate)),
        r"\end{document}",
        "",
    ]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    made = "".join(_SPECIAL.get(c, c) for c in plain(text))
    return made.encode("ascii", "replace").decode()


def _breakable(text: str) -> str:
    """Long words, such as hashes, may be broken anywhere."""
    return " ".join(
        r"\allowbreak ".join(_escaped(word[i : i + 16]) for i in range(0, len(word), 16)) for word in text.split(" ")
    )


def _symbol(name: str) -> str:
    letter = r"\tau" if ":" in name else r"\omega"
    return rf"{letter}^{{\ell}}_{{{name}}}"


def _update(recovered: Recovered) -> Iterator[str]:
    rows = []
    if recovered.layers[0].matrix is not None:
        own = "y_i + " if recovered.residual else ""
        rows.append(rf"y_i &\leftarrow {own}\langle \alpha, \Omega^{{\ell}} x_i \rangle")
        if not recovered.residual:
            rows.append(r"x_i &\leftarrow 0")
    else:
        for channel in "xy":
            own = [f"{channel}_i"] if recovered.residual else []
            parts = own + [f"{_symbol(name)} {TERMS[name].latex}" for name in terms(recovered, channel)]
            if parts != [f"{channel}_i"]:
                rows.append(rf"{channel}_i &\leftarrow {' + '.join(parts) or '0'}")
    yield r"\begin{align*}"
    yield " \\\\\n".join(rows)
    yield r"\end{align*}"


def _numbers(recovered: Recovered) -> Iterator[str]:
    if recovered.layers[0].matrix is not None:
        for layer in recovered.layers:
            yield from _matrix(layer)
        return
    present = names(recovered)
    yield r"\begin{longtable}{r" + "l" * len(present) + "}"
    yield r"layer $\ell$ & " + " & ".join(f"${_symbol(name)}$" for name in present) + r" \\ \hline"
    for layer in recovered.layers:
        cells = [_coefficient(layer, name) for name in present]
        yield f"{layer.index} & " + " & ".join(cells) + r" \\"
    yield r"\end{longtable}"
    doubts = {
        f"{name} of layer {layer.index}: {c.undetermined}"
        for layer in recovered.layers
        for name, c in layer.coefficients.items()
        if c.undetermined
    }
    yield "$\\pm$ is one standard error; --- never reaches the prediction." + "".join(
        f" {_escaped(doubt)}." for doubt in sorted(doubts)
    )


def _coefficient(layer: RecoveredLayer, name: str) -> str:
    found = layer.coefficients.get(name)
    return "---" if found is None else _escaped(estimate(found.value, found.stderr))


def _matrix(layer: RecoveredLayer) -> Iterator[str]:
    matrix = layer.matrix or []
    errors = [e for row in layer.matrix_stderr or [] for e in row if e is not None]
    yield r"\[\setcounter{MaxMatrixCols}{" + str(max(len(matrix), 10)) + "}"
    yield rf"\Omega^{{{layer.index}}} = \begin{{pmatrix}}"
    yield " \\\\\n".join(" & ".join(_power(number(value, 4)) for value in row) for row in matrix)
    yield r"\end{pmatrix}\]"
    if errors:
        yield f"Standard errors are {_escaped(number(max(errors), 1))} or less."


def _power(text: str) -> str:
    mantissa, _, power = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{power}}}" if power else mantissa


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = len(rows[0])
    yield r"{\footnotesize\setlength{\tabcolsep}{3pt}"
    yield r"\begin{longtable}{l" + "r" * (columns - 1) + "}"
    for index, row in enumerate(rows):
        cells = [_escaped(cell) for cell in row]
        if len(cells) < columns:
            cells[-1] = rf"\multicolumn{{{columns - len(cells) + 1}}}{{l}}{{{cells[-1]}}}"
        yield " & ".join(cells) + (r" \\ \hline" if index == 0 else r" \\")
    yield r"\end{longtable}}"
