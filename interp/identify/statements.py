"""Three statements about a network, never mixed up: its mechanism, its course and its function.

    mechanism   what each layer does: the family's layer stands in for the network's, and the weights hold little else
    course      where it stands after every layer: the family, fitted to the trajectory, has all read-outs
    function    what the whole predicts: the smallest family that predicts the same

A network can be simple in one and not in another. The verdict is the strongest statement that holds, and ``level`` says
which it is. A family that claims to descend is only said of steps that do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from interp.identify.course import CourseFit
from interp.identify.family import Fit

if TYPE_CHECKING:
    from interp.identify.run import Run

__all__ = ["NOTHING", "Level", "Statements", "state"]

FOLLOWS = 0.90  # R^2 after every layer, at the lower end of its interval, for a family to be the course
WORTH = 0.02  # gain at the worst layer for which a larger family is preferred
EXACT = 1e-9  # left after the worst layer: no larger family can add anything

Level = Literal["layer-by-layer", "step-by-step", "as-a-whole"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Statements:
    """``chosen`` is the fit of the strongest statement that holds, with the numbers that belong to it; ``function`` the
    smallest family that predicts the same. ``courses``: what was followed, by family."""

    chosen: Fit | None
    level: Level | None
    function: Fit | None
    courses: Mapping[str, CourseFit] = field(default_factory=dict)


NOTHING = Statements(chosen=None, level=None, function=None)


def state(run: Run, fits: Sequence[Fit], function: Fit | None) -> Statements:
    """``function`` is the smallest fit that predicts what the network predicts."""
    courses: dict[str, CourseFit] = {}
    ordered: list[Fit] = []
    for fit in sorted(fits, key=lambda fit: fit.parameters):
        course = fit.family.course(fit, run)
        if course is None:
            continue
        ordered.append(fit)
        courses[fit.family.name] = course
        if 1.0 - course.worst < EXACT:
            break
    if function is not None and not function.family.descends(function, run):
        function = next((f for f in fits if f.family.name == function.family.ascending and f.recognized), None)
    for level, fit in _strongest(run, ordered, courses):
        if function is not None and function.family.name in fit.family.contains and function not in ordered:
            continue  # the smaller one is not followed layer by layer, but is as good an account of the whole
        followed = fit.family.following(fit, courses[fit.family.name], run)
        if followed.family.descends(followed, run):
            return Statements(chosen=followed, level=level, function=function, courses=courses)
    level: Level | None = None
    if function is not None:  # after one layer the whole is all there is
        level = "step-by-step" if run.model.layers == 1 else function.family.level
    return Statements(chosen=function, level=level, function=function, courses=courses)


def _strongest(run: Run, ordered: Sequence[Fit], courses: Mapping[str, CourseFit]) -> list[tuple[Level, Fit]]:
    exact = [fit for fit in ordered if 1.0 - courses[fit.family.name].worst < EXACT]
    ordered = exact or ordered  # beside one that is the network, no other is
    out: list[tuple[Level, Fit]] = []
    for fit in ordered:
        found = fit.family.mechanism(fit, run)
        if found is not None and found.holds and not _surely_more(fit, ordered, courses, run):
            out.append(("layer-by-layer", fit))
            break
    path = [fit for fit in ordered if _follows(courses[fit.family.name])][:1]
    while path:
        following = next((f for f in ordered if f not in path and _climbs(f, path[-1], courses, run)), None)
        if following is None:
            out.append(("step-by-step", path[-1]))
            break
        path.append(following)
    return out


def _follows(course: CourseFit) -> bool:
    return all(
        (low if low is not None else r2) >= FOLLOWS for r2, (low, _) in zip(course.r2, course.intervals, strict=True)
    )


def _climbs(fit: Fit, present: Fit, courses: Mapping[str, CourseFit], run: Run) -> bool:
    if fit.parameters < present.parameters:
        return False
    return _better(fit, present, courses) or _surely_more(present, [fit], courses, run)


def _better(fit: Fit, present: Fit, courses: Mapping[str, CourseFit]) -> bool:
    """Whether it follows materially better: exactly, or by more than its worth at the worst layer."""
    one, other = courses[fit.family.name].worst, courses[present.family.name].worst
    return 1.0 - one < EXACT <= 1.0 - other or one - other > max(WORTH, fit.family.worth)


def _surely_more(fit: Fit, larger: Sequence[Fit], courses: Mapping[str, CourseFit], run: Run) -> bool:
    """Whether a family that contains this one follows materially better, or has a coefficient more that is surely
    there."""
    return any(
        _better(other, fit, courses) or other.family.beyond(other, courses[other.family.name], fit, run)
        for other in larger
        if fit.family.name in other.family.contains
    )
