"""The comparison with classical solvers as people see it: always as behaviour, with intervals, in page and terminal."""

from __future__ import annotations

import dataclasses
import io

import plotly.graph_objects as go
import pytest
import synthetic_analyses
from rich.console import Console
from shown import figure_of, trajectory_figure
from synthetic_behaviour import behaviour
from test_html_report import Page

from interp.reports.html import render_report
from interp.reports.sections.behaviour import behaviour_finding, shift_finding, similarity_finding, weights_finding
from interp.reports.terminal import print_analysis
from interp.results import Analysis, Behaviour


def analysis(found: Behaviour | None = None) -> Analysis:
    return dataclasses.replace(synthetic_analyses.analysis(), behaviour=found or behaviour())


def test_sentences() -> None:
    assert behaviour_finding(behaviour()) == (
        "Behaves most like gradient descent after 3 steps: it misses 0.0040 [0.0036, 0.0044] of the energy of the "
        "network's weights after the last layer. As close, or nearly: ridge path"
    )
    assert behaviour_finding(behaviour(None)).startswith(
        "Behaves like no classical solver with fixed numbers: the closest is gradient descent after 3 steps"
    )
    assert similarity_finding(behaviour()) == (
        "Its errors are those of gradient descent to a cosine of 0.990 [0.980, 1.000] (those of predicting zero: 0.70)"
    )
    assert similarity_finding(behaviour(None)) == ""
    assert shift_finding(behaviour()) == (
        "Its predictions are those of gradient descent to 1.0 % with the task itself; they differ most with twice as "
        "much noise (0.20 [0.10, 0.30])"
    )
    unlike = [dataclasses.replace(s, disagreement=dict.fromkeys(s.disagreement, 1.0)) for s in behaviour().shifts]
    assert shift_finding(dataclasses.replace(behaviour(), shifts=tuple(unlike))) == (
        "Its predictions are unlike those of gradient descent, in the task and outside of it"
    )
    fitted = dataclasses.replace(behaviour(), weights="tokens", linearity_r2=(1.0, 0.9, 0.85, 0.8))
    assert "fit to the tokens of every prompt; after the last layer it accounts for 80 %" in weights_finding(fitted)
    assert weights_finding(behaviour()) == ""
    nothing = dataclasses.replace(behaviour(), matches=(), shifts=())
    assert "Nothing could be compared" in behaviour_finding(nothing) and "nothing could be" in shift_finding(nothing)


def test_figures_hold_every_match_with_its_interval() -> None:
    made = figure_of(analysis(), "trajectory")
    assert made is not None and len(made.table.rows) == 9
    distance, steps = made.panels
    assert [trace["legendgroup"] for trace in distance.data] == ["solver-0", "solver-1", "solver-2"]
    assert distance.data[0]["y"] == [0.004] * 3
    assert distance.data[0]["error_y"]["array"][0] == pytest.approx(0.0004)
    assert [trace["y"] for trace in steps.data] == [[1.0, 2.0, 3.0]] * 2  # the ridge path has no steps
    assert steps.data[1]["error_y"]["array"] == [1.0] * 3
    assert made.table.rows[-1][2] == "12 [12, 12] (penalty)" or made.table.rows[-1][2].endswith("(penalty)")
    shifts = figure_of(analysis(), "shifts")
    assert shifts is not None and shifts.table.rows[2][1] == "skipped, because most diverge"
    assert shifts.table.rows[-1][:2] == ("sensitivity to the query", "0.010 [0.005, 0.020]")
    for figure in (made, shifts):
        assert all(len(row) == len(figure.table.header) for row in figure.table.rows)
        for panel in figure.panels:
            go.Figure(data=panel.data, layout=panel.layout)
    assert figure_of(synthetic_analyses.analysis(), "trajectory") is None
    found = behaviour()
    same = tuple(dataclasses.replace(m, distance=0.004) if m.solver == "cg" else m for m in found.matches)
    alike = trajectory_figure(analysis(dataclasses.replace(found, matches=same)))
    assert alike is not None and "on each other: gradient descent and conjugate gradients." in alike.description


@pytest.mark.parametrize("closest", ["gd", None])
def test_page_and_terminal_call_it_behaviour(closest: str | None) -> None:
    page = Page(render_report(analysis(behaviour(closest))).text)
    assert "This is behaviour, seen from outside" in page.words and any(
        a.get("id") == "figure-trajectory" for _, a in page.tags
    )
    written = io.StringIO()
    print_analysis(analysis(behaviour(closest)), Console(width=80, file=written))
    text = " ".join(written.getvalue().split())
    assert "As behaviour, beside classical solvers" in text and "gradient descent" in text
    assert ("no classical solver" in text) == (closest is None)
    assert max(map(len, written.getvalue().splitlines())) <= 80
