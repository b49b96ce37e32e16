"""The one exception family of the toolkit.

Every message says what was received, what was expected and what to do next, in one line. ``exit_code`` is the status
the command line ends with when the error reaches it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckFailed",
    "InterpProbeError",
    "LayoutError",
    "SweepFailed",
    "UnreadableFile",
    "UsageError",
    "did_you_mean",
]


class InterpProbeError(Exception):
    """Base of all errors raised on purpose by this package."""

    exit_code = 2


class UsageError(InterpProbeError, ValueError):
    """An argument is wrong: its value, its shape, or a combination."""

    exit_code = 2


class CheckFailed(InterpProbeError):
    """A stated check (for example a golden file) did not hold."""

    exit_code = 1


class UnreadableFile(InterpProbeError):
    """A file cannot be read, is damaged, or is not safe to read."""

    exit_code = 3


class LayoutError(InterpProbeError):
    """A file reads well, but what its tensors mean is not known or contradicts itself."""

    exit_code = 4


class SweepFailed(InterpProbeError):
    """Part of a sweep failed; the rest of it is done."""

    exit_code = 5


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the closest known words, or the first dozen of them when none is close."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return "known: " + ", ".join(repr(name)[1:-1] for name in names[:12]) + more
