"""Layers with a few named coefficients, as code and as formulas; for any table of terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from interp.reports.emitted_latex import latex_text
from interp.reports.emitted_python import ascii_text, indented
from interp.reports.numbers import estimate
from interp.results import RecoveredLayer, RecoveredOmegas

__all__ = [
    "Term",
    "Terms",
    "coefficient_entries",
    "coefficient_table",
    "coefficient_updates",
    "names",
    "plain_update",
    "summed",
    "symbolic_update",
    "updated",
]


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of an update: which channel it changes, and its map in plain text, in Python and in LaTeX."""

    channel: str
    plain: str
    python: str  # {np} is the library
    latex: str
    reads: tuple[str, ...]  # the sums over the keys in it


Terms = Mapping[str, Term]


def names(terms: Terms, recovered: RecoveredOmegas) -> tuple[str, ...]:
    """The coefficients that any layer has, in the order of ``terms``; none for a family of matrices."""
    present = {name for layer in recovered.layers for name in layer.coefficients}
    return tuple(name for name in terms if name in present)


def _changing(terms: Terms, recovered: RecoveredOmegas, channel: str) -> tuple[str, ...]:
    return tuple(name for name in names(terms, recovered) if terms[name].channel == channel)


def plain_update(terms: Terms, recovered: RecoveredOmegas) -> Iterator[str]:
    for channel in "xy":
        parts = [channel] if recovered.residual else []
        parts += [f"w_{name.replace(':', '_')} {terms[name].plain}" for name in _changing(terms, recovered, channel)]
        if parts != [channel]:
            yield f"{channel}  <-  {' + '.join(parts) or '0'}"


def coefficient_entries(terms: Terms, recovered: RecoveredOmegas) -> list[str]:
    """Lines of a list of dictionaries, one for every layer."""
    lines = ["LAYERS = ["]
    present = names(terms, recovered)
    for layer in recovered.layers:
        lines.append(f"    {{  # layer {layer.index}")
        lines += indented((_entry(layer, name) for name in present), 2)
        lines.append("    },")
    return [*lines, "]"]


def _entry(layer: RecoveredLayer, name: str) -> str:
    found = layer.coefficients.get(name)
    if found is None:
        return f'"{name}": 0.0,  # never reaches the prediction'
    remark = f"+- {found.stderr:.1g}" if found.stderr is not None else ""
    doubt = "" if found.undetermined is None else f"{'; ' if remark else ''}{ascii_text(found.undetermined)}"
    return f'"{name}": {found.value!r},  # {remark}{doubt}'


def summed(sums: Mapping[str, str], read: set[str], keys: str) -> list[str]:
    """The sums over the keys that are ``read``."""
    return [
        f"keys_x, keys_y = {'x[:n], y[:n]' if keys == 'context' else 'x, y'}",
        *(f"{name} = {text}" for name, text in sums.items() if name in read),
    ]


def updated(updates: Mapping[str, list[str]], residual: bool) -> list[str]:
    """The assignment of all channels that change; ``updates`` are the terms of each."""
    changed = {channel: parts for channel, parts in updates.items() if parts}
    own = {channel: [channel] if residual else [] for channel in changed}
    sides = {channel: _sum([*own[channel], *parts]) for channel, parts in changed.items()}
    if len(sides) == 1:
        return [f"{channel} = {side}" for channel, side in sides.items()]
    # At once: both read the tokens as they enter the layer.
    return ["x, y = (", *(f"    {side}," for side in sides.values()), ")"]


def coefficient_updates(terms: Terms, recovered: RecoveredOmegas, np: str) -> dict[str, list[str]]:
    """The terms of every channel as code; where nothing is added to a token that is not kept, zeros."""
    updates = {
        channel: [f'w["{name}"] * {terms[name].python.format(np=np)}' for name in _changing(terms, recovered, channel)]
        for channel in "xy"
    }
    if not recovered.residual:
        updates = {channel: parts or [f"{np}.zeros_like({channel})"] for channel, parts in updates.items()}
    return updates


def _sum(parts: list[str]) -> str:
    """On one line, or with a line for every term when that is too long (inside brackets: only long families are)."""
    return " + ".join(parts) if len(parts) < 4 else "\n            + ".join(parts)


def _symbol(name: str) -> str:
    letter = r"\tau" if ":" in name else r"\omega"
    return rf"{letter}^{{\ell}}_{{{name}}}"


def symbolic_update(terms: Terms, recovered: RecoveredOmegas) -> Iterator[str]:
    """Rows of an align environment."""
    for channel in "xy":
        own = [f"{channel}_i"] if recovered.residual else []
        parts = own + [f"{_symbol(name)} {terms[name].latex}" for name in _changing(terms, recovered, channel)]
        if parts != [f"{channel}_i"]:
            yield rf"{channel}_i &\leftarrow {' + '.join(parts) or '0'}"


def coefficient_table(terms: Terms, recovered: RecoveredOmegas) -> Iterator[str]:
    """Of all layers, in LaTeX, with what is to be said of single ones."""
    present = names(terms, recovered)
    yield r"\begin{longtable}{r" + "l" * len(present) + "}"
    yield r"layer $\ell$ & " + " & ".join(f"${_symbol(name)}$" for name in present) + r" \\ \hline"
    for layer in recovered.layers:
        cells = [_cell(layer, name) for name in present]
        yield f"{layer.index} & " + " & ".join(cells) + r" \\"
    yield r"\end{longtable}"
    doubts = {
        f"{name} of layer {layer.index}: {c.undetermined}"
        for layer in recovered.layers
        for name, c in layer.coefficients.items()
        if c.undetermined
    }
    yield "$\\pm$ is one standard error; --- never reaches the prediction." + "".join(
        f" {latex_text(doubt)}." for doubt in sorted(doubts)
    )


def _cell(layer: RecoveredLayer, name: str) -> str:
    found = layer.coefficients.get(name)
    return "---" if found is None else latex_text(estimate(found.value, found.stderr))
