"""The algorithms of matrix completion as code and as formulas: EAGLE and its relatives, sketched and distributed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from interp.reports.certificate_text import Account, scale_text
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
from interp.reports.emitted_latex import LatexPart, latex_matrix, latex_scale
from interp.reports.emitted_python import WIDTH, Library, PythonPart, indented, wrapped_rows
from interp.reports.emitted_regression import account as account_of_fit
from interp.reports.numbers import interval
from interp.results import Certificate, RecoveredCompletion

__all__ = ["account", "latex_part", "python_part"]


def _trace(channel: str, of: str, plain: str, latex: str) -> Term:
    return Term(
        channel=channel, plain=f"tr({plain}) {channel}", python=f"{{np}}.trace({of}) * {channel}",
        latex=rf"\operatorname{{tr}}({latex})\, {channel}_i", reads=(of,),
    )  # fmt: skip


# A token is a row (x, y) of code and a pair of columns in formulas.
WHOLE: Terms = {
    "xx": Term(channel="x", plain="Sigma x", python="x @ Sigma", latex=r"\Sigma x_i", reads=("Sigma",)),
    "xy": Term(channel="x", plain="alpha y", python="y @ alpha.T", latex=r"\alpha y_i", reads=("alpha",)),
    "x:xx": _trace("x", "Sigma", "Sigma", r"\Sigma"),
    "x:yy": _trace("x", "lam", "lambda", r"\lambda"),
    "yx": Term(channel="y", plain="alpha^T x", python="x @ alpha", latex=r"\alpha^\top x_i", reads=("alpha",)),
    "yy": Term(channel="y", plain="lambda y", python="y @ lam", latex=r"\lambda y_i", reads=("lam",)),
    "y:xx": _trace("y", "Sigma", "Sigma", r"\Sigma"),
    "y:yy": _trace("y", "lam", "lambda", r"\lambda"),
}
MACHINES: Terms = {
    **WHOLE,
    "xx": Term(
        channel="x", plain="(M * Sigma) x", python="x @ (SAME * Sigma)", latex=r"(M \odot \Sigma) x_i",
        reads=("Sigma",),
    ),
}  # fmt: skip
SKETCHED: Terms = {
    "xx": replace(
        WHOLE["xx"], plain="Pi Sigma Pi x", python="seen @ Sigma @ Pi", latex=r"\Pi^\ell \Sigma \Pi^\ell x_i"
    ),
    "yx": replace(WHOLE["yx"], plain="alpha^T Pi x", python="seen @ alpha", latex=r"\alpha^\top \Pi^\ell x_i"),
}
APART: Terms = {  # where a layer writes another part of x than it reads
    **SKETCHED,
    "xx": replace(
        WHOLE["xx"], plain="Pi' Sigma Pi x", python="seen @ Sigma @ Pi_written", latex=r"\Pi'^\ell \Sigma \Pi^\ell x_i"
    ),
}
SUMS = {"Sigma": "s * keys_x.T @ keys_x", "alpha": "s * keys_x.T @ keys_y", "lam": "s * keys_y.T @ keys_y"}
TOKENS = {  # the complete rows, and the others, whose y starts at 0
    "numpy": (
        "x = np.vstack([A, B]).astype(float)",
        "y = np.vstack([C, np.zeros((len(B), np.shape(C)[1]))]).astype(float)",
    ),
    "torch": ("x = torch.cat([A, B])", "y = torch.cat([C, C.new_zeros(len(B), C.shape[1])])"),
}


def account(certificate: Certificate) -> Account:
    made = account_of_fit(certificate)
    recovered = _of(certificate)
    if recovered.machines or recovered.sketches:
        what = "which machine holds what" if recovered.machines else "what every layer sees of x"
        return replace(made, fit=f"{made.fit}; {what} is read off the weights")
    return made


def _of(certificate: Certificate) -> RecoveredCompletion:
    assert isinstance(certificate.recovered, RecoveredCompletion)
    return certificate.recovered


def _terms(recovered: RecoveredCompletion) -> Terms:
    if recovered.sketches:
        return APART if _apart(recovered) else SKETCHED
    return MACHINES if recovered.machines else WHOLE


def _apart(recovered: RecoveredCompletion) -> bool:
    """Whether a layer writes another part of x than it reads."""
    return any(written is not None for written in recovered.written)


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = _of(certificate)
    keys = "the complete rows" if recovered.keys == "context" else "all rows"
    return PythonPart(
        algorithm=(
            "It completes [[A, C], [B, D]]. The rows (A_i, C_i) and (B_j, 0) are the tokens (x, y), as columns here.",
            "Every layer updates all of them at once:",
            "",
            *indented(plain_update(_terms(recovered), recovered)),
            "",
            "with Sigma = s sum_j x_j x_j^T, alpha = s sum_j x_j y_j^T, lambda = s sum_j y_j y_j^T, s = "
            f"{scale_text(recovered.scale)},",
            f"summed over {keys} as they enter the layer, and numbers of its own for every layer.",
            *_structure(recovered),
            f"D is {'-' if recovered.sign < 0 else '+'}y of the rows of B after the last layer.",
            *_law(recovered),
        ),
        numbers=_numbers(recovered, library),
        function=_function(recovered, library),
        examples=f"rows (x, y), the {len(certificate.network[0])} incomplete ones last",
        call=_call(len(certificate.network[0]), recovered.dim),
        scalar=False,
    )


def _call(queries: int, dim: int) -> str:
    return f"complete(prompt[:-{queries}, :{dim}], prompt[-{queries}:, :{dim}], prompt[:-{queries}, {dim}:])"


def _structure(recovered: RecoveredCompletion) -> Iterator[str]:
    if recovered.machines:
        yield "M is 1 for two columns of A on one machine, and 0 otherwise: a machine updates its own columns."
    if recovered.sketches:
        yield "Pi = S S^T is what a layer sees of x, S with orthonormal columns; the identity where it sees all."
    if _apart(recovered):
        yield "Pi' = S' S'^T is what it writes of x; Pi where no S' is given."


def _law(recovered: RecoveredCompletion) -> Iterator[str]:
    if recovered.eta is not None and recovered.gamma is not None:
        eta, gamma = interval(recovered.eta, recovered.eta_ci), interval(recovered.gamma, recovered.gamma_ci)
        yield "This is EAGLE: the steps follow the norms that A has on the task from layer to layer,"
        yield "w_xx = -eta/|A|^2 and w_yx = -gamma/|A|^2 (times s) with 95 % intervals of the layers' mean"
        yield f"eta = {eta} and gamma = {gamma}."


def _numbers(recovered: RecoveredCompletion, library: Library) -> str:
    lines = [
        "# The numbers of every layer; +- is one standard error.",
        *coefficient_entries(_terms(recovered), recovered),
    ]
    if recovered.machines:
        owner = {position: index for index, block in enumerate(recovered.machines) for position in block}
        holder = [owner.get(position, -1 - position) for position in range(recovered.dim)]
        lines += [
            "# The machine that holds each column of A.",
            *textwrap.wrap(f"MACHINE = {library.array.format(holder)}", WIDTH, subsequent_indent=" " * 4),
            "SAME = 1.0 * (MACHINE[:, None] == MACHINE)",
        ]
    if recovered.sketches:
        lines.append("# S of every layer, one row for every column of A; None where the layer sees all of it.")
        lines += _bases("SKETCHES", recovered.sketches)
    if _apart(recovered):
        lines.append("# S' of every layer; None where it writes what it sees.")
        lines += _bases("WRITTEN", recovered.written)
    return "\n".join([*lines, "", ""])


def _bases(name: str, matrices: tuple[list[Any] | None, ...]) -> Iterator[str]:
    yield f"{name} = ["
    for matrix in matrices:
        yield from ["    None,"] if matrix is None else ["    [", *wrapped_rows(matrix, 2), "    ],"]
    yield "]"


def _function(recovered: RecoveredCompletion, library: Library) -> str:
    terms = _terms(recovered)
    read = {sum_ for name in names(terms, recovered) for sum_ in terms[name].reads}
    eye = "np.eye(x.shape[1])" if library.name == "numpy" else "torch.eye(x.shape[1], dtype=x.dtype)"
    sketched = (
        f"S = {eye} if sketch is None else {library.array.format('sketch')}",
        "Pi = S @ S.T",
        "seen = x @ Pi",
    )
    apart = (
        f"S_written = S if written is None else {library.array.format('written')}",
        "Pi_written = S_written @ S_written.T",
    )
    over = "for w in LAYERS:"
    if recovered.sketches:
        over = "for w, sketch in zip(LAYERS, SKETCHES):"
    if _apart(recovered):
        over = "for w, sketch, written in zip(LAYERS, SKETCHES, WRITTEN):"
    body = [
        *TOKENS[library.name],
        "n = len(A)",
        f"s = {scale_text(recovered.scale)}",
        over,
        *indented(sketched if recovered.sketches else ()),
        *indented(apart if _apart(recovered) else ()),
        *indented(summed(SUMS, read, recovered.keys)),
        *indented(updated(coefficient_updates(terms, recovered, library.alias), recovered.residual)),
        f"return {'-' if recovered.sign < 0 else ''}y[n:]",
    ]
    head = [
        "def complete(A, B, C):",
        "    \"\"\"The hidden block D (d', n') of [[A, C], [B, D]] from A (d, n), B (d', n) and C (d, n').",
        "",
        f"    {library.note}",
        f"    The numbers were recovered with d = {recovered.context}, n = {recovered.dim}, n' = {recovered.outputs}.",
        '    """',
    ]
    return "\n".join([*head, *indented(body), "", ""])


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = _of(certificate)
    keys = "the complete rows" if recovered.keys == "context" else "all rows"
    return LatexPart(
        algorithm=(
            r"It completes $\begin{pmatrix} A & C \\ B & D \end{pmatrix}$, where $D$ is hidden. The rows $(A_i, C_i)$,",
            r"$i = 1, \dots, n$, and $(B_j, 0)$ are the tokens $(x_i, y_i)$, as columns here. Layer $\ell$ updates all",
            r"of them at once:",
            r"\begin{align*}",
            " \\\\\n".join(symbolic_update(_terms(recovered), recovered)),
            r"\end{align*}",
            r"with $\Sigma = s \sum_j x_j x_j^\top$, $\alpha = s \sum_j x_j y_j^\top$ and "
            r"$\lambda = s \sum_j y_j y_j^\top$,",
            rf"$s = {latex_scale(scale_text(recovered.scale))}$, summed over {keys} as they enter the layer.",
            *_latex_structure(recovered),
            rf"$D$ is ${'-' if recovered.sign < 0 else '+'}y$ of the rows of $B$ after the last layer.",
            *_latex_law(recovered),
        ),
        numbers=tuple(_latex_numbers(recovered)),
    )


