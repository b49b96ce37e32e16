"""Which file a checkpoint's name means, and whether it can be read at all. Needs nothing that is slow to import."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from interp.checkpoints.mistaken import is_address
from interp.checkpoints.zoo import zoo_names, zoo_path
from interp.errors import UnreadableFile, visible

__all__ = ["LIMIT", "SUFFIXES", "ZOO", "beginning", "locate"]

ZOO = "zoo:"
LIMIT = 4 * 2**30  # bytes of a file, optimiser and all
SUFFIXES = (
    ".safetensors", ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".msgpack",
    ".safetensors.index.json", ".bin.index.json",
)  # fmt: skip
_START = 600  # bytes that are looked at to tell what a file is


def locate(reference: str | os.PathLike[str]) -> tuple[str, Path]:
    """The name for people and the file of a path or ``zoo:NAME``. Raises UsageError when the zoo has no such model,
    UnreadableFile for an address on the network, which is never fetched."""
    text = os.fspath(reference)
    if text.startswith(ZOO):
        return text, zoo_path(text.removeprefix(ZOO))
    path = Path(text)
    if is_address(text):
        raise UnreadableFile(
            f"{text} is an address on the network, and nothing is ever fetched; download the file and give its path"
        )
    if text in zoo_names() and not path.exists():
        raise UnreadableFile(f"{text} cannot be opened: no such file; did you mean {ZOO}{text}?")
    return visible(path.name, 200), path


def beginning(path: str | os.PathLike[str]) -> tuple[int, bytes]:
    """The size of a regular file and its first bytes. Raises UnreadableFile when there is none, or it is no file, is
    empty or too large."""
    label = visible(str(path), 300)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableFile(f"{label} is a folder, expected a checkpoint file{_inside(Path(path))}")
        if not stat.S_ISREG(status.st_mode):  # a pipe or device might never end
            raise UnreadableFile(f"{label} is not a regular file, expected a checkpoint file")
        with open(path, "rb") as file:
            start = file.read(_START)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if os.path.islink(path) and not os.path.exists(path):
            reason += " (it is a link that leads nowhere)"
        raise UnreadableFile(f"{label} cannot be opened: {reason}; expected the path of a checkpoint file") from error
    if not start:
        raise UnreadableFile(f"{label} is empty (0 bytes), expected a checkpoint; was the write interrupted?")
    if status.st_size > LIMIT:
        raise UnreadableFile(
            f"{label} has {status.st_size} bytes, over the limit of {LIMIT}; is this a linear transformer?"
        )
    return status.st_size, start


def _inside(folder: Path) -> str:
    """Which checkpoints lie in a folder, as the end of a sentence."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return " inside one"
    found = [name for name in names if name.endswith(SUFFIXES)]
    indices = [name for name in found if name.endswith(".index.json")]
    if "_METADATA" in names or "manifest.ocdbt" in names:
        return "; it looks like an orbax checkpoint: save its arrays with numpy.savez or flax.serialization.to_bytes"
    if any(name.endswith(".distcp") for name in names):
        return "; it looks like a distributed torch checkpoint: dcp_to_torch_save of torch makes it one file"
    if len(indices or found) == 1:
        return f"; did you mean {visible(str(folder / (indices or found)[0]), 300)}?"
    if found:
        more = f" and {len(found) - 6} more" if len(found) > 6 else ""
        listed = ", ".join(visible(name, 60) for name in found[:6])
        return f" inside one: {listed}{more}; interp-probe sweep analyses them all"
    return " inside one"
