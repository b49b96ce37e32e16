"""What the fields of a recipe may be, whatever its kind. All of it raises LayoutError with the name of the field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from interp.models.errors import LayoutError, did_you_mean
from interp.models.numbers import is_count, is_number

__all__ = [
    "model_field",
    "parts",
    "require_counts",
    "require_known",
    "require_name",
    "require_positive",
    "require_seed",
    "table",
]

PARTS = ("name", "task", "model", "optimiser")


def table(fields: object, where: str, known: Collection[str] | None) -> dict[str, Any]:
    """A table with no other fields than the ``known`` ones (None: with any)."""
    if not isinstance(fields, Mapping):
        raise LayoutError(f"{where} is {fields!r}, expected a table")
    for key in fields:
        if known is not None:
            require_known(key, known, f"unknown field {where}.{key}")
    return dict(fields)


def parts(fields: object, optional: Collection[str] = ("optimiser",)) -> dict[str, Any]:
    """The name of a recipe and its tables, with the task as any table."""
    if not isinstance(fields, Mapping):
        raise LayoutError(f"the recipe is {fields!r}, expected a table")
    for key in fields:
        require_known(key, PARTS, f"unknown field {key!r} in the recipe")
    wanted = [key for key in PARTS if key not in optional]
    for key in wanted:
        if key not in fields:
            words = [key if key == "name" else f"[{key}]" for key in wanted]
            raise LayoutError(f"the recipe has no {key!r}, expected {', '.join(words[:-1])} and {words[-1]}")
    return {**fields, "task": table(fields["task"], "task", None)}


def model_field(model: Mapping[str, Any], *names: str) -> None:
    """The [model] of a recipe has to say these."""
    for name in names:
        if name not in model:
            raise LayoutError(f"the recipe has no model.{name}")


def require_known(word: object, known: Collection[str], problem: str) -> None:
    if word not in known:
        raise LayoutError(f"{problem}; {did_you_mean(str(word), known)}")


def require_counts(where: str, fields: Mapping[str, object], least: int = 1) -> None:
    """Whole numbers of ``least`` or more."""
    for name, value in fields.items():
        if not is_count(value) or value < least:
            raise LayoutError(f"{where}.{name} is {value!r}, expected a whole number of {least} or more")


def require_positive(where: str, value: object) -> None:
    if not is_number(value) or value <= 0:
        raise LayoutError(f"{where} is {value!r}, expected a positive number")


def require_seed(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
        raise LayoutError(f"optimiser.seed is {value!r}, expected a whole number from 0 to 2^32 - 1")


def require_name(value: object, example: str) -> None:
    if not isinstance(value, str) or not value or "/" in value:
        raise LayoutError(f"the recipe's name is {value!r}, expected a word such as {example!r}")
