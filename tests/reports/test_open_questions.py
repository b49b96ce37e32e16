"""The first screen says what an analysis leaves open, and only that."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
import synthetic_evidence as made
from synthetic_completion import completion

from interp.reports.html import render_report
from interp.reports.numbers import at_least
from interp.reports.sections.eagle import step_sentence
from interp.reports.sections.verdict import open_questions
from interp.results import Analysis, RecoveredOmegas

BASE = synthetic_analyses.analysis()


def changed(fidelity: float | None = 1.0, **fields: object) -> Analysis:
    verdict = dataclasses.replace(BASE.verdict, fidelity=fidelity)
    return dataclasses.replace(BASE, verdict=verdict, evidence=dataclasses.replace(BASE.evidence, **fields))  # type: ignore[arg-type]


def said(analysis: Analysis) -> str:
    return " | ".join(open_questions(analysis))


def test_every_analysis_leaves_something_open(any_analysis: Analysis) -> None:
    questions = open_questions(any_analysis)
    assert len(set(questions)) == len(questions) > 0
    page = render_report(any_analysis).text
    assert page.index('class="open"') < page.index('id="left"')


def test_a_gap_in_fidelity_is_named_and_an_exact_account_has_none() -> None:
    assert "which leaves 0.24 % of the variance" in said(changed(fidelity=0.9976))
    assert "unexplained" not in said(changed(fidelity=1.0 - 1e-12))


def test_layers_that_the_algorithm_does_not_fit() -> None:
    assert "What layer 2 does inside the network" in said(changed(swaps=made.swaps(3, wrong=(2,))))
    assert "What layers 1 and 2 do inside the network" in said(changed(swaps=made.swaps(3, wrong=(1, 2))))
    assert "inside the network" not in said(changed(swaps=made.swaps(3)))
    assert "inside the network" not in said(changed(swaps=made.swaps(1, wrong=(0,))))  # the gap says it


def test_prompts_that_were_not_tried() -> None:
    assert "none were tried" in said(changed(stress=()))
    whole = made.stress()
    assert "beyond those tried: 5 to 80 examples" in said(changed(stress=whole))
    less = (dataclasses.replace(whole[0], agrees=(5.0, 20.0)), *whole[1:])
    assert "beyond 5 to 20 examples" in said(changed(stress=less)) and "off by over 1 %" in said(changed(stress=less))
    assert "even on those of training" in said(changed(stress=made.stress(left=0.4)))


def test_only_numbers_of_the_algorithm_are_doubted() -> None:
    doubted = synthetic_analyses.disagreeing()
    assert "The exact value of ω_" in said(doubted)
    assert isinstance(doubted.recovered, RecoveredOmegas)
    emptied = tuple(dataclasses.replace(layer, coefficients={}) for layer in doubted.recovered.layers)
    without = dataclasses.replace(doubted, recovered=dataclasses.replace(doubted.recovered, layers=emptied))
    assert "exact value" not in said(without)


def test_unrecognized_and_unscored_networks() -> None:
    assert "none of the known ones is it; the nearest leaves" in said(synthetic_analyses.unrecognized())
    nothing = synthetic_analyses.unrecognized()
    nothing = dataclasses.replace(nothing, verdict=dataclasses.replace(nothing.verdict, fidelity=None))
    assert "no family could be scored" in said(nothing)


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "all"), (0.99999999, "more than 99.9999 %"), (0.9931, "at least 99.31 %"), (0.5, "at least 50 %")],
)
def test_a_share_that_is_all_is_not_called_at_least(share: float, words: str) -> None:
    assert at_least(share) == words


def test_the_steps_of_a_law_have_intervals() -> None:
    found = completion()
    assert step_sentence(found) == (
        "η = -ω_xx |A|² is 0.80 [0.70, 1.00] to 0.90 [0.70, 1.00] and γ = -ω_yx |A|² is 0.50 [0.40, 0.60] over the "
        "layers; the law of EAGLE asks for one number each"
    )
    assert step_sentence(dataclasses.replace(found, laws=())) == ""
