"""Which file a checkpoint's name means, and whether it can be read at all. Needs nothing that is slow to import."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from interp.checkpoints.zoo import zoo_names, zoo_path
from interp.errors import UnreadableFile

__all__ = ["LIMIT", "ZOO", "beginning", "locate", "shown"]

ZOO = "zoo:"
LIMIT = 4 * 2**30  # bytes: of a file, and of the arrays read from it; a linear transformer needs a few megabytes


def shown(name: str) -> str:
    """A name from a file, safe to print: control characters would otherwise reach the terminal."""
    return name if name.isprintable() else repr(name)


def locate(reference: str) -> tuple[str, Path]:
    """The name for people and the file of a path or ``zoo:NAME``. Raises UsageError when the zoo has no such model."""
    if reference.startswith(ZOO):
        return reference, zoo_path(reference.removeprefix(ZOO))
    path = Path(reference)
    if reference in zoo_names() and not path.exists():
        raise UnreadableFile(f"{reference} cannot be opened: no such file; did you mean {ZOO}{reference}?")
    return shown(path.name), path


def beginning(path: str | os.PathLike[str]) -> tuple[int, bytes]:
    """The size of a regular file and its first 16 bytes. Raises UnreadableFile when there is none, or it is no file, is
    empty or too large."""
    label = shown(str(path))
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableFile(f"{label} is a folder, expected a checkpoint file inside one")
        if not stat.S_ISREG(status.st_mode):  # a pipe or device might never end
            raise UnreadableFile(f"{label} is not a regular file, expected a checkpoint file")
        with open(path, "rb") as file:
            start = file.read(16)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableFile(f"{label} cannot be opened: {reason}; expected the path of a checkpoint file") from error
    if not start:
        raise UnreadableFile(f"{label} is empty (0 bytes), expected a checkpoint; was the write interrupted?")
    if status.st_size > LIMIT:
        raise UnreadableFile(
            f"{label} has {status.st_size} bytes, over the limit of {LIMIT}; is this a linear transformer?"
        )
    return status.st_size, start
