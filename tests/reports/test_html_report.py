"""The HTML report as text: complete, self-contained, escaped, within its size. The browser tests drive it."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import synthetic_analyses
from shown import figures

from interp.errors import UsageError
from interp.reports.heatmaps import heatmaps
from interp.reports.html import render_report
from interp.reports.numbers import estimate
from interp.reports.registry import sections_of
from interp.reports.typeset import typeset
from interp.results import Analysis, Weights


class Page(html.parser.HTMLParser):
    """Elements, ids and the text of scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "script":
            attributes, text = self.scripts.pop()
            self.scripts.append((attributes, text + data))
        elif not self._inside or self._inside[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def data_of(page: Page) -> list[Any]:
    return [json.loads(text) for attributes, text in page.scripts if attributes.get("type") == "application/json"]


def test_page_is_whole_and_the_same_twice(any_analysis: Analysis) -> None:
    text = render_report(any_analysis).text
    assert text == render_report(any_analysis).text
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert ("meta", {"charset": "utf-8"}) in page.tags
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {"verdict", *(entry.name for entry in sections_of(any_analysis)), "provenance"} <= set(ids)


def test_page_loads_nothing(any_analysis: Analysis) -> None:
    page = Page(render_report(any_analysis).text)
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    # plotly.js names the addresses of maps that no plot here asks for; the rest of the page names no address at all.
    programs = [text for attributes, text in page.scripts if not attributes.get("type")]
    assert sum("plotly.js v" in text[:200] for text in programs) == 1
    assert not any("http" in text for text in programs[1:])
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy and "unsafe-inline' ;" not in policy
    assert policy.count("sha256-") == len(programs)


def test_no_button_uploads_the_weights() -> None:
    text = render_report(synthetic_analyses.analysis()).text
    assert 'showSendToCloud: false, plotlyServerURL: ""' in text


def test_text_of_a_file_is_only_ever_text() -> None:
    page = Page(render_report(synthetic_analyses.hostile()).text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any("alert(" in text for attributes, text in page.scripts if not attributes.get("type"))
    assert synthetic_analyses.HOSTILE in page.words
    # Plotly reads a small HTML of its own: what it is given has no tag but those that the figures themselves write.
    for content in data_of(page):
        if "layout" in content:
            assert not re.search(r"<(?!/?sub>|br>|/?extra>)", json.dumps(content, ensure_ascii=False))


@pytest.mark.parametrize(("layers", "limit"), [(4, 5.2e6), (7, 6e6)])
def test_size(layers: int, limit: float) -> None:
    assert len(render_report(synthetic_analyses.analysis(layers=layers, dim=10, heads=4)).text.encode()) < limit


def test_every_number_of_the_analysis_is_in_a_table() -> None:
    analysis = synthetic_analyses.analysis()
    words = Page(render_report(analysis).text).words
    for text in ("-0.0156 ± 0.0002", "3.25 ± 0.10", "0.99969 [0.99962, 0.99974]", "0.0087 ± 0.0003", "99.31 %"):
        assert text in words
    for text in (analysis.checkpoint.sha256, "interp-probe zoo:diag-4 --report diag.html", "versions: torch"):
        assert text in words


def test_figures_are_valid_plotly(any_analysis: Analysis) -> None:
    for figure in figures(any_analysis).values():
        assert figure.finding and figure.description and figure.table.rows
        assert all(len(row) == len(figure.table.header) for row in figure.table.rows)
        for panel in figure.panels:
            go.Figure(data=panel.data, layout=panel.layout)  # raises for an unknown or ill-typed property
            for axis in ("xaxis", "yaxis"):
                assert panel.layout[axis]["title"]["text"] or panel.name.startswith(("losses", "omegas", "shifts"))


def test_points_of_the_coefficient_figure_are_the_coefficients() -> None:
    analysis = synthetic_analyses.disagreeing()
    panels = {panel.title: panel for panel in figures(analysis)["coefficients"].panels}
    for name in ("xx", "xy", "yx", "yy"):
        traces = {trace["legendgroup"]: trace for trace in panels[f"ω_{name}"].data}
        known = [(layer.index, layer.omega[name]) for layer in analysis.layers if layer.omega[name].live]
        assert traces["output"]["y"] == [c.output for _, c in known]
        assert traces["weight"]["y"] == [c.weight for _, c in known]
        assert traces["refit"]["y"] == [c.refit for _, c in known if not c.undetermined]
        assert traces["output"]["error_y"]["array"] == pytest.approx([1.959964 * (c.stderr or 0) for _, c in known])
    assert len({trace["marker"]["symbol"] for trace in panels["ω_yx"].data}) == 3  # told apart without colour
    assert [note["x"] for note in panels["ω_xx"].layout["annotations"]] == [3]  # dead in the last layer


def test_bars_on_a_log_axis_stay_above_zero() -> None:
    base = synthetic_analyses.analysis()
    last = base.implicit[-1]
    wide = dataclasses.replace(last, distance_stderr=dict.fromkeys(last.distance, 5.0))
    (panel,) = figures(dataclasses.replace(base, implicit=(*base.implicit[:-1], wide)))["distances"].panels
    for trace in panel.data:
        assert all(value - below > 0 for value, below in zip(trace["y"], trace["error_y"]["arrayminus"], strict=True))


def test_distances_of_zero_are_counted_not_dropped_silently() -> None:
    base = synthetic_analyses.analysis()
    exact = dataclasses.replace(base.implicit[-1], distance=base.implicit[-1].distance | {"gd-4": 0.0})
    figure = figures(dataclasses.replace(base, implicit=(*base.implicit[:-1], exact)))["distances"]
    assert "Distances of 0, which this axis cannot show: 1." in figure.description


def test_heat_maps_hold_the_weights_exactly() -> None:
    analysis = synthetic_analyses.analysis(layers=3, heads=2)
    data = heatmaps(analysis).data
    assert data is not None
    for name in ("Q", "P"):
        values = np.frombuffer(base64.b64decode(data[name]), dtype="<f8")
        np.testing.assert_array_equal(values.reshape(3, 2, 11, 11), np.array(getattr(analysis.weights, name)))


def test_entries_that_are_not_finite_are_counted() -> None:
    made = heatmaps(synthetic_analyses.with_bad_weights())
    assert (made.not_finite, made.numbers) == (3, 2 * 4 * 121)
    assert "3 of 968 entries are not finite" in Page(render_report(synthetic_analyses.with_bad_weights()).text).words


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (Weights(Q=None, P=None, why="left out: 10 numbers"), "left out: 10 numbers"),
        (Weights(Q=[[1.0]], P=[[1.0]]), "not a (layer, head, 11, 11) array"),
        (Weights(Q=[[[[1.0, "a"]]]], P=[]), "not a (layer, head, 11, 11) array"),
        (Weights(Q=[[[[0.0] * 11] * 11]], P=[[[[0.0] * 11] * 11] * 2]), "Q has shape"),
    ],
)
def test_weights_that_cannot_be_drawn_say_why(weights: Weights, why: str) -> None:
    analysis = dataclasses.replace(synthetic_analyses.analysis(), weights=weights)
    assert heatmaps(analysis).data is None
    assert why in Page(render_report(analysis).text).words


