"""The tables of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from interp.models.rules import COUNT, EVALUATED, SEED, Table, ruled

__all__ = ["Model", "Optimiser"]


@dataclass(frozen=True, kw_only=True)
class Model(Table):
    """What [model] says."""

    title: ClassVar[str] = "model"
    layers: int = ruled(COUNT)


@dataclass(frozen=True, kw_only=True)
class Optimiser(Table):
    """What [optimiser] says: how hard to look. ``evaluation_prompts``: fresh ones, that the network is judged on."""

    title: ClassVar[str] = "optimiser"
    seed: int = ruled(SEED, 0)
    evaluation_prompts: int = ruled(EVALUATED, 65_536)
