"""Least squares with standard errors that hold for heavy tails and few groups (prompts, sequences)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Estimate", "affine_map", "least_squares", "with_one"]

DERIVATIVE_ROUNDING = 1e-13  # relative rounding error of a prediction or derivative in float64, a few layers deep
COLLINEAR = 1e-7  # a direction of theta that changes the predictions this little (relative) is not determined


@dataclass(frozen=True, eq=False)
class Estimate:
    """Fitted parameters, with standard errors clustered by prompt.

    ``determined[k]`` is False when the data do not fix parameter k; ``partners[k]`` then names the parameters along
    which it trades off (indices into theta). ``unexplained`` is the share of the variance left on the fitted prompts.
    """

    theta: Float[Tensor, " parameter"]
    stderr: Float[Tensor, " parameter"]
    determined: tuple[bool, ...]
    partners: tuple[tuple[int, ...], ...]
    unexplained: float
    steps: int = 0


def least_squares(
    design: Float[Tensor, "prompt output parameter"],
    response: Float[Tensor, "prompt output"],
    size: float | None = None,
) -> Estimate:
    """Least squares without intercept; sandwich covariance with one cluster per prompt, residuals inflated by their
    leverage (HC3 for one output per prompt), so that it stays honest with heavy tails and few prompts.

    ``size`` is the norm of the numbers whose rounding is in ``response`` (None: its own), for a response that is a
    difference."""
    rows, flat = design.flatten(0, 1), response.flatten()
    norms = rows.norm(dim=0)
    scale = torch.where(norms > 0, norms, 1.0)
    U, S, Vh = torch.linalg.svd(rows / scale, full_matrices=False)
    kept = COLLINEAR * S.max().clamp_min(1e-300) < S
    inverse = torch.where(kept, 1.0 / torch.where(kept, S, 1.0), 0.0)
    theta = (Vh.mT * inverse) @ (U.mT @ flat) / scale
    residual = flat - rows @ theta
    leverage = (U[:, kept] ** 2).sum(-1).clamp(max=1 - 1e-6)
    score = ((residual / (1 - leverage))[:, None] * U).unflatten(0, design.shape[:2]).sum(1)
    root = (Vh.mT * inverse) @ score.mT / scale[:, None]
    # What is fitted exactly is still only known to rounding.
    floor = (
        DERIVATIVE_ROUNDING
        * (float(flat.norm()) if size is None else size)
        * ((Vh.mT * inverse) ** 2).sum(-1).sqrt()
        / scale
    )
    stderr = (root**2).sum(-1).sqrt() + floor
    determined, partners = _determined(Vh[kept], norms)
    power = float((flat**2).sum())
    return Estimate(theta, stderr, determined, partners, float((residual**2).sum()) / power if power > 0 else 0.0)


def _determined(
    kept: Float[Tensor, "direction parameter"], norms: Float[Tensor, " parameter"]
) -> tuple[tuple[bool, ...], tuple[tuple[int, ...], ...]]:
    """Which parameters have no part in a direction that the data leave free, and the others of that direction.

    The rows of ``kept`` are the directions that the data fix. Of the free ones, the unit vector with most of parameter
    k is column k of the projector on them, scaled.
    """
    free = torch.eye(len(norms), dtype=kept.dtype) - kept.mT @ kept
    share = free.diagonal().clamp_min(0.0).sqrt()
    determined = tuple(bool(ok) for ok in (share < 0.01) & (norms > 0))
    partners = []
    for k, ok in enumerate(determined):
        shares = free[:, k].abs() / share[k].clamp_min(1e-300)
        partners.append(() if ok else tuple(int(j) for j in torch.nonzero(shares > 0.1).flatten() if int(j) != k))
    return determined, tuple(partners)


def with_one(values: Float[Tensor, "*batch entry"]) -> Float[Tensor, "*batch entry_and_1"]:
    return torch.cat([values, torch.ones_like(values[..., :1])], -1)


def affine_map(values: Float[Tensor, "row entry"], target: Float[Tensor, "row to"]) -> Float[Tensor, "entry_and_1 to"]:
    """The affine map from rows of ``values`` to rows of ``target``, in units where every column has size 1."""
    design = with_one(values)
    size = design.square().mean(0).sqrt().clamp_min(1e-300)
    return torch.linalg.lstsq(design / size, target, driver="gelsd").solution / size[:, None]
