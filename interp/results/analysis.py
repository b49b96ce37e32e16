"""The result of the main job: layers, families, verdict and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from interp.models.words import Words
from interp.probes.interventions import Erasure, Transplant
from interp.results.behaviour import Behaviour
from interp.results.closed_form import ClosedForm
from interp.results.completion import Completion
from interp.results.document import SCHEMA, CheckpointInfo, Document
from interp.results.evidence import Evidence
from interp.results.probes import ProbeScore
from interp.results.recovered import RecoveredAlgorithm
from interp.results.regression import Regression
from interp.results.section import Section
from interp.results.sequences import HeadBlocks, Sequences


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
    """``omega`` and ``trace`` are of tokens (x, y). Channel tokens have ``heads`` in their place, block means as
    published, and ``maps``: the gauge-free coefficients sum_h p_h[a, b] q_h[e, g] of what has a say, by names like
    "out += state <previous, query>" (a, b, g, e)."""

    index: int
    omega: Mapping[str, Coefficient]  # "xx", "xy", "yx", "yy"
    trace: Mapping[str, Coefficient]  # the trace terms of the equivariant family, by name
    split: Split
    heads: tuple[HeadBlocks, ...] = ()
    maps: Mapping[str, Coefficient] = field(default_factory=dict)


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
class Share:
    """A share of prompts, with a 95 % interval."""

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``level``: the strongest statement that holds of the algorithm, what each layer does ("layer-by-layer"), where
    the network stands after every layer ("step-by-step") or what it predicts ("as-a-whole"); ``function``: the smallest
    family that predicts the same. ``solves``: whether it beats predicting zero, ``solves_task`` whether that is "yes";
    ``explodes``: on what share of prompts its error is far above that of predicting zero. ``rivals``: other families
    that these prompts do not tell from ``algorithm``. ``tied``: its numbers are the same in all layers."""

    algorithm: str
    recognized: bool
    solves_task: bool
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]
    summary: str
    level: Literal["layer-by-layer", "step-by-step", "as-a-whole"] | None = None
    solves: Literal["yes", "no", "undecided"] | None = None
    explodes: Share | None = None
    function: str | None = None
    rivals: tuple[str, ...] = ()
    tied: bool = False


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
class Weights:
    """The matrices themselves, for the explorer; None in a document whose checkpoint is too large, with ``why``."""

    Q: list[Any] | None  # [layer][head][destination channel][source channel]
    P: list[Any] | None  # [layer][head][output channel][source channel]
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Analysis(Document):
    """What ``analyse`` and ``identify`` found, as plain data: every number beside its uncertainty, None for what is not
    known. ``to_dict`` and ``from_dict`` are JSON (LayoutError for another document); ``to_frame(name)`` is one of its
    tables, and ``tables`` has them all.

    >>> from interp import Analysis, identify
    >>> result = identify("zoo:gdpp-l4-u5", prompts=64)
    >>> Analysis.from_dict(result.to_dict()) == result
    True
    >>> list(result.to_frame("families").columns)[:3]
    ['name', 'parameters', 'fidelity']
    """

    made_by: ClassVar[str] = "interp-probe CHECKPOINT --json"

    checkpoint: CheckpointInfo
    task: Mapping[str, Any]
    layers: tuple[Layer, ...]
    families: tuple[Family, ...]
    verdict: Verdict
    evidence: Evidence
    implicit: tuple[ImplicitModel, ...]
    provenance: Mapping[str, Any]
    probes: tuple[ProbeScore, ...] = ()
    transplants: tuple[Transplant, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    behaviour: Behaviour | None = None  # beside classical solvers, of networks without families too
    preconditioners: tuple[Preconditioner, ...] = ()  # for the verdict preconditioned-gd
    regression: Regression | None = None  # None for a network that predicts nothing
    closed_form: ClosedForm | None = None  # for the task simple_regression
    recovered: RecoveredAlgorithm | None = None  # None when no family is recognized
    sequences: Sequences | None = None  # for causal models of linear dynamics
    completion: Completion | None = None  # for the task matrix_completion
    weights: Weights = field(
        default_factory=lambda: Weights(Q=None, P=None, why="not recorded"), metadata={"table": False}
    )
    words: Words | None = None  # the task for people; None in documents that do not say
    answers: Mapping[str, Section] = field(default_factory=dict)  # to questions from outside the package, by name
    skipped: Mapping[str, str] = field(default_factory=dict)  # why a question has no answer, by the question's name
    schema: str = SCHEMA
