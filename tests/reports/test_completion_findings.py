"""What is said of the parts of x that a sketched network reads and conditions."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
import synthetic_analyses
from shown import agreement_figure, law_figure, sections
from synthetic_completion import completion

from interp.reports.sections.eagle import agreement_finding, completion_sentences
from interp.results import RecoveredCompletion

AHEAD = ((0.5, 0.9, 0.7), (0.2, 0.3, 0.8), (0.1, 0.1, 0.1))  # the last layer's update of x is never read
BEHIND = ((0.5, 0.1, 0.1), (0.9, 0.3, 0.2), (0.9, 0.9, 0.9))


def said(text: str, **fields: object) -> str:
    return next((s for s in completion_sentences(completion("sketch", **fields)) if text in s), "")  # type: ignore[arg-type]


def test_one_sketch_for_reading_and_writing_is_said_to_be_eagles() -> None:
    assert said("condition what they read") == "They condition what they read, as in EAGLE (Π′ = Π)"
    assert not said("another part of x")


def test_what_is_conditioned_is_compared_with_what_is_read_before_and_after() -> None:
    text = said("another part of x", read_by=AHEAD)
    # later: (.9 + .7 + .8) / 3; itself: (.5 + .3) / 2; earlier: .2; at random: 2 of 4 directions
    for part in ("of rank 2)", "later layers read 80 %", "itself 40 %", "earlier ones 20 %", "50 % for subspaces at"):
        assert part in text
    assert text.endswith("they condition columns ahead of their use")
    assert "ahead" not in said("another part of x", read_by=BEHIND)


def test_results_that_do_not_hold_it_say_nothing_of_it() -> None:
    found = completion("sketch")
    older = replace(found, sketch=tuple(replace(row, read_by=(), written_rank=None) for row in found.sketch))
    assert not any("condition" in s for s in completion_sentences(older))


@pytest.mark.parametrize(
    ("regime", "written", "formula"),
    [
        ("sketch", [[1.0], [0.0]], "Π′ Σ Π x"),
        ("sketch", None, "Π Σ Π x"),
        ("machines", None, "(M ⊙ Σ) x"),
        ("full", None, "Σ x"),
    ],
)
def test_the_formulas_of_a_page_are_those_of_its_regime(regime: str, written: object, formula: str) -> None:
    base = synthetic_analyses.analysis()
    assert base.recovered is not None
    fields = {field.name: getattr(base.recovered, field.name) for field in dataclasses.fields(base.recovered)}
    layers = len(base.layers)
    structure: dict[str, Any] = {"machines": ((0, 1), (2, 3))} if regime == "machines" else {}
    if regime == "sketch":
        structure = {"sketches": ([[1.0], [0.0]],) * layers, "written": (written,) * layers}
    recovered = RecoveredCompletion(**fields | structure, outputs=2, algorithm="gd++")
    lines = sections(replace(base, recovered=recovered, completion=completion(regime)))["formula"].formula
    assert formula in lines[0]
    assert ("αᵀ Π x" in lines[0]) is (regime == "sketch")
    assert ("Π′ Σ" in lines[0]) is (written is not None)


def test_the_law_is_drawn_with_its_intervals_and_without_what_is_not_known() -> None:
    figure = law_figure(replace(synthetic_analyses.analysis(), completion=completion()))
    assert figure is not None and figure.finding.startswith("The scaling law of EAGLE holds")
    eta, gamma = figure.panels[0].data
    assert eta["x"] == [0, 1] and eta["y"] == pytest.approx([0.8, 0.9]) and gamma["x"] == [0, 1, 2]
    assert [y + bar for y, bar in zip(gamma["y"], gamma["error_y"]["array"], strict=True)] == pytest.approx([0.6] * 3)
    lines = figure.panels[0].layout["shapes"]
    assert [line["y0"] for line in lines] == [0.85, 0.5] and lines[0]["line"]["color"] == eta["marker"]["color"]
    assert figure.table.rows[2][2] == "—"
    none = replace(completion(), laws=())
    assert law_figure(replace(synthetic_analyses.analysis(), completion=none)) is None
    wrong = replace(completion().laws[0], points=tuple(replace(p, gamma=-0.5) for p in completion().laws[0].points))
    backwards = law_figure(replace(synthetic_analyses.analysis(), completion=replace(completion(), laws=(wrong,))))
    assert backwards is not None and backwards.panels[0].data[1]["y"] == []


def test_the_agreement_is_said_by_its_worst_layer() -> None:
    found = completion()
    assert agreement_finding(found).endswith("a mean squared entry of (8.00 ± 0.10)e-4 at most, after 3 layers")
    same = tuple(replace(row, difference=0.0, difference_stderr=0.0) for row in found.agreement)
    assert agreement_finding(replace(found, agreement=same)).endswith("the network's tokens, to rounding")
    lost = (replace(found.agreement[0], difference=None), *found.agreement[1:])
    assert agreement_finding(replace(found, agreement=lost)).endswith("explodes")
    figure = agreement_figure(replace(synthetic_analyses.analysis(), completion=found))
    assert figure is not None and len(figure.table.header) == len(figure.table.rows[0]) == 4


def test_a_law_that_explains_less_than_nothing_explains_nothing() -> None:
    found = completion()
    flat = replace(found, laws=(replace(found.laws[0], explained=-1.58),))
    assert any("|A|² explains nothing of how the steps change" in s for s in completion_sentences(flat))
