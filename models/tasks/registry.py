"""Tasks by name. A task registers itself; nothing else has to know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from interp.errors import LayoutError, UsageError, did_you_mean
from interp.models.tasks.protocol import Task

__all__ = ["TASKS", "register_task", "task_of"]

TASKS: dict[str, type[Task]] = {}
AnyTask = TypeVar("AnyTask", bound=type)


def register_task(task: AnyTask) -> AnyTask:
    """Make a task known by its ``name``: the decorator of its class, which is a ``Task``. Raises UsageError when the
    name is taken.

    >>> from dataclasses import dataclass
    >>> from interp import register_task
    >>> from interp.models.tasks import NoisyRegression, task_of
    >>> @register_task
    ... @dataclass(frozen=True, kw_only=True)
    ... class Cubes(NoisyRegression):
    ...     name = "cubes"
    ...     def sample(self, count, seed):  # x (prompt, context, dim) and y (prompt, context) among others
    ...         prompts = super().sample(count, seed)
    ...         prompts.y.pow_(3)
    ...         return prompts
    >>> task_of({"name": "cubes", "dim": 2, "context": 5, "noise": {"fixed": 0}}).sample(3, seed=0).y.shape
    torch.Size([3, 5])
    """
    name = getattr(task, "name", None)
    if not isinstance(name, str) or TASKS.get(name, task).__qualname__ != task.__qualname__:
        raise UsageError(f"a task of the name {name!r} is registered already, or it has none; give it another")
    TASKS[name] = task
    return task


def task_of(fields: Mapping[str, Any] | None) -> Task:
    """The task that a checkpoint names. Raises LayoutError when there is none, or none that is known."""
    if fields is None:
        raise LayoutError(
            'the checkpoint names no task, so there are no prompts to run; add e.g. task = {"name": '
            '"noisy_regression", "dim": 10, "context": 20, "noise": {"uniform": [0, 5]}} in a --spec file'
        )
    name = fields.get("name")
    if not isinstance(name, str) or name not in TASKS:
        raise LayoutError(f"task.name is {name!r}; {did_you_mean(str(name), TASKS)}")
    return TASKS[name].from_dict(fields)
