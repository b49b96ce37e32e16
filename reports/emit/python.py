"""The recovered algorithm as a Python file of its own, with its certificate, that checks itself.

The file needs nothing but its dialect. It holds a few prompts with the network's predictions as base 85 of
little-endian single-precision numbers, which hold those prompts exactly. What differs between libraries
is a ``Dialect``.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from interp.reports.emit.certificate import origin, trust
from interp.reports.emit.python_function import MATRICES, PROMPTS, Dialect, function_lines, has_data, indented, variable
from interp.reports.emit.text import WIDTH, algorithm_lines, ascii_text, origin_lines
from interp.results import Certificate, Recovered, Term
from interp.results.update import shape

__all__ = ["python_source"]

ROUNDING = 1e-6  # of the network's size: how far another machine's rounding may move the predictions of deep networks


def python_source(certificate: Certificate, dialect: Dialect) -> str:
    """The text of the file, ASCII only."""
    docstring = [
        f'"""{ascii_text(origin(certificate))}.',
        "",
        *algorithm_lines(certificate.recovered),
        "",
        *origin_lines(certificate),
        "",
        "Running this file tells two things apart: whether it computes here what it computed when it was written (the",
        "exit code), and how far that is from the network on a few prompts that it carries.",
        '"""',
    ]
    parts = (
        "\n".join(line.rstrip() for line in docstring),
        f"import base64\nimport sys\n\n{dialect.imports}",
        "".join(f"{line}\n" for line in _constants(certificate.recovered, dialect)),
        "".join(f"{line}\n" for line in function_lines(certificate.recovered, dialect)),
        "\n".join(_check(certificate, dialect)),
    )
    return "\n\n".join(part for part in parts if part)


# The numbers -------------------------------------------------------------------------------------------------------


def _array(before: str, array: list[Any], after: str, dialect: Dialect, remark: str = "") -> Iterator[str]:
    """Nested lists as an array, a line or more for each of the innermost; only ``before`` the first is not indented."""
    opening, closing = dialect.array.split("{0}")
    yield f"{before}{opening}[{f'  # {remark}' if remark else ''}"
    yield from _rows(array, 1)
    yield f"]{closing}{after}"


def _rows(array: list[Any], depth: int) -> Iterator[str]:
    left = " " * 4 * depth
    for row in array:
        if isinstance(row, list) and isinstance(row[0], list):
            yield from (f"{left}[", *_rows(row, depth + 1), f"{left}],")
        else:
            text = f"[{', '.join(repr(float(value)) for value in row)}],"
            yield from textwrap.wrap(text, WIDTH, initial_indent=left, subsequent_indent=f"{left} ")


def _constants(recovered: Recovered, dialect: Dialect) -> Iterator[str]:
    for channel in recovered.tokens:
        if channel.content == "start" and isinstance(channel.value, list):
            yield f"# The channel {ascii_text(channel.name)} starts as this matrix times the state."
            yield from _array(f"START_{variable(channel.name)} = ", channel.value, "", dialect)
    union = [term for update in shape(recovered.updates) for term in update.terms]
    blocks = next((factor.blocks for term in union for factor in term.factors if factor.blocks), None)
    if blocks is not None:
        owner = {position: index for index, block in enumerate(blocks) for position in block}
        holder = [owner.get(position, -1 - position) for position in range(recovered.dim)]
        yield "# The machine that holds each coordinate of x."
        yield from textwrap.wrap(f"MACHINE = {dialect.array.format(holder)}", WIDTH, subsequent_indent=" " * 4)
        yield "SAME = 1.0 * (MACHINE[:, None] == MACHINE)"
    if not has_data(union):
        return
    yield "# The numbers of every layer; +- is one standard error."
    if any(factor.name in MATRICES for term in union for factor in term.factors):
        yield "# The columns of S span what a layer sees of x; None: all of it."
    yield "LAYERS = ["
    for index, layer in enumerate(recovered.updates):
        yield f"    {{  # layer {index}"
        yield from indented(_entries(union, {t.name: t for u in layer for t in u.terms}, dialect), 2)
        yield "    },"
    yield "]"


