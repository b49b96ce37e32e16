"""Where the network stands after every layer, and how closely the families follow it there."""

from __future__ import annotations

from interp.evidence.question import Answer, question
from interp.identify.choose import Choice
from interp.identify.run import Run
from interp.results import CourseRow

__all__ = ["course"]


@question("course", brief=True)
def course(choice: Choice, run: Run) -> Answer | None:
    """The R^2 of each family's read-outs, fitted to the trajectory, after every layer."""
    followed = choice.statements.courses
    rows = tuple(
        CourseRow(family=name, layer=layer, r2=r2, r2_ci=interval)
        for name, found in followed.items()
        for layer, (r2, interval) in enumerate(zip(found.r2, found.intervals, strict=True))
        if abs(r2) != float("inf")
    )
    return Answer(fields={"evidence.course": rows}) if rows else None
