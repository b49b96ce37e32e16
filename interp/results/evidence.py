"""The evidence for a verdict: losses, what happens when layers are replaced, and where the agreement ends."""

from __future__ import annotations

from dataclasses import dataclass

from interp.results.tables import Tabular

__all__ = [
    "Absorption",
    "CourseRow",
    "Evidence",
    "Interpolation",
    "LayerSwap",
    "Loss",
    "Outcome",
    "PathPoint",
    "Stress",
    "StressPoint",
]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A mean squared error on fresh prompts, with its standard error over prompts. ``excess`` is the mean difference to
    the oracle's on the same prompts, and ``excess_stderr`` its (paired) standard error. ``trimmed`` is that mean
    without the ``left_out`` prompts (one in a thousand) where it is largest: a few that explode must not decide."""

    name: str  # "null", "network", "recovered", "oracle", "gd-1", "ridge", "ols", …
    label: str  # for people
    mse: float | None
    stderr: float | None
    excess: float | None = None
    excess_stderr: float | None = None
    trimmed: float | None = None
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A network with layers changed, on held-out prompts: R^2 of its predictions against those of the network as it is,
    its mean squared error, and its ``change``, the mean difference of that error to the network's (paired)."""

    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]
    mse: float | None
    stderr: float | None
    change: float | None
    change_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class LayerSwap:
    """One layer of the network replaced by that layer of the recovered algorithm. ``idle`` is the control: the layer
    left out (its update is 0), so a layer that has no say is not taken for one that is understood."""

    layer: int
    swapped: Outcome
    idle: Outcome


@dataclass(frozen=True, kw_only=True)
class PathPoint:
    """``share`` of the way from the network (0) to the recovered algorithm (1) in all layers at once; ``idle`` is as
    far on the way to layers that do nothing, the control."""

    share: float
    mixed: Outcome
    idle: Outcome


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """The straight path in the products of the weights, (1 - t) K_network + t K_algorithm, which no gauge changes.

    ``barrier`` is the largest mean squared error along it above the straight line between its ends, with the (paired)
    standard error at that point.
    """

    points: tuple[PathPoint, ...]
    barrier: float | None
    barrier_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class StressPoint:
    """Prompts of one kind. ``unexplained`` = 1 - R^2 of the recovered algorithm's predictions against the network's;
    then the mean squared errors of network, algorithm and oracle. ``skipped`` says why there are no figures."""

    value: float
    trained: bool  # whether the task holds such prompts
    prompts: int
    left_out: int  # prompts that diverge or meet the network's clip
    unexplained: float | None = None
    unexplained_ci: tuple[float | None, float | None] = (None, None)
    network: float | None = None
    network_stderr: float | None = None
    recovered: float | None = None
    recovered_stderr: float | None = None
    oracle: float | None = None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Stress:
    """The recovered algorithm beside the network as one property of the prompts leaves the training distribution.

    ``agrees`` is the range of values, in one piece with those of training, in which the upper end of the 95 % interval
    of ``unexplained`` stays within 1 %; None when it does not even in training. An end that is the last value tried is
    no limit of the agreement.
    """

    name: str  # "context", "noise", "scale", "covariance"
    label: str  # for people
    points: tuple[StressPoint, ...]
    agrees: tuple[float, float] | None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Absorption:
    """Every layer as its omegas, its traces and the ``directions`` leading singular directions of what is left of its
    weights: R^2 of the predictions against the network's."""

    directions: int
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class CourseRow:
    """A family fitted to where the network stands after every layer: the R^2 of its read-outs for the network's after
    ``layer``, on prompts that were not fitted."""

    family: str
    layer: int
    r2: float
    r2_ci: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Evidence(Tabular):
    """``prompts`` fresh prompts behind the losses, which go from worst to best; ``held_out`` prompts behind the
    fidelity of the verdict and of the families; ``notes`` say what was skipped, and why. Layers are replaced by
    those of ``replacement``, the recovered algorithm or the family that comes closest, on ``replaced`` of the held-out
    prompts.
    """

    prompts: int
    losses: tuple[Loss, ...]
    depth_losses: tuple[Loss, ...]  # the read-out after each layer
    notes: tuple[str, ...] = ()
    held_out: int | None = None  # None: nothing was scored, or by an earlier version that did not say
    replacement: str | None = None
    replaced: int | None = None
    swaps: tuple[LayerSwap, ...] = ()
    interpolation: Interpolation | None = None
    stress: tuple[Stress, ...] = ()
    absorption: tuple[Absorption, ...] = ()
    course: tuple[CourseRow, ...] = ()
