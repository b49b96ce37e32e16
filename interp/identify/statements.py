"""Three statements about a network, never mixed up: its mechanism, its course and its function.

    mechanism   what each layer does: the family's layer stands in for the network's, and the weights hold little else
    course      where it stands after every layer: the family, fitted to the trajectory, has all read-outs
    function    what the whole predicts: the smallest family that predicts the same

A network can be simple in one and not in another. The verdict is the strongest statement that holds, and ``level`` says
which it is. A family that claims to descend is only said of steps that do.

Every score has an interval, and the statements are read at its ends too. Where another family would be named there, it
is a rival that these prompts do not tell apart, and the larger of the two is named; where only the level would fall,
the lower one is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Literal

from interp.identify.course import CourseFit
from interp.identify.family import Fit
from interp.identify.mechanism import Mechanism
from interp.identify.score import Score

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
    smallest family that predicts the same. ``courses``: what was followed, by family. ``rivals``: other families that
    these prompts do not tell from the chosen one, or with none chosen, that may yet hold."""

    chosen: Fit | None
    level: Level | None
    function: Fit | None
    courses: Mapping[str, CourseFit] = field(default_factory=dict)
    rivals: tuple[Fit, ...] = ()


NOTHING = Statements(chosen=None, level=None, function=None)


def state(run: Run, fits: Sequence[Fit], smallest: Callable[[int, int], Fit | None]) -> Statements:
    """``smallest`` gives the smallest fit that predicts what the network predicts, with scores, and what larger
    families gain, read at an end of their intervals: -1, 0 or 1."""
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
    reading = _Reading(run, fits, ordered, courses, smallest)
    level, chosen = reading.at(0, 0)
    rivals: dict[str, Fit] = {}
    for at_end, fit in (reading.at(*ends) for ends in product((-1, 1), repeat=2)):
        if _name(fit) == _name(chosen):
            level = LEVELS[min(LEVELS.index(level), LEVELS.index(at_end))]
        elif fit is not None and chosen is not None and fit.parameters > chosen.parameters:
            rivals[chosen.family.name] = chosen
            level, chosen = at_end, fit
        elif fit is None and chosen is not None:
            rivals[chosen.family.name] = chosen
            level, chosen = None, None
        elif fit is not None:
            rivals[fit.family.name] = fit
    return Statements(
        chosen=chosen, level=level, function=reading.function(0, 0), courses=courses,
        rivals=tuple(fit for name, fit in rivals.items() if name != _name(chosen)),
    )  # fmt: skip


LEVELS: tuple[Level | None, ...] = (None, "as-a-whole", "step-by-step", "layer-by-layer")


def _name(fit: Fit | None) -> str | None:
    return None if fit is None else fit.family.name


class _Reading:
    """The statements, read at an end of the intervals: of scores, and of what a larger family gains."""

    def __init__(
        self,
        run: Run,
        fits: Sequence[Fit],
        ordered: Sequence[Fit],
        courses: Mapping[str, CourseFit],
        smallest: Callable[[int, int], Fit | None],
    ) -> None:
        self.run, self.fits, self.courses = run, fits, courses
        exact = [fit for fit in ordered if 1.0 - courses[fit.family.name].worst < EXACT]
        self.followed, self.ordered = ordered, exact or ordered  # beside one that is the network, no other is
        self.smallest = smallest
        self.function = cache(self._function)
        self.following = cache(self._following)
        self.mechanism = cache(self._mechanism)

    def at(self, score: int, gain: int) -> tuple[Level | None, Fit | None]:
        function = self.function(score, gain)
        for level, fit in self._strongest(score, gain):
            if function is not None and function.family.name in fit.family.contains and function not in self.followed:
                continue  # the smaller one is not followed layer by layer, but is as good an account of the whole
            followed = self.following(fit, score)
            if followed is not None:
                return level, followed
        if function is None:
            return None, None
        # After one layer the whole is all there is.
        return "step-by-step" if self.run.model.layers == 1 else function.family.level, function

    def _function(self, score: int, gain: int) -> Fit | None:
        """The smallest one that predicts the same, by a name that its steps bear out."""
        fit = self.smallest(score, gain)
        if fit is None or fit.family.descends(fit, self.run, score):
            return fit
        return next((f for f in self.fits if f.family.name == fit.family.ascending and f.recognized), None)

    def _following(self, fit: Fit, score: int) -> Fit | None:
        """The fit with the numbers of its course; None where they do not descend as its name says."""
        followed = fit.family.following(fit, self.courses[fit.family.name], self.run)
        return followed if followed.family.descends(followed, self.run, score) else None

    def _mechanism(self, fit: Fit) -> Mechanism | None:
        return fit.family.mechanism(fit, self.run)

    def _strongest(self, score: int, gain: int) -> list[tuple[Level, Fit]]:
        out: list[tuple[Level, Fit]] = []
        for fit in self.ordered:
            found = self.mechanism(fit)
            if found is not None and found.holds(score) and not self._surely_more(fit, self.ordered, gain):
                out.append(("layer-by-layer", fit))
                break
        path = [fit for fit in self.ordered if self._follows(fit, score)][:1]
        while path:
            following = next((f for f in self.ordered if f not in path and self._climbs(f, path[-1], gain)), None)
            if following is None:
                out.append(("step-by-step", path[-1]))
                break
            path.append(following)
        return out

    def _follows(self, fit: Fit, score: int) -> bool:
        course = self.courses[fit.family.name]
        scores = (Score(fidelity=r2, interval=ends) for r2, ends in zip(course.r2, course.intervals, strict=True))
        return all(found.reaches(FOLLOWS, score) for found in scores)

    def _climbs(self, fit: Fit, present: Fit, gain: int) -> bool:
        if fit.parameters < present.parameters:
            return False
        return self._better(fit, present, gain) or self._surely_more(present, [fit], gain)

    def _better(self, fit: Fit, present: Fit, gain: int) -> bool:
        """Whether it follows materially better: exactly, or by more than its worth at the worst layer."""
        one, other = self.courses[fit.family.name], self.courses[present.family.name]
        exactly = 1.0 - one.worst < EXACT <= 1.0 - other.worst
        return exactly or one.gain(other, gain) > max(WORTH, fit.family.worth)

    def _surely_more(self, fit: Fit, larger: Sequence[Fit], gain: int) -> bool:
        """Whether a family that contains this one follows materially better, or has a coefficient more that is surely
        there."""
        return any(
            self._better(other, fit, gain) or other.family.beyond(other, self.courses[other.family.name], fit, self.run)
            for other in larger
            if fit.family.name in other.family.contains
        )
