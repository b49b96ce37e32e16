"""Gradient methods on points of a line: what a network for simple regression is if it is not the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from interp.families.closed_form_evidence import closer, form_values, possible_forms
from interp.identify.family import Family, Fit, register_family
from interp.identify.run import Run
from interp.identify.score import NEGLIGIBLE, TENFOLD
from interp.models.skipped import Skipped
from interp.models.tasks import LinePrompts
from interp.results import RecoveredAlgorithm, RecoveredDescent
from interp.solvers.line_descent import METHODS, POLYNOMIAL, Descent, fit_descent

__all__ = ["DescentFit"]

FEWEST = 128  # fitted prompts, which hold the 60 numbers of the polynomial twice over


@dataclass(frozen=True, kw_only=True, eq=False)
class DescentFit(Fit):
    """``ratio``: the closed form's squared difference to the network over this method's own, with the upper end of its
    95 % interval, on held-out prompts, or on the very prompts that it was fitted to where that speaks more for it."""

    descent: Descent
    ratio: float
    ratio_high: float


@dataclass(frozen=True, kw_only=True)
class LineDescent(Family):
    """Steps of a gradient method by its ``label``, as many as the network has layers (two at least)."""

    name: str
    label: str
    contains: frozenset[str] = frozenset()
    turn: int = 5
    formula = "gradient steps on the examples"

    def applies(self, run: Run) -> Skipped | None:
        fitted = run.network.fitted.drawn
        if not isinstance(fitted, LinePrompts):
            return Skipped("its prompts are no points of a line")
        if fitted.count < FEWEST:
            return Skipped(f"its numbers need {2 * FEWEST} prompts (--prompts)")
        finite = bool(torch.isfinite(run.network.fitted.prediction).all())
        return None if finite else Skipped("its predictions are not finite")

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        fitted, held_out, keys = run.network.fitted, run.network.held_out, run.spec.attention.keys
        steps = max(2, run.model.layers)
        descent = fit_descent(fitted.drawn, keys, fitted.prediction[:, 0], steps, run.seeds.tuning, self.label)
        if descent is None:
            return Skipped("it stands for methods of two steps, and the network has more layers")
        form, ratios = closest_form(run), {}
        for where, half in (
            ("the prompts that it was fitted to, where it does best", fitted),
            ("held-out prompts", held_out),
        ):
            rival = descent.predict(half.drawn)
            ratios[where] = closer(half.prediction[:, 0], form_values(half.drawn, form), rival, run.seeds.intervals)
        where, (ratio, high) = max(ratios.items(), key=lambda item: item[1][1])
        failed: tuple[str, ...] = ()
        if self.label == POLYNOMIAL:
            failed = ("no algorithm: it contains every method of two gradient steps, as a yardstick",)
        elif high < 1.0:
            times = float(f"{1 / max(ratio, 1e-300):.2g}")
            failed = (f"leaves {times:g} times the squared error of the closed form on {where}",)
        prediction = descent.predict(held_out.drawn)[:, None]
        return DescentFit(
            family=self,
            parameters=descent.parameters,
            score=held_out.score(prediction, run.seeds.intervals),
            prediction=prediction,
            predict=lambda prompts: descent.predict(prompts)[:, None],
            failed=failed,
            descent=descent,
            ratio=ratio,
            ratio_high=high,
        )

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        before, after = other.score.unexplained, own.score.unexplained
        return before > NEGLIGIBLE and after * TENFOLD < before

    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        assert isinstance(fit, DescentFit) and fit.descent.steps is not None  # the polynomial is never chosen
        return RecoveredDescent(
            family=self.label,
            parameters=fit.parameters,
            context=run.task.context,
            keys=run.spec.attention.keys,
            x_unit=fit.descent.x_unit,
            y_unit=fit.descent.y_unit,
            steps=tuple(fit.descent.steps.tolist()),
        )


def closest_form(run: Run) -> str:
    """The closed form that comes closest to the network on held-out prompts, of those that sums over the keys give."""
    held_out = run.network.held_out
    values = {name: form_values(held_out.drawn, name) for name in possible_forms(run.spec.attention.keys)}
    return min(values, key=lambda name: float((held_out.prediction[:, 0] - values[name]).square().mean()))


for label in (*METHODS, POLYNOMIAL):
    register_family(LineDescent(name=f"{label} on points", label=label))
