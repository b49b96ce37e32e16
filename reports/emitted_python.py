"""The recovered algorithm as a Python file of its own, in numpy or torch, with its certificate, that checks itself.

The file needs nothing but numpy or torch. It holds a few prompts with the network's predictions as base 85 of
little-endian single-precision numbers, which hold those prompts exactly.
"""

from __future__ import annotations

import base64
import struct
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from interp.reports.certificate_text import TERMS, disagreement_rows, names, origin, scale_text, sources, terms
from interp.reports.numbers import interval, number, plain
from interp.results import Certificate, Recovered, RecoveredLayer

__all__ = ["LIBRARIES", "python_source"]

WIDTH = 100
ROUNDING = 1e-6  # of the network's size: how far another machine's rounding may move the predictions of deep networks


@dataclass(frozen=True, kw_only=True)
class Library:
    """What differs between the two."""

    name: str
    alias: str
    imports: str
    tokens: str  # x and y of all tokens, the query last
    zeros: str
    matrix: str  # the matrix of a layer, transposed
    decode: str  # the bytes as double-precision numbers
    note: str


LIBRARIES = {
    "numpy": Library(
        name="numpy",
        alias="np",
        imports="import numpy as np",
        tokens="x = np.vstack([X, x_query]).astype(float)\ny = np.append(y, 0.0).astype(float)",
        zeros="np.zeros_like",
        matrix="np.transpose(w)",
        decode='np.frombuffer(data, "<f4").astype(float)',
        note="Computed in double precision.",
    ),
    "torch": Library(
        name="torch",
        alias="torch",
        imports="import torch",
        tokens="x = torch.cat([X, x_query[None]])\ny = torch.cat([y, torch.zeros_like(y[:1])])",
        zeros="torch.zeros_like",
        matrix="torch.tensor(w, dtype=x.dtype).T",
        decode="torch.frombuffer(bytearray(data), dtype=torch.float32).double()",
        note="Give float64 tensors. torch.func.vmap runs it on many prompts at once.",
    ),
}


def python_source(certificate: Certificate, library: str) -> str:
    """The text of the file, ASCII only."""
    chosen = LIBRARIES[library]
    parts = (
        _docstring(certificate),
        f"import base64\nimport sys\n\n{chosen.imports}\n",
        _numbers(certificate.recovered),
        _function(certificate.recovered, chosen),
        _check(certificate, chosen),
    )
    return "\n".join(parts)


def _ascii(text: str) -> str:
    """Text that may come from a file, inside a docstring or a comment: one line, no escapes, no quotes that end it."""
    return plain(text).encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")


