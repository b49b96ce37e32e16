"""Causal models of linear dynamics: what their heads do, and what they are compared with.

Losses are those of von Oswald et al. (arXiv 2309.05858): half the squared error of the next state, summed over its
coordinates, the mean over positions and sequences. Positions and layers count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.results.tables import Tabular


@dataclass(frozen=True, kw_only=True)
class HeadBlocks:
    """Means of the diagonals of a head's blocks, [destination or output channel][source channel]: RevAlg-d.

    ``residual`` is the share of the head's energy |P|^2 |Q|^2 (live channels only) outside P = p (x) I, Q = q (x) I,
    ``residual_Q`` and ``residual_P`` those of its products. None where nothing is live.
    """

    Q: list[Any]
    P: list[Any]
    residual: float | None
    residual_Q: float | None
    residual_P: float | None


@dataclass(frozen=True, kw_only=True)
class SequenceLoss:
    """``by_position`` has the loss at ``Sequences.positions``."""

    name: str  # "null", "network", "recovered", "published", "gd-1", "prop-2", "prop-2-lagged", "ridge", …
    label: str
    loss: float | None
    stderr: float | None
    by_position: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GradientStep:
    """The network as one step of gradient descent, f_t = (W_0 - eta grad L_t(W_0)) s_t (proposition 1).

    ``w0`` is the scalar of W_0 = w_0 I, or None when ``w0_matrix`` is the full matrix. ``fidelity`` is R^2 against what
    the network adds to its input, held-out. ``recognized``: the step explains the network; ``exact``: to rounding.
    """

    eta: float | None
    eta_stderr: float | None
    w0: float | None
    w0_stderr: float | None
    w0_matrix: list[Any] | None
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]
    recognized: bool
    exact: bool
    line_search_eta: float | None  # best for the task, from W_0 = 0
    line_search_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class Compression:
    """The network replaced by block-scalar heads. ``kind``: "published" (block means, the dearest kept, nothing
    fitted), "weights" (gauge-free projection) or "refit". ``ratio`` is its loss over the network's, ``ratio_stderr``
    paired."""

    kind: str
    numbers_per_head: float
    numbers: int
    loss: float | None
    stderr: float | None
    ratio: float | None
    ratio_stderr: float | None
    fidelity: float | None


@dataclass(frozen=True, kw_only=True)
class Interpolated:
    """Products (1 - alpha) network + alpha block means; at 1 the published compression."""

    alpha: float
    loss: float | None
    stderr: float | None


@dataclass(frozen=True, kw_only=True)
class RankedNumber:
    """One of the recovered numbers, and to second order what it costs to do without it, the others as they are: in
    squared difference to the network's predictions, as a share of their variance."""

    layer: int
    head: int
    matrix: str  # "Q" or "P"
    entry: str  # "out <- state" (P) or "query . previous" (Q)
    value: float
    cost: float


@dataclass(frozen=True, kw_only=True)
class MesaObjective:
    """After ``layer`` layers, at ``position``, medians over sequences. ``objective``: L_t(W) / L_t(0) of the implicit
    W, with which the token's read-out channel is W s_t plus terms of other channels. ``condition``: condition number of
    A_t H_t, where the query channel is H_t s_t plus others; at layer 0 that of A_t itself."""

    layer: int
    position: int
    objective: float | None
    condition: float | None


@dataclass(frozen=True, kw_only=True)
class Sequences(Tabular):
    """What only causal models of linear dynamics have."""

    prompts: int  # fresh sequences behind the losses
    positions: tuple[int, ...]
    clipped: float  # share of the sequences that meet the clip somewhere
    live: Mapping[str, Any]  # per layer: which channels are read, and which can still reach the prediction
    losses: tuple[SequenceLoss, ...] = field(metadata={"along": ("positions",)})
    compressions: tuple[Compression, ...]
    interpolation: tuple[Interpolated, ...]
    gradient_step: GradientStep | None
    ranking: tuple[RankedNumber, ...]
    objectives: tuple[MesaObjective, ...]
    alpha: tuple[float, ...] = ()  # of proposition 2, learned for this task
    beta: tuple[float, ...] = ()
