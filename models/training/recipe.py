"""Recipes: what to train, on what, and how hard, as a TOML file.

name = "diag-l4-u5"
[task]                       the fields of a checkpoint's task
name = "noisy_regression"
dim = 10
context = 20
noise = { uniform = [0, 5] }
[model]                      the fields of the table ``model`` of the task's method, and some of a checkpoint
parametrisation = "diag"
layers = 4
[optimiser]                  the fields of the table ``optimiser`` of the task's method

The methods are ``search`` (regression with noise), ``sequences`` (linear dynamics), ``embedded`` (simple regression)
and ``completion`` (matrix completion) in ``interp.models.training``.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from interp.errors import LayoutError, UnreadableFile, UsageError, did_you_mean
from interp.models.layers.registry import read_table
from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.training.method import Method, method_of

__all__ = ["Recipe", "load_recipe", "purpose_seed", "recipe_names"]

PARTS = ("name", "task", "model", "optimiser")
WIDEST = 1000  # numbers of a token


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run."""

    name: str
    task: Any
    spec: ModelSpec
    model: Any  # of the classes that the task's method reads
    optimiser: Any

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise LayoutError(f"the recipe's name is {self.name!r}, expected a word such as 'diag-l4-u5'")
        self.method.fits(self)

    @property
    def method(self) -> Method:
        return method_of(self.task)

    @property
    def layers(self) -> int:
        return self.model.layers

    def with_seed(self, seed: int) -> Recipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    @classmethod
    def from_dict(cls, fields: object) -> Recipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        if not isinstance(fields, Mapping):
            raise LayoutError(f"the recipe is {fields!r}, expected a table")
        for key in fields:
            if key not in PARTS:
                raise LayoutError(f"unknown field {key!r} in the recipe; {did_you_mean(str(key), PARTS)}")
        for key in PARTS[:3]:
            if key not in fields:
                raise LayoutError(f"the recipe has no {key!r}, expected name, [task] and [model]")
        task = task_of(read_table(fields["task"], "task", None))
        method = method_of(task)
        owned = [entry.name for entry in dataclasses.fields(method.model)]
        given = read_table(fields["model"], "model", [*owned, *method.described])
        model = method.model.read({key: value for key, value in given.items() if key in owned})
        stated = {key: value for key, value in given.items() if key in method.described}
        described = {**method.defaults(task, model), **stated, "task": task.to_dict()}
        spec = ModelSpec.from_dict(described)
        if spec.stream > WIDEST:
            raise LayoutError(f"tokens of the model have {spec.stream} numbers, expected at most {WIDEST} to train on")
        return cls(
            name=fields["name"],
            task=task,
            spec=spec,
            model=model,
            optimiser=method.optimiser.read(fields.get("optimiser", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        described = self.spec.to_dict()
        stated = {key: described[key] for key in self.method.described if key in described}
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "model": {**self.model.to_dict(), **stated},
            "optimiser": self.optimiser.to_dict(),
        }


def purpose_seed(*parts: int) -> int:
    """Distinct seeds for distinct purposes of one recipe."""
    return functools.reduce(lambda value, part: value * 1009 + part + 1, parts, 0)


_FOLDER = resources.files("interp.models.training.recipes")


def recipe_names() -> list[str]:
    """The recipes that ship."""
    return sorted(Path(entry.name).stem for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def load_recipe(source: str) -> Recipe:
    """A recipe from a TOML file, or one that ships, by name.

    Raises UsageError when there is neither, UnreadableFile when the file is not TOML, LayoutError when it is no recipe.
    """
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UsageError(
                f"there is no recipe file {source}; shipped recipes: {', '.join(recipe_names())}"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableFile(f"{source} cannot be read as text ({error}); expected a TOML recipe") from None
    elif source in recipe_names():
        text = (_FOLDER / f"{source}.toml").read_text(encoding="utf-8")
    else:
        raise UsageError(f"there is no recipe {source!r}; {did_you_mean(source, recipe_names())}")
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML, and of whole numbers with thousands of digits
        raise UnreadableFile(f"{source} is not valid TOML: {error}") from None
    return Recipe.from_dict(fields)
