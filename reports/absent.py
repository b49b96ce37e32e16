"""Parts of the report that an analysis has nothing for, and why: named in one place instead of in empty sections."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from interp.reports import findings
from interp.reports.figures import behaviour_reason, regression_reason
from interp.reports.task_in_words import task_name
from interp.results import Analysis

__all__ = ["absent_parts", "absent_sections", "other_notes", "why_absent"]

PROBED = ("noisy_regression", "linear_dynamics")  # the tasks that probes have targets for
_COMMAND = "interp-probe probe CHECKPOINT --report OUT.html"
_ASKED = "further evidence"


def absent_sections(analysis: Analysis, figures: Collection[str], heatmaps: str) -> dict[str, tuple[str, str]]:
    """Title and reason of every section that would be empty, by the section's name. ``figures`` are the names of those
    that were made; ``heatmaps`` says why no weights can be drawn, and is empty when they can."""
    return {name: (title, why) for name, title, why in _sections(analysis, figures, heatmaps)}


def _sections(analysis: Analysis, figures: Collection[str], heatmaps: str) -> Iterator[tuple[str, str, str]]:
    if analysis.sequences is None:
        if not {"coefficients", "preconditioners"} & set(figures):
            yield "coefficients", "coefficients", why_absent(analysis, "coefficients")
        if why := regression_reason(analysis):
            yield "noise", "how it deals with noise", why
        if not analysis.implicit:
            yield "implicit", "implicit weights", why_absent(analysis, "implicit weights")
        if "trajectory" not in figures:
            yield "behaviour", "behaviour beside classical solvers", behaviour_reason(analysis)
    if heatmaps:
        yield "weights", "weight matrices", heatmaps
    if not analysis.probes:
        yield "probes", "probes", _probes(analysis) or f"this analysis ran no probes; {_COMMAND} does"
    if not any(row.reason is None for row in (*analysis.transplants, *analysis.erasures)):
        yield "causal", "causal checks", _probes(analysis) or f"no intervention was made; {_COMMAND} makes them"


def _probes(analysis: Analysis) -> str:
    """Why there can be none for this task."""
    return "" if analysis.task.get("name") in PROBED else f"there are no probes for {task_name(analysis.task)}"


def why_absent(analysis: Analysis, what: str) -> str:
    """What the notes say of a part, or those that are of no part in particular."""
    notes = findings.notes(analysis)
    for note in notes:
        head, skipped, why = note.partition(": skipped, because ")
        if skipped and what in head:
            return why
    general = [note for note in notes if ": skipped, because " not in note]
    said = f". Its notes: {'; '.join(general)}" if general else ""
    return f"this analysis has no {what}{said}"


def absent_parts(absent: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    """One line per reason: ``Probes and causal checks: skipped, because …``."""
    reasons: dict[str, list[str]] = {}
    for title, why in absent.values():
        reasons.setdefault(why, []).append(title)
    lines = (f"{findings.listed(titles, most=8)}: skipped, because {why}" for why, titles in reasons.items())
    return tuple(line[0].upper() + line[1:] for line in lines)


def other_notes(analysis: Analysis, absent: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    """The notes that the lines on absent parts do not repeat."""
    reasons = {why for _, why in absent.values()}
    said = {note for note in findings.notes(analysis) if note.partition(": skipped, because ")[2] in reasons}
    if {"probes", "noise"} <= set(absent):
        said |= {note for note in findings.notes(analysis) if note.startswith("probes and what noise does: skipped")}
    return tuple(note for note in findings.notes(analysis) if note not in said)
