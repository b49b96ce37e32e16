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
    "unforeseen",
    "visible",
]

MESSAGE_LIMIT = 3000  # characters
FAULT = 6  # the exit code of an error that nobody foresaw


class InterpProbeError(Exception):
    """Base of all errors raised on purpose by this package. Its message is one line, safe to print, of bounded length:
    names and texts of a file are quoted in it."""

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(" ".join(message.splitlines()), MESSAGE_LIMIT))


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


def unforeseen(error: Exception) -> tuple[str, int]:
    """What to say of an error that nobody raised on purpose, and its exit code: 3 when memory ran out, else 6."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "not enough memory" in text or "can't allocate memory" in text:
        return "the memory is not enough for this file; is this a linear transformer?", UnreadableFile.exit_code
    what = f"{type(error).__name__}: {visible(text, 300)}"
    return f"a fault of this tool ({what}); please report it, with the command and the file", FAULT


def visible(text: str, most: int = 1000) -> str:
    """A text from a file, safe to print: escape sequences, marks that turn the direction of writing and the like are
    spelled out, and of more than ``most`` characters the middle is left out."""
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…{text[len(text) - most // 3 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the closest known words, or the first dozen of them when none is close."""
    names = sorted({name[:200] for name in known})
    close = difflib.get_close_matches(word[:200], names[:1000], n=3, cutoff=0.5)  # takes the square of their lengths
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return "known: " + ", ".join(repr(name)[1:-1] for name in names[:12]) + more
