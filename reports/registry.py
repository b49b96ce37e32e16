"""Which questions a report answers, and in which order they stand.

A question is a function of an analysis that gives sections, one or several, and ``Skipped`` where it has no
answer. It registers itself:

    @section("drift", title="drift of the weights")
    def drift(analysis):
        yield Section(name="drift", title="Do the weights drift?", finding="They do not")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module

from interp.errors import UsageError
from interp.reports.numbers import listed
from interp.results import Analysis, Section, Skipped

__all__ = ["QUESTIONS", "Question", "Registered", "flattened", "section", "sections_of"]

Answer = Section | Skipped | None | Iterable[Section | Skipped]
Question = Callable[..., Answer]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A question, the group of the page that it stands in, what it is called where it is skipped, and the part of an
    analysis that it is about."""

    where: str | None
    title: str
    part: str | None
    ask: Question

    def answers(self, analysis: Analysis) -> Iterable[Section | Skipped]:
        parts = [getattr(analysis, self.part)] if self.part else []
        made = None if None in parts else self.ask(analysis, *parts)
        return (made,) if isinstance(made, (Section, Skipped)) else made or ()


QUESTIONS: dict[str, Registered] = {}


def section(
    name: str, *, title: str = "", where: str | None = None, part: str | None = None
) -> Callable[[Question], Question]:
    """Register a question. ``where`` is the group that it stands in; without it its sections stand alone. ``part`` is a
    field of the analysis, which the question is given too; it is not asked where that is None."""

    def register(ask: Question) -> Question:
        if name in QUESTIONS:
            raise UsageError(f"there is a section {name!r} already, expected another name; choose one that is free")
        QUESTIONS[name] = Registered(where=where, title=title or name, part=part, ask=ask)
        return ask

    return register


_STATES = (
    "Tokens of channels that hold states s_t of a linear system; at every token the next state is predicted. Losses "
    "are half the squared error, summed over the coordinates of a state, averaged over positions. Layers, heads and "
    "positions count from 0."
)
_NOISE = (
    "The best prediction depends on how noisy a prompt is: the more noise, the less of the least-squares weights "
    "should be kept. Does the network find that out from the prompt, and by what means? σ is the standard deviation of "
    "the noise on the labels."
)
_IMPLICIT = (
    "After every layer the network's prediction is ⟨w, x⟩ for a weight vector w that depends on the prompt. For linear "
    "layers w is known exactly, so it can be compared with what classical algorithms would have found."
)
_PROBES = (
    "A linear probe is fitted to the activations on some prompts and scored on others. That something can be read does "
    "not mean that the network computed it: the inputs may hold it already, and so may the activations of a model that "
    "was never trained. So the same probe is scored on those, and on targets of other prompts, which must score 0; "
    "only the difference counts. Places in the network are named by the layers run: 0 is the input, 1 what the first "
    "layer leaves (where layers themselves are listed, it is layer 0)."
)
_ESTIMATES = (
    "Each estimate can mislead, so all three are shown. Output-weighted: how much each term of the layer's update "
    "moves the prediction, one regression row per prompt. Weight: projection of the weight matrices; blind to how the "
    "data use them. Refit: all coefficients together, so that the algorithm predicts what the network predicts. ω_yx "
    "carries x into y: the first index is the destination. Layers count from 0."
)
GROUPS = (
    Section(name="algorithm", title="The recovered algorithm", short="Algorithm"),
    Section(name="closed-form", title="Is it the closed form?", short="Closed form?"),
    Section(name="sequences", title="What it does with a sequence", short="Sequences", notes=(_STATES,)),
    Section(name="coefficients", title="Coefficients, by three estimates", short="Coefficients", notes=(_ESTIMATES,)),
    Section(name="eagle", title="EAGLE"),
    Section(name="evidence", title="Evidence"),
    Section(name="noise", title="How it deals with noise", short="Noise", notes=(_NOISE,)),
    Section(name="left", title="What is left, and what was skipped", short="What is left"),
    Section(name="implicit", title="The implicit model after each layer", short="Implicit weights", notes=(_IMPLICIT,)),
    Section(name="behaviour", title="As behaviour, beside classical solvers", short="Behaviour"),
    Section(name="weights", title="The weight matrices", short="Weight matrices"),
    Section(name="probes", title="Probes, with their controls", short="Probes", notes=(_PROBES,)),
    Section(name="interventions", title="Is it used? Interventions", short="Interventions"),
)

# The questions of this package as they stand within their groups; others come after them.
ORDER = (
    "losses", "depth", "families", "swaps", "interpolation", "stress", "profile", "filters", "shrinkage", "step",
    "omegas", "unexplained", "remainder", "absorption", "split", "distances", "profile-depth", "momentum", "linearity",
    "coefficients", "preconditioners", "trajectory", "shifts", "probes", "interventions",
)  # fmt: skip


def sections_of(analysis: Analysis) -> tuple[Section, ...]:
    """All that the analysis has an answer for, grouped; why the others have none is said under what is left."""
    import_module("interp.reports.sections")  # its modules register themselves
    parts: dict[str, list[Section]] = {}
    alone = list(analysis.answers.values())
    reasons: dict[str, list[str]] = {}
    for name, reason in analysis.skipped.items():
        reasons.setdefault(reason, []).append(QUESTIONS[name].title if name in QUESTIONS else name)
    order = {name: place for place, name in enumerate(ORDER)}
    for name, question in sorted(QUESTIONS.items(), key=lambda entry: order.get(entry[0], len(ORDER))):
        for answer in question.answers(analysis):
            if isinstance(answer, Skipped):
                if name not in analysis.skipped:
                    reasons.setdefault(answer.reason, []).append(question.title)
            elif question.where is None:
                alone.append(answer)
            else:
                parts.setdefault(question.where, []).append(answer)
    skipped = [f"{listed(names, most=8)}: {Skipped(reason)}" for reason, names in reasons.items()]
    notes = (*(line[0].upper() + line[1:] for line in skipped), *analysis.checkpoint.notes, *analysis.evidence.notes)
    if notes:
        remarks = Section(name="notes", title="Notes, and what was skipped", remarks=tuple(dict.fromkeys(notes)))
        parts.setdefault("left", []).append(remarks)
    groups = {group.name: group for group in GROUPS}
    groups |= {where: Section(name=where, title=where) for where in parts if where not in groups}
    made = [replace(group, parts=tuple(parts[name])) for name, group in groups.items() if name in parts]
    last = next((k for k, group in enumerate(made) if group.name in ("weights", "probes", "interventions")), len(made))
    return (*made[:last], *alone, *made[last:])


def flattened(sections: Iterable[Section]) -> Iterator[Section]:
    """Every section and its parts, in the order of the page."""
    for entry in sections:
        yield entry
        yield from flattened(entry.parts)
