"""A golden file: what of an analysis a retrained model is compared with, and what moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Golden", "GoldenCoefficient", "GoldenFidelity", "GoldenProvenance", "Moved", "Tolerance"]


@dataclass(frozen=True, kw_only=True)
class GoldenCoefficient:
    """``stderr`` is None where the data do not determine the coefficient."""

    output: float
    stderr: float | None


@dataclass(frozen=True, kw_only=True)
class GoldenFidelity:
    value: float | None
    ci: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """``relative`` to the golden value, in ``standard_errors`` of both together, and of the ``fidelity``."""

    relative: float = 0.01
    standard_errors: float = 4.0
    fidelity: float = 0.01


@dataclass(frozen=True, kw_only=True)
class GoldenProvenance:
    """``prompts`` and ``seed`` make the comparison repeatable."""

    prompts: int
    seed: int
    tool: Any = None
    time: Any = None
    python: Any = None
    versions: Any = None


@dataclass(frozen=True, kw_only=True)
class Golden:
    format: str
    version: int
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any]
    fidelity: GoldenFidelity
    coefficients: Mapping[str, Mapping[str, GoldenCoefficient]]  # by layer ("layer 0") and name
    tolerance: Tolerance
    provenance: GoldenProvenance


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One figure that is not what the golden file has. ``note`` says so where there are no two values to compare."""

    figure: str  # "verdict.algorithm", "fidelity", "layer 0, omega_xx"
    golden: str | bool | float | None = None
    now: str | bool | float | None = None
    change: float | None = None  # of a coefficient, its size
    stderr: float | None = None  # of the change
    allowed: float | None = None
    note: str | None = None

    def __str__(self) -> str:
        if self.note is not None:
            return f"{self.figure}: {self.note}"
        text = f"{self.figure}: {_shown(self.golden)} -> {_shown(self.now)}"
        if self.change is not None:
            errors = f"{self.change / self.stderr:.3g} standard errors" if self.stderr else "no standard error"
            text += f", moved by {self.change:.3g} = {errors}"
        return text if self.allowed is None else f"{text} (allowed: {self.allowed:.3g})"


def _shown(value: str | bool | float | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "undefined" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
