"""Recipes of embedded networks on simple regression: a TOML file with the same parts as any recipe.

name = "closed-form-context"
[task]
name = "simple_regression"
context = 20
[model]
layers = 2
heads = 2
width = 4                    of the embedded tokens
attention = { keys = "context", scale = "1/n" }     optional, as is layernorm (fields of a checkpoint)
[optimiser]                  every field optional, see ``EmbeddedOptimiser``
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.models.errors import LayoutError, did_you_mean
from interp.models.specification import ModelSpec
from interp.models.tasks.simple_regression import CHANNELS, SimpleRegression

__all__ = ["EmbeddedOptimiser", "EmbeddedRecipe"]


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptimiser:
    """How the weights are found: see ``interp.models.training.embedded``."""

    seed: int = 0
    seeds: int = 12  # networks trained from random weights, of which the best is kept
    initial_std: float = 0.5
    steps: int = 4000  # of Adam
    rate: float = 0.01
    batch: int = 128
    l1: float = 1e-5
    polish_prompts: int = 3072
    polish_iterations: int = 150
    prune_iterations: int = 12  # after every round of pruning
    evaluation_prompts: int = 65_536

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value, name = getattr(self, entry.name), f"optimiser.{entry.name}"
            whole = isinstance(value, int) and not isinstance(value, bool)
            if entry.name == "seed":
                if not whole or not 0 <= value < 2**32:
                    raise LayoutError(f"{name} is {value!r}, expected a whole number from 0 to 2^32 - 1")
            elif entry.name in ("initial_std", "rate", "l1"):
                if not isinstance(value, float) or not math.isfinite(value) or value < 0:
                    raise LayoutError(f"{name} is {value!r}, expected a finite number of 0 or more")
            elif not whole or value < 1:
                raise LayoutError(f"{name} is {value!r}, expected a whole number of 1 or more")


@dataclass(frozen=True, kw_only=True)
class EmbeddedRecipe:
    """One training run of several seeds."""

    name: str
    task: SimpleRegression
    spec: ModelSpec
    layers: int = 2
    heads: int = 2
    optimiser: EmbeddedOptimiser = field(default_factory=EmbeddedOptimiser)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise LayoutError(f"the recipe's name is {self.name!r}, expected a word such as 'closed-form-context'")
        for name in ("layers", "heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LayoutError(f"model.{name} is {value!r}, expected a whole number of 1 or more")

    def with_seed(self, seed: int) -> EmbeddedRecipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbeddedRecipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        fields = _table(fields, "the recipe", ["name", "task", "model", "optimiser"])
        for key in ("name", "task", "model"):
            if key not in fields:
                raise LayoutError(f"the recipe has no {key!r}, expected name, [task] and [model]")
        task = SimpleRegression.from_dict(fields["task"])
        model = _table(fields["model"], "model", ["layers", "heads", "width", "attention", "layernorm"])
        spec = ModelSpec.from_dict(
            {
                "tokens": CHANNELS,
                "attention": model.get("attention", {"keys": "context", "scale": "1/n"}),
                "readout": {"channel": "y", "sign": 1, "flat": True},
                "embedding": model.get("width", 4),
                "layernorm": model.get("layernorm", {}),
                "task": task.to_dict(),
            }
        )
        known = [entry.name for entry in dataclasses.fields(EmbeddedOptimiser)]
        return cls(
            name=fields["name"],
            task=task,
            spec=spec,
            optimiser=EmbeddedOptimiser(**_table(fields.get("optimiser", {}), "optimiser", known)),
            **{key: model[key] for key in ("layers", "heads") if key in model},
        )

    def to_dict(self) -> dict[str, Any]:
        described = self.spec.to_dict()
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "model": {
                "layers": self.layers,
                "heads": self.heads,
                "width": self.spec.stream,
                **{key: described[key] for key in ("attention", "layernorm") if key in described},
            },
            "optimiser": dataclasses.asdict(self.optimiser),
        }


def _table(fields: object, where: str, known: list[str]) -> dict[str, Any]:
    if not isinstance(fields, Mapping):
        raise LayoutError(f"{where} is {fields!r}, expected a table")
    for key in fields:
        if key not in known:
            raise LayoutError(f"unknown field {where}.{key}; {did_you_mean(str(key), known)}")
    return dict(fields)
