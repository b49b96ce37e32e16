"""Recipes: what to train, on what, and how hard, as a TOML file.

name = "diag-l4-u5"
[task]                       the fields of a checkpoint's task
name = "noisy_regression"
dim = 10
context = 20
noise = { uniform = [0, 5] }
[model]
parametrisation = "diag"     gd++ | diag | free | full | merged (see ``interp.models.training.parametrisation``)
layers = 4
heads = 1                    optional, as are tokens, attention, residual and readout (fields of a checkpoint)
[optimiser]                  every field optional, see ``Optimiser``

Recipes of causal models of linear dynamics have a module of their own, ``interp.models.training.sequence_recipe``.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from interp.models.errors import LayoutError, UnreadableFile, UsageError, did_you_mean
from interp.models.numbers import is_count
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics, MatrixCompletion, NoisyRegression, SimpleRegression, task_of
from interp.models.training.completion_recipe import CompletionRecipe
from interp.models.training.embedded_recipe import EmbeddedRecipe
from interp.models.training.fields import model_field, parts, require_counts, require_name, require_seed, table
from interp.models.training.parametrisation import Parametrisation, parametrisation
from interp.models.training.sequence_recipe import SequenceRecipe

__all__ = ["Optimiser", "Recipe", "load_recipe", "purpose_seed", "recipe_names"]


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """How hard to look. Networks are grown one layer at a time (see ``interp.models.training.search``)."""

    seed: int = 0
    attempts: int = 2  # starts for every place a layer can be added: one exact, the others perturbed
    keep: int = 2  # networks carried on to the next depth
    search_prompts: int = 4096
    scan_iterations: int = 10  # from every start; the most promising then get
    search_iterations: int = 50  # in all
    wander_steps: int = 10_000  # of Adam, from each of ``attempts`` random starts of a full network
    prompts: tuple[int, ...] = (32768, 131072)  # samples on which the best networks are polished, in turn
    iterations: tuple[int, ...] = (30, 15)  # at most so many steps on each of them
    tolerance: float = (
        1e-3  # a step that lowers the loss by a smaller fraction is a slow one; three in a row are the end
    )
    evaluation_prompts: int = 200_000

    def __post_init__(self) -> None:
        for name in (
            "attempts",
            "keep",
            "search_prompts",
            "scan_iterations",
            "search_iterations",
            "wander_steps",
        ):
            require_counts("optimiser", {name: getattr(self, name)})
        require_counts("optimiser", {"evaluation_prompts": self.evaluation_prompts}, least=2)  # for a standard error
        require_seed(self.seed)
        for name in ("prompts", "iterations"):
            if not all(is_count(value) for value in getattr(self, name)):
                raise LayoutError(f"optimiser.{name} is {getattr(self, name)!r}, expected whole numbers of 1 or more")
        if len(self.prompts) != len(self.iterations):
            raise LayoutError(
                f"optimiser.prompts has {len(self.prompts)} entries and optimiser.iterations {len(self.iterations)}, "
                "expected one number of iterations for each sample"
            )
        if not isinstance(self.tolerance, float) or not 0 < self.tolerance < 1:
            raise LayoutError(f"optimiser.tolerance is {self.tolerance!r}, expected a number between 0 and 1")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Optimiser:
        known = [f.name for f in dataclasses.fields(cls)]
        values = table(fields, "optimiser", known)
        for name in ("prompts", "iterations"):
            if name in values:
                if not isinstance(values[name], (list, tuple)):
                    raise LayoutError(f"optimiser.{name} is {values[name]!r}, expected a list of whole numbers")
                values[name] = tuple(values[name])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run."""

    name: str
    task: NoisyRegression
    spec: ModelSpec
    parametrisation: str
    layers: int
    heads: int = 1
    optimiser: Optimiser = field(default_factory=Optimiser)

    def __post_init__(self) -> None:
        require_name(self.name, "diag-l4-u5")
        require_counts("model", {"layers": self.layers, "heads": self.heads})
        if self.spec.tokens != (("x", self.task.dim), ("y", 1)):
            raise LayoutError(
                f"model.tokens is {list(self.spec.tokens)}, expected x: {self.task.dim} and y: 1 in this order"
            )
        if self.spec.readout.channel != "y":
            raise LayoutError(f"model.readout.channel is {self.spec.readout.channel!r}, expected 'y'")
        if self.spec.attention.keys == "causal" or self.spec.clip is not None:
            raise LayoutError(
                "model has causal keys or a clip, expected keys 'context' or 'all' and no clip: "
                "training runs on Gram matrices"
            )
        self.family()

    def with_seed(self, seed: int) -> Recipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    def family(self, name: str | None = None, heads: int | None = None) -> Parametrisation:
        """The recipe's parametrisation, or the one of that name and number of heads for the same task."""
        return parametrisation(
            name or self.parametrisation,
            dim=self.task.dim,
            heads=heads or self.heads,
            scale=self.spec.attention.factor(self.task.context),
            residual=1.0 if self.spec.residual else 0.0,
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Recipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        fields = parts(fields)
        task = task_of(fields["task"])
        canonical = ["tokens", "attention", "residual", "readout"]
        model = table(fields["model"], "model", ["parametrisation", "layers", "heads", *canonical])
        model_field(model, "parametrisation", "layers")
        described = {key: model[key] for key in canonical if key in model}
        spec = ModelSpec.from_dict({"tokens": [["x", task.dim], ["y", 1]], **described, "task": task.to_dict()})
        return cls(
            name=fields["name"],
            task=task,
            spec=spec,
            parametrisation=model["parametrisation"],
            layers=model["layers"],
            heads=model.get("heads", 2 if model["parametrisation"] == "free" else 1),
            optimiser=Optimiser.from_dict(fields.get("optimiser", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        described = self.spec.to_dict()
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "model": {
                "parametrisation": self.parametrisation,
                "layers": self.layers,
                "heads": self.heads,
                **{key: described[key] for key in ("tokens", "attention", "residual", "readout")},
            },
            "optimiser": self.optimiser.to_dict(),
        }


def purpose_seed(*parts: int) -> int:
    """Distinct seeds for distinct purposes of one recipe."""
    value = 0
    for part in parts:
        value = value * 1009 + part + 1
    return value


_FOLDER = resources.files("interp.models.training.recipes")


def recipe_names() -> list[str]:
    """The recipes that ship."""
    return sorted(Path(entry.name).stem for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def load_recipe(source: str) -> Recipe | SequenceRecipe | CompletionRecipe | EmbeddedRecipe:
    """A recipe from a TOML file, or one that ships, by name. Its task says which kind it is.

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
    except ValueError as error:  # of TOML, and of whole numbers with thousands of digits
        raise UnreadableFile(f"{source} is not valid TOML: {error}") from None
    task = fields.get("task")
    kinds = {
        LinearDynamics.name: SequenceRecipe,
        MatrixCompletion.name: CompletionRecipe,
        SimpleRegression.name: EmbeddedRecipe,
    }
    kind = kinds.get(str(task.get("name")), Recipe) if isinstance(task, dict) else Recipe
    return kind.from_dict(fields)
