"""What a report has nothing for is named once, with its reason, and has no empty section."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
import synthetic_closed_form
import synthetic_probes
import test_causal_figures
from test_html_report import Page

from interp.reports.absent import absent_parts, absent_sections, why_absent
from interp.reports.causal_findings import interventions
from interp.reports.html import render_report
from interp.results import Analysis

SECTIONS = {"coefficients", "noise", "implicit", "behaviour", "weights", "probes", "causal"}


def of_task(name: str) -> Analysis:
    base = synthetic_analyses.analysis()
    return dataclasses.replace(base, task={**base.task, "name": name})


@pytest.mark.parametrize("task", ["matrix_completion", "simple_regression"])
def test_no_command_is_named_that_refuses_the_task(task: str) -> None:
    page = Page(render_report(of_task(task)).text)
    assert f"Probes and causal checks: skipped, because there are no probes for {task.replace('_', ' ')}" in page.words
    assert "interp-probe probe" not in page.words


def test_the_command_is_named_where_it_works() -> None:
    words = Page(render_report(synthetic_analyses.analysis()).text).words
    assert "Probes: skipped, because this analysis ran no probes; interp-probe probe" in words
    assert "Causal checks: skipped, because no intervention was made; interp-probe probe" in words


def test_an_absent_section_is_neither_there_nor_in_the_contents(any_analysis: Analysis) -> None:
    page = Page(render_report(any_analysis).text)
    ids = {attributes["id"] for _, attributes in page.tags if attributes.get("id")}
    links = {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"}
    assert links <= ids
    assert links & SECTIONS == ids & SECTIONS


def test_reasons_come_from_the_notes_and_are_not_repeated() -> None:
    analysis = synthetic_closed_form.analysed(synthetic_analyses.analysis())
    assert why_absent(analysis, "coefficients") == "LayerNorm is not linear"
    words = Page(render_report(analysis).text).words
    assert words.count("skipped, because LayerNorm is not linear") == 1
    assert why_absent(analysis, "implicit weights") == "this analysis has no implicit weights"
    general = synthetic_analyses.empty("nothing could be estimated, because it is all zero")
    assert why_absent(general, "implicit weights").endswith("Its notes: " + general.evidence.notes[0])


def test_parts_that_lack_for_one_reason_share_a_line() -> None:
    absent = {"a": ("one", "so"), "b": ("two", "other"), "c": ("three", "so")}
    assert absent_parts(absent) == ("One and three: skipped, because so", "Two: skipped, because other")


def test_a_section_with_something_in_it_is_not_absent() -> None:
    base = dataclasses.replace(of_task("matrix_completion"), probes=synthetic_probes.at_the_query())
    assert set(absent_sections(base, ("coefficients", "trajectory"), "")) == {"noise", "causal"}
    assert "weights" in absent_sections(base, (), "too many")


def test_interventions_that_were_skipped_are_not_described() -> None:
    moved, erased = test_causal_figures.moved(1), test_causal_figures.erased("w")
    assert interventions((), ()) == "nothing was changed"
    assert interventions((), erased) == "what a probe reads is erased"
    lost = test_causal_figures.moved(1, reason="skipped, because so", effect=None, error=None)
    assert interventions(lost, erased) == "what a probe reads is erased"
    assert interventions(moved, erased) == "other implicit weights are put in place and what a probe reads is erased"
