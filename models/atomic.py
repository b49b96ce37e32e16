"""Writing files so that a reader, or a crash, never meets half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from interp.errors import UsageError

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replace ``path`` by ``data`` (text is written as UTF-8) in one step; on any failure the old file is untouched.

    The bytes go to a temporary file in the same folder, reach the disk, and take the name only then. A symbolic link
    stays a link, an existing file keeps its permissions. Raises UsageError when the place cannot be written.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        target = Path(os.path.realpath(path))
        existing = target.stat().st_mode if target.exists() else None
        regular = existing is None or stat.S_ISREG(existing)
        if regular:
            _replace(target, content, None if existing is None else stat.S_IMODE(existing))
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose a folder that exists and may be written to") from error
    if not regular:
        raise UsageError(f"cannot write {path}: it is a folder or a device, expected a file name")


def _replace(target: Path, content: bytes, permissions: int | None) -> None:
    # A short name of our own, not one derived from the target's: that could exceed the longest name allowed.
    temporary = target.parent / f".interp-{secrets.token_hex(6)}.tmp"
    try:
        # open, not mkstemp: a new file then gets the permissions the user's umask gives any other.
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if permissions is not None:
            os.chmod(temporary, permissions)
        os.replace(temporary, target)
    except BaseException:  # an interrupt too must leave nothing behind
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