def _latex_structure(recovered: RecoveredCompletion) -> Iterator[str]:
    if recovered.machines:
        blocks = "; ".join(", ".join(str(position + 1) for position in block) for block in recovered.machines)
        yield r"$M$ is 1 for two columns of $A$ on one machine, and 0 otherwise. The machines hold the columns"
        yield f"{blocks}."
    if recovered.sketches:
        yield r"$\Pi^\ell = S^\ell S^{\ell\top}$ is what layer $\ell$ sees of $x$; the identity where it sees all."
    if _apart(recovered):
        yield r"$\Pi'^\ell = S'^\ell S'^{\ell\top}$ is what it writes of $x$; $\Pi^\ell$ where no $S'^\ell$ is given."


def _latex_law(recovered: RecoveredCompletion) -> Iterator[str]:
    if recovered.eta is not None and recovered.gamma is not None:
        yield r"This is EAGLE: the steps follow the norms that $A$ has on the task from layer to layer,"
        eta, gamma = interval(recovered.eta, recovered.eta_ci), interval(recovered.gamma, recovered.gamma_ci)
        yield r"$\omega_{xx} = -\eta / |A|^2$ and $\omega_{yx} = -\gamma / |A|^2$ (times $s$) with 95\,\% intervals of"
        yield rf"the layers' mean $\eta = {eta}$ and $\gamma = {gamma}$."


def _latex_numbers(recovered: RecoveredCompletion) -> Iterator[str]:
    yield from coefficient_table(_terms(recovered), recovered)
    for layer, sketch in enumerate(recovered.sketches):
        if sketch is not None:
            yield from latex_matrix(rf"S^{{{layer}}}", sketch)
    for layer, written in enumerate(recovered.written):
        if written is not None:
            yield from latex_matrix(rf"S'^{{{layer}}}", written)
