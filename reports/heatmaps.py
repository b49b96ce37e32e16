"""The weight matrices as the page's explorer reads them, and what can be said of them at a glance.

Q and P are fixed only up to gauge: P -> kP with Q -> Q/k leaves the network unchanged, so patterns mean something and
sizes do not. Colours are therefore centred on 0 with limits that are symmetric, set here and shown.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from interp.reports.numbers import percent, plain
from interp.results import Analysis

__all__ = ["Heatmaps", "encoded", "heatmaps"]


@dataclass(frozen=True, kw_only=True)
class Heatmaps:
    """``data`` is what the page's script needs; None with a reason in ``why`` when there is nothing to draw."""

    data: dict[str, Any] | None
    finding: str
    not_finite: int
    numbers: int
    why: str | None = None


def heatmaps(analysis: Analysis) -> Heatmaps:
    """Q and P of every layer and head in float64, base64, in the order [layer][head][row][column]."""
    weights, channels = analysis.weights, analysis.checkpoint.tokens
    width = sum(size for _, size in channels)
    if weights.Q is None or weights.P is None:
        return _nothing(weights.why or "the document does not hold the matrices")
    matrices = {name: _array(rows) for name, rows in (("Q", weights.Q), ("P", weights.P))}
    for name, matrix in matrices.items():
        if matrix.shape[2:] != (width, width) or 0 in matrix.shape:
            embedded = "they act on embedded tokens, which have no channels of their own"
            shape = f"{name} is not a (layer, head, {width}, {width}) array of numbers"
            return _nothing(shape if analysis.closed_form is None else embedded)
    Q, P = matrices.values()
    if Q.shape != P.shape:
        return _nothing(f"Q has shape {Q.shape} and P {P.shape}")
    data = {
        "channels": [[plain(name), size] for name, size in channels], "layers": Q.shape[0], "heads": Q.shape[1],
        "width": width, "Q": encoded(Q.astype("<f8")), "P": encoded(P.astype("<f8")),
    }  # fmt: skip
    both = np.stack([Q, P])
    bad, finding = int((~np.isfinite(both)).sum()), _finding(both, [size for _, size in channels])
    return Heatmaps(data=data, finding=finding, not_finite=bad, numbers=both.size)


def _nothing(why: str) -> Heatmaps:
    return Heatmaps(data=None, finding="The weight matrices are not shown", not_finite=0, numbers=0, why=why)


def _array(rows: list[Any]) -> NDArray[np.float64]:
    """A nested list as a 4-dimensional array, empty where it is none; null (what JSON has for NaN and Inf) becomes
    NaN."""
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    return matrix if matrix.ndim == 4 else np.empty((0, 0, 0, 0))


def encoded(array: NDArray[Any]) -> str:
    """What the scripts of a page read."""
    return base64.b64encode(array.tobytes()).decode("ascii")


def _finding(both: Float[np.ndarray, "matrix layer head row column"], sizes: Sequence[int]) -> str:
    """Block-scalar heads are multiples of the identity between channels of one size, so their weights lie on the
    diagonals of those blocks."""
    squares = np.where(np.isfinite(both), both, 0.0) ** 2
    total = squares.sum((1, 2, 3, 4))
    if not bool((total > 0).all()):
        return "A weight matrix is zero throughout"
    starts = np.cumsum([0, *sizes[:-1]])
    ends = list(zip(starts, sizes, strict=True))
    blocks = [(i, j, size) for i, size in ends for j, other in ends if other == size]
    diagonals = [np.trace(squares[..., i : i + n, j : j + n], axis1=-2, axis2=-1) for i, j, n in blocks]
    on_diagonal = np.sum(diagonals, axis=0).sum((1, 2)) / total
    where = " of the blocks" if len(blocks) > len(sizes) else ""
    of_q, of_p = (percent(float(share)).replace("> ", "more than ") for share in on_diagonal)
    layers = ", all layers together" if both.shape[1] > 1 else ""
    text = f"{of_q} of the squared weights of Q, and {of_p} of those of P, are on the diagonals{where}{layers}"
    return text[0].upper() + text[1:]
