"""The algorithms of regression with one label per token, as code and as formulas."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from interp.reports.certificate_text import Account, fitted_numbers, scale_text
from interp.reports.emitted_coefficients import (
    Term,
    Terms,
    coefficient_entries,
    coefficient_table,
    coefficient_updates,
    names,
    plain_update,
    summed,
    symbolic_update,
    updated,
)
from interp.reports.emitted_latex import LatexPart, latex_matrix, latex_scale, latex_text
from interp.reports.emitted_python import WIDTH, Library, PythonPart, indented
from interp.reports.numbers import number
from interp.results import Certificate, RecoveredLayer, RecoveredOmegas

__all__ = ["account", "latex_part", "python_part"]

TERMS: Terms = {
    "xx": Term(channel="x", plain="Sigma x", python="x @ Sigma", latex=r"\Sigma x_i", reads=("Sigma",)),
    "xy": Term(channel="x", plain="y alpha", python="{np}.outer(y, alpha)", latex=r"y_i \alpha", reads=("alpha",)),
    "x:xx": Term(
        channel="x", plain="tr(Sigma) x", python="{np}.trace(Sigma) * x", latex=r"\operatorname{tr}(\Sigma)\, x_i",
        reads=("Sigma",),
    ),
    "x:yy": Term(channel="x", plain="lambda x", python="lam * x", latex=r"\lambda x_i", reads=("lam",)),
    "yx": Term(
        channel="y", plain="<alpha, x>", python="x @ alpha", latex=r"\langle \alpha, x_i \rangle", reads=("alpha",)
    ),
    "yy": Term(channel="y", plain="lambda y", python="lam * y", latex=r"\lambda y_i", reads=("lam",)),
    "y:xx": Term(
        channel="y", plain="tr(Sigma) y", python="{np}.trace(Sigma) * y", latex=r"\operatorname{tr}(\Sigma)\, y_i",
        reads=("Sigma",),
    ),
}  # fmt: skip
SUMS = {"Sigma": "s * keys_x.T @ keys_x", "alpha": "s * keys_x.T @ keys_y", "lam": "s * keys_y @ keys_y"}
TOKENS = {  # x and y of all tokens, the query last
    "numpy": ("x = np.vstack([X, x_query]).astype(float)", "y = np.append(y, 0.0).astype(float)"),
    "torch": ("x = torch.cat([X, x_query[None]])", "y = torch.cat([y, torch.zeros_like(y[:1])])"),
}
TRANSPOSED = {"numpy": "np.transpose(w)", "torch": "torch.tensor(w, dtype=x.dtype).T"}  # the matrix of a layer


def account(certificate: Certificate) -> Account:
    clip = certificate.checkpoint.clip
    left = (
        None
        if clip is None
        else ("left out", f"the network's clip of +-{clip:g}; prompts that meet it are not counted")
    )
    return Account(fit=fitted_numbers(certificate), clip=left)


def _matrices(recovered: RecoveredOmegas) -> bool:
    """Is it a family with a matrix per layer?"""
    return recovered.layers[0].matrix is not None


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = certificate.recovered
    assert isinstance(recovered, RecoveredOmegas)
    keys = "the examples" if recovered.keys == "context" else "the examples and the query"
    return PythonPart(
        algorithm=(
            "The examples (x_j, y_j) and the query (x, 0) are the tokens. Every layer updates all of them at once:",
            "",
            *indented(_update(recovered)),
            "",
            "with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j, lambda = s sum_j y_j^2, s = "
            f"{scale_text(recovered.scale)},",
            f"summed over {keys} as they enter the layer, and numbers of its own for every layer.",
            f"The prediction is {'-' if recovered.sign < 0 else '+'}y of the query after the last layer.",
        ),
        numbers=_numbers(recovered),
        function=_function(recovered, library),
        examples="rows (x, y), the query last",
        call="predict(prompt[:-1, :-1], prompt[:-1, -1], prompt[-1, :-1])",
        scalar=True,
    )


def _update(recovered: RecoveredOmegas) -> Iterator[str]:
    if not _matrices(recovered):
        yield from plain_update(TERMS, recovered)
        return
    yield f"y  <-  {'y + ' if recovered.residual else ''}<alpha, Omega x>"
    if not recovered.residual:
        yield "x  <-  0"


def _numbers(recovered: RecoveredOmegas) -> str:
    lines = ["# The numbers of every layer; +- is one standard error."]
    if _matrices(recovered):
        lines += ["# Omega[c][e] carries x_e of a token along alpha_c.", "LAYERS = ["]
        lines += [line for layer in recovered.layers for line in _matrix(layer)]
        lines.append("]")
    else:
        lines += coefficient_entries(TERMS, recovered)
    return "\n".join([*lines, "", ""])


def _matrix(layer: RecoveredLayer) -> Iterator[str]:
    errors = [e for row in layer.matrix_stderr or [] for e in row]
    known = [e for e in errors if e is not None]
    missing = len(errors) - len(known)
    said = f"+- {max(known):.1g} or less" if known else ""
    doubt = f"{'; ' if said else ''}the prompts do not determine {missing} of its numbers" if missing else ""
    yield f"    [  # layer {layer.index}: {said}{doubt}"
    for row in layer.matrix or []:
        text = f"[{', '.join(repr(float(value)) for value in row)}],"
        yield from textwrap.wrap(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 9)
    yield "    ],"


def _function(recovered: RecoveredOmegas, library: Library) -> str:
    if _matrices(recovered):
        read = {"alpha"}
        step = f"x @ ({TRANSPOSED[library.name]} @ alpha)"
        updates = {"x": [] if recovered.residual else [f"{library.alias}.zeros_like(x)"], "y": [step]}
    else:
        read = {sum_ for name in names(TERMS, recovered) for sum_ in TERMS[name].reads}
        updates = coefficient_updates(TERMS, recovered, library.alias)
    body = [
        *TOKENS[library.name],
        "n = len(x) - 1",
        f"s = {scale_text(recovered.scale)}",
        "for w in LAYERS:",
        *indented(summed(SUMS, read, recovered.keys)),
        *indented(updated(updates, recovered.residual)),
        f"return {'-' if recovered.sign < 0 else ''}y[n]",
    ]
    head = [
        "def predict(X, y, x_query):",
        '    """The prediction for ``x_query`` (d,) from the examples ``X`` (n, d) and their labels ``y`` (n,).',
        "",
        f"    {library.note}",
        f"    The numbers were recovered with d = {recovered.dim} and n = {recovered.context}.",
        '    """',
    ]
    return "\n".join([*head, *indented(body), "", ""])


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = certificate.recovered
    assert isinstance(recovered, RecoveredOmegas)
    keys = "the examples" if recovered.keys == "context" else "the examples and the query"
    return LatexPart(
        algorithm=(
            r"The examples $(x_j, y_j)$, $j = 1, \dots, n$, and the query $(x_t, 0)$ are the tokens. Layer $\ell$ "
            "updates",
            r"all of them at once:",
            r"\begin{align*}",
            " \\\\\n".join(_symbolic(recovered)),
            r"\end{align*}",
            r"with $\Sigma = s \sum_j x_j x_j^\top$, $\alpha = s \sum_j y_j x_j$ and $\lambda = s \sum_j y_j^2$,",
            rf"$s = {latex_scale(scale_text(recovered.scale))}$, summed over {keys} as they enter the layer.",
            rf"The prediction is ${'-' if recovered.sign < 0 else '+'}y_t$ after the last layer.",
        ),
        numbers=tuple(_latex_numbers(recovered)),
    )


def _symbolic(recovered: RecoveredOmegas) -> Iterator[str]:
    if not _matrices(recovered):
        yield from symbolic_update(TERMS, recovered)
        return
    own = "y_i + " if recovered.residual else ""
    yield rf"y_i &\leftarrow {own}\langle \alpha, \Omega^{{\ell}} x_i \rangle"
    if not recovered.residual:
        yield r"x_i &\leftarrow 0"


def _latex_numbers(recovered: RecoveredOmegas) -> Iterator[str]:
    if not _matrices(recovered):
        yield from coefficient_table(TERMS, recovered)
        return
    for layer in recovered.layers:
        errors = [e for row in layer.matrix_stderr or [] for e in row if e is not None]
        yield from latex_matrix(rf"\Omega^{{{layer.index}}}", layer.matrix or [])
        if errors:
            yield f"Standard errors are {latex_text(number(max(errors), 1))} or less."
