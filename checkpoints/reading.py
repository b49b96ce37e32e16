"""How the user says that a file is to be read."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["Described", "Reading"]


@dataclass(frozen=True)
class Reading:
    """``spec``: a TOML description or the name of a built-in layout.

    ``ignore``: patterns of the names of arrays, and of what the file says of its network, that may be left out although
    the analysis would be false if they did anything.
    """

    spec: str | None = None
    ignore: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Described) -> Reading:
        """The reading that a description alone stands for."""
        return given if isinstance(given, Reading) else cls(None if given is None else os.fspath(given))


Described = str | os.PathLike[str] | Reading | None
