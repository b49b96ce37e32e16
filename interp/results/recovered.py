"""The recovered algorithm, complete enough to be run, and how far it agrees with its network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp.plain_data import to_plain
from interp.results.document import CheckpointInfo

__all__ = ["Certificate", "Disagreement", "Recovered", "RecoveredCoefficient", "RecoveredLayer"]


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


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """The recovered algorithm against the network on fresh prompts of one kind.

    ``median`` to ``largest`` are quantiles of |algorithm - network|, in units of ``rms``, the root mean square of the
    network's predictions on the same prompts. Outside the task R^2 and ``rms`` may hang on a few prompts on which both
    explode; a quantile times ``rms`` does not. ``skipped`` says why there are no figures.
    """

    name: str  # "task", "noise x2", "context x1/2", "context x2", "inputs x1/2", "inputs x2"
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
    of the task, [prompt][token][x, y] with the query last, which a single-precision number holds exactly, with the
    predictions of both; the algorithm's are there to check another implementation of it."""

    checkpoint: CheckpointInfo
    provenance: Mapping[str, Any]
    recovered: Recovered
    disagreements: tuple[Disagreement, ...]  # the task first
    examples: list[Any]
    network: list[Any]
    algorithm: list[Any]

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)
