"""Tasks whose dataclass fields are those of a checkpoint, all read alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.layers.registry import read_table
from interp.models.rules import Table, plain
from interp.models.skipped import Skipped
from interp.models.tasks.protocol import Prompts, Task, Variation
from interp.models.tasks.target import Target

__all__ = ["TaskFields", "variations_of"]

AnyTask = TypeVar("AnyTask", bound="TaskFields")


@dataclass(frozen=True, kw_only=True)
class TaskFields(Table):
    """A task whose dataclass fields are those of the checkpoint; its error is squared, and it tells by itself."""

    name: ClassVar[str]
    title: ClassVar[str] = "task"
    always: ClassVar[tuple[str, ...]] = ("noise",)

    @classmethod
    def from_dict(cls: type[AnyTask], fields: Mapping[str, Any]) -> AnyTask:
        """Read the fields of a checkpoint's task. Raises LayoutError for one that is unknown, missing or wrong."""
        entries = {entry.name: entry for entry in dataclasses.fields(cls)}
        needed = [name for name, entry in entries.items() if entry.default is dataclasses.MISSING]
        read_table(fields, cls.title, ["name", *entries])
        for key in needed:
            if key not in fields:
                words = " and ".join((", ".join(needed[:-1]), needed[-1])) if needed[1:] else "one"
                raise LayoutError(f"the task has no {key!r}, expected {words} for {cls.name}")
        return cls.read({key: fields[key] for key in entries if key in needed or fields.get(key) is not None})

    def to_dict(self) -> dict[str, Any]:
        """The fields of the checkpoint: those that are ``always`` written, and what differs from its default."""
        values = {entry.name: (getattr(self, entry.name), entry.default) for entry in dataclasses.fields(self)}
        written = {key: plain(value) for key, (value, usual) in values.items() if key in self.always or value != usual}
        return {"name": self.name, **written}

    def telling(self: AnyTask) -> AnyTask:
        return self

    def errors(self, prediction: Float[Tensor, "prompt output"], prompts: Prompts) -> Float[Tensor, "prompt position"]:
        """The squared error of every prompt, averaged over its outputs."""
        return (prediction - prompts.target.flatten(1)).square().mean(1, keepdim=True)

    def targets(self) -> tuple[Target, ...]:
        return ()


def variations_of(task: Task, rows: Mapping[str, tuple[str, Task | Skipped]]) -> dict[str, Variation]:
    """The task itself, then what varies one thing: its label and the task that it makes, by name."""
    every = {"task": ("as trained", task), **rows}
    return {name: Variation(label=label, task=varied) for name, (label, varied) in every.items()}
