"""The recovered algorithm as a Python file of its own, in numpy or torch, with its certificate, that checks itself.

The file needs nothing but numpy or torch. It holds a few prompts with the network's predictions as base 85 of
little-endian single-precision numbers, which hold those prompts exactly. Here is what all such files share; what
differs from task to task is a ``PythonPart``.
"""

from __future__ import annotations

import base64
import struct
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from interp.reports.certificate_text import Account, disagreement_rows, origin, sources
from interp.reports.numbers import interval, number, plain
from interp.results import Certificate

__all__ = [
    "LIBRARIES",
    "WIDTH",
    "Library",
    "PythonPart",
    "array_constant",
    "ascii_text",
    "indented",
    "python_source",
    "wrapped_rows",
]

WIDTH = 100
ROUNDING = 1e-6  # of the network's size: how far another machine's rounding may move the predictions of deep networks


@dataclass(frozen=True, kw_only=True)
class Library:
    """What differs between the two."""

    name: str
    alias: str
    imports: str
    decode: str  # the bytes as double-precision numbers
    array: str  # {0} as an array of double-precision numbers
    note: str


LIBRARIES = {
    "numpy": Library(
        name="numpy",
        alias="np",
        imports="import numpy as np",
        decode='np.frombuffer(data, "<f4").astype(float)',
        array="np.array({0}, dtype=float)",
        note="Computed in double precision.",
    ),
    "torch": Library(
        name="torch",
        alias="torch",
        imports="import torch",
        decode="torch.frombuffer(bytearray(data), dtype=torch.float32).double()",
        array="torch.tensor({0}, dtype=torch.float64)",
        note="Give float64 tensors. torch.func.vmap runs it on many prompts at once.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class PythonPart:
    """The part of a file that is its task's own. ``algorithm``: lines of the docstring, what it computes; ``examples``:
    what a prompt of the examples is; ``call``: the function on one ``prompt``, a number (``scalar``) or an array."""

    algorithm: tuple[str, ...]
    numbers: str
    function: str
    examples: str
    call: str
    scalar: bool


def python_source(certificate: Certificate, part: PythonPart, account: Account, library: Library) -> str:
    """The text of the file, ASCII only."""
    parts = (
        _docstring(certificate, part, account),
        f"import base64\nimport sys\n\n{library.imports}\n",
        part.numbers,
        part.function,
        _check(certificate, part, library),
    )
    return "\n".join(parts)


def ascii_text(text: str) -> str:
    """Text that may come from a file, inside a docstring or a comment: one line, no escapes, no quotes that end it."""
    return plain(text).encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")


def indented(lines: Iterable[str], depth: int = 1) -> list[str]:
    return [" " * 4 * depth + line for line in lines]


def wrapped_rows(matrix: Iterable[Iterable[float]], depth: int) -> list[str]:
    """The rows of a nested list, a line or more for each."""
    left = " " * 4 * depth
    return [
        line
        for row in matrix
        for line in textwrap.wrap(
            f"[{', '.join(repr(float(value)) for value in row)}],",
            WIDTH,
            initial_indent=left,
            subsequent_indent=f"{left} ",
        )
    ]


def array_constant(name: str, matrix: Iterable[Iterable[float]], library: Library) -> list[str]:
    """A matrix as an array of the library."""
    before, after = library.array.split("{0}")
    return [f"{name} = {before}[", *wrapped_rows(matrix, 1), f"]{after}"]


def _docstring(certificate: Certificate, part: PythonPart, account: Account) -> str:
    lines = [
        f'"""{ascii_text(origin(certificate))}.',
        "",
        *part.algorithm,
        "",
        "Where it comes from",
        *(line for what, text in sources(certificate, account) for line in _item(what, text)),
        "",
        "How far it can be trusted: |this - network| on fresh prompts, in units of the network's rms there",
        *_table(certificate),
        "",
        "Running this file tells two things apart: whether it computes here what it computed when it was written (the",
        "exit code), and how far that is from the network on a few prompts that it carries.",
        '"""',
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _item(what: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        ascii_text(text), WIDTH, initial_indent=f"    {what:12}", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def _table(certificate: Certificate) -> Iterator[str]:
    rows = [tuple(ascii_text(cell) for cell in row) for row in disagreement_rows(certificate)]
    full = [row for row in rows if len(row) > 3]
    widths = [max(len(row[k]) for row in full) for k in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "    " + "  ".join([*cells, row[-1]])


def _trust(certificate: Certificate) -> str:
    """The first row of the certificate in a sentence."""
    entry = certificate.disagreements[0]
    if entry.skipped is not None or entry.rms is None or entry.median is None or entry.q99 is None:
        return f"How far the algorithm is from the network on its task: {ascii_text(entry.skipped or 'not measured')}."
    half, most = (number(q * entry.rms, 2) for q in (entry.median, entry.q99))
    agreed = f"R^2 = {interval(entry.r2, entry.r2_ci)}"
    return (
        f"On {entry.prompts} prompts of the task it agrees with the network to {agreed}: half of the predictions are "
        f"within {half} of the network's, 99 % within {most} (predictions have an rms of {number(entry.rms, 3)})."
    )


def _flat(values: Any) -> list[float]:
    return [number for value in values for number in _flat(value)] if isinstance(values, list) else [float(values)]


def _shape(values: Any) -> tuple[int, ...]:
    return (len(values), *_shape(values[0])) if isinstance(values, list) else ()


def _packed(name: str, values: list[Any]) -> list[str]:
    flat = _flat(values)
    text = base64.b85encode(struct.pack(f"<{len(flat)}f", *flat)).decode()
    return [f'{name} = """', *textwrap.wrap(text, WIDTH, break_on_hyphens=False), '"""']


def _check(certificate: Certificate, part: PythonPart, library: Library) -> str:
    size = max(abs(value) for value in _flat(certificate.algorithm))
    numbers, body = (_scalars if part.scalar else _arrays)(certificate, part, library)
    lines = [
        f"# Prompts of the task as {part.examples}, and what the network predicts for them.",
        *_packed("EXAMPLES", certificate.examples),
        *numbers,
        f"ROUNDING = {ROUNDING * size!r}",
        "# How far this algorithm is from the network on prompts of the task.",
        'TRUST = """\\',
        *textwrap.wrap(_trust(certificate), WIDTH),
        '"""',
        "",
        "",
        *body,
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


_WRITTEN = "# What this file predicted when it was written, and by how much rounding may differ elsewhere."
_CHECK = (
    "def check():",
    '    """Print how far this file is from the network; return whether it computes what it did when written."""',
)


def _scalars(certificate: Certificate, part: PythonPart, library: Library) -> tuple[list[str], list[str]]:
    """Predictions that are numbers: written out."""
    numbers = [
        "NETWORK = [",
        *(f"    {float(value)!r}," for value in certificate.network),
        "]",
        _WRITTEN,
        "EXPECTED = [",
        *(f"    {float(value)!r}," for value in certificate.algorithm),
        "]",
    ]
    body = [
        *_CHECK,
        '    data = base64.b85decode("".join(EXAMPLES.split()))',
        f"    prompts = {library.decode}.reshape{_shape(certificate.examples)}",
        "    good = True",
        "    for prompt, network, expected in zip(prompts, NETWORK, EXPECTED):",
        f"        here = float({part.call})",
        "        good = good and abs(here - expected) <= ROUNDING",
        "        apart = abs(here - network)",
        '        sys.stdout.write(f"the network {network:.9g}, this algorithm {here:.9g}: apart by {apart:.2g}\\n")',
    ]
    return numbers, body


def _arrays(certificate: Certificate, part: PythonPart, library: Library) -> tuple[list[str], list[str]]:
    """Predictions that are arrays: packed as the prompts are, in single precision, which is finer than ROUNDING."""
    numbers = [
        *_packed("NETWORK", certificate.network),
        _WRITTEN,
        *_packed("EXPECTED", certificate.algorithm),
    ]
    shape = ", ".join(map(str, _shape(certificate.network)))
    body = [
        "def unpack(text, *shape):",
        '    data = base64.b85decode("".join(text.split()))',
        f"    return {library.decode}.reshape(shape)",
        "",
        "",
        *_CHECK,
        f"    prompts = unpack(EXAMPLES, {', '.join(map(str, _shape(certificate.examples)))})",
        f"    networks, written = unpack(NETWORK, {shape}), unpack(EXPECTED, {shape})",
        "    good = True",
        "    for prompt, network, expected in zip(prompts, networks, written):",
        f"        here = {part.call}",
        "        good = good and bool((abs(here - expected) <= ROUNDING).all())",
        "        size, apart = float((network**2).mean()) ** 0.5, abs(here - network)",
        "        rms, most = float((apart**2).mean()) ** 0.5, float(apart.max())",
        '        sys.stdout.write(f"the network predicts numbers of rms {size:.3g}, this algorithm is apart ")',
        '        sys.stdout.write(f"by {rms:.2g} in the rms and {most:.2g} at most\\n")',
    ]
    return numbers, body
