"""Half of the prompts with what the network predicts on them, and what all kinds of networks offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.identify.score import EXPLODED, Score, bootstrap_fidelity
from interp.models.skipped import Skipped
from interp.models.tasks import Task
from interp.models.transformer import LinearTransformer

__all__ = ["Half", "Network"]


@dataclass(frozen=True, eq=False)
class Half:
    """``held`` is the read-out of the tokens as they enter, which a fidelity leaves out where the tokens start with a
    guess; prompts count in it by ``weight``."""

    drawn: Any
    prediction: Float[Tensor, "prompt output"]
    held: Float[Tensor, "prompt output"]
    weight: Float[Tensor, " prompt"]

    @property
    def added(self) -> Float[Tensor, "prompt output"]:
        """What the network adds to what the tokens hold."""
        return self.prediction - self.held

    def score(self, prediction: Float[Tensor, "prompt output"], seed: int) -> Score:
        """R^2 of another prediction's additions against the network's, resampling prompts."""
        return bootstrap_fidelity(prediction - self.held, self.added, seed, self.weight, EXPLODED)


H = TypeVar("H", bound=Half, covariant=True)


@dataclass(frozen=True, eq=False)
class Network(ABC, Generic[H]):
    """A network run on half of the prompts to fit to, and on the other half to score on. ``notes`` say what was left
    out, for people; ``skipped`` why no pass but the one token by token describes it."""

    model: LinearTransformer
    task: Task
    fitted: H
    held_out: H
    notes: tuple[str, ...] = ()
    skipped: Skipped | None = None

    @cached_property
    def judged(self) -> Half:
        """What fits are scored on: prompts that nothing was fitted to, as many as can be had cheaply."""
        return self.held_out

    @abstractmethod
    def usable(self, prompts: Any) -> Bool[Tensor, " prompt"]:
        """On which prompts the network is what it is described as."""

    @abstractmethod
    def readouts(self, prompts: Any) -> Mapping[str, Float[Tensor, "prompt output"]]:
        """The prediction, "network", and where tokens have a read-out after every layer, "layer-0" (the input) on."""

    def held(self, readouts: Mapping[str, Tensor]) -> Float[Tensor, "prompt output"]:
        """Of these ``readouts``, what the tokens hold before the first layer and a fidelity leaves out."""
        return torch.zeros_like(readouts["network"])

    @abstractmethod
    def loss_prompts(self, prompts: int) -> int:
        """How many prompts a table of losses is taken over."""

    @property
    def chunk(self) -> int:
        """How many prompts are run at a time."""
        return self.task.most_prompts
