"""The verdict in figures and words, and the table of families behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from interp.identify.family import Fit
from interp.identify.losses import Solves
from interp.identify.score import Score
from interp.models.skipped import Skipped
from interp.results import Family, Loss, Share, Verdict
from interp.stats.averages import wilson

if TYPE_CHECKING:
    from interp.identify.choose import Choice
    from interp.identify.run import Run

__all__ = ["family_rows", "score_words", "task_sentence", "verdict"]

SOLVED = 0.5  # of what the best possible gains: from here a task is said to be solved, not just better than zero
_LEVEL = {
    "layer-by-layer": "Layer by layer it runs",
    "step-by-step": "Step by step it runs",
    "as-a-whole": "As a whole it behaves like",
}


def family_rows(choice: Choice, run: Run) -> tuple[Family, ...]:
    """One row per family that has something to do with this kind of network."""
    rows = []
    for family, fit in choice.entries:
        if isinstance(fit, Skipped):
            if family.applies(run) is not None:
                continue
            rows.append(
                Family(
                    name=family.title, parameters=0, fidelity=None, fidelity_ci=(None, None), mse=None, chosen=False,
                    why=choice.why[family.name],
                )
            )  # fmt: skip
            continue
        error = float(run.task.errors(fit.prediction, run.network.held_out.drawn).mean())
        rows.append(
            Family(
                name=family.title,
                parameters=fit.parameters,
                fidelity=fit.score.fidelity,
                fidelity_ci=fit.score.interval,
                mse=error if math.isfinite(error) else None,
                chosen=fit is choice.chosen,
                why=choice.why[family.name],
            )
        )
    return tuple(rows)


def verdict(choice: Choice, run: Run) -> Verdict:
    """Its summary leads with what a reader must not miss."""
    losses = choice.losses
    solves, said = losses.solves, choice.statements
    task = task_sentence(solves, losses.rows, run)
    what = _what(choice, run)
    shown = choice.closest
    return Verdict(
        algorithm="unrecognized" if choice.chosen is None else choice.chosen.named,
        recognized=choice.chosen is not None,
        solves_task=solves.answer == "yes",
        fidelity=None if shown is None else shown.score.fidelity,
        fidelity_ci=(None, None) if shown is None else shown.score.interval,
        summary=f"{what} {task}" if solves.answer == "yes" else f"{task} {what}",
        level=said.level,
        solves=solves.answer,
        explodes=Share(value=solves.explodes, interval=solves.explodes_ci),
        function=None if said.function is None else said.function.named,
        rivals=_rival_names(choice),
        tied=choice.chosen is not None and choice.chosen.family.tied,
    )


def _what(choice: Choice, run: Run) -> str:
    prompts = f"{run.task.words.prompt}s"
    if choice.chosen is not None:
        runs, fit = _LEVEL[choice.statements.level or "as-a-whole"], choice.chosen
        beside = f"{_course(choice)}{_explodes(fit, prompts)}{_rivals(choice, prompts)}{_remark(choice)}"
        return f"{runs} {fit.named}: {_follows(fit, prompts)}{beside}"
    if choice.closest is None:
        reason = run.network.skipped or Skipped("its prediction is constant or not finite")
        return f"Unrecognized: {reason.reason}."
    fit = choice.closest
    if fit.failed and fit.score.recognized:
        return (
            f"Unrecognized: its predictions follow {fit.named} to R² = {score_words(fit.score)}, but not all "
            f"conditions hold: {', '.join(fit.failed)}."
        )
    return (
        f"Unrecognized: no family explains its predictions. The closest is {fit.family.title}, R² = "
        f"{score_words(fit.score)} on fresh {prompts}.{_rivals(choice, prompts)}"
    )


def _follows(fit: Fit, prompts: str) -> str:
    numbers = f" with {fit.parameters} number{'s' * (fit.parameters != 1)}" if fit.parameters else ""
    return f"its predictions on fresh {prompts} follow {fit.family.formula}{numbers} to R² = {score_words(fit.score)}."


def _explodes(fit: Fit, prompts: str) -> str:
    score = fit.score
    if not score.exploded:
        return ""
    share, *ends = (100 * value for value in (score.exploded / score.prompts, *wilson(score.exploded, score.prompts)))
    return f" On {share:.2g} % of {prompts} [{ends[0]:.2g}, {ends[1]:.2g}] the algorithm explodes and the network not."


def _rival_names(choice: Choice) -> tuple[str, ...]:
    """Those of another algorithm; whether its numbers are the same in all layers is none."""
    chosen = "" if choice.chosen is None else choice.chosen.named
    return tuple(dict.fromkeys(fit.named for fit in choice.statements.rivals if fit.named != chosen))


def _rivals(choice: Choice, prompts: str) -> str:
    """What the intervals of the scores leave open."""
    names = " and ".join(_rival_names(choice))
    if not names:
        return ""
    if choice.chosen is None:
        return f" It is at the edge of {names}: whether that is close enough is undecided on these {prompts}."
    return f" It cannot be told from {names} on these {prompts}: the gain of more numbers is at the edge of its worth."


def _course(choice: Choice) -> str:
    """How closely the read-outs are followed, where that is known of the chosen family."""
    course = None if choice.chosen is None else choice.statements.courses.get(choice.chosen.family.name)
    if course is None or choice.statements.level == "as-a-whole" or len(course.r2) < 2:
        return ""
    worst = min(range(len(course.r2)), key=lambda layer: course.r2[layer])
    score = score_words(Score(fidelity=course.r2[worst], interval=course.intervals[worst]))
    return f" After every layer it stands where the algorithm does, to R² = {score} at the worst, layer {worst}."


def _remark(choice: Choice) -> str:
    chosen = choice.chosen
    remark = "" if chosen is None else chosen.family.remark(chosen, choice.fits)
    return f" {remark}" if remark else ""


def task_sentence(solves: Solves, losses: tuple[Loss, ...], run: Run) -> str:
    """Whether it solves its task, with the errors that say so, and whether it explodes."""
    words, known = run.task.words, {entry.name: entry.mse for entry in losses}
    network, null, oracle = (known.get(name) for name in ("network", "null", "oracle"))
    figures = ""
    if network is not None and null is not None and oracle is not None:
        optimum = "0 to rounding" if oracle < 1e-15 * null else f"{words.factor * oracle:.3g}"
        own, zero = (f"{words.factor * value:.3g}" for value in (network, null))
        figures = f" ({words.error} {own}; predicting zero {zero}, optimum {optimum})"
    share, low, high = (f"{100 * value:.2g} %" for value in (solves.explodes, *solves.explodes_ci))
    bad = f" It explodes on {share} of {words.prompt}s [{low}, {high}]."
    return {
        "yes": _gains(solves.share or 0.0, figures),
        "no": f"Does not solve the task{figures}.",
        "undecided": f"Whether it beats predicting zero is undecided{figures}.",
    }[solves.answer] + bad * (solves.explodes > 0)


def _gains(share: float, figures: str) -> str:
    percent = f"{100 * share:.0f} % of what the optimum gains"
    what = "solves the task" if share >= SOLVED else "beats predicting zero"
    return f"It {what}{figures}, {percent}."


def score_words(score: Score) -> str:
    """A fidelity with its interval, to the digits that its distance from 1 allows."""
    low, high = score.interval
    fidelity = score.fidelity
    if fidelity is None or low is None or high is None:
        return "undefined"
    if 1 - fidelity < 1e-10:
        return "1 to rounding"
    digits = max(3, 2 - int(torch.tensor(max(1 - fidelity, 1e-12)).log10().floor()))
    return f"{fidelity:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
