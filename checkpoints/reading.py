"""How the user says that a file is to be read, and whether it was read so that it runs as its network."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["Described", "Reading", "Verified"]


@dataclass(frozen=True)
class Reading:
    """``spec``: a TOML description or the name of a built-in layout.

    ``ignore``: patterns of the names of arrays, and of what the file says of its network, that may be left out although
    the analysis would be false if they did anything.

    ``verify``: a file of inputs and the network's own outputs (``interp.checkpoints.verification``).
    """

    spec: str | None = None
    ignore: tuple[str, ...] = ()
    verify: str | None = None

    @classmethod
    def of(cls, given: Described) -> Reading:
        """The reading that a description alone stands for."""
        return given if isinstance(given, Reading) else cls(None if given is None else os.fspath(given))


Described = str | os.PathLike[str] | Reading | None


@dataclass(frozen=True)
class Verified:
    """How a reading compares with a network's own outputs: the largest error, as a share of the largest output."""

    prompts: int
    error: float

    @property
    def words(self) -> str:
        return (
            f"verified: the outputs differ from the network's own by at most {self.error:.1g} of the largest, on "
            f"{self.prompts} prompts"
        )
