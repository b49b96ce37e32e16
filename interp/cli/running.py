"""How a command runs: progress on stderr, only when that is a terminal; on one thread; into files it can write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.models.errors import UsageError

__all__ = ["expect_writable", "progress_line", "use_one_thread"]


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step; calls do nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(step)


def expect_writable(option: str, path: str | Path, source: str | None = None) -> None:
    """Refuse a place that cannot be written, or is the very file that is read, before the work and not after it.

    Raises UsageError.
    """
    target = Path(path).absolute()
    try:
        if target.is_dir():
            raise UsageError(f"{option} {path} is a folder, expected a file name in it")
        if not target.parent.is_dir():
            raise UsageError(f"{option} {path}: the folder {target.parent} does not exist; create it first")
        if source and target.exists() and Path(source).exists() and target.samefile(source):
            raise UsageError(f"{option} {path} would overwrite {source}, which is being read; choose another name")
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UsageError(f"{option} {path} is no usable file name: {error}") from None


def use_one_thread() -> None:
    """Batches of small matrices gain little from a second thread, and lose tenfold when the cores are shared."""
    import torch

    torch.set_num_threads(1)
