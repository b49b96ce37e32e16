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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.models.errors import LayoutError
from interp.models.numbers import as_float, is_number
from interp.models.specification import ModelSpec
from interp.models.tasks.simple_regression import CHANNELS, SimpleRegression
from interp.models.training.fields import parts, require_counts, require_name, require_seed, table

__all__ = ["EmbeddedOptimiser", "EmbeddedRecipe"]

REAL = ("initial_std", "rate", "l1")


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
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        require_seed(values.pop("seed"))
        for name in REAL:
            value = values.pop(name)
            if not is_number(value) or value < 0:
                raise LayoutError(f"optimiser.{name} is {value!r}, expected a finite number of 0 or more")
        require_counts("optimiser", {"evaluation_prompts": values.pop("evaluation_prompts")}, least=2)  # for an error
        require_counts("optimiser", values)

    @classmethod
    def from_dict(cls, fields: object) -> EmbeddedOptimiser:
        given = table(fields, "optimiser", [entry.name for entry in dataclasses.fields(cls)])
        return cls(**{key: as_float(value) if key in REAL else value for key, value in given.items()})


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
        require_name(self.name, "closed-form-context")
        require_counts("model", {"layers": self.layers, "heads": self.heads})

    def with_seed(self, seed: int) -> EmbeddedRecipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbeddedRecipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        fields = parts(fields)
        task = SimpleRegression.from_dict(fields["task"])
        model = table(fields["model"], "model", ["layers", "heads", "width", "attention", "layernorm"])
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
        return cls(
            name=fields["name"],
            task=task,
            spec=spec,
            optimiser=EmbeddedOptimiser.from_dict(fields.get("optimiser", {})),
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
