"""What can be read from activations, beside its controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from interp.probes.interventions import Erasure, Transplant
from interp.results.document import SCHEMA, CheckpointInfo, Document


@dataclass(frozen=True, kw_only=True)
class ProbeScore:
    """How well one target is read from one place of the network, on prompts that the probe has not seen.

    ``kind``: "token" (one token, across prompts), "within-prompt" (the implicit weights of every prompt), "gram" (the
    second moments of the context's tokens), or "attention-linear" and "attention-mlp" (a learned mean of the context's
    tokens, read by a linear map or an MLP). ``mse`` and ``variance`` are sums over the coordinates of the target, and
    R^2 = 1 - mse / variance. ``control``: R^2 of the same probe on "untrained" models of the same shape (their mean),
    with "shuffled" targets, and on the "inputs" (layer 0). ``selectivity`` is R^2 minus each control, with
    ``selectivity_ci``; real and control are scored on the same prompts. Where those are fewer than the ``prompts`` of
    ``r2``, ``paired_r2`` is the network's R^2 on them, to which controls and differences belong.
    """

    layer: int  # layers run; 0: the tokens before the first layer
    target: str
    kind: str
    r2: float | None
    r2_ci: tuple[float | None, float | None]
    mse: float | None
    control: Mapping[str, float | None]
    position: int | None = None  # of the token; None: the query token, or no single token
    selectivity: Mapping[str, float | None] = field(default_factory=dict)  # by the names of ``control``
    selectivity_ci: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    paired_r2: float | None = None  # None: ``r2`` is on the prompts of the controls already
    paired_r2_ci: tuple[float | None, float | None] = (None, None)
    paired_prompts: int | None = None
    penalty: float | None = None  # lambda of the ridge, per prompt and in units of the features' variance
    prompts: int = 0
    protocol: str = "sound"  # or the published one: "mesa", "akyurek", whose mse is the published score, in sample
    mse_held_out: float | None = None  # of a published protocol, on the prompts behind ``r2``
    variance: float | None = None
    reason: str | None = None  # why there is no score


@dataclass(frozen=True, kw_only=True)
class ImplicitFit:
    """How linear the labels are after ``layer`` layers in what stands in the tokens before the first: R^2 of the model
    y_i^l = a^l y_i - <w^l, x_i> of every prompt, each row being predicted from the fit to the others.

    ``rows``: "tokens" of the prompt, or with causal keys "queries" put after the tokens before ``position`` (None:
    after all of them), with y_i = 0. 1 up to rounding for linear layers whose tokens share their keys.
    """

    layer: int  # layers run; 0 is the input
    position: int | None
    rows: str
    linearity_r2: float | None
    linearity_r2_ci: tuple[float | None, float | None]
    prompts: int
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeTarget:
    """What a probe looks for."""

    name: str
    formula: str
    source: str
    expectation: str  # what a network of linear layers is expected to show, and why


@dataclass(frozen=True, kw_only=True)
class ProbeReport(Document):
    """The result of ``interp-probe probe``: the fields of an ``Analysis`` that it fills, and the targets in words."""

    made_by: ClassVar[str] = "interp-probe probe CHECKPOINT --json"

    checkpoint: CheckpointInfo
    task: Mapping[str, Any]
    probes: tuple[ProbeScore, ...]
    targets: tuple[ProbeTarget, ...]
    provenance: Mapping[str, Any]
    implicit: tuple[ImplicitFit, ...] = ()
    transplants: tuple[Transplant, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA
