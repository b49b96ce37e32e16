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

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError

__all__ = ["Moments", "along", "group_of", "select", "shared"]

LARGEST = 1e140  # the squares of larger values, added up, leave float64
# Numbers worked on at once (16 MB). Larger arrays go back to the system after every use, and half of the time is then
# spent on getting them again.
BLOCK = 2**21
WIDE = 32  # with fewer features, one product of all streams against the targets they share beats one for each


def group_of(sequence: Int[Tensor, " row"], sequences: int, groups: int) -> Int[Tensor, " row"]:
    """The group of every sequence index in [0, sequences): contiguous blocks whose sizes differ by at most one.

    A function of the index alone, so that neither chunks nor shards change a result. Blocks rather than remainders,
    because a chunk then meets few groups, which is what makes ``Moments.update`` fast.
    """
    if not 1 <= groups <= sequences:
        raise UsageError(f"asked for {groups} groups of {sequences} sequences, expected 1 to {sequences} groups")
    if len(sequence) and (int(sequence.min()) < 0 or int(sequence.max()) >= sequences):
        raise UsageError(
            f"sequence indices run from {int(sequence.min())} to {int(sequence.max())}, expected 0 to {sequences - 1}"
        )
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
        for name, value in (("groups", groups), ("features", features), ("outputs", outputs)):
            if value < 1:
                raise UsageError(f"{name} is {value}, expected 1 or more")
        if min((*streams, *cells, 1)) < 1:
            raise UsageError(f"streams are {tuple(streams)} and cells {tuple(cells)}, expected sizes of 1 or more")
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

    @property
    def cells(self) -> tuple[int, ...]:
        return tuple(self.y_mean.shape[1:-1])

    @property
    def streams(self) -> tuple[int, ...]:
        return tuple(self.x_mean.shape[1 : self.x_mean.ndim - 1 - len(self.cells)])

    def update(
        self,
        X: Float[Tensor, "*streams_cells row feature"],
        Y: Float[Tensor, "*cells row output"],
        group: Int[Tensor, " row"],
    ) -> None:
        """Add a chunk of rows, row r to ``group[r]``. Raises UsageError when a shape or a group does not fit."""
        self._require_fit(X, Y, group)
        X = X.detach().reshape(math.prod(self.streams), math.prod(self.cells), *X.shape[-2:])
        Y = Y.detach().reshape(math.prod(self.cells), *Y.shape[-2:])
        block = max(64, BLOCK // (X[:, :, :1].numel() + Y[:, :1].numel() + 1))
        for start in range(0, len(group), block):
            rows = slice(start, start + block)
            self._update(X[:, :, rows].to("cpu", torch.float64), Y[:, rows].to("cpu", torch.float64), group[rows])

    def merge(self, other: Moments) -> None:
        """Add the rows of ``other``, moments of the same groups: of another chunk, shard or machine."""
        mine, theirs = (tuple(tuple(value.shape) for value in vars(m).values()) for m in (self, other))
        if mine != theirs:
            raise UsageError(f"cannot merge moments of shapes {theirs} into {mine}; expected the same in both")
        self._absorb(slice(None), other)

    def pooled(self, membership: Float[Tensor, "union group"]) -> Moments:
        """The moments of unions of groups: row u of ``membership`` is 1 for the groups in union u and 0 for others."""
        if membership.ndim != 2 or membership.shape[1] != self.groups:
            raise UsageError(f"membership has shape {tuple(membership.shape)}, expected (unions, {self.groups} groups)")
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

    def _update(
        self,
        X: Float[Tensor, "stream cell row feature"],
        Y: Float[Tensor, "cell row output"],
        group: Int[Tensor, " row"],
    ) -> None:
        parts = list(_by_group(X, Y, group))
        if not all(_bounded(part) for _, part in parts):
            usable = (X.abs() < LARGEST).all(-1).all(0).all(0) & (Y.abs() < LARGEST).all(-1).all(0)
            self.dropped += torch.bincount(group[~usable], minlength=self.groups)
            parts = list(_by_group(X[:, :, usable], Y[:, usable], group[usable]))
        for at, part in parts:
            self._absorb(at, part)

    def _absorb(self, at: Tensor | slice, part: Moments) -> None:
        """m <- m + d n_b / n,  S <- S + S_b + (n_a n_b / n) d d^T,  with d = m_b - m_a and n = n_a + n_b."""
        before = self.count[at]
        share = part.count / (before + part.count).clamp_min(1.0)
        dx = part.x_mean.reshape(len(before), *self.x_mean.shape[1:]) - self.x_mean[at]
        dy = part.y_mean.reshape(len(before), *self.y_mean.shape[1:]) - self.y_mean[at]
        weighted = along(before * share, dx) * dx
        self.xx[at] += part.xx.reshape(*dx.shape, -1) + weighted[..., :, None] * dx[..., None, :]
        self.xy[at] += part.xy.reshape(*dx.shape, -1) + weighted[..., :, None] * shared(dy, dx)[..., None, :]
        self.yy[at] += part.yy.reshape(dy.shape) + along(before * share, dy) * dy**2
        self.x_mean[at] += along(share, dx) * dx
        self.y_mean[at] += along(share, dy) * dy
        self.count[at] += part.count
        self.dropped[at] += part.dropped

    def _require_fit(self, X: Tensor, Y: Tensor, group: Tensor) -> None:
        rows = len(group)
        x, y = (*self.streams, *self.cells, rows, self.features), (*self.cells, rows, self.outputs)
        if tuple(X.shape) != x or tuple(Y.shape) != y:
            raise UsageError(
                f"X has shape {tuple(X.shape)} and Y {tuple(Y.shape)} for {rows} rows, expected {x} and {y}"
            )
        if rows and (int(group.min()) < 0 or int(group.max()) >= self.groups):
            raise UsageError(
                f"groups run from {int(group.min())} to {int(group.max())}, expected 0 to {self.groups - 1}"
            )


def along(scale: Float[Tensor, " group"], like: Tensor) -> Tensor:
    """``scale`` with axes added, to multiply ``like`` group by group."""
    return scale.reshape(-1, *[1] * (like.ndim - 1))


def shared(y: Tensor, x: Tensor) -> Tensor:
    """Values of the targets, which have no streams, with axes added for those of ``x``."""
    return y.reshape(len(y), *[1] * (x.ndim - y.ndim), *y.shape[1:])


def select(moments: Moments, groups: Tensor | slice) -> Moments:
    """The moments of some of the groups (numbers, or true where a group is wanted)."""
    return Moments(**{name: value[groups] for name, value in vars(moments).items()})


def _bounded(part: Moments) -> bool:
    """Whether no row holds a value beyond LARGEST: such a value moves the mean or the spread by half of itself."""
    means, squares = (part.x_mean, part.y_mean), (part.xx.diagonal(dim1=-2, dim2=-1), part.yy)
    small = all(bool((value.abs() < LARGEST / 2).all()) for value in means)  # false for NaN, too
    return small and all(bool((value < (LARGEST / 2) ** 2).all()) for value in squares)


def _by_group(
    X: Float[Tensor, "stream cell row feature"], Y: Float[Tensor, "cell row output"], group: Int[Tensor, " row"]
) -> Iterator[tuple[Tensor | slice, Moments]]:
    """The moments of a chunk, as pairs (groups, their moments).

    Groups with the same number of rows in the chunk go through one batched product, without padding.
    """
    order = None
    if bool((group[1:] < group[:-1]).any()):
        group, order = group.sort(stable=True)
    present, sizes = torch.unique_consecutive(group, return_counts=True)
    starts = sizes.cumsum(0) - sizes
    for size in sizes.unique().tolist():
        chosen = sizes == size
        at, x, y = present[chosen], X, Y
        if order is not None or len(at) < len(present):
            rows = (starts[chosen][:, None] + torch.arange(size)).flatten()
            rows = rows if order is None else order[rows]
            x, y = X.index_select(2, rows), Y.index_select(1, rows)
        yield at, _equal_groups(x, y, len(at))


def _equal_groups(
    X: Float[Tensor, "stream cell row feature"], Y: Float[Tensor, "cell row output"], groups: int
) -> Moments:
    streams, cells, rows, features = X.shape
    size, outputs = rows // groups, Y.shape[-1]
    X = X.reshape(streams, cells, groups, size, features)
    Y = Y.reshape(cells, groups, size, outputs)
    x_mean, y_mean = X.mean(3, keepdim=True), Y.mean(2, keepdim=True)
    X, Y = X - x_mean, Y - y_mean
    xx = _product(X, X).permute(2, 0, 1, 3, 4)
    if features < WIDE:
        together = X.permute(1, 2, 3, 0, 4).reshape(cells, groups, size, streams * features)
        xy = _product(together, Y).reshape(cells, groups, streams, features, outputs).permute(1, 2, 0, 3, 4)
    else:
        xy = _product(X, Y).permute(2, 0, 1, 3, 4)
    return Moments(
        count=torch.full((groups,), float(size), dtype=torch.float64),
        x_mean=x_mean.squeeze(3).permute(2, 0, 1, 3),
        y_mean=y_mean.squeeze(2).permute(1, 0, 2),
        xx=xx,
        xy=xy,
        yy=(Y**2).sum(2).permute(1, 0, 2),
        dropped=torch.zeros(groups, dtype=torch.float64),
    )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left^T right. By numpy, which computes half of X^T X and mirrors it, as torch does not."""
    own = left.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are looked for afterwards
        return torch.from_numpy(np.matmul(own.swapaxes(-1, -2), own if right is left else right.numpy()))
