"""In-context regression with noise: how a network and its layers adapt to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interp.results.tables import Tabular


@dataclass(frozen=True, kw_only=True)
class ProfileSeries:
    """Mean excess over the oracle at every noise level of the profile. Names as in ``Loss``."""

    name: str  # "network", "recovered", "layer-0" (the read-out before the first layer) …, "gd-1", "ols", …
    label: str
    excess: tuple[float | None, ...]
    stderr: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class NoiseProfile:
    """Excess loss against the true noise level, in and beyond the range the network was trained on."""

    sigma: tuple[float, ...]
    prompts: tuple[int, ...]  # at each level; the same inputs, weights and noise directions at all of them
    trained: tuple[float, float]  # smallest and largest noise level of the task
    levels: tuple[float, ...] | None  # the task's levels when it has a few, None when it has the whole range
    series: tuple[ProfileSeries, ...] = field(metadata={"along": ("sigma", "prompts")})


@dataclass(frozen=True, kw_only=True)
class OmegaEffect:
    """What the loss gains when omegas are taken out of the recovered algorithm; standard errors are paired.

    ``zeroed``: the others stay. ``refitted``: the others are fitted anew, to the task, on prompts of their own; both
    beside the recovered algorithm. ``worth``: beside all omegas fitted anew in the same way.
    """

    coefficient: str  # "xx", "xy", "yx", "yy", or "xy+yy" for both
    layer: int | None  # None: in all layers
    zeroed: float | None
    zeroed_stderr: float | None
    refitted: float | None
    refitted_stderr: float | None
    worth: float | None
    worth_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class OmegaEffects:
    family: str  # whose coefficients they are: the verdict's if it has omegas only, else "diag"
    prompts: int  # scored on
    excess: float | None  # of the recovered algorithm, nothing taken out
    excess_stderr: float | None
    refitted: float | None  # what the loss gains (often: less than nothing) when all its omegas are fitted to the task
    refitted_stderr: float | None
    effects: tuple[OmegaEffect, ...]
    note: str | None = None  # why some were not refitted


@dataclass(frozen=True, kw_only=True)
class AdaptationBin:
    """Means over a tenth of the prompts. ``predicted``: by the recovered algorithm. ``by_weights``: by the four omegas
    of this layer's own weights. ``without``: by the recovered algorithm with omega_xy = 0 in all layers."""

    x: float
    predicted: float
    by_weights: float
    observed: float
    stderr: float | None  # of ``observed``
    without: float | None = None


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """A factor by which one layer adapts to the prompt, predicted in two ways, and observed in the network.

    R^2 is over prompts; it is negative when the mean predicts better, and None when the prediction, or what is
    observed, is the same for all prompts.
    """

    layer: int
    r2: float | None
    r2_by_weights: float | None
    bins: tuple[AdaptationBin, ...]
    r2_ci: tuple[float | None, float | None] = (None, None)  # 95 %, as all the others
    r2_by_weights_ci: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """One layer as a step of gradient descent with momentum, g the negative gradient of half the squared residuals.

    u' - u = -beta u + gradient g, and for w three accounts: w' - w = -eta u (the paper's analogy), = step g (plain
    gradient descent), and both terms together. R^2 of the increments is on held-out prompts; None when there is
    nothing to explain or to explain it with.
    """

    layer: int
    beta: float | None
    beta_stderr: float | None
    gradient: float | None
    gradient_stderr: float | None
    u_r2: float | None
    eta: float | None
    eta_stderr: float | None
    eta_r2: float | None
    step: float | None
    step_stderr: float | None
    step_r2: float | None
    both_r2: float | None
    u_r2_ci: tuple[float | None, float | None] = (None, None)
    eta_r2_ci: tuple[float | None, float | None] = (None, None)
    step_r2_ci: tuple[float | None, float | None] = (None, None)
    both_r2_ci: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, kw_only=True)
class FilterBin:
    eigenvalue: float  # of Sigma, mean over the bin
    filter: float  # regression of <v, w^l> on <v, w_ols> over the eigen-directions v of the bin
    stderr: float | None
    ridge: float  # the same regression for ridge with each prompt's own noise level


@dataclass(frozen=True, kw_only=True)
class SpectralFilter:
    """What the implicit weights after ``layer`` layers keep of least squares, by eigenvalue of Sigma."""

    layer: int
    noise: tuple[float, float]  # smallest and largest noise level of these prompts
    r2: float | None  # how much of the implicit weights such a filter explains
    bins: tuple[FilterBin, ...]


@dataclass(frozen=True, kw_only=True)
class Remainder:
    """The part of a layer's weight tensor K[a, b, c, e] outside the omegas and traces.

    ``blocks[ae][bc]``: its energy by block of the update (destination a, source e) and block of the Gram matrix that is
    read; they sum to 1. ``rank``: participation ratio (sum s^2)^2 / sum s^4 of the singular values of K as a matrix
    from Gram matrices (b, c) to updates (a, e); ``leading``: the share of its energy in the first five. Fidelity (R^2
    against the network's predictions) with this one layer replaced: by its projection, so without the remainder, and
    by four omegas with their output-weighted values.
    """

    layer: int
    energy: float | None  # share of the live weight energy
    blocks: Mapping[str, Mapping[str, float]] | None
    rank: float | None
    leading: tuple[float, ...] | None
    projected_fidelity: float | None
    projected_ci: tuple[float | None, float | None]
    omega_fidelity: float | None
    omega_ci: tuple[float | None, float | None]
    why: str | None = None  # why the tensor is not described


@dataclass(frozen=True, kw_only=True)
class Regression(Tabular):
    """In-context regression with noise: how the network and its layers adapt to it."""

    profile: NoiseProfile
    omegas: OmegaEffects
    shrinkage: tuple[Adaptation, ...]  # factor on the label against lambda^l, the label energy of the layer
    step: tuple[Adaptation, ...]  # step along the gradient against the residual energy of least squares
    momentum: tuple[Momentum, ...]
    filters: tuple[SpectralFilter, ...]
    remainder: tuple[Remainder, ...]
