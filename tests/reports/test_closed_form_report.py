"""What a report says of an embedded network: conditions first, then slots, heads, the division and other scales."""

from __future__ import annotations

import dataclasses
import io
import re

import synthetic_analyses
import synthetic_closed_form as synthetic
import synthetic_kinds
from rich.console import Console
from shown import figures

from interp.reports.html import render_report
from interp.reports.sections.closed_form import checks_finding, rescaled_finding, slots_finding
from interp.reports.sections.families import family_error
from interp.reports.terminal import print_analysis
from interp.results import Analysis


def printed(analysis: Analysis, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_analysis(analysis, Console(file=stream, width=80))
    stream.flush()
    return re.sub(r"\s+", " ", raw.getvalue().decode(encoding))


def test_the_terminal_says_which_conditions_hold() -> None:
    text = printed(synthetic_kinds.many()["closed-form"])
    assert text.startswith("RECOGNIZED: CLOSED-FORM")
    assert "All 2 conditions of the closed form hold" in text
    assert "slot 0: -(x - mean), slot 1: a constant; 1 of the slots hold mixtures" in text
    assert "numerator and denominator" in text and "120 of the network's 229 numbers are not 0" in text
    failed = printed(synthetic_kinds.many()["not-closed-form"])
    assert failed.startswith("NOT RECOGNIZED") and "not: division" in failed


def test_a_stream_without_greek_still_has_the_formula() -> None:
    assert "yhat = ybar + (C / V)(u - xbar)" in printed(synthetic_kinds.many()["closed-form"], "ascii")


def test_findings_are_computed_from_the_numbers() -> None:
    found = synthetic.closed_form()
    assert rescaled_finding(found) == "The network follows the closed form (R² 0.9 or more) with x times 1/4 to 4"
    assert checks_finding(synthetic.closed_form(False)).endswith("not: division")
    assert slots_finding(found).startswith("Before the last layer, slot 0")


def test_figures_show_the_division_and_rivals_below_the_axis_at_its_edge() -> None:
    made = figures(synthetic_kinds.many()["closed-form"])
    assert {"division", "rescaled"} <= set(made)
    form, gd, _ = made["rescaled"].panels[0].data
    assert form["x"] == [0.25, 1.0, 4.0] and form["y"] == [0.95, 0.998, 0.97]
    assert min(gd["y"]) == -0.2 and "triangle-down" in gd["marker"]["symbol"]
    assert len(made["rescaled"].table.rows) == 3
    assert len(made["division"].panels[0].data) == 1  # the first layer has no bins


def test_the_html_report_has_the_section_and_only_then() -> None:
    page = render_report(synthetic_kinds.many()["closed-form"]).text
    assert 'id="closed-form"' in page
    assert page.index('id="closed-form"') < page.index('id="evidence"')
    assert 'id="closed-form"' not in render_report(synthetic_kinds.many()["diag"]).text


def test_a_gradient_method_that_is_nearer_at_smaller_x_is_explained() -> None:
    """Fitted at factor 1, it explodes on the widest held-out prompts of that size, and not on narrower ones."""
    base = synthetic.analysed(synthetic_analyses.analysis())

    def drawn(at_1: float) -> str:
        families = (
            dataclasses.replace(base.families[0], name="closed-form", fidelity=0.99, fidelity_ci=(0.98, 0.995)),
            dataclasses.replace(base.families[0], name="gd", fidelity=at_1, fidelity_ci=(-3.0, 0.9)),
        )
        return figures(dataclasses.replace(base, families=families))["rescaled"].description

    assert "explode" in drawn(-0.3) and "explode" not in drawn(0.6)  # 0.3 at a quarter of x


def test_an_error_of_rounding_is_called_so_everywhere() -> None:
    base = synthetic.analysed(synthetic_analyses.analysis())
    assert family_error(base, 0.0) == family_error(base, 1e-30) == "0 to rounding"
    assert family_error(base, 0.5) == "0.5000" and family_error(base, None) == "—"
