"""Probes as people see them: maps, curves beside controls, sentences, and a page of their own."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
import synthetic_analyses
import synthetic_probes as synthetic
from shown import notes, probe_figures
from test_html_report import Page, data_of

from interp.reports.html import render_report
from interp.reports.probe_scores import (
    above_all,
    gap_text,
    probe_finding,
    probe_groups,
    published_finding,
    target_words,
)
from interp.results import Figure, ProbeScore


def made(scores: tuple[ProbeScore, ...]) -> dict[str, Figure]:
    return {figure.name: figure for figure in probe_figures(scores)}


def test_a_target_counts_only_when_it_beats_every_control() -> None:
    """w is at chance; the current token can be read as well from the inputs: only the label was computed."""
    (token, within) = probe_groups(synthetic.at_the_query())
    assert probe_finding(token) == (
        "From one token, 1 of 3 targets is read better than by any control: label (R² 0.90 after 4 layers, +0.85 "
        "[+0.82, +0.88] above untrained models)"
    )
    assert probe_finding(within) == (
        "From the implicit weights of every prompt no target is read better than by all controls (1 tried)"
    )
    assert above_all(synthetic.score("label", 4, 4))
    assert not above_all(synthetic.score("current", 4, 4))  # above untrained models, but in the inputs
    assert not above_all(synthetic.score("label", 0, 4))


@pytest.mark.parametrize("control", ["untrained", "shuffled", "inputs"])
def test_any_control_can_refuse(control: str) -> None:
    base = synthetic.score("label", 4, 4)
    unsure = dataclasses.replace(base, selectivity_ci={**base.selectivity_ci, control: (-0.01, 0.9)})
    assert not above_all(unsure)
    missing = dataclasses.replace(
        base, selectivity_ci={name: ci for name, ci in base.selectivity_ci.items() if name != control}
    )
    assert not above_all(missing)


def test_scores_without_controls_make_no_claim() -> None:
    """Documents of an earlier version have controls, and no intervals of the differences."""
    (group,) = probe_groups(synthetic_analyses.with_probes().probes)
    assert probe_finding(group).endswith("there are no controls to compare with (1 tried)")
    assert gap_text(group.of("w (ridge)")[4], "untrained") == "+0.79"
    assert gap_text(group.of("w (ridge)")[4], "inputs") == "not measured"


def test_map_has_every_score_and_marks_what_says_nothing() -> None:
    scores = synthetic.at_the_query()
    figure = made(scores)["probe-0-map"]
    (panel,) = figure.panels
    (trace,) = panel.data
    expected = {(s.target, s.layer): s.r2 for s in scores if s.kind == "token"}
    for i, target in enumerate(panel.layout["yaxis"]["ticktext"]):
        for layer in range(5):
            assert trace["z"][i][layer] == expected[(target, layer)]
    assert trace["text"][1] == ["(0.01)", "0.23", "0.46", "0.68", "0.90"]
    assert trace["text"][2] == ["(1.00)"] * 5
    assert "untrained 0.05, above: +0.85 [+0.82, +0.88]" in trace["customdata"][1][4]
    assert len(figure.table.rows) == 15


def test_map_over_positions_has_one_panel_per_target() -> None:
    figure = made(synthetic.along_a_sequence())["probe-0-map"]
    assert [panel.title for panel in figure.panels] == ["w", "label", "current"]
    w, label, _ = (panel.data[0] for panel in figure.panels)
    assert [row[0] for row in w["z"]] == [None] * 4 and "not defined at this position" in w["customdata"][0][0]
    assert label["z"][3] == pytest.approx([0.9] * 3)
    assert figure.panels[0].layout["xaxis"]["ticktext"] == ["1", "5", "20"]


def test_curves_stand_beside_their_controls() -> None:
    figure = made(synthetic.at_the_query())["probe-0-depth"]
    (panel,) = (p for p in figure.panels if p.title == "label")
    lines = {trace["legendgroup"]: trace for trace in panel.data}
    own = [synthetic.score("label", layer, 4) for layer in range(5)]
    assert lines["network"]["y"] == [s.r2 for s in own]
    assert lines["network"]["error_y"]["array"] == pytest.approx([0.03] * 5)
    for name in ("untrained", "shuffled", "inputs"):
        assert lines[name]["y"] == [s.control[name] for s in own]
    assert panel.subtitle == "above untrained: +0.85 [+0.82, +0.88]"
    assert {series.key for series in figure.legend} == set(lines)
    assert figure.finding == ("By depth, at the query: after 4 layers, 1 of 3 targets beats all controls (label)")


def test_curves_against_position_only_where_there_are_several() -> None:
    assert not any(name.endswith("position") for name in made(synthetic.at_the_query()))
    figure = made(synthetic.along_a_sequence())["probe-0-position"]
    assert figure.finding.startswith(
        "From token 1 to token 20 probes after 3 layers get clearly neither better nor worse"
    )
    better = tuple(
        dataclasses.replace(s, r2=0.2, r2_ci=(0.1, 0.3)) if (s.target, s.position) == ("label", 1) else s
        for s in synthetic.along_a_sequence()
        if s.protocol == "sound"
    )
    assert made(better)["probe-0-position"].finding.endswith("get better for label")
    (panel,) = (p for p in made(better)["probe-0-position"].panels if p.title == "label")
    lines = {trace["legendgroup"]: trace for trace in panel.data}
    assert (lines["network"]["x"], lines["network"]["y"][0]) == ([1, 5, 20], 0.2)


def test_published_protocol_claims_nothing() -> None:
    groups = probe_groups(synthetic.along_a_sequence())
    assert [group.protocol for group in groups] == ["sound", "mesa"]
    assert published_finding(groups[1]) == (
        "As published (mesa), from one token: lowest mean squared error of label 0.12 after 3 layers, token 20"
    )
    figure = made(synthetic.along_a_sequence())["probe-1"]
    (panel,) = figure.panels
    assert [trace["y"] for trace in panel.data][2] == pytest.approx([10 / (p + 1) / 3 for p in (1, 5, 20)])
    assert "does not say whether a network is needed" in figure.description


@pytest.mark.parametrize("scores", [synthetic.at_the_query(), synthetic.along_a_sequence(), synthetic.at_the_query(12)])
def test_figures_are_valid_plotly(scores: tuple[ProbeScore, ...]) -> None:
    for figure in probe_figures(scores):
        assert figure.finding and figure.description and figure.table.rows
        assert all(len(row) == len(figure.table.header) for row in figure.table.rows)
        for panel in figure.panels:
            go.Figure(data=panel.data, layout=panel.layout)
            assert all(panel.layout[axis]["title"]["text"] for axis in ("xaxis", "yaxis"))


def test_page_of_probes_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    report = synthetic.report(synthetic.along_a_sequence())
    path = tmp_path / "probes.html"
    render_report(report).write(path)
    text = path.read_text(encoding="utf-8")
    assert text == render_report(report).text
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids)) and {"found", "targets", "probes", "notes", "provenance"} <= set(ids)
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"} and "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    words = page.words
    assert "1 of 3 targets is read better than by any control: label" in words
    assert "formula of label" in words and "on 1024 prompts" in words
    assert "w: skipped, because the target is not defined at this position" in words
    assert len(text.encode()) < 5.3e6


def test_names_of_targets_are_only_ever_text() -> None:
    page = Page(render_report(synthetic.hostile()).text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any("alert(" in text for attributes, text in page.scripts if not attributes.get("type"))
    for content in data_of(page):
        assert not re.search(r"<(?!/?sub>|br>|/?extra>)", str(content))


def test_analysis_shows_its_probes_or_says_that_there_are_none() -> None:
    base = synthetic_analyses.analysis()
    assert any(note.startswith("Probes: skipped") for note in notes(base))
    text = render_report(dataclasses.replace(base, probes=synthetic.at_the_query())).text
    assert 'id="figure-probe-0-depth"' in text and "Probes: skipped" not in text


def test_nothing_probed() -> None:
    assert not any(
        "figure-probe" in (attributes.get("id") or "")
        for _, attributes in Page(render_report(synthetic.report(())).text).tags
    )
    lost = tuple(synthetic.unscored("w", layer, None) for layer in range(3))
    assert "Nothing could be scored from one token" in Page(render_report(synthetic.report(lost)).text).words


def test_what_is_compared_is_measured_on_the_same_prompts() -> None:
    """A network scored on more prompts than its controls is drawn where the differences beside it come from."""
    scores = synthetic.on_fewer_prompts(synthetic.along_a_sequence())
    figures = made(scores)
    for name in ("probe-0-depth", "probe-0-position"):
        (panel,) = (p for p in figures[name].panels if p.title == "label")
        lines = {trace["legendgroup"]: trace for trace in panel.data}
        gap = lines["network"]["y"][-1] - lines["untrained"]["y"][-1]
        assert panel.subtitle == f"above untrained: {gap:+.2f} [{gap - 0.03:+.2f}, {gap + 0.03:+.2f}]"
        assert lines["network"]["error_y"]["array"][-1] == pytest.approx(0.03)
        assert "all on the same 384 prompts" in figures[name].description
    depth = {panel.title: {t["legendgroup"]: t for t in panel.data} for panel in figures["probe-0-depth"].panels}
    assert depth["current"]["network"]["y"][0] == depth["current"]["inputs"]["y"][0]  # nothing has run yet
    table = figures["probe-0-map"].table
    row = next(row for row in table.rows if row[:3] == ("label", "3", "20"))
    assert dict(zip(table.header, row, strict=True))["on 384 prompts"] == "0.90 [0.87, 0.93]"
    assert all(len(row) == len(table.header) for row in table.rows)
    assert "2048 in all" in figures["probe-0-map"].description
    finding = probe_finding(probe_groups(scores)[0])
    assert finding.endswith(
        "better than by any control (R² on the 384 prompts of the controls): label (R² 0.90 after 3 layers at token 1, "
        "+0.85 [+0.82, +0.88] above untrained models)"
    )


def test_targets_in_words() -> None:
    assert target_words(["previous-1", "previous-2"]) == (
        "previous-1, the state 1 token before; previous-2, the state 2 tokens before"
    )


def test_a_difference_that_counts_what_is_below_0_as_0_says_so() -> None:
    below = dataclasses.replace(synthetic.score("w", 4, 4), r2=-0.03, r2_ci=(-0.05, -0.01))
    scores = tuple(below if (s.target, s.layer) == ("w", 4) else s for s in synthetic.at_the_query())
    figures = made(scores)
    assert "an R² below 0 counts as 0" in figures["probe-0-depth"].description
    assert "Triangles" not in figures["probe-0-depth"].description  # nothing is below the edge
    assert figures["probe-0-map"].panels[0].data[0]["text"][0][4] == "(&lt;0)"
    assert "counts as 0" not in made(synthetic.at_the_query())["probe-0-depth"].description


def test_a_map_says_what_its_colours_stand_for_in_any_scheme() -> None:
    figure = made(synthetic.at_the_query())["probe-0-map"]
    assert figure.scale == ("R²: 0 or below", "1") and "pale" not in figure.description
    page = Page(render_report(synthetic.report(synthetic.at_the_query())).text)
    assert any(attributes.get("class") == "ramp" for _, attributes in page.tags)
