"""The terminal report: verdict first, readable at 80 columns, complete when piped."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
import synthetic_analyses
import synthetic_kinds
import synthetic_regression
from rich.console import Console
from shown import sections

from interp.reports.numbers import estimate
from interp.reports.registry import QUESTIONS
from interp.reports.sections.replacement import swap_finding
from interp.reports.terminal import print_analysis
from interp.results import Analysis


def printed(analysis: Analysis, width: int = 80, encoding: str = "utf-8", *, terminal: bool = False) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=stream, width=width, force_terminal=terminal, color_system="standard" if terminal else None)
    print_analysis(analysis, console)
    stream.flush()
    return raw.getvalue().decode(encoding)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_fits_the_width_and_has_no_colour_when_piped(any_analysis: Analysis, width: int) -> None:
    text = printed(any_analysis, width)
    assert "\x1b" not in text
    assert "…" not in text.replace(any_analysis.verdict.summary, "")
    assert max(map(len, text.splitlines())) <= width
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 120])
def test_every_estimate_stands_on_one_line(width: int) -> None:
    analysis = synthetic_analyses.analysis(layers=7)
    text = printed(analysis, width)
    for layer in analysis.layers:
        for c in layer.omega.values():
            if c.live:
                assert estimate(c.output, c.stderr) in text
                assert estimate(c.refit, c.refit_stderr) in text
    for row in analysis.families:
        assert row.name in text and words(row.why) in words(text)
    for entry in analysis.evidence.losses:
        assert estimate(entry.mse, entry.stderr) in text


def test_verdict_comes_first() -> None:
    for name, first in (
        ("diag", "RECOGNIZED: DIAG"),
        ("unrecognized", "NOT RECOGNIZED"),
        ("refused", "DOES NOT SOLVE THE TASK"),
    ):
        analysis = synthetic_kinds.many()[name]
        lines = printed(analysis, 400).splitlines()
        assert lines[0] == first
        assert lines[1] == analysis.verdict.summary


def test_colour_only_in_a_terminal() -> None:
    assert "\x1b[1;32m" in printed(synthetic_analyses.analysis(), terminal=True)
    assert "\x1b[1;31m" in printed(synthetic_analyses.refused(), terminal=True)
    assert "\x1b[1;33m" in printed(synthetic_analyses.unrecognized(), terminal=True)


def test_a_dead_coefficient_has_no_number_and_an_undetermined_one_is_no_fact() -> None:
    text = printed(synthetic_analyses.disagreeing())
    lines = text.splitlines()
    dead = next(line for line in lines if "dead" in line)
    assert dead.count("—") == 3
    rows = [line for line in lines if "undetermined" in line]
    assert len(rows) == 2  # its own, and the reason below the table
    assert rows[0].split() == ["ω_xy", "(-3.56", "±", "0.13)e-4", "-3.555e-4", "undetermined"]
    assert "its standard error exceeds its size" in words(text)
    assert "the estimates disagree in sign for ω_yx of layer 3" in words(text)


def test_what_is_missing_is_named_with_its_reason() -> None:
    text = printed(synthetic_analyses.empty("nothing could be estimated, because the weights are all zero"))
    line = next(line for line in words(text).lower().split(" - ") if QUESTIONS["losses"].title in line)
    assert all(QUESTIONS[name].title in line for name in ("coefficients", "families", "distances"))
    assert "nothing could be estimated, because the weights are all zero" in words(text)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_streams_without_greek(any_analysis: Analysis, encoding: str) -> None:
    text = printed(any_analysis, encoding=encoding)
    assert (
        "+-" in text or not any_analysis.layers or all(c.output is None for c in any_analysis.layers[0].omega.values())
    )
    whole = printed(any_analysis)
    assert text.count("?") == whole.count("?") or "�" in whole  # of numbers that the data do not determine


def test_names_cannot_style_or_clear_the_terminal() -> None:
    text = printed(synthetic_analyses.hostile(), terminal=True)
    assert "\x1b[2J" not in text and "\x1b[31m" not in text
    assert "[red]markup[/red]" in text


def test_the_recovered_algorithm_has_its_own_numbers() -> None:
    """Also where the table of coefficients, a fit of all four omegas, calls a number undetermined."""
    table = sections(synthetic_analyses.refused())["formula"].table
    assert table is not None and [row[1] for row in table.rows] == ["ω_yx"] * 2
    assert all(row[2] in printed(synthetic_analyses.refused()) for row in table.rows)
    assert sections(synthetic_analyses.unrecognized())["formula"].table is None


def test_preconditioned_gradient_descent_has_its_formula_and_its_matrices() -> None:
    base = synthetic_analyses.preconditioned()
    assert base.recovered is not None
    wide = printed(base)
    assert "⟨α, Ω_1 x⟩" in wide and "-0.100 to -0.019" in words(wide)
    assert sections(base)["preconditioners"].table is None  # five columns with their errors do not fit
    narrow = dataclasses.replace(base, preconditioners=synthetic_regression.preconditioners(dim=2))
    text = printed(narrow)
    first = narrow.preconditioners[0].refit[0][0]
    assert f"{first:.4f} ± 0.0002" in text


def test_the_algorithm_in_the_networks_place() -> None:
    text = " ".join(printed(synthetic_analyses.noisy()).split())
    assert swap_finding(synthetic_analyses.noisy()) in text
