"""What was not done, and why: passed on as it is, so that missing evidence is never taken for a result."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Skipped"]


@dataclass(frozen=True)
class Skipped:
    """Something that was not measured. ``reason`` completes the sentence "skipped, because …"."""

    reason: str

    def __str__(self) -> str:
        return f"skipped, because {self.reason}"
