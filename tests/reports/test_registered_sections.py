"""A question and an answer from outside the package are on the page, in the terminal and in JSON."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator

import pytest
import synthetic_analyses
from rich.console import Console

from interp.errors import UsageError
from interp.reports import document, section
from interp.reports.html import render_report
from interp.reports.registry import QUESTIONS
from interp.reports.terminal import print_analysis
from interp.results import Analysis, Section, Skipped, Table

DRIFT = Section(
    name="drift", title="Do the weights drift?", finding="They stay where they are",
    table=Table(header=("step", "drift"), rows=(("1", "0.125"),)), notes=("drift of ω_xx",),
)  # fmt: skip


def shown(analysis: Analysis) -> tuple[str, str, list[dict[str, object]]]:
    stream = io.StringIO()
    print_analysis(analysis, Console(file=stream, width=200))
    return render_report(analysis).text, stream.getvalue(), json.loads(document.dumps(analysis))["sections"]


def test_an_answer_is_printed_three_times() -> None:
    analysis = dataclasses.replace(synthetic_analyses.analysis(layers=1), answers={"drift": DRIFT})
    page, text, sections = shown(analysis)
    assert 'id="drift"' in page and 'href="#drift"' in page and "<i>ω</i><sub>xx</sub>" in page
    assert all(part in text for part in (DRIFT.title, DRIFT.finding, "0.125"))
    (entry,) = (s for s in sections if s["name"] == "drift")
    assert entry["table"] == {"header": ["step", "drift"], "rows": [["1", "0.125"]]}
    assert document.loads(document.dumps(analysis)).answers == {"drift": DRIFT}


def test_a_registered_question_is_asked_and_may_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.reports.registry.QUESTIONS", QUESTIONS | {})
    asked: list[int] = []

    @section("drift", title="drift of the weights", where="evidence")
    def drift(analysis: Analysis) -> Iterator[Section | Skipped]:
        asked.append(len(analysis.layers))
        yield DRIFT if len(asked) == 1 else Skipped("it was asked before")

    analysis = synthetic_analyses.analysis(layers=1)
    assert 'id="drift"' in render_report(analysis).text
    page = render_report(analysis).text
    assert 'id="drift"' not in page and "Drift of the weights: skipped, because it was asked before" in page
    assert asked == [1, 1]
    with pytest.raises(UsageError, match="drift"):
        section("drift")(drift)