def _docstring(certificate: Certificate) -> str:
    recovered = certificate.recovered
    keys = "the examples" if recovered.keys == "context" else "the examples and the query"
    scale = scale_text(recovered)
    lines = [
        f'"""{_ascii(origin(certificate))}.',
        "",
        "The examples (x_j, y_j) and the query (x, 0) are the tokens. Every layer updates all of them at once:",
        "",
        *(f"    {line}" for line in _update(recovered)),
        "",
        f"with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j, lambda = s sum_j y_j^2, s = {scale},",
        f"summed over {keys} as they enter the layer, and numbers of its own for every layer.",
        f"The prediction is {'-' if recovered.sign < 0 else '+'}y of the query after the last layer.",
        "",
        "Where it comes from",
        *(line for what, text in sources(certificate) for line in _item(what, text)),
        "",
        "How far it can be trusted: |this - network| on fresh prompts, in units of the network's rms there",
        *_table(certificate),
        "",
        "Running this file tells two things apart: whether it computes here what it computed when it was written (the",
        "exit code), and how far that is from the network on a few prompts that it carries.",
        '"""',
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _update(recovered: Recovered) -> Iterator[str]:
    if recovered.layers[0].matrix is not None:
        yield f"y  <-  {'y + ' if recovered.residual else ''}<alpha, Omega x>"
        if not recovered.residual:
            yield "x  <-  0"
        return
    for channel in "xy":
        parts = [channel] if recovered.residual else []
        parts += [f"{_identifier(name)} {TERMS[name].plain}" for name in terms(recovered, channel)]
        if parts != [channel]:
            yield f"{channel}  <-  {' + '.join(parts) or '0'}"


def _identifier(name: str) -> str:
    return f"w_{name.replace(':', '_')}"


def _item(what: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        _ascii(text), WIDTH, initial_indent=f"    {what:12}", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def _table(certificate: Certificate) -> Iterator[str]:
    rows = [tuple(_ascii(cell) for cell in row) for row in disagreement_rows(certificate)]
    full = [row for row in rows if len(row) > 3]
    widths = [max(len(row[k]) for row in full) for k in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "    " + "  ".join([*cells, row[-1]])


def _numbers(recovered: Recovered) -> str:
    lines = ["# The numbers of every layer; +- is one standard error."]
    if recovered.layers[0].matrix is not None:
        lines += ["# Omega[c][e] carries x_e of a token along alpha_c.", "LAYERS = ["]
        lines += [line for layer in recovered.layers for line in _matrix(layer)]
    else:
        lines.append("LAYERS = [")
        present = names(recovered)
        for layer in recovered.layers:
            lines.append(f"    {{  # layer {layer.index}")
            lines += [f"        {_entry(layer, name)}" for name in present]
            lines.append("    },")
    return "\n".join([*lines, "]", "", ""])


def _entry(layer: RecoveredLayer, name: str) -> str:
    found = layer.coefficients.get(name)
    if found is None:
        return f'"{name}": 0.0,  # never reaches the prediction'
    remark = f"+- {found.stderr:.1g}" if found.stderr is not None else ""
    doubt = "" if found.undetermined is None else f"{'; ' if remark else ''}{_ascii(found.undetermined)}"
    return f'"{name}": {found.value!r},  # {remark}{doubt}'


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


def _function(recovered: Recovered, library: Library) -> str:
    np, matrices = library.alias, recovered.layers[0].matrix is not None
    sums = {
        "Sigma": "s * keys_x.T @ keys_x",
        "alpha": "s * keys_x.T @ keys_y",
        "lam": "s * keys_y @ keys_y",
    }
    read = {"alpha"} if matrices else {sum_ for name in names(recovered) for sum_ in TERMS[name].reads}
    body = [
        *library.tokens.splitlines(),
        "n = len(x) - 1",
        f"s = {scale_text(recovered)}",
        "for w in LAYERS:",
        f"    keys_x, keys_y = {'x[:n], y[:n]' if recovered.keys == 'context' else 'x, y'}",
        *(f"    {name} = {text}" for name, text in sums.items() if name in read),
    ]
    if matrices:
        step = f"x @ ({library.matrix} @ alpha)"
        updates = {"x": [] if recovered.residual else [f"{library.zeros}(x)"], "y": [step]}
    else:
        updates = {
            channel: [f'w["{name}"] * {TERMS[name].python.format(np=np)}' for name in terms(recovered, channel)]
            for channel in "xy"
        }
        if not recovered.residual:
            updates = {channel: parts or [f"{library.zeros}({channel})"] for channel, parts in updates.items()}
    changed = {channel: parts for channel, parts in updates.items() if parts}
    own = {channel: [channel] if recovered.residual else [] for channel in changed}
    sides = {channel: _sum([*own[channel], *parts]) for channel, parts in changed.items()}
    if len(sides) == 1:
        body += [f"    {channel} = {side}" for channel, side in sides.items()]
    else:  # at once: both read the tokens as they enter the layer
        body += ["    x, y = (", *(f"        {side}," for side in sides.values()), "    )"]
    body.append(f"return {'-' if recovered.sign < 0 else ''}y[n]")
    head = [
        "def predict(X, y, x_query):",
        '    """The prediction for ``x_query`` (d,) from the examples ``X`` (n, d) and their labels ``y`` (n,).',
        "",
        f"    {library.note}",
        f"    The numbers were recovered with d = {recovered.dim} and n = {recovered.context}.",
        '    """',
    ]
    return "\n".join([*head, *(f"    {line}" for line in body), "", ""])


def _sum(parts: list[str]) -> str:
    """On one line, or with a line for every term when that is too long (inside brackets: only long families are)."""
    return " + ".join(parts) if len(parts) < 4 else "\n            + ".join(parts)


def _trust(certificate: Certificate) -> str:
    """The first row of the certificate in a sentence."""
    entry = certificate.disagreements[0]
    if entry.skipped is not None or entry.rms is None or entry.median is None or entry.q99 is None:
        return f"How far the algorithm is from the network on its task: {_ascii(entry.skipped or 'not measured')}."
    half, most = (number(q * entry.rms, 2) for q in (entry.median, entry.q99))
    agreed = f"R^2 = {interval(entry.r2, entry.r2_ci)}"
    return (
        f"On {entry.prompts} prompts of the task it agrees with the network to {agreed}: half of the predictions are "
        f"within {half} of the network's, 99 % within {most} (predictions have an rms of {number(entry.rms, 3)})."
    )


def _check(certificate: Certificate, library: Library) -> str:
    examples = certificate.examples
    flat = [float(value) for prompt in examples for token in prompt for value in token]
    text = base64.b85encode(struct.pack(f"<{len(flat)}f", *flat)).decode()
    shape = f"({len(examples)}, {len(examples[0])}, {len(examples[0][0])})"
    size = max(abs(float(value)) for value in certificate.algorithm)
    lines = [
        "# Prompts of the task as rows (x, y), the query last, and what the network predicts for them.",
        'EXAMPLES = """',
        *textwrap.wrap(text, WIDTH, break_on_hyphens=False),
        '"""',
        "NETWORK = [",
        *(f"    {float(value)!r}," for value in certificate.network),
        "]",
        "# What this file predicted when it was written, and by how much rounding may differ elsewhere.",
        "EXPECTED = [",
        *(f"    {float(value)!r}," for value in certificate.algorithm),
        "]",
        f"ROUNDING = {ROUNDING * size!r}",
        "# How far this algorithm is from the network on prompts of the task.",
        'TRUST = """\\',
        *textwrap.wrap(_trust(certificate), WIDTH),
        '"""',
        "",
        "",
        "def check():",
        '    """Print how far this file is from the network; return whether it computes what it did when written."""',
        '    data = base64.b85decode("".join(EXAMPLES.split()))',
        f"    prompts = {library.decode}.reshape{shape}",
        "    good = True",
        "    for prompt, network, expected in zip(prompts, NETWORK, EXPECTED):",
        "        here = float(predict(prompt[:-1, :-1], prompt[:-1, -1], prompt[-1, :-1]))",
        "        good = good and abs(here - expected) <= ROUNDING",
        "        apart = abs(here - network)",
        '        sys.stdout.write(f"the network {network:.9g}, this algorithm {here:.9g}: apart by {apart:.2g}\\n")',
        "    sys.stdout.write(TRUST)",
        "    same = 'the same as' if good else 'NOT the same as'",
        '    sys.stdout.write(f"This file computes {same} when it was written; that says nothing of the network.\\n")',
        "    return good",
        "",
        "",
        'if __name__ == "__main__":',
        "    sys.exit(0 if check() else 1)",
        "",
    ]
    return "\n".join(lines)