def test_preconditioned_descent_has_a_formula_and_its_matrices() -> None:
    analysis = synthetic_analyses.preconditioned()
    words = Page(render_report(analysis).text).words
    assert all(f"⟨α, Ω{layer} x⟩" in words for layer in range(2))
    for entry in analysis.preconditioners:
        assert estimate(entry.refit[0][0], entry.refit_stderr[0][0]) in words


def test_arrays_left_out_of_the_file_are_named_where_it_is_described() -> None:
    analysis = synthetic_analyses.analysis()
    left = dataclasses.replace(analysis.checkpoint, unused={"norm.<b>": "norm", "step": "scalar"})
    text = render_report(dataclasses.replace(analysis, checkpoint=left)).text
    assert "norm.&lt;b&gt; (norm) and step (scalar)" in text and "norm.<b>" not in text
    assert "left out of the file" not in render_report(analysis).text


def test_file_is_written_in_utf8_in_one_step(tmp_path: Path) -> None:
    base = synthetic_analyses.analysis()
    named = dataclasses.replace(base, checkpoint=dataclasses.replace(base.checkpoint, name="caf\udce9-\u03c9.npz"))
    path = tmp_path / "report.html"
    path.write_text("old")
    render_report(named).write(path)
    text = path.read_bytes().decode("utf-8")
    assert "caf?-\u03c9.npz" in text and "\r" not in text
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UsageError, match="cannot write"):
        render_report(base).write(tmp_path / "missing" / "report.html")


def test_reports_import_neither_torch_nor_plotly() -> None:
    code = (
        "import sys, interp.reports.html, interp.reports.terminal, interp.reports.document; "
        "print([m for m in ('torch', 'plotly', 'pandas', 'transformer_lens') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_channels_of_one_size_have_diagonals_between_them():
    """Q links a to b by a multiple of the identity: nothing on the matrix's own diagonal, all on a block's."""
    analysis = synthetic_analyses.analysis()
    Q = np.zeros((1, 1, 4, 4))
    Q[..., [0, 1], [2, 3]] = 3.0
    weights = dataclasses.replace(analysis.weights, Q=Q.tolist(), P=Q.tolist())
    checkpoint = dataclasses.replace(analysis.checkpoint, tokens=(("a", 2), ("b", 2)), layers=1, heads=1)
    made = heatmaps(dataclasses.replace(analysis, weights=weights, checkpoint=checkpoint))
    assert made.finding.startswith("100 % of the squared weights of Q") and made.finding.endswith("of the blocks")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x_μ ← x_μ + ω_xx Σ_μμ x_μ",
            "x<sub>μ</sub> ← x<sub>μ</sub> + <i>ω</i><sub>xx</sub> Σ<sub>μμ</sub> x<sub>μ</sub>",
        ),
        ("(s_{t-1}, s_t)", "(s<sub>t−1</sub>, s<sub>t</sub>)"),
        ("out += state <previous, query>", "out += state ⟨previous, query⟩"),
        ("Σ = s ∑_j y_j² e_j[g]^T", "Σ = s ∑<sub>j</sub> y<sub>j</sub>² e<sub>j</sub>[g]<sup>T</sup>"),
        ("⟨α, Ω_0 x⟩", "⟨α, Ω<sub>0</sub> x⟩"),
        ("the sum of s_j s_j^T", "the sum of s<sub>j</sub> s<sub>j</sub><sup>T</sup>"),
        ("(S_{t-1} S_{t-1}^T)^-1 s_t", "(S<sub>t−1</sub> S<sub>t−1</sub><sup>T</sup>)<sup>−1</sup> s<sub>t</sub>"),
        ("state_j times previous_j", "state<sub>j</sub> times previous<sub>j</sub>"),
        ("my_task a_tiny.npz x_test <img src=x, onerror>", "my_task a_tiny.npz x_test &lt;img src=x, onerror&gt;"),
    ],
)
def test_formulas_in_text_are_set_as_such(text: str, said: str) -> None:
    assert str(typeset(text)) == said
