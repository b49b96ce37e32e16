"""Ridge regression from moments: every penalty, and every fold, from one pass over the data.

For the rows of any union of groups, with moments m_x, m_y, S_xx, S_xy and S_xx = V diag(s) V^T,

    B(alpha) = argmin sum_r |y_r - m_y - B^T (x_r - m_x)|^2 + alpha |B|^2 = V diag(1 / (s + alpha)) V^T S_xy,

so one eigendecomposition serves all penalties. Features are centred but not standardised: the result is then the same
in every orthonormal basis of the activations, as it should be for a residual stream, whose basis means nothing.
Penalties are chosen relative to the mean eigenvalue, alpha = lambda tr(S_xx) / p, which makes them free of units and of
the number of rows.

Held-out errors are nested (``cross_fit``), so that no number reported was seen by its fit or by the choice of lambda:

    fold k is scored by a fit on the other K - 1 folds, with the lambda that had the smallest error when each of these
    K - 1 folds was in turn predicted from the remaining K - 2.

Every sequence is thus scored once. The alternative, one split into three parts, scores a third of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import UsageError
from interp.probes.held_out import HeldOut, LinearPredictor
from interp.probes.moments import Moments, along, select, shared

__all__ = ["FOLDS", "PENALTIES", "CrossFit", "cross_fit", "ridge"]

FOLDS = 5
# Decades of lambda; largest first, so that equal errors choose the larger. Below 1e-12 the smallest eigenvalues of a
# float64 sum of squares are rounding.
PENALTIES = tuple(10.0**power for power in range(3, -13, -1))
EPSILON, TINY = 2.0**-52, 1e-300
ROUNDING = 1e-14  # errors below this share of s_yy differ by rounding only, and count as equal


def ridge(moments: Moments, alpha: float | Float[Tensor, "fit *streams_cells output"]) -> LinearPredictor:
    """The ridge regression of every group of ``moments``; ``alpha`` is the penalty on sums of squares (not relative).

    Directions without spread get no coefficient when alpha is 0: the solution of least norm. Equal to scikit-learn's
    Ridge on the rows themselves, up to rounding.
    """
    decomposition = _Decomposition.of(moments)
    rotated = decomposition.vectors.mT @ moments.xy
    alpha = torch.as_tensor(alpha, dtype=torch.float64).expand(*rotated.shape[:-2], rotated.shape[-1])
    coef = decomposition.vectors @ decomposition.coefficients(rotated, alpha)
    return LinearPredictor(moments.x_mean, moments.y_mean, coef)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """K nested fits. ``penalty`` is the lambda chosen for every fold, stream, cell and target (in the order of
    ``targets``); ``predictor`` holds fit k, made without fold k; ``held_out`` its errors on fold k."""

    targets: Mapping[str, slice]
    penalty: Float[Tensor, "fold *streams_cells target"]
    predictor: LinearPredictor
    held_out: HeldOut


def cross_fit(
    moments: Moments,
    targets: Mapping[str, int],
    folds: int = FOLDS,
    penalties: Sequence[float] = PENALTIES,
) -> CrossFit:
    """Ridge regressions by nested cross-validation over groups of sequences; lambda is chosen per target.

    ``targets``: the outputs of ``moments``, as name -> number of columns, in order. Group g is of fold g mod K.
    Raises UsageError when the columns do not add up, or when a fold would be empty.
    """
    columns = _columns(targets, moments.outputs)
    if not penalties or min(penalties) <= 0:
        raise UsageError(f"penalties are {tuple(penalties)}, expected one or more positive numbers")
    if folds < 3:
        raise UsageError(f"asked for {folds} folds, expected 3 or more: one to score, one to choose, one to fit")
    fold = torch.arange(moments.groups) % folds
    by_fold = moments.pooled(torch.nn.functional.one_hot(fold, folds).T.double())
    if bool((by_fold.count == 0).any()):
        raise UsageError(
            f"{int((moments.count > 0).sum())} groups of sequences hold data, too few for {folds} folds; "
            f"use more prompts"
        )
    error = _validation_errors(by_fold, columns, penalties)
    best = error.nan_to_num(nan=torch.inf).argmin(1)  # (fold, *streams_cells, target)
    penalty = torch.tensor(tuple(penalties), dtype=torch.float64)[best]

    training = by_fold.pooled(1.0 - torch.eye(folds, dtype=torch.float64))
    scale = training.xx.diagonal(dim1=-2, dim2=-1).mean(-1)
    widths = torch.tensor(list(targets.values()))
    predictor = ridge(training, scale[..., None] * penalty.repeat_interleave(widths, dim=-1))
    squared_error = moments.xy.new_zeros(moments.xy.shape[:-2] + moments.xy.shape[-1:])
    for k in range(folds):
        inside = fold == k
        squared_error[inside] = predictor.squared_error(select(moments, inside), k)
    used = moments.count > 0
    held_out = HeldOut(fold[used], moments.count[used], squared_error[used], moments.y_mean[used], moments.yy[used])
    return CrossFit(columns, penalty, predictor, held_out)


@dataclass(frozen=True, eq=False)
class _Decomposition:
    """S_xx = V diag(s) V^T; ``mean`` is tr(S_xx) / p, ``floor`` what rounding leaves of an eigenvalue of 0."""

    values: Float[Tensor, "fit *streams_cells feature"]
    vectors: Float[Tensor, "fit *streams_cells feature feature"]
    mean: Float[Tensor, " fit *streams_cells"]
    floor: Float[Tensor, " fit *streams_cells"]

    @classmethod
    def of(cls, moments: Moments) -> _Decomposition:
        values, vectors = torch.linalg.eigh(moments.xx)
        values = values.clamp_min(0.0)
        return cls(values, vectors, values.mean(-1), EPSILON * moments.features * values.amax(-1))

    def coefficients(self, rotated: Tensor, alpha: Tensor) -> Float[Tensor, "fit *streams_cells feature output"]:
        """diag(1 / (s + alpha)) V^T S_xy, in the basis V, for V^T S_xy and alpha (one, or per output)."""
        damped = self.values[..., None] + alpha[..., None, :]
        return torch.where(damped > self.floor[..., None, None], rotated / damped.clamp_min(TINY), 0.0)


def _validation_errors(
    by_fold: Moments, columns: Mapping[str, slice], penalties: Sequence[float]
) -> Float[Tensor, "fold penalty *streams_cells target"]:
    """Entry k: squared errors, summed over all folds j other than k, of fits without j and k on fold j."""
    folds = by_fold.groups
    pairs = list(combinations(range(folds), 2))
    without = torch.ones(len(pairs), folds, dtype=torch.float64)
    for row, pair in enumerate(pairs):
        without[row, list(pair)] = 0.0
    training = by_fold.pooled(without)
    total = by_fold.xy.new_zeros(folds, len(penalties), *by_fold.xy.shape[1:-2], len(columns))
    for row, pair in enumerate(pairs):
        fitted = select(training, slice(row, row + 1))
        decomposition = _Decomposition.of(fitted)
        V = decomposition.vectors
        rotated = V.mT @ fitted.xy
        for scored, chosen_for in (pair, pair[::-1]):
            fold = select(by_fold, slice(scored, scored + 1))
            S_xx, S_xy = V.mT @ fold.xx @ V, V.mT @ fold.xy
            dx = (fold.x_mean - fitted.x_mean)[..., None, :] @ V
            dy, yy = shared(fold.y_mean - fitted.y_mean, dx[..., 0, :]), shared(fold.yy, dx[..., 0, :])
            for index, penalty in enumerate(penalties):
                B = decomposition.coefficients(rotated, penalty * decomposition.mean[..., None])
                offset = dy - (dx @ B).squeeze(-2)
                error = yy + (B * (S_xx @ B - 2.0 * S_xy)).sum(-2) + along(fold.count, offset) * offset**2
                error = error.maximum(ROUNDING * yy)
                for target, outputs in enumerate(columns.values()):
                    total[chosen_for, index, ..., target] += error[0, ..., outputs].sum(-1)
    return total


def _columns(targets: Mapping[str, int], outputs: int) -> dict[str, slice]:
    columns, start = {}, 0
    for name, width in targets.items():
        if width < 1:
            raise UsageError(f"target {name!r} has {width} columns, expected 1 or more")
        columns[name] = slice(start, start + width)
        start += width
    if start != outputs:
        raise UsageError(f"targets {dict(targets)} have {start} columns together, but the moments have {outputs}")
    return columns
