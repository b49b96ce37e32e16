"""The recovered algorithm as one update per layer, with its numbers.

    x_i <- x_i + omega_xx Sigma x_i + omega_xy y_i alpha ,     y_i <- y_i + omega_yx <alpha, x_i> + omega_yy lambda y_i

with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j, lambda = s sum_j y_j^2 over the keys j, all of the layer's own
tokens. Trace terms, where the family has them, multiply a token by tr(Sigma) or lambda.
"""

from __future__ import annotations

from dataclasses import dataclass

from interp.reports.numbers import rounded
from interp.results import Analysis, RecoveredCoefficient, RecoveredLayer, RecoveredOmegas

__all__ = ["LayerFormula", "Term", "coefficient_note", "layer_formulas"]


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
    """One formula per layer, with the numbers of the recovered algorithm; None when there is none, or its coefficients
    are matrices. A coefficient that never reaches the prediction has no term."""
    recovered = analysis.recovered
    if not isinstance(recovered, RecoveredOmegas) or any(layer.matrix is not None for layer in recovered.layers):
        return None
    return tuple(_layer(layer) for layer in recovered.layers)


def _layer(layer: RecoveredLayer) -> LayerFormula:
    terms = [_term(name, c) for name, c in layer.coefficients.items()]
    return LayerFormula(
        index=layer.index,
        x=tuple(t for t in terms if t.key.startswith("x")),
        y=tuple(t for t in terms if t.key.startswith("y")),
    )


def _term(key: str, c: RecoveredCoefficient) -> Term:
    return Term(key=key, sign="-" if c.value < 0 else "+", size=rounded(abs(c.value), c.stderr), doubt=c.undetermined)


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
