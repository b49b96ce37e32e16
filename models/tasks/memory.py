"""How many prompts a task can be asked for at a time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from interp.errors import LayoutError, UsageError

__all__ = ["MEMORY", "Sized", "require_affordable"]

MEMORY = 8 * 2**30  # bytes that the prompts of one sample may take


@runtime_checkable
class Sized(Protocol):
    """A task, some of whose counts say how large a prompt is."""

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in ``MEMORY``, in float64 and with temporaries. 0: not one."""
        ...


def require_affordable(task: Sized, count: int) -> None:
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
