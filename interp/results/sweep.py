"""One line of a sweep over many checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One checkpoint of a sweep: its verdict, or the error it ended with."""

    checkpoint: str  # as it was given
    document: str | None = None  # where the analysis is
    algorithm: str | None = None
    recognized: bool | None = None
    solves_task: bool | None = None
    fidelity: float | None = None
    fidelity_ci: tuple[float | None, float | None] | None = None
    error: str | None = None
    exit_code: int = 0  # of the analysis on its own

    def to_dict(self) -> Mapping[str, Any]:
        return asdict(self)
