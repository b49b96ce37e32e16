"""Fitting the numbers of a function to predictions, where nothing is known of the function but that it is smooth."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from interp.stats.least_squares import least_squares as least_squares_fit

__all__ = ["fit_predictions", "standard_errors"]

EVALUATIONS = 100  # of the residuals, from every start


def fit_predictions(
    predict: Callable[[Float[Tensor, " parameter"]], Float[Tensor, "prompt output"]],
    target: Float[Tensor, "prompt output"],
    starts: Sequence[Float[Tensor, " parameter"]],
    evaluations: int = EVALUATIONS,
    rows: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, " parameter"]:
    """argmin over theta of |predict(theta) - target|^2 by Levenberg-Marquardt, the best of all ``starts``.

    ``rows`` gives the derivatives, a row for every number of the target; None: by forward differentiation.
    """
    size = float(target.square().mean().sqrt()) or 1.0

    def residual(theta: np.ndarray) -> np.ndarray:
        error = (predict(torch.from_numpy(theta)) - target).flatten() / size
        return torch.nan_to_num(error, nan=1e12, posinf=1e12, neginf=-1e12).clamp(-1e12, 1e12).numpy()

    def jacobian(theta: np.ndarray) -> np.ndarray:
        derivatives = (rows or (lambda t: _jacobian(predict, t)))(torch.from_numpy(theta)).flatten(0, -2) / size
        return torch.nan_to_num(derivatives, nan=0.0, posinf=0.0, neginf=0.0).numpy()

    fits = [
        least_squares(
            residual,
            start.numpy(),
            jac=jacobian,  # pyright: ignore[reportArgumentType] - scipy has no types; "str" is guessed from the default
            x_scale="jac",
            max_nfev=evaluations,
        )
        for start in starts
    ]
    return torch.from_numpy(min(fits, key=lambda fit: fit.cost).x)


def standard_errors(
    predict: Callable[[Float[Tensor, " parameter"]], Float[Tensor, "prompt output"]],
    theta: Float[Tensor, " parameter"],
    target: Float[Tensor, "prompt output"],
) -> Float[Tensor, " parameter"]:
    """Of fitted numbers, a cluster per prompt."""
    error = torch.nan_to_num(target - predict(theta), posinf=0.0, neginf=0.0)
    design = torch.nan_to_num(_jacobian(predict, theta), posinf=0.0, neginf=0.0)
    return least_squares_fit(design, error, float(target.norm())).stderr


def _jacobian(
    predict: Callable[[Float[Tensor, " parameter"]], Float[Tensor, "prompt output"]],
    theta: Float[Tensor, " parameter"],
) -> Float[Tensor, "prompt output parameter"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, about what it does itself when first asked
        return torch.func.jacfwd(predict)(theta)
