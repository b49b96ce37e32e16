"""Small trained models that ship with the package: canonical checkpoints, each named after its file."""

from __future__ import annotations

from pathlib import Path

from interp.errors import UsageError, did_you_mean

__all__ = ["zoo_names", "zoo_path"]


def zoo_names() -> tuple[str, ...]:
    """The names of all shipped models, in alphabetical order."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.safetensors")))


def zoo_path(name: str) -> Path:
    """The file of a shipped model. Raises UsageError for a name that is not in ``zoo_names``."""
    if name not in zoo_names():
        raise UsageError(f"the zoo has no model {name!r}; {did_you_mean(name, zoo_names())}")
    return Path(__file__).parent / f"{name}.safetensors"
