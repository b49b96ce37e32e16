"""Tasks: where prompts come from, and the best that can be done on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.models.errors import LayoutError, did_you_mean
from interp.models.tasks.linear_dynamics import DynamicsPrompts, LinearDynamics
from interp.models.tasks.matrix_completion import CompletionPrompts, KernelLaw, MatrixCompletion, nystrom
from interp.models.tasks.noisy_regression import GramPrompts, NoiseLaw, NoisyRegression, RegressionPrompts
from interp.models.tasks.simple_regression import LeastSquares, SimplePrompts, SimpleRegression

__all__ = [
    "TASKS",
    "CompletionPrompts",
    "ContextPrompts",
    "ContextTask",
    "DynamicsPrompts",
    "GramPrompts",
    "KernelLaw",
    "LeastSquares",
    "LinearDynamics",
    "MatrixCompletion",
    "NoiseLaw",
    "NoisyRegression",
    "RegressionPrompts",
    "SimplePrompts",
    "SimpleRegression",
    "any_task_from_dict",
    "nystrom",
    "shared_key_task",
    "task_from_dict",
]

TASKS = {task.name: task for task in (NoisyRegression, LinearDynamics, SimpleRegression, MatrixCompletion)}

ContextTask = NoisyRegression | MatrixCompletion  # prompts are context tokens and queries
ContextPrompts = RegressionPrompts | CompletionPrompts
AnyTask = NoisyRegression | LinearDynamics | SimpleRegression | MatrixCompletion


def any_task_from_dict(fields: Mapping[str, Any] | None) -> AnyTask:
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
            f"task.name is {task.name!r}, expected {NoisyRegression.name!r}; interp-probe inspect shows what the "
            f"file holds, and interp-probe probe reads {LinearDynamics.name!r}"
        )
    return task


def shared_key_task(fields: Mapping[str, Any] | None) -> ContextTask:
    """The same where prompts have a context and queries, and any number of labels, will do."""
    task = any_task_from_dict(fields)
    if not isinstance(task, (NoisyRegression, MatrixCompletion)):
        raise LayoutError(
            f"task.name is {task.name!r}, expected {NoisyRegression.name!r} or {MatrixCompletion.name!r}; interp-probe "
            f"inspect shows what the file holds, and interp-probe probe reads {LinearDynamics.name!r}"
        )
    return task
