"""The page of the mesa paper's curves: what is drawn, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_html_report import Page

from interp.papers.mesa_rows import row
from interp.reports.mesa_page import mesa_figures, mesa_page


def results() -> dict[str, Any]:
    along = {"compressed": 0.6, "interpolated": 0.5, "published": 0.4}
    curve = [row(f"x, step {k}", None, 1.0 / (k + 1), 0.01, None, step=k, **along) for k in (0, 100)]
    end = row("x, step 100, block means", 1.0, 1.02, 0.01, 1.05, loss=0.5)
    probes = [
        row(
            f"net: {target}, t = {place}, {layer}", None, None, None, None, network="net", target=target,
            position=place, layer=layer, r2=None if layer == 2 else 0.1 * layer, r2_ci=[0.0, 0.3], untrained=0.0,
            shuffled=-0.01,
        )
        for target in ("next", "preconditioned") for place in (5, 20) for layer in (0, 1, 2)
    ]  # fmt: skip
    few = [
        row(f"net, {kind} {n}", None, ours, 0.1, None, network="net", kind=kind, per_head=n, numbers=8 * n, loss=0.3)
        for kind, n, ours in (("published", 32, 1.0), ("published", 4, 7.5), ("refit", 4, None))
    ]
    between = row("net, interpolated", 1.0, 1.01, 0.1, 1.05, network="net", kind="interpolated", alpha=0.5, loss=0.3)
    groups = {
        "training": [*curve, end],
        "probes": [*probes, row("net: claim", None, 0.1, None, None, network="net", claim=True)],
        "compression": [*few, between],
    }
    return {name: {"rows": rows} for name, rows in groups.items()}


def test_every_curve_is_drawn_where_there_is_a_number() -> None:
    training, probes, compression = mesa_figures(results())
    network, halfway, means, published = training.panels[0].data
    assert (network["x"], network["y"]) == ([0, 100], [1.0, pytest.approx(1 / 101)])
    assert halfway["y"] == [0.5, 0.5] and means["y"] == [0.6, 0.6] and published["y"] == [0.4, 0.4]
    assert "block means 1.02" in training.finding
    assert [panel.title for panel in probes.panels] == ["the next state", "the preconditioned state, exact inverse"]
    assert probes.panels[0].data[0]["x"] == [0, 1] and len(probes.table.rows) == 12
    blocks, fitted = compression.panels[0].data
    assert (blocks["x"], blocks["y"], fitted["x"]) == ([32, 4], [1.0, 7.5], []) and len(compression.table.rows) == 3


def test_only_what_was_measured_is_drawn(tmp_path: Path) -> None:
    assert [figure.name for figure in mesa_figures({"probes": results()["probes"]})] == ["probes-net"]
    assert mesa_figures({"losses": {"rows": []}}) == ()
    mesa_page(results()).write(tmp_path / "page.html")
    assert "<h2" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_says_what_came_of_it() -> None:
    found = results()
    found["probes"]["rows"].append(
        row("net: flat", None, 0.26, None, None, network="net", claim=True) | {"within_bar": False}
    )
    page = Page(mesa_page(found, "interp-probe reproduce mesa").text)
    assert "2 of 2 figures are within the bar" in page.words
    assert "0 of 1 claims about probes hold. Not: net: flat, 0.260." in page.words
    assert "arXiv 2309.05858" in page.words and "interp-probe reproduce mesa" in page.words
    (compression,) = (f for f in mesa_figures(found) if f.name == "compression")
    assert compression.finding == (
        "Times the network's loss with fewer numbers in its place: 1.00 with 32 per head (block means, those that cost "
        "most kept) and 7.50 with 4 per head (block means, those that cost most kept)"
    )
