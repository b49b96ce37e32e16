"""Float64 moments of activations and targets, per group of sequences: any number of prompts in constant memory.

For the rows (x_r, y_r) of a group, kept are

    n,   m_x = mean x_r,   m_y = mean y_r,
    S_xx = sum (x_r - m_x)(x_r - m_x)^T,   S_xy = sum (x_r - m_x)(y_r - m_y)^T,   s_yy = sum (y_r - m_y)^2 per output.

They determine every ridge regression on any union of groups, and its squared error on any group, exactly: all folds and
all penalties come from one pass over the data. Of Y^T Y only the diagonal enters a squared error, so only that is kept.
Sums are centred within every chunk and merged by the update of Chan, Golub and LeVeque (1983, eq. 1.5), so a mean far
larger than the spread costs no digits.

A group is a set of whole sequences and the unit of folds and of the bootstrap (``group_of`` says which one a sequence
is in). Several regressions can share a pass: X may hold *streams* (layers, networks) that read the same targets, and X
and Y may both hold *cells* (positions), regressions with targets of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Moments", "along", "group_of", "select", "shared"]

LARGEST = 1e140  # the squares of larger values, added up, leave float64


def group_of(sequence: Int[Tensor, " row"], sequences: int, groups: int) -> Int[Tensor, " row"]:
    """The group of every sequence index in [0, sequences): contiguous blocks whose sizes differ by at most one.

    A function of the index alone, so that neither chunks nor shards change a result. Blocks rather than remainders,
    because a chunk then meets few groups, which is what makes ``Moments.update`` fast.
    """
    return sequence * groups // sequences


@dataclass(eq=False)
class Moments:
    """The moments of every group. ``dropped`` counts the rows left out because a value in them was not finite, or was
    beyond 1e140; a row is left out of all streams and cells at once, so that layers are compared on the same rows."""

    count: Float[Tensor, " group"]
    x_mean: Float[Tensor, "group *streams_cells feature"]
    y_mean: Float[Tensor, "group *cells output"]
    xx: Float[Tensor, "group *streams_cells feature feature"]
    xy: Float[Tensor, "group *streams_cells feature output"]
    yy: Float[Tensor, "group *cells output"]
    dropped: Float[Tensor, " group"]

    @classmethod
    def zeros(
        cls, groups: int, features: int, outputs: int, streams: Sequence[int] = (), cells: Sequence[int] = ()
    ) -> Moments:
        """Moments of no rows yet."""
        x, y = (groups, *streams, *cells, features), (groups, *cells, outputs)
        shapes = ((groups,), x, y, (*x, features), (*x, outputs), y, (groups,))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @property
    def groups(self) -> int:
        return self.count.shape[0]

    @property
    def features(self) -> int:
        return self.x_mean.shape[-1]

    @property
    def outputs(self) -> int:
        return self.y_mean.shape[-1]

    def update(
        self,
        X: Float[Tensor, "*streams_cells row feature"],
        Y: Float[Tensor, "*cells row output"],
        group: Int[Tensor, " row"],
    ) -> None:
        """Add a chunk of rows, row r to ``group[r]``."""
        X, Y = (values.detach().to("cpu", torch.float64) for values in (X, Y))
        if bool((group[1:] < group[:-1]).any()):
            group, order = group.sort(stable=True)
            X, Y = X.index_select(-2, order), Y.index_select(-2, order)
        present, sizes = (values.tolist() for values in torch.unique_consecutive(group, return_counts=True))
        for number, x, y in zip(present, X.split(sizes, -2), Y.split(sizes, -2), strict=True):
            usable = _bounded(x) & _bounded(y)
            if not bool(usable.all()):
                self.dropped[number] += int((~usable).sum())
                x, y = x[..., usable, :], y[..., usable, :]
            if x.shape[-2]:
                self._absorb(slice(number, number + 1), _of_rows(x, y))

    def merge(self, other: Moments) -> None:
        """Add the rows of ``other``, moments of the same groups: of another chunk, shard or machine."""
        self._absorb(slice(None), other)

    def pooled(self, membership: Float[Tensor, "union group"]) -> Moments:
        """The moments of unions of groups: row u of ``membership`` is 1 for the groups in union u and 0 for others."""
        weight = membership.to(torch.float64)
        count = weight @ self.count
        share = weight * self.count / count.clamp_min(1.0)[:, None]
        x_mean = torch.tensordot(share, self.x_mean, 1)
        y_mean = torch.tensordot(share, self.y_mean, 1)
        xx, xy, yy = (torch.tensordot(weight, total, 1) for total in (self.xx, self.xy, self.yy))
        for u in range(len(weight)):  # one union at a time: all at once would take unions times the memory
            dx, dy = self.x_mean - x_mean[u], self.y_mean - y_mean[u]
            scaled = along(weight[u] * self.count, dx) * dx
            xx[u] += torch.einsum("g...i,g...j->...ij", scaled, dx)
            xy[u] += torch.einsum("g...i,g...j->...ij", scaled, shared(dy, dx))
            yy[u] += torch.einsum("g,g...->...", weight[u] * self.count, dy**2)
        return Moments(count, x_mean, y_mean, xx, xy, yy, weight @ self.dropped)

    def _absorb(self, at: slice, part: Moments) -> None:
        """m <- m + d n_b / n,  S <- S + S_b + (n_a n_b / n) d d^T,  with d = m_b - m_a and n = n_a + n_b."""
        before = self.count[at]
        share = part.count / (before + part.count).clamp_min(1.0)
        dx = part.x_mean - self.x_mean[at]
        dy = part.y_mean - self.y_mean[at]
        weighted = along(before * share, dx) * dx
        self.xx[at] += part.xx + weighted[..., :, None] * dx[..., None, :]
        self.xy[at] += part.xy + weighted[..., :, None] * shared(dy, dx)[..., None, :]
        self.yy[at] += part.yy + along(before * share, dy) * dy**2
        self.x_mean[at] += along(share, dx) * dx
        self.y_mean[at] += along(share, dy) * dy
        self.count[at] += part.count
        self.dropped[at] += part.dropped


def along(scale: Float[Tensor, " group"], like: Tensor) -> Tensor:
    """``scale`` with axes added, to multiply ``like`` group by group."""
    return scale.reshape(-1, *[1] * (like.ndim - 1))


def shared(y: Tensor, x: Tensor) -> Tensor:
    """Values of the targets, which have no streams, with axes added for those of ``x``."""
    return y.reshape(len(y), *[1] * (x.ndim - y.ndim), *y.shape[1:])


def select(moments: Moments, groups: Tensor | slice) -> Moments:
    """The moments of some of the groups (numbers, or true where a group is wanted)."""
    return Moments(**{name: value[groups] for name, value in vars(moments).items()})


def _bounded(values: Float[Tensor, "*streams_cells row size"]) -> Bool[Tensor, " row"]:
    """Which rows hold no value beyond LARGEST, and nothing that is not a number."""
    sizes = values.abs().amax(-1)
    return (sizes < LARGEST).reshape(-1, sizes.shape[-1]).all(0)


def _of_rows(x: Float[Tensor, "*streams_cells row feature"], y: Float[Tensor, "*cells row output"]) -> Moments:
    """The moments of one group. S_xx by numpy, which computes half of x^T x and mirrors it, as torch does not."""
    count, x_mean, y_mean = x.new_tensor(x.shape[-2]), x.mean(-2), y.mean(-2)
    x, y = x - x_mean[..., None, :], y - y_mean[..., None, :]
    xx = torch.from_numpy(np.matmul(x.mT.numpy(), x.numpy()))
    parts = count, x_mean, y_mean, xx, x.mT @ y, y.square().sum(-2), torch.zeros_like(count)
    return Moments(*(part[None] for part in parts))
