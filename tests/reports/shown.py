"""What a report shows of an analysis, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from interp.reports.registry import flattened, sections_of
from interp.reports.sections.interventions import intervention_parts
from interp.reports.sections.probes import probe_parts
from interp.results import Analysis, Erasure, Figure, ImplicitFit, ProbeScore, Section, Transplant


def sections(analysis: Analysis) -> dict[str, Section]:
    """Every section and its parts."""
    return {entry.name: entry for entry in flattened(sections_of(analysis))}


def figures(analysis: Analysis) -> dict[str, Figure]:
    return {s.figure.name: s.figure for s in sections(analysis).values() if s.figure is not None}


def notes(analysis: Analysis) -> tuple[str, ...]:
    """What is noted, and what was skipped."""
    listed = sections(analysis).get("notes")
    return () if listed is None else listed.remarks


def figure_of(analysis: Analysis, name: str) -> Figure | None:
    return figures(analysis).get(name)


swap_figure = partial(figure_of, name="swaps")
interpolation_figure = partial(figure_of, name="interpolation")
stress_figure = partial(figure_of, name="stress")
absorption_figure = partial(figure_of, name="absorption")
trajectory_figure = partial(figure_of, name="trajectory")
law_figure = partial(figure_of, name="law")
agreement_figure = partial(figure_of, name="agreement")
step_figure = partial(figure_of, name="step")


def causal_figures(
    fits: Sequence[ImplicitFit], transplants: Sequence[Transplant], erasures: Sequence[Erasure]
) -> tuple[Figure, ...]:
    return tuple(s.figure for s in intervention_parts(fits, transplants, erasures) if s.figure is not None)


def probe_figures(scores: Sequence[ProbeScore]) -> tuple[Figure, ...]:
    return tuple(s.figure for s in probe_parts(scores) if s.figure is not None)


def sequence_parts(analysis: Analysis) -> tuple[Section, ...]:
    return next((s.parts for s in sections_of(analysis) if s.name == "sequences"), ())
