"""Block-scalar heads of causal models (revalg) as code and as formulas, free of gauge."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from interp.reports.certificate_text import Account, fitted_numbers, scale_text
from interp.reports.emitted_latex import LatexPart, latex_number, latex_scale, latex_text
from interp.reports.emitted_python import WIDTH, Library, PythonPart, array_constant, ascii_text, indented
from interp.reports.numbers import number
from interp.results import Certificate, RecoveredHeads, RecoveredStep

__all__ = ["account", "applied", "latex_part", "python_part", "sequence_function"]

HELD = {"zero": "0", "current": "s_t", "previous": "s_(t-1)", "start": "W_0 s_t"}


def _of(certificate: Certificate) -> RecoveredHeads:
    assert isinstance(certificate.recovered, RecoveredHeads)
    return certificate.recovered


def account(certificate: Certificate) -> Account:
    recovered, clip = _of(certificate), certificate.checkpoint.clip
    fit = (
        f"{recovered.parameters} numbers, the block-scalar part of the network's weights; nothing is fitted"
        if recovered.how == "weights"
        else f"{fitted_numbers(certificate)}, or some of them"
    )
    kept = None if clip is None else ("clip", f"tokens are clipped to +-{clip:g} after every layer, as in the network")
    return Account(fit=fit, clip=kept)


def _plain_states(recovered: RecoveredHeads | RecoveredStep) -> Iterator[str]:
    """What the tokens hold, in words."""
    held = ", ".join(
        f"{ascii_text(name)} = {HELD[content]}"
        for name, content in zip(recovered.channels, recovered.contents, strict=True)
    )
    yield f"The token of time t has the channels {held}, where s_(-1) = 0."


def _start_lines(recovered: RecoveredHeads | RecoveredStep, library: Library) -> list[str]:
    """W_0, where tokens start with W_0 s_t."""
    if "start" not in recovered.contents:
        return []
    if isinstance(recovered.start, list):
        return ["# W_0", *array_constant("START", recovered.start, library)]
    return [f"START = {float(recovered.start)!r}  # W_0, times the identity"]


def applied(name: str, vector: str, value: float | list[Any]) -> str:
    """A constant that is a matrix, or a number, times a vector in rows."""
    return f"{vector} @ {name}.T" if isinstance(value, list) else f"{name} * {vector}"


def sequence_function(recovered: RecoveredHeads | RecoveredStep, library: Library, body: Sequence[str]) -> str:
    """The function with this body, as every algorithm of linear dynamics has it."""
    head = [
        "def predict(states):",
        '    """The predictions of the next states from ``states`` (T, d): row t is that of states[t + 1], made from',
        "    states[0] to states[t].",
        "",
        f"    {library.note}",
        f"    The numbers were recovered with d = {recovered.dim} and T = {recovered.context}.",
        '    """',
    ]
    return "\n".join([*head, *indented(body), "", ""])


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = _of(certificate)
    own = "e_t[a] + " if recovered.residual else ""
    count = ", n the number of tokens" if "n" in str(recovered.scale) else ""
    clipped = "" if recovered.clip is None else f", then clipped to +-{recovered.clip:g}"
    sign, channel = "-" if recovered.sign < 0 else "+", ascii_text(recovered.channels[recovered.readout])
    intro = "It predicts the next state of a linear system at every time t, from the states s_0 .. s_t."
    rest = (
        f"with s = {scale_text(recovered.scale)}{count}{clipped}. In terms of heads k[a][b][g][e] = sum_h P_h[a][b] "
        f"Q_h[e][g]. The prediction is {sign}e_t[{channel}] after the last layer."
    )
    return PythonPart(
        algorithm=(
            *textwrap.wrap(" ".join([intro, *_plain_states(recovered)]), WIDTH),
            "Every layer updates all tokens at once, a, b, g and e running over the channels:",
            "",
            f"    e_t[a]  <-  {own}s sum_bge k[a][b][g][e] sum_(j <= t) e_j[b] <e_j[g], e_t[e]>",
            "",
            *textwrap.wrap(rest, WIDTH),
        ),
        numbers=_numbers(recovered, library),
        function=_function(recovered, library),
        examples="states s_0, s_1, ..",
        call="predict(prompt)",
        scalar=False,
    )


