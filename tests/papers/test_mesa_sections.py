"""The sections of the mesa paper: what is drawn, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from interp.papers.comparison import row
from interp.papers.mesa_figures import mesa_sections
from interp.results import Figure


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
    return groups


def figures(groups: dict[str, Any]) -> tuple[Figure, ...]:
    return tuple(section.figure for section in mesa_sections(groups) if section.figure is not None)


def test_every_curve_is_drawn_where_there_is_a_number() -> None:
    training, probes, compression = figures(results())
    network, halfway, means, published = training.panels[0].data
    assert (network["x"], network["y"]) == ([0, 100], [1.0, pytest.approx(1 / 101)])
    assert halfway["y"] == [0.5, 0.5] and means["y"] == [0.6, 0.6] and published["y"] == [0.4, 0.4]
    assert "block means 1.02" in training.finding
    assert [panel.title for panel in probes.panels] == ["the next state", "the preconditioned state, exact inverse"]
    assert probes.panels[0].data[0]["x"] == [0, 1] and len(probes.table.rows) == 2 * 2 * 3  # R² and its two controls
    blocks, fitted = compression.panels[0].data
    assert (blocks["x"], blocks["y"], fitted["x"]) == ([32, 4], [1.0, 7.5], []) and len(compression.table.rows) == 3


def test_only_what_was_measured_is_shown() -> None:
    assert [section.name for section in mesa_sections({"probes": results()["probes"]})] == ["probes-net", "claims"]
    assert mesa_sections({"losses": []}) == []
    names = [section.name for section in mesa_sections(results())]
    assert names == ["training", "probes-net", "compression", "between", "bars", "claims"]


def test_the_tables_say_what_came_of_it() -> None:
    groups = results()
    failed = row("net: flat", None, 0.26, None, None, network="net", claim=True) | {"within_bar": False}
    groups["probes"].append(failed)
    groups["losses"] = [row("lsa-9", 0.5, None, None, 1.03, why="it does not ship")]
    sections = {section.name: section for section in mesa_sections(groups)}
    bars, claims = sections["bars"], sections["claims"]
    assert "2 of 2" in bars.finding and "1 more" in bars.finding
    assert [cells[-1] for cells in bars.table.rows] == ["—", "yes", "yes"]
    assert bars.table.rows[0][2] == "it does not ship"
    assert "0 of 1" in claims.finding and "net: flat, 0.260" in claims.finding
    assert claims.table.rows[-1] == ("net", "flat", "0.260", "no")
    assert sections["between"].table.rows == (("net", "1.01"),)
    compression = sections["compression"].finding
    assert "1.00 with 32 per head" in compression and "7.50 with 4 per head" in compression
