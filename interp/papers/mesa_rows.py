"""One row of a table of the paper's figures and ours."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.identify.sequence_identification import Subject, open_causal
from interp.models.tasks import DynamicsPrompts

__all__ = ["MISSING", "half_errors", "row", "subject_of"]

MISSING = "skipped, because no such model ships yet"
FEWEST = 64


def row(
    name: str, paper: float | None, ours: float | None, stderr: float | None, bar: float | None, **more: Any
) -> dict[str, Any]:
    """``bar``: the largest ratio to the paper's figure with which it counts as reproduced; None: it is not judged. A
    figure of ours that is missing says ``why``; without a reason it diverged, which is not within any bar."""
    ratio = ours / paper if paper is not None and ours is not None else None
    unjudged = bar is None or (ours is None and "why" in more)
    return {
        "cell": name,
        "paper": paper,
        "ours": ours,
        "stderr": stderr,
        "ratio": ratio,
        "ratio_stderr": stderr / paper if paper is not None and stderr is not None else None,
        "within_bar": None if unjudged else ratio is not None and bar is not None and ratio <= bar,
        **more,
    }


def subject_of(name: str) -> Subject | None:
    """A shipped network, if it ships."""
    return open_causal(open_checkpoint(f"zoo:{name}"), FEWEST) if name in zoo_names() else None


def half_errors(prediction: Tensor, drawn: DynamicsPrompts) -> Tensor:
    """Half the squared error of every sequence, summed over coordinates, mean over positions."""
    return 0.5 * (prediction - drawn.target).square().sum(-1).mean(1)
