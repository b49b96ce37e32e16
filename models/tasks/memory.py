"""How many prompts a task can be asked for at a time."""

from __future__ import annotations

from interp.errors import LayoutError, UsageError
from interp.models.tasks.protocol import Task

__all__ = ["MEMORY", "require_affordable"]

MEMORY = 8 * 2**30  # bytes that the prompts of one sample may take


def require_affordable(task: Task, count: int) -> None:
    """Raise UsageError for no prompt or more than fit in memory, LayoutError when a single one is too large."""
    counts = {key: getattr(task, key, None) for key in ("context", "dim")}
    size = " and ".join(f"task.{key} {value}" for key, value in counts.items() if value is not None)
    limit, most = MEMORY // 2**30, task.most_prompts
    if count < 1:
        raise UsageError(f"asked for {count} prompts, expected 1 or more")
    if most < 1:
        raise LayoutError(f"a single prompt of {size} takes more than {limit} GiB, expected a smaller task")
    if count > most:
        raise UsageError(
            f"asked for {count} prompts of {size}, which take more than {limit} GiB; expected {most} or fewer"
        )
