"""Ridge regression from moments as a scikit-learn estimator, for data that arrive in pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from interp.probes.moments import Moments
from interp.probes.ridge import ridge

__all__ = ["MomentRidge"]


class MomentRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """min_B sum_r |y_r - b - B x_r|^2 + alpha |B|^2, as scikit-learn's ``Ridge``, in memory that does not grow with the
    number of rows: ``partial_fit`` adds rows, in any pieces and order, and the result is that of one fit on all.

    Parameters
    ----------
    alpha : float, default=1.0
        The penalty, 0 or more; for 0 the solution of least norm.

    Attributes
    ----------
    coef_ : ndarray of shape (features,) or (outputs, features)
    intercept_ : float or ndarray of shape (outputs,)
    moments_ : Moments
        Of all rows seen, as one group.
    n_samples_seen_ : int
    n_features_in_ : int
    """

    def __init__(self, alpha: Any = 1.0) -> None:  # checked by fit, as scikit-learn asks
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> MomentRidge:
        """Fit to these rows alone; what was seen before is forgotten."""
        return self._add(X, y, first=True)

    def partial_fit(self, X: Any, y: Any) -> MomentRidge:
        """Add rows and fit to all rows seen since ``fit``."""
        return self._add(X, y, first=not hasattr(self, "moments_"))

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return X @ self.coef_.T + self.intercept_

    def _add(self, X: Any, y: Any, first: bool) -> MomentRidge:
        if not isinstance(self.alpha, (int, float, np.number)) or not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha!r}, expected a finite number of 0 or more")
        X, y = validate_data(self, X, y, reset=first, multi_output=True, y_numeric=True, dtype=np.float64)
        shape = y.shape[1:]
        if not first and shape != self._outputs_shape:
            raise ValueError(f"y has outputs of shape {shape}, but earlier calls had {self._outputs_shape}")
        columns = y.reshape(len(y), -1).astype(np.float64)
        moments = Moments.zeros(1, X.shape[1], columns.shape[1])
        group = torch.zeros(len(X), dtype=torch.int64)
        moments.update(torch.from_numpy(np.array(X)), torch.from_numpy(columns), group)
        if bool(moments.dropped.any()):
            raise ValueError("X or y holds values beyond 1e140, whose squares leave float64; rescale them")
        if not first:
            moments.merge(self.moments_)
        self.moments_, self._outputs_shape = moments, shape
        self.n_samples_seen_ = int(moments.count)
        fitted = ridge(moments, float(self.alpha))
        coef = fitted.coef[0].numpy().T
        intercept = fitted.y_mean[0].numpy() - coef @ fitted.x_mean[0].numpy()
        self.coef_ = coef.reshape(*shape, -1)
        self.intercept_ = intercept if shape else float(intercept[0])
        return self
