"""What a report has nothing for is named once, with its reason, and has no empty section."""

from __future__ import annotations

import dataclasses

import synthetic_analyses
import synthetic_probes
from shown import notes, sections
from test_html_report import Page

from interp.reports.html import render_report
from interp.reports.registry import GROUPS, QUESTIONS, sections_of
from interp.results import Analysis

BASE = synthetic_analyses.analysis()


def test_every_section_is_in_the_contents_and_has_something_in_it(any_analysis: Analysis) -> None:
    page = Page(render_report(any_analysis).text)
    ids = {attributes["id"] for _, attributes in page.tags if attributes.get("id")}
    links = [(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"]
    made = sections_of(any_analysis)
    assert links == ["verdict", *(entry.name for entry in made), "provenance"] and set(links) <= ids
    groups = {group.name for group in GROUPS}
    assert all(entry.parts or entry.name not in groups for entry in made)


def test_reasons_of_an_analysis_are_said_once_under_the_name_of_the_question() -> None:
    reasons = {"coefficients": "LayerNorm is not linear", "distances": "LayerNorm is not linear", "drift": "so"}
    lacking = dataclasses.replace(BASE, skipped=reasons)
    lines = [line for line in notes(lacking) if "skipped, because LayerNorm is not linear" in line]
    lines = [line for line in lines if QUESTIONS["coefficients"].title in line.lower()]
    assert len(lines) == 1 and QUESTIONS["distances"].title in lines[0].lower()
    assert "Drift: skipped, because so" in notes(lacking)


def test_the_reason_of_the_analysis_comes_before_that_of_the_report() -> None:
    lacking = dataclasses.replace(BASE, skipped={"probes": "the task has no targets"})
    named = [line for line in notes(lacking) if line.startswith("Probes")]
    assert named == ["Probes: skipped, because the task has no targets"]
    assert len([line for line in notes(BASE) if line.startswith("Probes")]) == 1


def test_a_question_with_an_answer_is_not_skipped() -> None:
    assert not any(
        "Probes" in line for line in notes(dataclasses.replace(BASE, probes=synthetic_probes.at_the_query()))
    )
    assert "matrices" in sections(BASE)
