"""What a question is: something asked of a network and of what was recovered from it, answered once it is identified.

A question is a function in a file of its own, which ``@question`` registers:

    @question("stress")
    def stress(choice: Choice, run: Run) -> Answer | Section | Skipped: ...

A ``Section`` is printed as it is. An ``Answer`` fills fields of the result, which ``interp.reports`` prints. None: the
question does not concern networks of this kind; ``Skipped``: it does, but could not be answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.errors import UsageError
from interp.identify.choose import Choice
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.probes.interventions import with_error
from interp.results import Section

__all__ = ["QUESTIONS", "Answer", "Question", "finite", "question", "with_error"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``fields`` of ``Analysis`` by name, "evidence.…" those of its ``Evidence``; ``skipped`` parts of the answer, by
    what they are, with the reason; ``notes`` for people."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def finite(value: Any) -> float | None:
    """A tensor of one number as plain data."""
    number = float(value)
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Question:
    """``brief``: it is asked, too, when only the verdict is wanted."""

    name: str
    ask: Callable[[Choice, Run], Answer | Section | Skipped | None]
    brief: bool = False

    def __call__(self, choice: Choice, run: Run) -> Answer | Section | Skipped | None:
        return self.ask(choice, run)


QUESTIONS: dict[str, Question] = {}


def question(name: str, *, brief: bool = False) -> Callable[[Callable[..., Any]], Question]:
    """Register a function as the question ``name``: the decorator of a function of the choice and the run. Raises
    UsageError when the name is taken.

    >>> from interp import identify, question
    >>> from interp.results import Section
    >>> @question("how-many", brief=True)
    ... def how_many(choice, run):
    ...     return Section(name="how-many", title="How many prompts?", finding=f"{run.prompts} prompts")
    >>> identify("zoo:gdpp-l4-u5", prompts=64).answers["how-many"].finding
    '64 prompts'
    """

    def register(ask: Callable[[Choice, Run], Answer | Section | Skipped | None]) -> Question:
        known = QUESTIONS.get(name)
        if known is not None and known.ask.__qualname__ != ask.__qualname__:
            raise UsageError(f"a question of the name {name!r} is registered already; give it another")
        QUESTIONS[name] = Question(name, ask, brief)
        return QUESTIONS[name]

    return register
