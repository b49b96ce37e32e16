"""The recovered algorithm as one update per layer, with its numbers.

    x_i <- x_i + omega_xx Sigma x_i + omega_xy y_i alpha ,     y_i <- y_i + omega_yx <alpha, x_i> + omega_yy lambda y_i

with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j, lambda = s sum_j y_j^2 over the keys j, all of the layer's own
tokens. Trace terms, where the family has them, multiply a token by tr(Sigma) or lambda.
"""

from __future__ import annotations

from dataclasses import dataclass

from interp.reports.findings import chosen_family
from interp.reports.numbers import rounded
from interp.results import Analysis, Coefficient, Layer

__all__ = ["LayerFormula", "Term", "layer_formulas"]

_OMEGAS = {"gd": ("yx",), "gd++": ("xx", "yx")}  # families of this form that do not use all four
_OF_THIS_FORM = ("gd", "gd++", "diag", "equivariant")


@dataclass(frozen=True, kw_only=True)
class Term:
    """``sign`` ``size`` times the map ``key`` ("xx", or "x:xx" for a trace). ``doubt`` is a reason not to trust it."""

    key: str
    sign: str
    size: str
    doubt: str | None


@dataclass(frozen=True, kw_only=True)
class LayerFormula:
    index: int
    x: tuple[Term, ...]
    y: tuple[Term, ...]


def layer_formulas(analysis: Analysis) -> tuple[LayerFormula, ...] | None:
    """One formula per layer; None when no family was chosen, or the chosen one is not of this form."""
    family = chosen_family(analysis)
    if family is None or family.name not in _OF_THIS_FORM or not analysis.layers:
        return None
    return tuple(_layer(layer, family.name) for layer in analysis.layers)


def _layer(layer: Layer, family: str) -> LayerFormula:
    named = {name: c for name, c in layer.omega.items() if name in _OMEGAS.get(family, layer.omega)}
    if family == "equivariant":
        named |= layer.trace
    terms = [term for name, c in named.items() if (term := _term(name, c)) is not None]
    return LayerFormula(
        index=layer.index,
        x=tuple(t for t in terms if t.key.startswith("x")),
        y=tuple(t for t in terms if t.key.startswith("y")),
    )


def _term(key: str, c: Coefficient) -> Term | None:
    """The refitted number (it is the one that reproduces the predictions), or the output estimate where the data do not
    determine the refit. A dead coefficient has no term."""
    value, stderr = (c.output, c.stderr) if c.undetermined or c.refit is None else (c.refit, c.refit_stderr)
    if not c.live or value is None:
        return None
    text = rounded(abs(value), stderr)
    return Term(key=key, sign="-" if value < 0 else "+", size=text, doubt=c.undetermined)
