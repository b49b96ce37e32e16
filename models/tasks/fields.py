"""Tasks whose dataclass fields are those of a checkpoint, all read alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.layers.registry import read_table
from interp.models.numbers import as_float
from interp.models.skipped import Skipped
from interp.models.tasks.noise import NoiseLaw
from interp.models.tasks.protocol import Prompts, Task, Variation
from interp.models.tasks.target import Target

__all__ = ["TaskFields", "variations_of"]

AnyTask = TypeVar("AnyTask", bound="TaskFields")


@dataclass(frozen=True, kw_only=True)
class TaskFields:
    """A task whose dataclass fields are those of the checkpoint; its error is squared, and it tells by itself."""

    name: ClassVar[str]
    always: ClassVar[tuple[str, ...]] = ("noise",)

    @classmethod
    def read(
        cls, fields: Mapping[str, Any], needed: Sequence[str], floats: Sequence[str] = (), short_noise: bool = False
    ) -> dict[str, Any]:
        """What is given of the dataclass fields. With ``short_noise`` a number s stands for {"fixed": s}.

        Raises LayoutError for a field that is unknown or missing, and for noise that is no law.
        """
        known = [entry.name for entry in dataclasses.fields(cls)]
        read_table(fields, "task", ["name", *known])
        for key in needed:
            if key not in fields:
                words = " and ".join((", ".join(needed[:-1]), needed[-1])) if needed[1:] else "one"
                raise LayoutError(f"the task has no {key!r}, expected {words} for {cls.name}")
        given: dict[str, Any] = {key: fields[key] for key in known if key in needed or fields.get(key) is not None}
        given |= {key: as_float(given[key]) for key in floats if key in given}
        if "noise" in given:
            noise: Any = given["noise"]
            short = short_noise and isinstance(noise, (int, float)) and not isinstance(noise, bool)
            law: Any = {"fixed": noise} if short else noise
            given["noise"] = NoiseLaw.from_dict(law)
        return given

    def to_dict(self) -> dict[str, Any]:
        """The fields of the checkpoint: those that are ``always`` written, and what differs from its default."""
        out: dict[str, Any] = {"name": self.name}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.name in self.always or value != entry.default:
                out[entry.name] = value.to_dict() if hasattr(value, "to_dict") else _listed(value)
        return out

    def telling(self: AnyTask) -> AnyTask:
        return self

    def errors(self, prediction: Float[Tensor, "prompt output"], prompts: Prompts) -> Float[Tensor, "prompt position"]:
        """The squared error of every prompt, averaged over its outputs."""
        return (prediction - prompts.target.flatten(1)).square().mean(1, keepdim=True)

    def targets(self) -> tuple[Target, ...]:
        return ()


def _listed(value: Any) -> Any:
    """Tuples, and those within them, as lists of a document."""
    return [_listed(entry) for entry in value] if isinstance(value, tuple) else value


def variations_of(task: Task, rows: Mapping[str, tuple[str, Task | Skipped]]) -> dict[str, Variation]:
    """The task itself, then what varies one thing: its label and the task that it makes, by name."""
    every = {"task": ("as trained", task), **rows}
    return {name: Variation(label=label, task=varied) for name, (label, varied) in every.items()}
