"""Squared errors on data a fit has not seen, kept per group of sequences: what every score is made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.probes.moments import Moments, along, shared

__all__ = ["HeldOut", "LinearPredictor"]


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """y(x) = m_y + (x - m_x)^T B, one per fit (leading axis), stream and cell."""

    x_mean: Float[Tensor, "fit *streams_cells feature"]
    y_mean: Float[Tensor, "fit *cells output"]
    coef: Float[Tensor, "fit *streams_cells feature output"]

    def __call__(
        self, X: Float[Tensor, "*streams_cells row feature"], fit: int = 0
    ) -> Float[Tensor, "*streams_cells row output"]:
        """The predictions of one fit."""
        centre = shared(self.y_mean[fit : fit + 1], self.x_mean[fit : fit + 1])[0]
        return (X - self.x_mean[fit][..., None, :]) @ self.coef[fit] + centre[..., None, :]

    def squared_error(self, moments: Moments, fit: int = 0) -> Float[Tensor, "group *streams_cells output"]:
        """The sum of squared errors of one fit over the rows of every group, exactly, from their moments:

            s_yy - 2 <B, S_xy> + <B, S_xx B> + n (m_y' - y(m_x'))^2        (m' the means of the group).

        The terms cancel, so errors below about 1e-15 of the group's s_yy are rounding.
        """
        B = self.coef[fit]
        centre = shared(self.y_mean[fit : fit + 1], self.x_mean[fit : fit + 1])
        drift = ((moments.x_mean - self.x_mean[fit])[..., None, :] @ B).squeeze(-2)
        offset = shared(moments.y_mean, moments.x_mean) - centre - drift
        within = shared(moments.yy, moments.x_mean) + (B * (moments.xx @ B - 2.0 * moments.xy)).sum(-2)
        return within.clamp_min(0.0) + along(moments.count, offset) * offset**2


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Squared errors of predictions of held-out data, per group of sequences, with the moments of the targets that
    they are compared to. ``group`` holds the numbers of the groups, by which scores of the same data are paired."""

    group: Int[Tensor, " group"]
    count: Float[Tensor, " group"]
    squared_error: Float[Tensor, "group *streams_cells output"]
    y_mean: Float[Tensor, "group *cells output"]
    yy: Float[Tensor, "group *cells output"]

    def streams(self, index: int | slice) -> HeldOut:
        """Of some entries of the first axis of streams, for example one layer."""
        return replace(self, squared_error=self.squared_error[:, index])

    @classmethod
    def of_predictions(
        cls,
        prediction: Float[Tensor, "*streams_cells row output"],
        Y: Float[Tensor, "*cells row output"],
        group: Int[Tensor, " row"],
    ) -> HeldOut:
        """From predictions of held-out rows themselves, for probes that are not linear in fixed features."""
        number, group = torch.unique(group, return_inverse=True)
        Y, squared = Y.double().movedim(-2, 0), (prediction.double() - Y.double()).square().movedim(-2, 0)

        def total(rows: Tensor) -> Tensor:
            return torch.zeros(len(number), *rows.shape[1:], dtype=torch.float64).index_add_(0, group, rows)

        count = total(torch.ones(len(group), dtype=torch.float64))
        y_mean = total(Y) / along(count, Y)
        yy = total((Y - y_mean[group]) ** 2)
        return cls(number, count, total(squared), y_mean, yy)
