"""Tasks: where prompts come from, and the best that can be done on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.models.errors import LayoutError, did_you_mean
from interp.models.tasks.linear_dynamics import DynamicsPrompts, LinearDynamics
from interp.models.tasks.noisy_regression import GramPrompts, NoiseLaw, NoisyRegression, RegressionPrompts

__all__ = [
    "TASKS",
    "DynamicsPrompts",
    "GramPrompts",
    "LinearDynamics",
    "NoiseLaw",
    "NoisyRegression",
    "RegressionPrompts",
    "any_task_from_dict",
    "task_from_dict",
]

TASKS = {NoisyRegression.name: NoisyRegression, LinearDynamics.name: LinearDynamics}


def any_task_from_dict(fields: Mapping[str, Any] | None) -> NoisyRegression | LinearDynamics:
    """The task a checkpoint names. Raises LayoutError when there is none, or none this version knows."""
    if fields is None:
        raise LayoutError(
            'the checkpoint names no task, so there are no prompts to run; add e.g. task = {"name": '
            '"noisy_regression", "dim": 10, "context": 20, "noise": {"uniform": [0, 5]}} in a --spec file'
        )
    name = fields.get("name")
    if name not in TASKS:
        raise LayoutError(f"task.name is {name!r}; {did_you_mean(str(name), TASKS)}")
    return TASKS[name].from_dict(fields)


def task_from_dict(fields: Mapping[str, Any] | None) -> NoisyRegression:
    """The same where only regression will do. Raises LayoutError for another task, too."""
    task = any_task_from_dict(fields)
    if not isinstance(task, NoisyRegression):
        raise LayoutError(
            f"task.name is {task.name!r}, expected {NoisyRegression.name!r}; other tasks can be inspected and probed "
            f"(interp-probe inspect, interp-probe probe)"
        )
    return task
