"""The one result object. Analyses make it; reports, golden files and the command line read it, and nothing else.

Every number that came from data stands beside its uncertainty. NaN never appears: what is not known is None.
``Analysis.to_dict`` is the JSON document "interp-probe/1"; ``Analysis.from_dict`` is its inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.models.errors import LayoutError
from interp.plain_data import from_plain, to_plain
from interp.probes.interventions import Erasure, Transplant

__all__ = [
    "SCHEMA",
    "Adaptation",
    "AdaptationBin",
    "Analysis",
    "Certificate",
    "CheckpointInfo",
    "Coefficient",
    "Disagreement",
    "Erasure",
    "Evidence",
    "Family",
    "FilterBin",
    "ImplicitModel",
    "Layer",
    "Loss",
    "Momentum",
    "NoiseProfile",
    "OmegaEffect",
    "OmegaEffects",
    "Preconditioner",
    "ProbeReport",
    "ProbeScore",
    "ProbeTarget",
    "ProfileSeries",
    "Recovered",
    "RecoveredCoefficient",
    "RecoveredLayer",
    "Regression",
    "Remainder",
    "SpectralFilter",
    "Split",
    "Transplant",
    "Verdict",
    "Weights",
]

SCHEMA = "interp-probe/1"


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """What was analysed."""

    name: str  # file name or zoo:NAME, for people
    sha256: str  # of the file's bytes
    layout: str  # "canonical", the name of a built-in layout, or "spec file"
    dtype: str
    tokens: tuple[tuple[str, int], ...]
    keys: str
    scale: str | float | int
    residual: bool
    clip: float | None
    readout_channel: str
    readout_sign: int
    layers: int
    heads: int
    parameters: int
    notes: tuple[str, ...] = ()  # what the reader did to the file: unwrapped, transposed, padded …


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One coefficient of one layer, by its three estimates.

    ``weight``: orthogonal projection of the gauge-free weights. ``output``: regression of the update's effect on the
    prediction, one row per prompt; ``stderr`` is its cluster-robust standard error (the headline uncertainty).
    ``refit``: all coefficients together, so that the recovered algorithm predicts what the network predicts.
    ``undetermined`` is a reason when the data cannot fix the refitted value, else None.
    """

    weight: float | None
    output: float | None
    stderr: float | None
    refit: float | None
    refit_stderr: float | None
    live: bool
    undetermined: str | None = None


@dataclass(frozen=True, kw_only=True)
class Split:
    """Fractions of the live weight energy ||K||^2 of a layer; they sum to 1 (None: no live energy)."""

    block_scalar: float | None
    trace: float | None
    residual: float | None


@dataclass(frozen=True, kw_only=True)
class Layer:
    index: int
    omega: Mapping[str, Coefficient]  # "xx", "xy", "yx", "yy"
    trace: Mapping[str, Coefficient]  # the trace terms of the equivariant family, by name
    split: Split


@dataclass(frozen=True, kw_only=True)
class Family:
    """One row of the table of families: fitted on one half of the prompts, scored on the other."""

    name: str
    parameters: int  # numbers that the fit could move
    fidelity: float | None  # held-out R^2 of its predictions against the network's
    fidelity_ci: tuple[float | None, float | None]
    mse: float | None  # of its predictions on the task, held-out
    chosen: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    algorithm: str
    recognized: bool
    solves_task: bool
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]
    summary: str


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A mean squared error on fresh prompts, with its standard error over prompts. ``excess`` is the mean difference to
    the oracle's on the same prompts, and ``excess_stderr`` its (paired) standard error."""

    name: str  # "null", "network", "recovered", "oracle", "gd-1", "ridge", "ols", …
    label: str  # for people
    mse: float | None
    stderr: float | None
    excess: float | None = None
    excess_stderr: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """``prompts`` fresh prompts behind the losses, which go from worst to best; ``held_out`` prompts behind the
    fidelity of the verdict and of the families; ``notes`` say what was skipped, and why."""

    prompts: int
    losses: tuple[Loss, ...]
    depth_losses: tuple[Loss, ...]  # the read-out after each layer
    notes: tuple[str, ...] = ()
    held_out: int | None = None  # None: nothing was scored, or by an earlier version that did not say


