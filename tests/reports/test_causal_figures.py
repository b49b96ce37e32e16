"""Causal checks as figures and sentences: what follows, what is missed, and what was not made."""

from __future__ import annotations

import dataclasses

import plotly.graph_objects as go
import synthetic_analyses
import synthetic_probes
from shown import causal_figures
from test_causal_table import ERASED, MOVED
from test_html_report import Page

from interp.reports.html import render_report
from interp.reports.sections.interventions import erasure_finding, linearity_finding, transplant_finding
from interp.results import Erasure, ImplicitFit, Transplant

NOTHING = (None, None)
EXACT = dataclasses.replace(MOVED, effect=1.0, effect_ci=(1.0, 1.0))


def moved(*layers: int, **fields: object) -> tuple[Transplant, ...]:
    return tuple(dataclasses.replace(EXACT, layer=layer, **fields) for layer in layers)


def erased(target: str, **fields: object) -> tuple[Erasure, ...]:
    return tuple(dataclasses.replace(ERASED, target=target, layer=layer, **fields) for layer in (1, 2))


def fit(layer: int, r2: float | None, position: int | None = None) -> ImplicitFit:
    ci = NOTHING if r2 is None else (r2 - 0.02, min(r2 + 0.02, 1.0))
    return ImplicitFit(
        layer=layer, position=position, rows="tokens", linearity_r2=r2, linearity_r2_ci=ci, prompts=256,
        reason=None if r2 is not None else "skipped, because nothing is there",
    )  # fmt: skip


def test_predictions_that_follow_everywhere_somewhere_and_nowhere() -> None:
    assert transplant_finding(moved(1, 2, 3)) == (
        "The network predicts from its implicit weights: given those of another prompt, it predicts what they imply, "
        "after 1 to 3 layers (of the change, it misses 2e-29 at most)"
    )
    partly = (*moved(1), *moved(2, error=0.3, effect=0.6, effect_ci=(0.5, 0.7)))
    assert transplant_finding(partly) == (
        "Predictions follow the implicit weights of another prompt after 1 layer, but not everywhere: after 2 layers "
        "the effect is 0.60 [0.50, 0.70], where 1 is expected"
    )
    assert transplant_finding(partly[1:]).startswith("Predictions do not follow transplanted implicit weights")
    assert transplant_finding(moved(1, reason="skipped", effect=None, error=None)).startswith("No implicit weights")


def test_what_is_missed_more_than_random_directions_is_used() -> None:
    idle = erased("current", effect=0.5, effect_ci=(0.4, 0.6), random=0.6, random_ci=(0.5, 0.7))
    assert erasure_finding((*erased("label"), *idle)) == (
        "The prediction needs what is erased, by the loss that is gained: label (0.46 [0.39, 0.53] after 1 layer; as "
        "many random directions: 0.03 [0.00, 0.05]). To erase current costs no more than to erase random directions"
    )
    gain = erased("label", effect=-0.3, effect_ci=(-0.4, -0.2), random=-0.5, random_ci=(-0.6, -0.45))
    assert "costs no more" in erasure_finding(gain)  # less harm than random directions do good is no use
    assert "No target could be erased" in erasure_finding(erased("w", reason="skipped", effect=None))


def test_linearity_names_the_worst_place() -> None:
    assert linearity_finding((fit(0, 1.0), fit(1, 1.0))).endswith("R² is 1 to rounding")
    assert "lowest after 2 layers and the tokens before 5, 0.80 [0.78, 0.82]" in linearity_finding(
        (fit(0, None), fit(1, 1.0, 5), fit(2, 0.8, 5))
    )
    assert "could not be scored" in linearity_finding((fit(0, None),))


def test_figures_hold_effects_intervals_and_controls() -> None:
    figures = {f.name: f for f in causal_figures((fit(1, 0.9),), moved(1, 2), erased("label"))}
    assert set(figures) == {"linearity", "transplants", "erasures"}
    lines = {trace["legendgroup"]: trace for trace in figures["transplants"].panels[0].data}
    assert set(lines) == {"weights", "random"}
    assert lines["weights"]["y"] == [1.0, 1.0] and lines["random"]["y"] == [0.31, 0.31]
    assert lines["random"]["error_y"]["array"][0] == 0.4 - 0.31
    (panel,) = figures["erasures"].panels
    assert panel.title == "label" and panel.subtitle == "after 2 layers: R² 0.61, erased 0.00"
    assert [trace["y"] for trace in panel.data] == [[0.03, 0.03], [0.46, 0.46]]
    for figure in figures.values():
        assert all(len(row) == len(figure.table.header) for row in figure.table.rows)
        for panel in figure.panels:
            go.Figure(data=panel.data, layout=panel.layout)
    assert causal_figures((), (), ()) == ()


def test_both_pages_show_them_or_say_that_there_are_none() -> None:
    checks = {"transplants": moved(1, 2), "erasures": erased("<img src=x>")}
    base = synthetic_probes.report(synthetic_probes.at_the_query())
    for plain in (base, synthetic_analyses.analysis()):
        assert 'id="figure-transplants"' not in render_report(plain).text
        page = Page(render_report(dataclasses.replace(plain, **checks)).text)
        assert ("figure", "figure-transplants") in [(tag, attributes.get("id")) for tag, attributes in page.tags]
        assert "<img src=x>" in page.words and not any(tag == "img" for tag, _ in page.tags)
    missing = dataclasses.replace(base, erasures=erased("w", reason="skipped, because so", effect=None))
    assert "erasure of w after 1, 2 layers: skipped, because so" in Page(render_report(missing).text).words
