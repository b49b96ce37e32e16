"""The parts that plots share: labels that can be read, looks that can be told apart."""

from __future__ import annotations

import dataclasses
import math

import pytest
import synthetic_analyses
import synthetic_evidence
import synthetic_regression
from hypothesis import given
from hypothesis import strategies as st
from shown import absorption_figure, figure_of, step_figure, swap_figure

from interp.reports.baseline_looks import baseline_series, coinciding, names_explained
from interp.reports.plots import Point, count_axis, log_axis, tick_text, wrapped
from interp.results import Analysis

BASE = synthetic_analyses.noisy()
BASELINES = ("null", "gd-1", "gd-2", "gd-4", "gd-8", "ols", "constrr", "adarr", "tunedrr", "oracle", "true")


@given(st.floats(-12, 6), st.floats(0.002, 9), st.booleans(), st.sampled_from([3, 4, 6]))
def test_a_log_axis_has_two_labels_and_no_crowd(low: float, span: float, dense: bool, most: int) -> None:
    values = [10.0**low, 10.0 ** (low + span)]
    made = log_axis("error", values, dense=dense, most=most)
    seen = [v for v in made["tickvals"] if values[0] <= v <= values[1]]
    assert 2 <= len(seen) <= 12 or (not seen[1:] and span > 2 and most < 6)  # powers far apart, on a short axis
    assert len(set(made["ticktext"])) == len(made["ticktext"]) == len(made["tickvals"])


def test_a_log_axis_of_one_value_has_labels() -> None:
    assert len(log_axis("error", [0.7], dense=False)["tickvals"]) > 2
    assert log_axis("error", [], dense=False)["tickvals"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (20.0, "20"), (1e-5, "10⁻⁵"), (2e-5, "2·10⁻⁵"), (1e18, "10¹⁸"), (1.05, "1.05")]
)
def test_labels_of_axes_are_typeset(value: float, text: str) -> None:
    assert tick_text(value) == text


@pytest.mark.parametrize("most", [1, 2, 7.5, 40])
def test_whole_things_are_counted_in_whole_numbers(most: float) -> None:
    made = count_axis("steps", most)
    assert all(v == int(v) for v in made["tickvals"]) and len(made["tickvals"]) <= 8
    assert made["range"][0] < 0 and made["range"][1] > most


def test_a_label_is_whole_and_its_brackets_stay_on_a_line() -> None:
    text = "two preconditioned gradient steps, tuned on the task (x 1.33 up to 17.8)"
    lines = wrapped(text).split("<br>")
    assert " ".join(lines).replace("\N{NO-BREAK SPACE}", " ") == text and max(map(len, lines)) <= 24
    assert any(line.endswith("17.8)") and "(x" in line for line in lines)
    assert wrapped("<b>&") == "&lt;b&gt;&amp;"


def test_no_two_baselines_look_alike() -> None:
    looks = [baseline_series(name, name, BASELINES) for name in BASELINES]
    assert len({(s.colour, s.dash, s.symbol) for s in looks}) == len(looks)
    assert len({s.colour for s in looks}) == len(looks)
    for kind in (looks[1:5], looks[6:9]):
        assert len({s.dash for s in kind}) == len({s.symbol for s in kind}) == len(kind)


def points(*values: float) -> list[Point]:
    return [Point(k, v, None, "") for k, v in enumerate(values)]


def test_curves_on_each_other_are_named() -> None:
    curves = {"a": points(1, 0.1, 0.01), "b, too": points(1.001, 0.1, 0.01), "c": points(1, 0.2, 0.01)}
    assert coinciding(curves, log=True) == " Curves that lie on each other: a and “b, too”."
    assert coinciding({"a": curves["a"], "c": curves["c"]}, log=True) == ""
    assert coinciding({"a": points(0.0, 1.0), "b": points(0.0, 1.0)}, log=False).endswith("a and b.")


def changed(**fields: object) -> Analysis:
    return dataclasses.replace(BASE, evidence=dataclasses.replace(BASE.evidence, replaced=512, **fields))  # type: ignore[arg-type]


def test_errors_that_fall_are_drawn_not_put_at_an_edge() -> None:
    (swap,) = synthetic_evidence.swaps(1, exact=False)
    swap = dataclasses.replace(
        swap, swapped=synthetic_evidence.outcome(-0.7, 0.6), idle=synthetic_evidence.outcome(-2.3, 0.0)
    )
    figure = swap_figure(changed(swaps=(swap,)))
    assert figure is not None and "Triangles" not in figure.description
    assert [trace["y"] for trace in figure.panels[0].data] == [[-0.7], [-2.3]]
    assert figure.panels[0].layout["yaxis"].get("type") != "log"


def test_a_prediction_far_off_does_not_hide_what_the_network_does() -> None:
    entry = synthetic_regression.adaptation(0, (0.05, 0.01))
    bins = tuple(dataclasses.replace(b, by_weights=b.by_weights - 40.0 * k) for k, b in enumerate(entry.bins))
    entry = dataclasses.replace(entry, bins=bins, r2_by_weights=-5662.0, r2_by_weights_ci=(-6123.0, -5293.0))
    assert BASE.regression is not None
    figure = step_figure(dataclasses.replace(BASE, regression=dataclasses.replace(BASE.regression, step=(entry,))))
    assert figure is not None
    (panel,) = figure.panels
    low, high = panel.layout["yaxis"]["range"]
    assert -0.1 < low < 0.01 and 0.05 < high < 0.2
    assert panel.subtitle.endswith("weights far off (below -10)")


def test_a_rise_near_one_fills_its_axis() -> None:
    figure = absorption_figure(changed(absorption=synthetic_evidence.absorption(0.983, 0.99, 0.999)))
    assert figure is not None
    low, high = figure.panels[0].layout["yaxis"]["range"]
    assert 0.95 < low < 0.97 and 1 < high < 1.01
    wide = absorption_figure(changed(absorption=synthetic_evidence.absorption(-4.0, 0.5, 0.999)))
    assert wide is not None and wide.panels[0].layout["yaxis"]["range"][0] == pytest.approx(-0.155)


def test_the_place_of_training_is_named_above_the_plot() -> None:
    figure = figure_of(BASE, "profile")
    assert figure is not None
    (word,) = figure.panels[0].layout["annotations"]
    assert (word["y"], word["yanchor"]) == (1, "bottom") and figure.panels[0].layout["margin"]["t"] > 20
    assert math.isfinite(figure.panels[0].layout["yaxis"]["range"][0])


def test_kinds_of_ridge_are_explained_where_they_are_drawn() -> None:
    assert names_explained(["null", "ols"]) == ""
    text = names_explained(BASELINES)
    assert text.startswith(" Ridge, one penalty: ") and "tuned adaptive ridge: that noise variance times" in text