def _numbers(recovered: RecoveredHeads, library: Library) -> str:
    names, size = [ascii_text(name) for name in recovered.channels], len(recovered.channels)
    lines = [
        *textwrap.wrap(
            "# k of every layer: what is added to channel a, times channel b of the keys; of each a table, its rows "
            f"the channel g of the keys and its columns the channel e of the query: {', '.join(names)}.",
            WIDTH,
            subsequent_indent="# ",
        ),
        *_start_lines(recovered, library),
        f"NOTHING = [[0.0] * {size}] * {size}",
        "LAYERS = [",
    ]
    for index, layer in enumerate(recovered.layers):
        error = f": +- {recovered.stderr[index]:.1g} or less" if recovered.stderr and recovered.stderr[index] else ""
        lines.append(f"    [  # layer {index}{error}")
        for a, blocks in enumerate(layer):
            if not any(value for block in blocks for row in block for value in row):
                lines.append(f"        [NOTHING] * {size},  # nothing reaches the prediction from {names[a]}")
                continue
            lines.append(f"        [  # {names[a]} +=")
            for b, table in enumerate(blocks):
                if not any(value for row in table for value in row):
                    lines.append(f"            NOTHING,  # {names[b]} is 0")
                    continue
                lines.append(f"            [  # {names[b]}_j times")
                lines += [
                    f"                [{', '.join(map(repr, row))}],  # <{names[g]}_j, ->"
                    for g, row in enumerate(table)
                ]
                lines.append("            ],")
            lines.append("        ],")
        lines.append("    ],")
    return "\n".join([*lines, "]", "", ""])


def _function(recovered: RecoveredHeads, library: Library) -> str:
    np, torch = library.alias, library.name == "torch"
    made = {
        "zero": f"{np}.zeros_like(s)",
        "current": "s",
        "previous": "before",
        "start": applied("START", "s", recovered.start),
    }
    pieces = f"{np}.zeros_like(s[:1]), s[:-1]"
    update = f'scale * {np}.einsum("abtj,bjd->atd", mixed, e)'
    body = [
        "s = states" if torch else "s = np.asarray(states, dtype=float)",
        *(
            [f"before = torch.cat([{pieces}])" if torch else f"before = np.vstack([{pieces}])"]
            if "previous" in recovered.contents
            else []
        ),
        f"e = {np}.stack([{', '.join(made[content] for content in recovered.contents)}])",
        *(["n = len(s)"] if "n" in str(recovered.scale) else []),
        f"scale = {scale_text(recovered.scale)}",
        "for k in LAYERS:",
        f'    scores = {np}.tril({np}.einsum("gjd,etd->getj", e, e))  # <e_j[g], e_t[e]>, j <= t',
        f"    mixed = {np}.tensordot({'torch.tensor(k, dtype=s.dtype)' if torch else 'np.array(k)'}, scores, 2)",
        f"    e = {'e + ' if recovered.residual else ''}{update}",
        *([f"    e = {np}.clip(e, {-recovered.clip!r}, {recovered.clip!r})"] if recovered.clip is not None else []),
        f"return {'-' if recovered.sign < 0 else ''}e[{recovered.readout}]",
    ]
    return sequence_function(recovered, library, body)


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = _of(certificate)
    names = [latex_text(name) for name in recovered.channels]
    symbols = {"zero": "0", "current": "s_t", "previous": "s_{t-1}", "start": "W_0 s_t"}
    held = ", ".join(symbols[content] for content in recovered.contents)
    own = "e_t[a] + " if recovered.residual else ""
    clip = "" if recovered.clip is None else rf", then clipped to $\pm {recovered.clip:g}$"
    return LatexPart(
        algorithm=(
            r"It predicts the next state of a linear system at every time $t$, from the states $s_0, \dots, s_t$.",
            rf"The token of time $t$ has the channels {', '.join(names)}, which hold $({held})$, with $s_{{-1}} = 0$.",
            r"Layer $\ell$ updates all tokens at once:",
            r"\begin{align*}",
            rf"e_t[a] &\leftarrow {own}s \sum_{{b, g, e}} k^{{\ell}}_{{abge}} "
            r"\sum_{j \le t} e_j[b] \, \langle e_j[g], e_t[e] \rangle",
            r"\end{align*}",
            rf"with $s = {latex_scale(scale_text(recovered.scale))}$, $n$ the number of tokens{clip}. In terms of",
            r"heads $k_{abge} = \sum_h P_h[a, b] \, Q_h[e, g]$. The prediction is "
            rf"${'-' if recovered.sign < 0 else '+'}e_t[\text{{{names[recovered.readout]}}}]$ after the last layer.",
        ),
        numbers=tuple(_latex_numbers(recovered, names)),
    )


def _latex_numbers(recovered: RecoveredHeads, names: list[str]) -> Iterator[str]:
    yield r"{\footnotesize"
    yield r"\begin{longtable}{rlll" + "r" * len(names) + "}"
    yield r"layer & $a$ & $b$ & $g$ & " + " & ".join(f"$e$: {name}" for name in names) + r" \\ \hline"
    for index, layer in enumerate(recovered.layers):
        for a, blocks in enumerate(layer):
            for b, table in enumerate(blocks):
                for g, row in enumerate(table):
                    if any(row):
                        cells = " & ".join(f"${latex_number(value, 3)}$" for value in row)
                        yield rf"{index} & {names[a]} & {names[b]} & {names[g]} & {cells} \\"
    yield r"\end{longtable}}"
    yield "Rows that are not shown are 0, or never reach the prediction."
    for index, error in enumerate(recovered.stderr):
        if error is not None:
            yield f"Standard errors of layer {index} are {latex_text(number(error, 1))} or less."