def _entries(union: Iterable[Term], terms: Mapping[str, Term], dialect: Dialect) -> Iterator[str]:
    """The dictionary of one layer; what it lacks never reaches the prediction."""
    matrices: dict[str, list[Any] | None] = {}
    for first in union:
        term = terms.get(first.name)
        matrices |= {MATRICES[f.name]: f.matrix for f in (term or first).factors if f.name in MATRICES}
        key = f'"{ascii_text(first.name)}": '
        if first.coefficient is None:
            continue
        if term is None:
            missing = "0.0" if first.array is None else str(np.zeros(np.shape(first.array)).tolist())
            yield f"{key}{missing},  # never reaches the prediction"
            continue
        error = None if term.stderr is None else f"+- {term.stderr:.1g}{' or less' * (term.array is not None)}"
        remark = ascii_text("; ".join(part for part in (error, term.undetermined) if part))
        if term.array is not None:
            yield from _array(key, term.array, ",", dialect, remark)
        else:
            yield f"{key}{term.number!r},{f'  # {remark}' if remark else ''}"
    for name, matrix in matrices.items():
        yield from [f'"{name}": None,'] if matrix is None else _array(f'"{name}": ', matrix, ",", dialect)


# The check ---------------------------------------------------------------------------------------------------------


def _packed(name: str, values: list[Any]) -> list[str]:
    text = base64.b85encode(np.array(values, dtype="<f4").tobytes()).decode()
    return [f'{name} = """', *textwrap.wrap(text, WIDTH, break_on_hyphens=False), '"""']


def _check(certificate: Certificate, dialect: Dialect) -> list[str]:
    recovered = certificate.recovered
    prompt, predicted = PROMPTS[recovered.prompt], np.shape(certificate.network)
    sizes = {"queries": predicted[1] if len(predicted) > 1 else 1, "dim": recovered.dim}
    size = float(np.abs(certificate.algorithm).max())
    return [
        f"# Prompts of the task as {prompt.examples.format(**sizes)}, and what the network predicts for them.",
        *_packed("EXAMPLES", certificate.examples),
        *_packed("NETWORK", certificate.network),
        "# What this file predicted when it was written, and by how much rounding may differ elsewhere.",
        *_packed("EXPECTED", certificate.algorithm),
        f"ROUNDING = {ROUNDING * size!r}",
        "# How far this algorithm is from the network on prompts of the task.",
        'TRUST = """\\',
        *textwrap.wrap(ascii_text(trust(certificate)), WIDTH),
        '"""',
        "",
        "",
        "def unpack(text, *shape):",
        '    data = base64.b85decode("".join(text.split()))',
        f"    return {dialect.decode}.reshape(shape)",
        "",
        "",
        "def check():",
        '    """Print how far this file is from the network; return whether it computes what it did when written."""',
        f"    prompts = unpack(EXAMPLES, {', '.join(map(str, np.shape(certificate.examples)))})",
        f"    networks, written = (unpack(text, {', '.join(map(str, predicted))}) for text in (NETWORK, EXPECTED))",
        "    good = True",
        "    for prompt, network, expected in zip(prompts, networks, written):",
        f"        here = {prompt.call.format(**sizes)}",
        "        good = good and bool((abs(here - expected) <= ROUNDING).all())",
        "        size, apart = float((network**2).mean()) ** 0.5, abs(here - network)",
        "        rms, most = float((apart**2).mean()) ** 0.5, float(apart.max())",
        '        sys.stdout.write(f"the network predicts numbers of rms {size:.3g}, this algorithm is apart ")',
        '        sys.stdout.write(f"by {rms:.2g} in the rms and {most:.2g} at most\\n")',
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
