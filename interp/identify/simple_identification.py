"""Networks on simple regression: is it the closed form, a gradient method, or neither?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.evidence.anatomy import directions, divisions, head_roles, query_share, rows_of, slots
from interp.evidence.closed_form import closer, forms, replacements, rescalings
from interp.evidence.passage import passage_of
from interp.identify.identification import Score, bootstrap_fidelity
from interp.identify.simple_verdict import Scored, checks, choose_rival
from interp.models.errors import LayoutError, UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import SimplePrompts, SimpleRegression
from interp.models.transformer import LinearTransformer
from interp.results import ClosedForm, Form
from interp.solvers.line_descent import Descent, fit_descent

__all__ = ["FoundSimple", "RecoveredSimple", "identify_simple", "is_simple", "open_simple"]

FEWEST_PROMPTS = 256  # half of them must hold the 60 numbers of the polynomial twice over


def is_simple(spec: ModelSpec) -> bool:
    """Whether the model is of simple regression, or of a kind that is analysed on that task alone."""
    named = None if spec.task is None else spec.task.get("name")
    return named == SimpleRegression.name or spec.no_map is not None


def open_simple(checkpoint: Checkpoint, prompts: int) -> tuple[LinearTransformer, SimpleRegression]:
    """Raises LayoutError when the model is not one of this task, UnreadableFile for weights that are not finite,
    UsageError for too few prompts."""
    model = checkpoint.model.require_finite().to(torch.float64)
    spec, fields = model.spec, model.spec.task
    if fields is None or fields.get("name") != SimpleRegression.name:
        stated = "none" if fields is None else repr(fields.get("name"))
        raise LayoutError(
            f"{spec.no_map and spec.no_map.reason}, and task.name is {stated}; expected {SimpleRegression.name!r}, the "
            "one task that such models can be analysed on; a --spec file with [task] sets it"
        )
    task = SimpleRegression.from_dict(fields)
    task.fits(model)
    if prompts < FEWEST_PROMPTS:
        raise UsageError(f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more: half are fitted on")
    return model, task


@dataclass(frozen=True, eq=False)
class RecoveredSimple:
    """What is run beside the network: the closed form, the chosen gradient method, or what comes closest."""

    name: str
    recognized: bool
    score: Score
    parameters: int
    predict: Callable[[SimplePrompts], Float[Tensor, " prompt"]]
    formula: str
    rival: Descent | None = None  # the gradient method, if it is one
    shrunken: bool = False  # the closed form, if it is one, is the shrunken one

    @classmethod
    def of(
        cls, closed: bool, form: Form, scored: Sequence[Scored], rivals: Sequence[Descent], chosen: Scored | None
    ) -> RecoveredSimple:
        if closed or (chosen is None and (form.fidelity or -1.0) >= max(s.score.fidelity or -1.0 for s in scored)):
            shrunken = form.name == "shrunken"
            return cls(
                "closed-form",
                closed,
                Score(fidelity=form.fidelity, interval=form.fidelity_ci),
                0,
                lambda d: d.least_squares().shrunken if shrunken else d.least_squares().prediction,
                form.formula,
                shrunken=shrunken,
            )
        best = chosen or max(scored, key=lambda s: s.score.fidelity if s.score.fidelity is not None else -float("inf"))
        rival = rivals[list(scored).index(best)]
        return cls(best.name, chosen is not None, best.score, best.parameters, rival.predict, rival.formula, rival)

    @property
    def label(self) -> str:
        return f"{'recovered algorithm' if self.recognized else 'closest'} ({self.name})"


@dataclass(frozen=True, eq=False)
class FoundSimple:
    """``chosen`` is the gradient method that explains the network, ``why`` says of each why it is or is not it."""

    held_out: SimplePrompts
    rivals: tuple[Descent, ...]
    scored: tuple[Scored, ...]
    chosen: Scored | None
    why: Mapping[str, str]
    closed_form: ClosedForm
    recovered: RecoveredSimple


def identify_simple(
    model: LinearTransformer,
    task: SimpleRegression,
    prompts: int,
    seeds: Sequence[int],
    progress: Callable[[str], None] = lambda step: None,
) -> FoundSimple | str:
    """``seeds`` are for the prompts that are fitted, those held out, the intervals and the fits. Returns why there is
    nothing to identify when the network cannot be run."""
    keys = model.spec.attention.keys
    progress("running the network")
    fitted, held_out = (task.sample(prompts // 2, s) for s in seeds[:2])
    seen, passage = (passage_of(model, drawn) for drawn in (fitted, held_out))
    network = passage.prediction
    if not bool(torch.isfinite(seen.prediction).all() & torch.isfinite(network).all()):
        return "skipped, because its predictions are not finite on prompts of its task"

    progress("fitting gradient methods")
    rivals = fit_descent(fitted, keys, seen.prediction, max(2, model.layers), seeds[3])
    found_forms = forms(network, held_out, keys, seeds[2])
    closest = found_forms[0]
    halves = ((fitted, seen.prediction), (held_out, network))
    scored = tuple(_scored(rival, closest, halves, seeds[2]) for rival in rivals)

    progress("looking for slots, roles and the division")
    weights, rows = dict(model.named()), rows_of(held_out, keys)
    found_divisions, divides = divisions(passage, rows, model.spec, weights)
    rescaled = rescalings(model, task, held_out.count, closest.name, rivals, seeds[2], seeds[1])
    replaced = replacements(model, fitted, held_out, seeds[2])
    conditions = checks(closest, scored, rescaled, found_divisions, divides, replaced)
    closed = all(check.passed for check in conditions)
    chosen, why = (None, _overruled(scored)) if closed else choose_rival(scored)
    closed_form = ClosedForm(
        formula=closest.formula if closed else None,
        keys=keys,
        checks=conditions,
        forms=found_forms,
        slots=slots(passage, rows),
        directions=directions(passage, rows),
        heads=head_roles(passage, rows, model.spec, weights),
        divisions=found_divisions,
        divides=divides,
        rescaled=rescaled,
        replacements=replaced,
        query_share=query_share(passage, model.spec, weights),
        weights_left=sum(int((value != 0).sum()) for value in weights.values()),
        weights=model.parameters,
    )
    recovered = RecoveredSimple.of(closed, closest, scored, rivals, chosen)
    return FoundSimple(held_out, rivals, scored, chosen, why, closed_form, recovered)


def _scored(rival: Descent, form: Form, halves: Sequence[tuple[SimplePrompts, Tensor]], seed: int) -> Scored:
    ratios = []
    for drawn, network in halves:
        truth = drawn.least_squares()
        value = truth.prediction if form.name == "least-squares" else truth.shrunken
        ratios.append(closer(network, value, rival.predict(drawn), seed))
    held_out, network = halves[1]
    score = bootstrap_fidelity(rival.predict(held_out)[:, None], network[:, None], seed)
    ratio, high = max(ratios, key=lambda pair: pair[1])
    return Scored(
        name=rival.name, parameters=rival.parameters, score=score, ratio=ratio, ratio_high=high,
        on_fitted=(ratio, high) == ratios[0],
    )  # fmt: skip


def _overruled(scored: Sequence[Scored]) -> Mapping[str, str]:
    return {s.name: _left(s) for s in scored}


def _left(scored: Scored) -> str:
    """How much farther from the network it is than the closed form, and on which prompts."""
    times = float(f"{1 / max(scored.ratio, 1e-300):.2g}")
    where = "the prompts that it was fitted to, where it does best" if scored.on_fitted else "held-out prompts"
    return f"leaves {times:g} times the squared error of the closed form on {where}"
