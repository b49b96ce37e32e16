"""The construction's error follows its law, and the table of claims says what the results hold."""

from __future__ import annotations

import itertools

import pytest

from interp.models.closed_form import closed_form
from interp.models.tasks import SimpleRegression
from interp.papers import closed_form_law as laws
from interp.papers.closed_form import PAPER, seed_rows, summary_rows
from interp.papers.closed_form_law import LawPoint, construction_errors, fit_law, law_points
from interp.papers.paper import shipped_results


def test_a_planted_law_is_found_again() -> None:
    a, b, c, d = 0.07, 20.0, 2.0, 1.3
    points = []
    for K, r, g in itertools.product((30.0, 300.0, 3e3), (30.0, 300.0, 3e3), (10.0, 1e3, 1e5)):
        terms = (a / K, b / r**2, c / (g * r), d / (g * K))
        points.append(LawPoint(K=K, r=r, G=g * r, error=sum(term**2 for term in terms) ** 0.5))
    found = fit_law(points, "context")
    assert found.coefficients == pytest.approx((a, b, c, d), rel=1e-4)
    assert found.worst == pytest.approx(1.0, abs=1e-2)


def test_the_error_of_the_construction_follows_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "PROMPTS", 500)
    monkeypatch.setattr(laws, "GRID", {"K": (30.0, 1e3, 1e4), "r": (30.0, 300.0, 1e4), "G/r": (10.0, 1e3, 1e6)})
    found = fit_law(law_points("context"), "context")
    assert found.spread < 0.3 and found.worst < 2.0  # over five decades of errors
    assert all(error < 0.5 * value for value, error in zip(found.coefficients, found.stderr, strict=True))


def test_the_construction_is_within_the_bar() -> None:
    rows = {(row.name, row.against): row for row in construction_errors((20,))}
    best = rows["context", "least-squares"]
    assert best.error < 2e-5 and best.stderr < 0.2 * best.error
    assert rows["all", "least-squares"].error > 0.05 > rows["all", "shrunken"].error


def test_what_ships_says_how_it_was_made_and_meets_its_claims() -> None:
    results = shipped_results("closed-form")
    table = summary_rows(results)
    assert any("relative error to least squares" in row["what"] for row in table)
    for form in ("context", "all"):
        entry = results[form]
        assert entry["provenance"] and all(row["start"] in ("random", "construction") for row in entry["rows"])
        # what is named has no failed condition, and what has one is not named
        assert all((row["verdict"] == "closed-form") is (not row["failed"]) for row in entry["rows"])
        share = next(r for r in table if f"keys {form}: seeds from random" in r["what"])["ours"]
        named = sum(r["verdict"] == "closed-form" for r in entry["rows"] if r["start"] == "random")
        assert share.startswith(f"{named} of ")


def test_sections_have_the_claims_every_seed_and_the_law() -> None:
    results = shipped_results("closed-form")
    sections = {section.name: section for section in PAPER.sections(results)}
    assert list(sections) == ["law-context", "law-all", "claims", "seeds"]
    assert sections["claims"].table.rows == tuple(tuple(row.values()) for row in summary_rows(results))
    assert len(sections["seeds"].table.rows) == sum(len(results[form]["rows"]) for form in ("context", "all"))
    points = results["construction"]["points"]["context"]
    figure = sections["law-context"].figure
    assert len(figure.table.rows) == len(points)
    measured, law = figure.panels[0].data[-2:]  # the largest r, where the error is that of K and G
    assert measured["x"] == law["x"] == sorted({point["K"] for point in points})
    assert law["y"] == pytest.approx(measured["y"], rel=0.8)
    few = PAPER.sections({"all": results["all"]})  # only what was measured
    assert [section.name for section in few] == ["claims", "seeds"]


def test_seeds_are_judged_like_any_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.papers.closed_form.SEED_PROMPTS", 512)
    monkeypatch.setattr("interp.identify.networks.token_network.MOST_LOSSES", 512)
    monkeypatch.setattr("interp.solvers.line_descent.STARTS", 1)
    (row,) = seed_rows([closed_form(SimpleRegression(context=10))], "construction")
    assert row["verdict"] == "closed-form" and row["failed"] == [] and row["start"] == "construction"
