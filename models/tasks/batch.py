"""Batches of prompts as tensors that are cut and rounded together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from jaxtyping import Float
from torch import Tensor

__all__ = ["Batch"]

AnyBatch = TypeVar("AnyBatch", bound="Batch")


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts as tensors whose first axis counts them. ``given`` are those that the network is shown."""

    sigma: Float[Tensor, " prompt"]

    given: ClassVar[tuple[str, ...]]

    @property
    def count(self) -> int:
        return len(self.sigma)

    def rounded(self: AnyBatch) -> AnyBatch:
        """The same prompts in numbers that single precision holds exactly."""
        return dataclasses.replace(self, **{name: getattr(self, name).float().double() for name in self.given})

    def __getitem__(self: AnyBatch, index: slice | Tensor) -> AnyBatch:
        cut = {name: value[index] for name, value in vars(self).items() if isinstance(value, Tensor)}
        return dataclasses.replace(self, **cut)
