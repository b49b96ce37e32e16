"""What a network is asked to do, for a reader who has never seen the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.reports.findings import listed
from interp.reports.numbers import DASH

__all__ = ["task_in_words", "task_name"]

_SYSTEMS = {
    "orthogonal": "orthogonal, drawn anew for every sequence and never shown",
    "contracting": "a contraction, drawn anew for every sequence and never shown",
    "fixed": "the same for all sequences",
}


def task_name(task: Mapping[str, Any]) -> str:
    """``matrix completion`` for matrix_completion."""
    return str(task.get("name", "not named")).replace("_", " ")


def task_in_words(task: Mapping[str, Any]) -> str:
    """One or two sentences; empty for a task that is not known."""
    words = {
        "noisy_regression": _regression,
        "simple_regression": _line,
        "linear_dynamics": _dynamics,
        "matrix_completion": _completion,
    }.get(str(task.get("name")))
    return "" if words is None else words(task)


def _noise(task: Mapping[str, Any]) -> str:
    """What is said of the size sigma of the noise, or nothing."""
    law = task.get("noise")
    kind, level = next(iter(law.items()), ("", "")) if isinstance(law, Mapping) else ("", "")
    levels = [_level(v) for v in level] or [DASH] if isinstance(level, (list, tuple)) else [_level(level)]
    return {
        "uniform": f"differs from prompt to prompt, between {listed(levels, most=2)}",
        "choice": f"is one of {listed(levels, most=8)}",
        "fixed": "" if levels[0] == "0" else f"is {levels[0]}",
    }.get(str(kind), "")


def _level(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _regression(task: Mapping[str, Any]) -> str:
    noise = _noise(task)
    labels = "y = ⟨w, x⟩" if task.get("noise") == {"fixed": 0} else "y = ⟨w, x⟩ + noise"
    return (
        f"To predict ⟨w, x⟩ for a new x from {task.get('context', DASH)} examples (x, y) in the prompt, {labels}. x "
        f"has {task.get('dim', DASH)} numbers; w is drawn anew for every prompt and never shown."
        + (f" The size σ of the noise {noise}." if noise else "")
    )


def _line(task: Mapping[str, Any]) -> str:
    noise = _noise(task)
    return (
        f"To predict what the least-squares line through {task.get('context', DASH)} examples (x, y) in the prompt "
        "says at a new x; x and y are single numbers. The line, and where and how wide the x lie, are drawn anew for "
        "every prompt." + (f" The size σ of the noise on y {noise}." if noise else "")
    )


def _dynamics(task: Mapping[str, Any]) -> str:
    system = _SYSTEMS.get(str(task.get("dynamics")), "not known to the network")
    return (
        "To predict, at every token, the next state of a system that moves by one matrix, s' = W s + noise, "
        f"from the states so far. A sequence has {task.get('context', DASH)} states of {task.get('dim', DASH)} "
        f"numbers; W is {system}."
    )


def _completion(task: Mapping[str, Any]) -> str:
    rows, columns = task.get("context", DASH), task.get("dim", DASH)
    return (
        f"To fill in the hidden block D of a matrix of rows (A, C) and (B, D), from A ({rows} x {columns}), "
        f"B ({task.get('queries', DASH)} rows) and C ({task.get('outputs', DASH)} columns). The rows are the tokens; "
        "the matrix is drawn anew for every prompt."
    )
