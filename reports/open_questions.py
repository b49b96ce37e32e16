"""What an analysis leaves open, in sentences for the first screen of the report: a verdict is also its limits."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports import findings
from interp.reports.evidence_findings import algorithm, reach, stands_in, whole
from interp.reports.noise_findings import layers_named
from interp.reports.numbers import interval, is_finite, percent
from interp.results import Analysis
from interp.results.notation import PLAIN

__all__ = ["open_questions"]

_NOTABLE = 0.001  # share of the variance of the predictions from which a gap is worth a sentence
_GRAVE = ("undetermined", "signs disagree", "estimates far apart")  # remarks that leave a coefficient open


def open_questions(analysis: Analysis) -> tuple[str, ...]:
    """One sentence each, the most important first; never empty, as no analysis tries every prompt."""
    return tuple(
        (*_algorithm(analysis), *_layers(analysis), *_prompts(analysis), *_numbers(analysis), *_rest(analysis))
    )


def _algorithm(analysis: Analysis) -> Iterator[str]:
    verdict = analysis.verdict
    if not verdict.recognized:
        none = f"none of the known ones is it; the nearest leaves {_gap(analysis)}"
        yield f"Which algorithm it runs: {none if is_finite(verdict.fidelity) else 'no family could be scored on it'}"
    elif is_finite(verdict.fidelity) and 1 - verdict.fidelity >= _NOTABLE:
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
    known = [entry for entry in analysis.evidence.stress if entry.points]
    if analysis.closed_form is not None:  # it has rescaled prompts of its own, among its conditions
        return
    if not known:
        yield "What it does on prompts unlike those of its task: none were tried"
        return
    reached = [words for entry in known if (words := reach(entry))]
    where = "; ".join(reached)
    if not reached:
        yield f"What it does on other prompts: even on those of training the {algorithm(analysis)} is off by over 1 %"
    elif all(whole(entry) for entry in known):
        yield f"What it does on prompts beyond those tried: {where}"
    else:
        yield f"What it does on prompts beyond {where}: there the {algorithm(analysis)} is off by over 1 %, or untried"


def _numbers(analysis: Analysis) -> Iterator[str]:
    if analysis.recovered is None:
        return
    said = {(layer, PLAIN.symbol(term.name)) for layer, term in analysis.recovered.terms() if term.number is not None}
    rows = [row for row in findings.coefficient_rows(analysis) if row.live and (row.layer, row.symbol) in said]
    grave = [row for row in rows if any(remark.short in _GRAVE for remark in row.remarks)]
    if grave:
        named = findings.listed([f"{row.symbol} of layer {row.layer}" for row in grave], most=4)
        yield f"The exact value of {named}: the estimates disagree or the data do not fix it"


def _rest(analysis: Analysis) -> Iterator[str]:
    skipped = [note for note in findings.notes(analysis) if "skipped" in note]
    if skipped:
        named = findings.listed([note.partition(":")[0] for note in skipped])
        yield f"What skipped parts would have shown ({named}); the notes under what is left say why"
    if not analysis.probes and not skipped:
        yield "What can be read inside it: no probes were run"
