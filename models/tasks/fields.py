"""Tasks whose dataclass fields are those of a checkpoint, all read alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError, did_you_mean
from interp.models.numbers import as_float
from interp.models.tasks.noise import NoiseLaw
from interp.models.tasks.protocol import Prompts
from interp.models.tasks.target import Target

__all__ = ["TaskFields", "require_known"]

AnyTask = TypeVar("AnyTask", bound="TaskFields")


@dataclass(frozen=True, kw_only=True)
class TaskFields:
    """A task whose dataclass fields are those of the checkpoint; its error is squared, and it tells by itself."""

    name: ClassVar[str]

    @classmethod
    def read(
        cls, fields: Mapping[str, Any], needed: Sequence[str], floats: Sequence[str] = (), short_noise: bool = False
    ) -> dict[str, Any]:
        """What is given of the dataclass fields. With ``short_noise`` a number s stands for {"fixed": s}.

        Raises LayoutError for a field that is unknown or missing, and for noise that is no law.
        """
        known = [entry.name for entry in dataclasses.fields(cls)]
        require_known(fields, "task", ["name", *known])
        for key in needed:
            if key not in fields:
                words = " and ".join((", ".join(needed[:-1]), needed[-1])) if needed[1:] else "one"
                raise LayoutError(f"the task has no {key!r}, expected {words} for {cls.name}")
        given: dict[str, Any] = {key: fields[key] for key in known if key in needed or fields.get(key) is not None}
        given |= {key: as_float(given[key]) for key in floats if key in given}
        if "noise" in given:
            level: Any = given["noise"]
            short = short_noise and isinstance(level, (int, float)) and not isinstance(level, bool)
            law: Any = {"fixed": level} if short else level
            given["noise"] = NoiseLaw.from_dict(law)
        return given

    def telling(self: AnyTask) -> AnyTask:
        return self

    def errors(self, prediction: Float[Tensor, "prompt output"], prompts: Prompts) -> Float[Tensor, "prompt position"]:
        """The squared error of every prompt, averaged over its outputs."""
        return (prediction - prompts.target.flatten(1)).square().mean(1, keepdim=True)

    def targets(self) -> tuple[Target, ...]:
        return ()


def require_known(fields: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
    """Raise LayoutError for a field of a table that is not among the ``known`` ones."""
    for key in fields:
        if key not in known:
            raise LayoutError(f"unknown field {where}.{key}; {did_you_mean(str(key), known)}")
