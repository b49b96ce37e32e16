"""Recipes of causal models of linear dynamics: a TOML file with the same parts as any recipe.

name = "lsa-2"
[task]
name = "linear_dynamics"
dim = 10
context = 50
[model]
layers = 2
heads = 4
key = 20                     optional: the size of keys in a stage that moves "factors"
clip = 4.0                   optional, as are tokens, attention, residual and readout (fields of a checkpoint)
[optimiser]
seed = 0
initial_std = 0.02
stages = [{ weights = "block", steps = 1000, rate = 0.01, batch = 64 },
          { weights = "products", steps = 500, rate = 0.0003 }]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp.models.errors import LayoutError
from interp.models.numbers import is_number
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics
from interp.models.training.fields import (
    model_field,
    parts,
    require_counts,
    require_known,
    require_name,
    require_positive,
    require_seed,
    table,
)
from interp.models.training.sequences import WEIGHTS, Stage

__all__ = ["SequenceOptimiser", "SequenceRecipe"]

CHANNELS = {
    3: ("out", "state", "previous"),
    4: ("out", "query", "state", "previous"),
}
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True, kw_only=True)
class SequenceOptimiser:
    """How the weights are found: see ``interp.models.training.sequences``."""

    stages: tuple[Stage, ...]
    seed: int = 0
    initial_std: float = 0.02
    evaluation_prompts: int = 10_000

    def __post_init__(self) -> None:
        if not self.stages:
            raise LayoutError("optimiser.stages is empty, expected one stage or more")
        require_seed(self.seed)
        require_positive("optimiser.initial_std", self.initial_std)
        require_counts("optimiser", {"evaluation_prompts": self.evaluation_prompts}, least=2)  # for a standard error
        for index, stage in enumerate(self.stages):
            where = f"optimiser.stages[{index}]"
            require_known(stage.weights, WEIGHTS, f"{where}.weights is {stage.weights!r}")
            require_known(stage.schedule, SCHEDULES, f"{where}.schedule is {stage.schedule!r}")
            require_counts(where, {"steps": stage.steps, "batch": stage.batch})
            require_positive(f"{where}.rate", stage.rate)
            if stage.layers is not None:
                require_counts(where, {"layers": stage.layers})
            if not is_number(stage.weight_decay) or stage.weight_decay < 0:
                raise LayoutError(f"{where}.weight_decay is {stage.weight_decay!r}, expected a number of 0 or more")
            if index and stage.weights == "factors":
                raise LayoutError(
                    f'{where}.weights is "factors", expected "products" or "block": what an earlier stage has reached '
                    f"is Q and P"
                )

    @classmethod
    def from_dict(cls, fields: object) -> SequenceOptimiser:
        values = table(fields, "optimiser", [f.name for f in dataclasses.fields(cls)])
        listed = values.get("stages")
        if not isinstance(listed, (list, tuple)):
            raise LayoutError(f"optimiser.stages is {listed!r}, expected a list of tables")
        names = [f.name for f in dataclasses.fields(Stage)]
        stages = []
        for index, entry in enumerate(listed):
            stage = table(entry, f"optimiser.stages[{index}]", names)
            for key in ("weights", "steps", "rate"):
                if key not in stage:
                    raise LayoutError(f"optimiser.stages[{index}] has no {key!r}")
            stages.append(Stage(**stage))
        return cls(**{**values, "stages": tuple(stages)})

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "stages": [_fields(stage) for stage in self.stages]}


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe:
    """One training run of a causal model."""

    name: str
    task: LinearDynamics
    spec: ModelSpec
    layers: int
    optimiser: SequenceOptimiser
    heads: int = 1
    key: int = 20

    def __post_init__(self) -> None:
        require_name(self.name, "lsa-2")
        require_counts("model", {"layers": self.layers, "heads": self.heads, "key": self.key})
        if self.spec.attention.keys != "causal":
            raise LayoutError(f"model.attention.keys is {self.spec.attention.keys!r}, expected 'causal'")
        depths = [stage.layers or self.layers for stage in self.optimiser.stages]
        if depths != sorted(depths) or depths[-1] != self.layers:
            raise LayoutError(
                f"the stages have {depths} layers, expected never fewer than before and model.layers = {self.layers} "
                f"in the last"
            )
        self.task.sample(1, 0).inputs(self.spec)  # raises where the channels do not fit the task

    def with_seed(self, seed: int) -> SequenceRecipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SequenceRecipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        fields = parts(fields, optional=())
        task = LinearDynamics.from_dict(fields["task"])
        canonical = ["tokens", "attention", "residual", "clip", "readout"]
        model = table(fields["model"], "model", ["layers", "heads", "key", *canonical])
        model_field(model, "layers")
        names = CHANNELS[len(task.tokens) if task.tokens is not None and len(task.tokens) in CHANNELS else 4]
        described = {
            "tokens": [[name, task.dim] for name in names],
            "attention": {"keys": "causal"},
            "readout": {"channel": "out", "sign": 1},
            **{key: model[key] for key in canonical if key in model},
        }
        return cls(
            name=fields["name"],
            task=task,
            spec=ModelSpec.from_dict({**described, "task": task.to_dict()}),
            optimiser=SequenceOptimiser.from_dict(fields["optimiser"]),
            **{key: model[key] for key in ("layers", "heads", "key") if key in model},
        )

    def to_dict(self) -> dict[str, Any]:
        described = self.spec.to_dict()
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "model": {
                "layers": self.layers,
                "heads": self.heads,
                "key": self.key,
                **{key: described[key] for key in ("tokens", "attention", "residual", "clip", "readout")},
            },
            "optimiser": self.optimiser.to_dict(),
        }


def _fields(stage: Stage) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(stage).items() if value is not None}
