"""closed-form: the least-squares line of the examples in one go, with the division done by LayerNorm.

    yhat(u) = ybar + (C / V) (u - xbar)

and the shrunken one that sums over all N + 1 rows give. Source: Hagiwara, arXiv 2607.15819. No number is fitted; the
verdict takes all conditions of ``interp.families.closed_form_checks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interp.families.closed_form_anatomy import directions, divisions, head_roles, query_share, rows_of, slots
from interp.families.closed_form_checks import checks
from interp.families.closed_form_evidence import FORMULAS, form_values, forms, replacements, rescalings
from interp.families.line_descent import DescentFit, closest_form
from interp.families.passage import passage_of
from interp.identify.family import Family, Fit, register_family
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import LinePrompts
from interp.results import ClosedForm, RecoveredAlgorithm, RecoveredForm

__all__ = ["ClosedFormFit"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClosedFormFit(Fit):
    """``found`` is the evidence for and against it; None of the form that is not the closest."""

    found: ClosedForm | None


@dataclass(frozen=True, kw_only=True)
class ClosedFormFamily(Family):
    name: str
    form: str
    formula: str
    turn: int = 6
    algorithm = "closed-form"
    level = "layer-by-layer"  # its conditions are on what the layers hand on

    def applies(self, run: Run) -> Skipped | None:
        if not isinstance(run.network.held_out.drawn, LinePrompts):
            return Skipped("its prompts are no points of a line")
        if self.form == "shrunken" and run.spec.attention.keys != "all":
            return Skipped("sums over the examples alone cannot give it")
        return None

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        held_out = run.network.held_out
        closest = closest_form(run)
        descents = [fit for fit in fits if isinstance(fit, DescentFit)]
        if not descents:
            return Skipped("no gradient method stands beside it")
        prediction = form_values(held_out.drawn, self.form)[:, None]
        found = describe_closed_form(run, descents) if self.form == closest else None
        failed = (f"the other closed form of these sums is nearer: {FORMULAS[closest]}",)
        if found is not None:
            failed = tuple(check.name for check in found.checks if not check.passed)
        return ClosedFormFit(
            family=self,
            parameters=0,
            score=held_out.score(prediction, run.seeds.intervals),
            prediction=prediction,
            predict=lambda prompts: form_values(prompts, self.form)[:, None],
            failed=failed,
            found=found,
        )

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        found = fit.found if isinstance(fit, ClosedFormFit) else None
        divides = None if found is None else found.divides
        return "" if divides is None else f"The LayerNorm of layer {divides} divides by the variance V of x."

    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        return RecoveredForm(
            family="closed-form",
            shrunken=self.form == "shrunken",
            context=run.task.context,
        )


def describe_closed_form(run: Run, descents: Sequence[DescentFit]) -> ClosedForm:
    """What the tokens hold, what the heads do and where a division happens, with the conditions of the verdict."""
    model, task, keys, seeds = run.model, run.task, run.spec.attention.keys, run.seeds
    fitted, held_out = run.network.fitted.drawn, run.network.held_out.drawn
    passage = passage_of(model, held_out)
    closest = forms(passage.prediction, held_out, keys, seeds.intervals)
    run.progress("looking for slots, roles and the division")
    weights, rows = dict(model.named()), rows_of(held_out, keys)
    places, divides = divisions(passage, rows, model.spec, weights)
    methods = [fit.descent for fit in descents]
    rescaled = rescalings(model, task, held_out.count, closest[0].name, methods, seeds.intervals, seeds.held_out)
    replaced = replacements(model, fitted, held_out, seeds.intervals)
    conditions = checks(closest[0], descents, rescaled, places, divides, replaced)
    return ClosedForm(
        formula=closest[0].formula if all(check.passed for check in conditions) else None,
        keys=keys,
        checks=conditions,
        forms=closest,
        slots=slots(passage, rows),
        directions=directions(passage, rows),
        heads=head_roles(passage, rows, model.spec, weights),
        divisions=places,
        divides=divides,
        rescaled=rescaled,
        replacements=replaced,
        query_share=query_share(passage, model.spec, weights),
        weights_left=sum(int((value != 0).sum()) for value in weights.values()),
        weights=model.parameters,
    )


register_family(ClosedFormFamily(name="closed-form", form="least-squares", formula=FORMULAS["least-squares"]))
register_family(ClosedFormFamily(name="closed-form (shrunken)", form="shrunken", formula=FORMULAS["shrunken"]))
