"""The one result object. Analyses make it; reports, golden files and the command line read it, and nothing else.

Every number that came from data stands beside its uncertainty. NaN never appears: what is not known is None.
``Analysis.to_dict`` is the JSON document "interp-probe/1"; ``Analysis.from_dict`` is its inverse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.models.errors import LayoutError

__all__ = [
    "SCHEMA",
    "Analysis",
    "CheckpointInfo",
    "Coefficient",
    "Evidence",
    "Family",
    "ImplicitModel",
    "Layer",
    "Loss",
    "Preconditioner",
    "ProbeScore",
    "Split",
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
    """``prompts`` fresh prompts; ``losses`` from worst to best; ``notes`` say what was skipped, and why."""

    prompts: int
    losses: tuple[Loss, ...]
    depth_losses: tuple[Loss, ...]  # the read-out after each layer
    notes: tuple[str, ...] = ()


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
class ProbeScore:
    layer: int
    target: str
    kind: str
    r2: float | None
    r2_ci: tuple[float | None, float | None]
    mse: float | None
    control: Mapping[str, float | None]


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
    weights: Weights = field(default_factory=lambda: Weights(Q=None, P=None, why="not recorded"))
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Analysis:
        """Rebuild a result from its JSON document. Raises LayoutError when it is not one of this schema."""
        schema = document.get("schema") if isinstance(document, Mapping) else None
        if schema != SCHEMA:
            raise LayoutError(
                f"the document's schema is {schema!r}, expected {SCHEMA!r}; make it with interp-probe CHECKPOINT --json"
            )
        return _build(cls, document, "document")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _build(kind: Any, value: Any, where: str) -> Any:
    """Inverse of ``_plain`` for the annotations used above."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise LayoutError(f"{where} is {type(value).__name__}, expected a table")
        hints = typing.get_type_hints(kind)
        fields = {f.name: f for f in dataclasses.fields(kind)}
        missing = [
            n
            for n, f in fields.items()
            if n not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise LayoutError(f"{where} has no {', '.join(missing)}")
        return kind(**{n: _build(hints[n], value[n], f"{where}.{n}") for n in fields if n in value})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        *others, last = [a for a in args if a is not type(None)]
        for one in others:
            with contextlib.suppress(LayoutError):
                return _build(one, value, where)
        return _build(last, value, where)
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a list")
        if origin is list:
            return value
        item = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
        if len(item) != len(value):
            raise LayoutError(f"{where} has {len(value)} entries, expected {len(item)}")
        return tuple(_build(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(item, value, strict=True)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a table")
        return {k: _build(args[1], v, f"{where}.{k}") for k, v in value.items()}
    accepted = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}.get(kind)
    if accepted and (not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool)):
        expected = {bool: "true or false", int: "a whole number", float: "a number or null", str: "text"}[kind]
        raise LayoutError(f"{where} is {reprlib.repr(value)}, expected {expected}")
    if kind is not float:
        return value
    number = float(value) if abs(value) < 1e300 else math.inf  # JSON has whole numbers and powers that float has not
    if not math.isfinite(number):
        raise LayoutError(f"{where} is {reprlib.repr(value)}, expected a finite number or null")
    return number
