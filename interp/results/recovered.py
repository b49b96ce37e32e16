"""The recovered algorithm, complete enough to be run, and how far it agrees with its network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp.results.document import CheckpointInfo
from interp.results.plain_data import to_plain

__all__ = [
    "Certificate",
    "Disagreement",
    "Recovered",
    "RecoveredAlgorithm",
    "RecoveredCoefficient",
    "RecoveredCompletion",
    "RecoveredDescent",
    "RecoveredForm",
    "RecoveredHeads",
    "RecoveredLayer",
    "RecoveredSequences",
    "RecoveredStep",
]


@dataclass(frozen=True, kw_only=True)
class RecoveredCoefficient:
    """A fitted number of the recovered algorithm. ``undetermined``: a reason when the data cannot fix it, else None."""

    value: float
    stderr: float | None
    undetermined: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecoveredLayer:
    """``coefficients`` by name, "xx", "xy", "yx", "yy" and the traces "x:xx", "x:yy", "y:xx": destination first. Those
    that never reach the prediction are left out. ``matrix`` is Omega of preconditioned-gd, [source][destination];
    ``matrix_stderr`` is None where the data do not determine the entry."""

    index: int
    coefficients: Mapping[str, RecoveredCoefficient]
    matrix: list[Any] | None = None
    matrix_stderr: list[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The recovered algorithm, complete: it can be run from these fields alone.

    Tokens are the examples (x_j, y_j), j = 1..n, and the query (x_t, 0). Every layer updates all of them by
    ``equation``, with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j, lambda = s sum_j y_j^2 over the examples
    (``keys`` "context") or the examples and the query ("all") as they enter the layer; where ``residual`` is False the
    token itself is not added. The prediction is ``sign`` times y of the query after the last layer.
    """

    family: str
    equation: str
    parameters: int
    dim: int  # of x
    context: int  # n of the task
    keys: str
    scale: str | float | int  # s: "1", "1/n", "1/(n+1)" or a number
    residual: bool
    sign: int
    layers: tuple[RecoveredLayer, ...]

    @property
    def title(self) -> str:
        return self.family


@dataclass(frozen=True, kw_only=True)
class RecoveredCompletion(Recovered):
    """The same for matrix completion: tokens are the rows (A_i, C_i), i = 1..``context``, and (B_j, 0) of [[A, C], [B,
    D]], y is of size ``outputs`` and the prediction of D the y of the query rows. alpha = s sum_j x_j y_j^T and lambda
    = s sum_j y_j y_j^T are matrices; there is one more trace, "y:yy".

    ``machines``: the positions in x that each machine holds; Sigma has the blocks within machines alone (none: all of
    it). ``sketches``: for every layer a matrix S with orthonormal columns, [x][column], or None where the layer sees
    all of x; with Pi = S S^T, x is Pi x in the update of y, and Sigma x is Pi' Sigma Pi x in that of x (none: no
    sketches). ``written``: for every layer S' with Pi' = S' S'^T, or None where Pi' = Pi.
    ``algorithm``: what the verdict calls it; ``eta`` and ``gamma`` are those of eagle, omega_xx = -eta / |A|^2 and
    omega_yx = -gamma / |A|^2 with the norms that A has on the task, each with its 95 % interval.
    """

    outputs: int
    algorithm: str
    machines: tuple[tuple[int, ...], ...] = ()
    sketches: tuple[list[Any] | None, ...] = ()
    written: tuple[list[Any] | None, ...] = ()
    eta: float | None = None
    eta_ci: tuple[float | None, float | None] = (None, None)
    gamma: float | None = None
    gamma_ci: tuple[float | None, float | None] = (None, None)

    @property
    def title(self) -> str:
        return self.family if self.family.startswith(self.algorithm) else f"{self.algorithm}, as {self.family}"


@dataclass(frozen=True, kw_only=True)
class RecoveredSequences:
    """What the algorithms of linear dynamics share. They predict s_{t+1} from s_0 .. s_t, at every t.

    A token holds ``contents``, one for every channel of ``channels``: "zero", "current" (s_t), "previous" (s_{t-1}, 0
    at t = 0) or "start" (W_0 s_t with W_0 = ``start``, a number times the identity or a matrix).
    """

    family: str
    equation: str
    parameters: int
    dim: int
    context: int  # T of the task
    channels: tuple[str, ...]
    contents: tuple[str, ...]
    start: float | list[Any]

    @property
    def title(self) -> str:
        return self.family


@dataclass(frozen=True, kw_only=True)
class RecoveredHeads(RecoveredSequences):
    """revalg, free of gauge: every layer updates the channels of all tokens by

        e_t[a] <- e_t[a] + s sum_{b, g, e} k[a][b][g][e] sum_{j <= t} e_j[b] <e_j[g], e_t[e]>

    and clips the result to +-``clip`` (None: not at all); where ``residual`` is False the token itself is not added.
    ``layers`` are the k of every layer, sums over heads of P[a][b] Q[e][g]; ``how`` they were found: "weights" (the
    block-scalar part of the network's weights) or "refit" (fitted to its predictions, with ``stderr`` the largest
    standard error of each layer, None where the data do not fix one). The prediction is ``sign`` times the channel
    ``readout`` after the last layer.
    """

    scale: str | float | int
    residual: bool
    clip: float | None
    sign: int
    readout: int
    how: str
    layers: tuple[list[Any], ...]
    stderr: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RecoveredStep(RecoveredSequences):
    """One step of gradient descent: s_{t+1} ~ H s_t + eta B_t s_t - M A_t s_t, with A_t = sum_{j < t} s_j s_j^T and
    B_t = sum_{j < t} s_{j+1} s_j^T. ``held`` is H, what the tokens hold before the first layer, and ``decay`` M = eta
    W_0; each a number times the identity, or a matrix."""

    eta: float
    eta_stderr: float | None
    held: float | list[Any]
    decay: float | list[Any]


@dataclass(frozen=True, kw_only=True)
class RecoveredForm:
    """The closed form of simple regression, with xbar, ybar the means of the examples, V the variance of x and C its
    covariance with y: ybar + (C / V)(u - xbar). ``shrunken``: times (1 - h)(n + 1) / n with the leverage of the query
    among the n + 1 points, h = 1 / (n + 1) + (u - m)^2 / sum (x - m)^2, m and the sum over all n + 1."""

    family: str
    equation: str
    shrunken: bool
    context: int
    parameters: int = 0

    @property
    def title(self) -> str:
        return self.family


@dataclass(frozen=True, kw_only=True)
class RecoveredDescent:
    """Steps of a gradient method for simple regression: with phi = (1, x / ``x_unit``), Sigma = mean phi phi^T and
    alpha = mean phi y / ``y_unit`` over the examples (``keys`` "context") or also the query with y = 0 ("all"),

        w <- w + A (alpha - Sigma w),    then phi <- (I + C Sigma) phi of all points, and y <- y - what the step
        explained,

    from w = 0; the prediction is ``y_unit`` times the sum over steps of <A (..), phi of the query>. ``steps`` are the
    pairs (A, C); C is 0 but for gd++."""

    family: str
    equation: str
    parameters: int
    context: int
    keys: str
    x_unit: float
    y_unit: float
    steps: tuple[list[Any], ...]

    @property
    def title(self) -> str:
        return self.family


RecoveredAlgorithm = RecoveredCompletion | Recovered | RecoveredHeads | RecoveredStep | RecoveredForm | RecoveredDescent


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """The recovered algorithm against the network on fresh prompts of one kind.

    ``median`` to ``largest`` are quantiles of |algorithm - network| over all numbers predicted, in units of ``rms``,
    the root mean square of the network's predictions on the same prompts. Outside the task R^2 and ``rms`` may hang on
    a few prompts on which both explode; a quantile times ``rms`` does not. ``skipped`` says why there are no figures.
    """

    name: str  # "task", then what differs from it: "noise x2", "context x1/2", "inputs x2", "flat spectrum", …
    label: str
    task: Mapping[str, Any]
    seed: int
    prompts: int
    left_out: int  # prompts that diverge or meet the network's clip
    r2: float | None
    r2_ci: tuple[float | None, float | None]
    rms: float | None
    median: float | None
    q90: float | None
    q99: float | None
    largest: float | None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How far the recovered algorithm agrees with a network: in its task, and outside. ``examples`` are a few prompts
    of the task, [prompt][token][x, y] with the queries last, which a single-precision number holds exactly, with the
    predictions of both, [prompt], or [prompt][query][y] for matrix completion; of linear dynamics [prompt][time][dim],
    the states s_0 .. s_{T-1} and the predictions of s_1 .. s_T. The algorithm's are there to check another
    implementation of it."""

    checkpoint: CheckpointInfo
    provenance: Mapping[str, Any]
    recovered: RecoveredAlgorithm
    disagreements: tuple[Disagreement, ...]  # the task first
    examples: list[Any]
    network: list[Any]
    algorithm: list[Any]

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)
