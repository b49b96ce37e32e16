"""A task in words, for people."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Words"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """``asked``: what is asked, in a sentence or two; then what the error is called, the ``factor`` that it takes to
    make it of the task's loss, and what one prompt is."""

    asked: str
    error: str = "mean squared error"
    factor: float = 1.0
    prompt: str = "prompt"