@dataclass(frozen=True, kw_only=True)
class ImplicitModel:
    """The implicit weight vector after ``layer`` layers: prediction = <w, x_t>, exact for linear layers.

    ``distance[b]`` is E|w - w_b|^2 / E|w_b|^2 for baseline b, and ``distance_stderr[b]`` its standard error.
    """

    layer: int
    a: float | None  # mean of a^l, the factor on the token's own label
    linearity_r2: float | None
    distance: Mapping[str, float | None]
    distance_stderr: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Preconditioner:
    """The matrix Omega of one layer of preconditioned gradient descent, [source][destination] over the inputs.

    ``distance[r]`` is min_c |Omega - c R|_F / |Omega|_F for the reference matrix r: "identity", "inverse covariance".
    """

    layer: int
    weight: list[Any]
    refit: list[Any]
    refit_stderr: list[Any]
    distance: Mapping[str, float | None]


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
    series: tuple[ProfileSeries, ...]


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
class Regression:
    """In-context regression with noise: how the network and its layers adapt to it."""

    profile: NoiseProfile
    omegas: OmegaEffects
    shrinkage: tuple[Adaptation, ...]  # factor on the label against lambda^l, the label energy of the layer
    step: tuple[Adaptation, ...]  # step along the gradient against the residual energy of least squares
    momentum: tuple[Momentum, ...]
    filters: tuple[SpectralFilter, ...]
    remainder: tuple[Remainder, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeScore:
    """How well one target is read from one place of the network, on prompts that the probe has not seen.

    ``kind``: "token" (one token, across prompts), "within-prompt" (the implicit weights of every prompt) or "gram" (the
    second moments of the context's tokens). ``mse`` and ``variance`` are sums over the coordinates of the target, and
    R^2 = 1 - mse / variance. ``control``: R^2 of the same probe on "untrained" models of the same shape (their mean),
    with "shuffled" targets, and on the "inputs" (layer 0). ``selectivity`` is R^2 minus each control, with
    ``selectivity_ci``; real and control are scored on the same prompts.
    """

    layer: int  # 0: the tokens before the first layer
    target: str
    kind: str
    r2: float | None
    r2_ci: tuple[float | None, float | None]
    mse: float | None
    control: Mapping[str, float | None]
    position: int | None = None  # of the token; None: the query token, or no single token
    selectivity: Mapping[str, float | None] = field(default_factory=dict)  # by the names of ``control``
    selectivity_ci: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    penalty: float | None = None  # lambda of the ridge, per prompt and in units of the features' variance
    prompts: int = 0
    protocol: str = "sound"  # or the published one: "mesa", "akyurek"
    variance: float | None = None
    reason: str | None = None  # why there is no score


@dataclass(frozen=True, kw_only=True)
class ProbeTarget:
    """What a probe looks for."""

    name: str
    formula: str
    source: str
    expectation: str  # what a network of linear layers is expected to show, and why


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """The result of ``interp-probe probe``: the fields of an ``Analysis`` that it fills, and the targets in words."""

    checkpoint: CheckpointInfo
    task: Mapping[str, Any]
    probes: tuple[ProbeScore, ...]
    targets: tuple[ProbeTarget, ...]
    provenance: Mapping[str, Any]
    transplants: tuple[Transplant, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ProbeReport:
        """Rebuild a result from its JSON document. Raises LayoutError when it is not one of this schema."""
        _require_schema(document, "interp-probe probe CHECKPOINT --json")
        return from_plain(cls, document, "document")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The matrices themselves, for the explorer; None in a document whose checkpoint is too large, with ``why``."""

    Q: list[Any] | None  # [layer][head][destination channel][source channel]
    P: list[Any] | None  # [layer][head][output channel][source channel]
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    checkpoint: CheckpointInfo
    task: Mapping[str, Any]
    layers: tuple[Layer, ...]
    families: tuple[Family, ...]
    verdict: Verdict
    evidence: Evidence
    implicit: tuple[ImplicitModel, ...]
    provenance: Mapping[str, Any]
    probes: tuple[ProbeScore, ...] = ()
    preconditioners: tuple[Preconditioner, ...] = ()  # for the verdict preconditioned-gd
    regression: Regression | None = None  # None for a network that predicts nothing
    recovered: Recovered | None = None  # None when no family is recognized
    weights: Weights = field(default_factory=lambda: Weights(Q=None, P=None, why="not recorded"))
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Analysis:
        """Rebuild a result from its JSON document. Raises LayoutError when it is not one of this schema."""
        _require_schema(document, "interp-probe CHECKPOINT --json")
        return from_plain(cls, document, "document")


def _require_schema(document: Mapping[str, Any], command: str) -> None:
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema != SCHEMA:
        raise LayoutError(f"the document's schema is {schema!r}, expected {SCHEMA!r}; make it with {command}")
