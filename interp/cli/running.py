"""How a command runs: progress on stderr, only when that is a terminal, and on one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_line", "use_one_thread"]


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step; calls do nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(step)


def use_one_thread() -> None:
    """Batches of small matrices gain little from a second thread, and lose tenfold when the cores are shared."""
    import torch

    torch.set_num_threads(1)
