"""Progress of long work: on stderr, and only when stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_line"]


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step; calls do nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(step)
