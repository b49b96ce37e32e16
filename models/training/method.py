"""How networks of a task are trained: one file a method, which registers itself under the name of its task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError, UsageError, did_you_mean
from interp.models.tasks import Task
from interp.models.training.fields import Model, Optimiser

if TYPE_CHECKING:
    from interp.models.training.journal import Journal
    from interp.models.training.recipe import Recipe

__all__ = ["METHODS", "Measure", "Method", "Outcome", "Step", "Watch", "Weights", "method_of", "register_method"]

Weights = Mapping[str, Tensor]  # by their names in the canonical checkpoint, Q and P among them


@dataclass(frozen=True, kw_only=True)
class Step:
    """One iteration of one part of a run, for people who watch; ``state`` is what the part would go on from."""

    name: str
    iteration: int
    loss: float
    state: Any = None


Watch = Callable[[Step], None]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a trained network is judged by: ``key`` in its provenance and in JSON, ``words`` for people."""

    key: str
    unit: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a search ends with. ``effort``: how much was done, by the name of what was counted; ``facts``: what else the
    provenance holds; ``others``: the networks that it was chosen from, the best first."""

    weights: Weights
    effort: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Outcome, ...] = ()


class Method(ABC):
    """What a recipe for a task may say, and what follows from it."""

    model: ClassVar[type[Model]]
    described: ClassVar[tuple[str, ...]] = ()  # the fields of a checkpoint that [model] may state, too
    optimiser: ClassVar[type[Optimiser]]
    measure: ClassVar[Measure]
    remedy: ClassVar[str]  # what to change in a recipe whose network is of no use

    @abstractmethod
    def defaults(self, task: Any, model: Any) -> dict[str, Any]:
        """The checkpoint's description of the model, where [model] does not state it."""

    def fits(self, recipe: Any) -> None:  # noqa: B027 - most methods have something to say, none has to
        """Raise LayoutError when the parts of a recipe, which is being made, contradict each other."""

    def recorded(self, recipe: Recipe) -> dict[str, Any]:
        """What has to be the same in a run that goes on from the record of another."""
        return recipe.to_dict()

    @abstractmethod
    def search(self, recipe: Recipe, journal: Journal) -> Outcome:
        """The network; the same recipe gives the same one, however often the run was interrupted."""

    @abstractmethod
    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        """The loss of each of ``evaluation_prompts`` fresh prompts, and what else they show, for the provenance."""


METHODS: dict[str, Method] = {}


def register_method(task: str, method: Method) -> None:
    """Train networks of the task of that name so. Raises UsageError when there is a method for it."""
    if task in METHODS:
        raise UsageError(f"a method to train networks of {task!r} is registered already")
    METHODS[task] = method


def method_of(task: Task) -> Method:
    """How networks of a task are trained. Raises LayoutError when nobody has said how."""
    if task.name not in METHODS:
        raise LayoutError(f"no method trains networks of task.name {task.name!r}; {did_you_mean(task.name, METHODS)}")
    return METHODS[task.name]
