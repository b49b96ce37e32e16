"""Tasks: where prompts come from, and the best that can be done on them. The only room that knows which task it is."""

from interp.models.tasks.linear_dynamics import DynamicsPrompts, LinearDynamics
from interp.models.tasks.matrix_completion import CompletionPrompts, MatrixCompletion, nystrom
from interp.models.tasks.noise import NoiseLaw
from interp.models.tasks.noisy_regression import NoisyRegression, RegressionPrompts
from interp.models.tasks.protocol import (
    Blocks,
    BlocksTask,
    Examples,
    LinearExamples,
    LinearTask,
    LinePrompts,
    Noisy,
    Prefixes,
    Prompts,
    References,
    States,
    StatesTask,
    Task,
    Variation,
    Words,
)
from interp.models.tasks.registry import TASKS, register_task, task_of
from interp.models.tasks.simple_regression import SimplePrompts, SimpleRegression
from interp.models.tasks.target import KINDS, Target
from interp.models.tasks.targets import find_targets, register_target, target_names, targets_of

__all__ = [
    "KINDS",
    "TASKS",
    "Blocks",
    "BlocksTask",
    "CompletionPrompts",
    "DynamicsPrompts",
    "Examples",
    "LinePrompts",
    "LinearDynamics",
    "LinearExamples",
    "LinearTask",
    "MatrixCompletion",
    "NoiseLaw",
    "Noisy",
    "NoisyRegression",
    "Prefixes",
    "Prompts",
    "References",
    "RegressionPrompts",
    "SimplePrompts",
    "SimpleRegression",
    "States",
    "StatesTask",
    "Target",
    "Task",
    "Variation",
    "Words",
    "find_targets",
    "nystrom",
    "register_target",
    "register_task",
    "target_names",
    "targets_of",
    "task_of",
]
