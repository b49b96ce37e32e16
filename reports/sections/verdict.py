"""The first screen of a report: the verdict, how sure it is, and what it leaves open. A verdict is also its limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from interp.reports.numbers import estimate, interval, is_finite, layers_named, listed, number, percent
from interp.reports.registry import QUESTIONS
from interp.reports.sections.closed_form import rescaled_finding
from interp.reports.sections.coefficients import coefficient_rows
from interp.reports.sections.eagle import step_sentence
from interp.reports.sections.losses import loss, loss_number, stand_in
from interp.reports.sections.remainder import remainder_finding
from interp.reports.sections.replacement import stands_in, swap_finding
from interp.reports.sections.sequences import half_loss
from interp.reports.sections.stress import reach, stress_finding, whole
from interp.results import Analysis, Words
from interp.results.notation import PLAIN

__all__ = ["Head", "fidelity_sentence", "head", "open_questions", "task_sentence"]

_MEANING = {
    "gd": "Every layer takes one step of gradient descent on the squared error of the examples in the prompt.",
    "gd++": "Every layer takes one step of gradient descent on the examples in the prompt and also transforms the "
    "inputs (ω_xx), which evens out their variances so that later steps converge faster.",
    "eagle": "Every layer takes a gradient step on the visible blocks and conditions them (ω_xx), with steps that "
    "follow the norm of A.",
    "diag": "Gradient descent that transforms its inputs (ω_xx), with two more terms: ω_xy moves inputs along the "
    "labels and ω_yy rescales labels by their energy. Both let the step adapt to how noisy the prompt is.",
    "equivariant": "Every layer treats all directions of the input alike: the four ω terms and the trace terms.",
    "preconditioned-gd": "Every layer takes a gradient step that is multiplied by a fixed matrix: some directions of "
    "the input are learned faster than others.",
    "closed-form": "It computes the least-squares line of the examples in the prompt in one go: means, then a "
    "covariance and a variance by attention, then their ratio by LayerNorm, the only division that it has.",
    "revalg": "Every head copies a whole channel of earlier tokens, a state say, weighted by the inner product of two "
    "whole channels: one number per pair of channels in place of a matrix. Causal networks of this form can learn in "
    "context how the states move, by gradient steps on the states so far, preconditioned or not.",
    "polynomial": "The prediction is a polynomial in Σ applied to α, as that of so many gradient steps of any sign; no "
    "layer by layer descent is behind it.",
    "unrecognized": "None of the known algorithm families predicts what this network predicts.",
}


_LEVELS = {"layer-by-layer": "layer by layer", "step-by-step": "step by step"}
_NOTABLE = 0.001  # share of the variance of the predictions from which a gap is worth a sentence
_GRAVE = ("undetermined", "signs disagree", "estimates far apart")  # remarks that leave a coefficient open


@dataclass(frozen=True, kw_only=True)
class Head:
    """``words`` is the verdict in two or three; the tone picks a colour, and no colour stands without them. ``lead``
    says what the algorithm does, for a reader who has never seen its name."""

    tone: Literal["good", "caution", "bad"]
    words: str
    lead: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    open_questions: tuple[str, ...]


def head(analysis: Analysis) -> Head:
    verdict = analysis.verdict
    tone: Literal["good", "caution", "bad"] = "good"
    told = " or ".join((verdict.algorithm, *verdict.rivals))
    words = f"recognized: {told}{f', {_LEVELS[verdict.level]}' if verdict.level in _LEVELS else ''}"
    if verdict.solves == "undecided":
        tone, words = "caution", "undecided: does it solve the task?"
    elif not verdict.solves_task:
        tone, words = "bad", "does not solve the task"
    elif not verdict.recognized:
        tone, words = "caution", "not recognized"
    elif verdict.level == "as-a-whole":
        tone, words = "caution", f"behaves like: {told}"
    elif verdict.rivals:
        tone, words = "caution", f"undecided: {told}"
    return Head(
        tone=tone,
        words=words,
        lead=_lead(analysis),
        summary=verdict.summary,
        facts=tuple(_facts(analysis)),
        open_questions=open_questions(analysis),
    )


def _facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    evidence = analysis.evidence
    if asked := _words(analysis).asked:
        yield "What it is asked", asked
    if analysis.checkpoint.added:
        yield "Its layers", f"linear attention, {', '.join(analysis.checkpoint.added)}"
    yield "Solves its task", task_sentence(analysis)
    yield "How faithful", fidelity_sentence(analysis)
    if analysis.regression is not None and any(is_finite(e.energy) for e in analysis.regression.remainder):
        yield "In its weights", remainder_finding(analysis)
    if evidence.swaps:
        yield "Layer by layer", swap_finding(analysis)
    if any(entry.points for entry in evidence.stress):
        yield "On other prompts", stress_finding(analysis)
    if analysis.closed_form is not None and any(r.quantity == "x" for r in analysis.closed_form.rescaled):
        yield "At other scales", rescaled_finding(analysis.closed_form)
    if analysis.completion is not None and (steps := step_sentence(analysis.completion)):
        yield "Its steps", steps


def _words(analysis: Analysis) -> Words:
    """Those of the task; of documents that do not say, what their losses are called."""
    if analysis.words is not None:
        return analysis.words
    if analysis.sequences is not None:
        return Words(asked="", error="half the squared error", prompt="sequence")
    return Words(asked="")


def _lead(analysis: Analysis) -> str:
    name = analysis.verdict.algorithm
    if name == "unrecognized" and all(f.fidelity is None for f in analysis.families):
        return ""
    if name == "unrecognized" and analysis.closed_form is not None:
        return "No known algorithm meets all conditions; they are listed below, with what was measured."
    meaning = _MEANING.get(name, "")
    return f"{meaning} Its numbers are the same in all layers." if analysis.verdict.tied else meaning


def fidelity_sentence(analysis: Analysis) -> str:
    verdict = analysis.verdict
    if verdict.fidelity is None:
        return "not measured"
    lo, hi = verdict.fidelity_ci
    sure = "the 95 % interval in brackets" if lo is not None and hi is not None else "no interval"
    value, count = interval(verdict.fidelity, verdict.fidelity_ci), analysis.evidence.held_out
    prompts = f"{'' if count is None else f'{count} '}prompts that were not fitted"
    who = f"the {stand_in(analysis)} predicts what the network predicts"
    if "rounding" in value:
        return f"on {prompts} {who}, to rounding (R² = 1)"
    return f"on {prompts} {who} to R² = {value} (1 is perfect; {sure})"


def task_sentence(analysis: Analysis) -> str:
    """Whether it beats predicting zero, with the losses that say so."""
    verdict = analysis.verdict
    words, answer = _words(analysis), verdict.solves or ("yes" if verdict.solves_task else "no")
    if analysis.sequences is not None:
        count = analysis.sequences.prompts
        losses = (half_loss(analysis.sequences, name) for name in ("network", "null", "ridge"))
        network, null, best = (None if e is None else (e.loss, e.stderr) for e in losses)
        best_text = None if best is None else f"{number(best[0])} for exact ridge"
    else:
        count = analysis.evidence.prompts
        entries = [loss(analysis.evidence.losses, name) for name in ("network", "null", "oracle")]
        network, null, best = (None if e is None else (e.mse, e.stderr) for e in entries)
        scale = entries[1] or entries[0]
        best_text = f"{loss_number(entries[2], scale)} for the best possible" if entries[2] and scale else None
    if network is None:
        return f"{answer} (its loss was not measured)"
    against = [f"{number(null[0])} for predicting zero"] if null else []
    against += [best_text] if best_text else []
    tail = f", against {' and '.join(against)}" if against else ""
    return f"{answer}: {words.error} {estimate(*network)} on {count} fresh {words.prompt}s{tail}"


def open_questions(analysis: Analysis) -> tuple[str, ...]:
    """One sentence each, the most important first; never empty, as no analysis tries every prompt."""
    asked = (_algorithm, _layers, _prompts, _numbers, _rest)
    return tuple(sentence for ask in asked for sentence in ask(analysis))


def _algorithm(analysis: Analysis) -> Iterator[str]:
    verdict = analysis.verdict
    if not verdict.recognized:
        none = f"none of the known ones is it; the nearest leaves {_gap(analysis)}"
        yield f"Which algorithm it runs: {none if is_finite(verdict.fidelity) else 'no family could be scored on it'}"
    if verdict.rivals:
        names = " or ".join((verdict.algorithm,) * verdict.recognized + verdict.rivals)
        yield f"Whether it is {names}: its scores are at the edge"
    if verdict.recognized and is_finite(verdict.fidelity) and 1 - verdict.fidelity >= _NOTABLE:
        yield f"What the network does beside the algorithm, which leaves {_gap(analysis)}"


def _gap(analysis: Analysis) -> str:
    verdict = analysis.verdict
    if verdict.fidelity is None or verdict.fidelity < 0:
        return f"more unexplained than a constant would (R² {interval(verdict.fidelity, verdict.fidelity_ci)})"
    return f"{percent(1 - verdict.fidelity)} of the variance of its predictions unexplained"


def _layers(analysis: Analysis) -> Iterator[str]:
    swaps = analysis.evidence.swaps
    bad = [swap.layer for swap in swaps if not stands_in(swap.swapped)]
    if bad and len(swaps) > 1 and analysis.verdict.recognized:
        inside = f"{layers_named(bad)} do{'es' * (len(bad) == 1)} inside the network"
        yield (
            f"What {inside}: the recovered algorithm predicts what the network predicts, but does not fit in the place "
            "of each layer, so it describes the whole and not that part"
        )


def _prompts(analysis: Analysis) -> Iterator[str]:
    tried = [entry for entry in analysis.evidence.stress if entry.points]
    if analysis.closed_form is not None:  # it has rescaled prompts of its own, among its conditions
        return
    if not tried:
        yield "What it does on prompts unlike those of its task: none were tried"
        return
    reached = [words for entry in tried if (words := reach(entry))]
    where = "; ".join(reached)
    if not reached:
        yield f"What it does on other prompts: even on those of training the {stand_in(analysis)} is off by over 1 %"
    elif all(whole(entry) for entry in tried):
        yield f"What it does on prompts beyond those tried: {where}"
    else:
        yield f"What it does on prompts beyond {where}: there the {stand_in(analysis)} is off by over 1 %, or untried"


def _numbers(analysis: Analysis) -> Iterator[str]:
    if analysis.recovered is None:
        return
    said = {(layer, PLAIN.symbol(term.name)) for layer, term in analysis.recovered.terms() if term.number is not None}
    rows = [row for row in coefficient_rows(analysis) if row.live and (row.layer, row.symbol) in said]
    grave = [row for row in rows if any(remark.short in _GRAVE for remark in row.remarks)]
    if grave:
        named = listed([f"{row.symbol} of layer {row.layer}" for row in grave], most=4)
        yield f"The exact value of {named}: the estimates disagree or the data do not fix it"


def _rest(analysis: Analysis) -> Iterator[str]:
    titles = [QUESTIONS[name].title if name in QUESTIONS else name for name in analysis.skipped]
    if titles:
        yield f"What skipped parts would have shown ({listed(titles)}); the notes under what is left say why"
    if not analysis.probes and "probes" not in analysis.skipped:
        yield "What can be read inside it: no probes were run"
