"""Figures of the regression section: their points are the numbers of the analysis, and what has none says why."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import synthetic_analyses
import synthetic_kinds
import synthetic_regression as synthetic
from shown import figures, notes

from interp.reports.registry import QUESTIONS
from interp.results import Analysis, Figure, Regression

NAMES = {"profile", "profile-depth", "filters", "shrinkage", "step", "omegas", "momentum", "remainder"}


def known(analysis: Analysis) -> Regression:
    assert analysis.regression is not None
    return analysis.regression


def traces(figure: Figure, panel: str, key: str) -> list[dict[str, Any]]:
    (found,) = (p for p in figure.panels if p.name == panel)
    return [trace for trace in found.data if trace.get("legendgroup") == key]


@pytest.mark.parametrize("kind", ["noisy", "full", "deep", "unrecognized-noisy"])
def test_every_part_of_the_section_is_drawn(kind: str) -> None:
    analysis = synthetic_kinds.many()[kind]
    made = figures(analysis)
    assert set(made) >= NAMES
    for name in NAMES:
        keys = {trace.get("legendgroup") for panel in made[name].panels for trace in panel.data} - {None}
        assert keys <= {series.key for series in made[name].legend}  # everything drawn has a name
        for panel in made[name].panels:
            assert all(text for trace in panel.data for text in trace["customdata"])


def test_profile_points_bars_and_shading_are_the_profile() -> None:
    analysis = synthetic_analyses.noisy()
    profile, figure = known(analysis).profile, figures(analysis)["profile"]
    for series in profile.series:
        if series.name.startswith("layer-"):
            continue
        (trace,) = traces(figure, "profile", series.name)
        drawn = dict(zip(trace["x"], trace["y"], strict=True))
        for sigma, value in zip(profile.sigma, series.excess, strict=True):
            assert value is not None
            if value > 0:
                assert drawn[sigma] == value
            else:  # a log axis cannot show it: at the edge, below all others
                assert 0 < drawn[sigma] < min(v for s in profile.series for v in s.excess if v)
    (shape,) = figure.panels[0].layout["shapes"]
    assert (shape["x0"], shape["x1"]) == (0.0, 5.0)
    assert len(figure.table.rows) == 2 + len(synthetic.LABELS)
    assert len({(s.colour, s.symbol) for s in figure.legend}) == len(figure.legend)


def test_profile_of_a_few_levels_marks_each() -> None:
    shapes = figures(synthetic_analyses.full())["profile"].panels[0].layout["shapes"]
    assert [(shape["x0"] + shape["x1"]) / 2 for shape in shapes] == pytest.approx([1.0, 3.0])


def test_profile_that_explodes_is_cut_off_and_says_so() -> None:
    base = synthetic_analyses.noisy()
    exploding = synthetic.profile({"network": [0.1] * 11 + [1e60, 1e230]})
    figure = figures(dataclasses.replace(base, regression=dataclasses.replace(known(base), profile=exploding)))[
        "profile"
    ]
    (trace,) = traces(figure, "profile", "network")
    assert max(trace["y"]) <= 1e3 * 9.8
    assert trace["marker"]["symbol"][-2:] == ["triangle-up"] * 2
    assert "(3)" in figure.description  # two of the network, and least squares at sigma = 0
    assert trace["customdata"][-2].endswith("(1.00 ± 0.04)e60")


def test_filters_stand_beside_ridge() -> None:
    analysis = synthetic_analyses.noisy()
    figure = figures(analysis)["filters"]
    assert [panel.title for panel in figure.panels] == ["after 1 layer", *(f"after {k} layers" for k in (2, 3, 4))]
    for entry in known(analysis).filters:
        noise = sorted({f.noise for f in known(analysis).filters}).index(entry.noise)
        ridge, network = traces(figure, f"filter-{entry.layer}", f"noise-{noise}")
        assert network["y"] == [b.filter for b in entry.bins] and ridge["y"] == [b.ridge for b in entry.bins]
        assert network["error_y"]["array"] == pytest.approx([1.959964 * (b.stderr or 0) for b in entry.bins])
        assert ridge["line"]["color"] == network["line"]["color"] and ridge["line"]["dash"] == "dot"


def test_adaptation_has_both_predictions_and_the_network() -> None:
    analysis = synthetic_analyses.noisy()
    for name, entries in (("shrinkage", known(analysis).shrinkage), ("step", known(analysis).step)):
        figure = figures(analysis)[name]
        for entry in entries:
            read = {
                key: traces(figure, f"{name}-{entry.layer}", key)[0]["y"]
                for key in ("observed", "recovered", "weights", "without")
            }
            assert read["observed"] == [b.observed for b in entry.bins]
            assert read["recovered"] == [b.predicted for b in entry.bins]
            assert read["weights"] == [b.by_weights for b in entry.bins]
            assert read["without"] == [b.without for b in entry.bins]
        assert len(figure.table.rows) == sum(len(entry.bins) for entry in entries)


def test_omegas_show_worth_beside_zeroing_and_what_diverges_at_the_edge() -> None:
    figure = figures(synthetic_analyses.noisy())["omegas"]
    (zeroed,), (worth,) = traces(figure, "omegas-0", "zeroed"), traces(figure, "omegas-0", "worth")
    assert worth["x"] == [0.16, 0.1, 6.9, 0.05, 0.63]
    assert zeroed["x"][1:] == [1.6, 6.9, 5.9, 6.4]
    assert zeroed["marker"]["symbol"][0] == "triangle-right" and zeroed["text"][0].startswith("diverges")
    assert zeroed["x"][0] < 1e3  # not where the number would be
    assert zeroed["error_x"]["array"][0] == 0
    (single,) = traces(figure, "omegas-1", "worth")
    assert single["marker"]["symbol"][1] == "triangle-left"  # not above 0
    cells = {(row[0], row[1]): row[2:] for row in figure.table.rows}
    assert cells[("ω_xx", "all")][0] == "diverges (36000 ± 34000)"
    assert cells[("ω_xy + ω_yy", "all")][2] == "0.63 ± 0.03"


def test_what_was_not_refitted_is_absent_with_its_reason() -> None:
    figure = figures(synthetic_analyses.full())["omegas"]
    assert [series.key for series in figure.legend] == ["zeroed"]
    assert "Not refitted: 128 prompts are too few for 14 coefficients (--prompts)." in figure.description


def test_remainder_places_layers_by_weights_and_behaviour() -> None:
    analysis = synthetic_analyses.full()
    figure = figures(analysis)["remainder"]
    (weights,), (omegas,), (projected,) = (
        traces(figure, "remainder-shares", key) for key in ("weights", "omegas", "projected")
    )
    assert weights["y"] == [layer.split.block_scalar for layer in analysis.layers]
    assert omegas["y"] == [1.0, 1.0, 0.8, 0.8]
    assert projected["marker"]["symbol"][2:] == ["triangle-down"] * 2  # R^2 of -2.4
    assert "-2.4" in projected["customdata"][2] and projected["y"][2:] == [-0.1, -0.1]
    (heat,) = (p for p in figure.panels if p.name == "remainder-blocks")
    assert heat.layout["yaxis"]["ticktext"] == ["x ← x · Σ", "x ← x · α", "y ← x · Σ"]
    assert [row[2:] for row in heat.data[0]["z"]] == [[0.9, 0.9], [0.06, 0.06], [0.04, 0.04]]
    assert len(figures(synthetic_analyses.noisy())["remainder"].panels) == 1  # nothing is left


def test_preconditioners_are_drawn_for_their_algorithm_alone() -> None:
    analysis = synthetic_analyses.preconditioned()
    figure = figures(analysis)["preconditioners"]
    for entry, panel in zip(analysis.preconditioners, figure.panels, strict=True):
        (trace,) = panel.data
        assert trace["z"] == entry.refit
        assert trace["zmin"] == -trace["zmax"] == -max(abs(v) for row in entry.refit for v in row)
        assert "inverse covariance 0." in panel.subtitle
    assert "preconditioners" not in figures(synthetic_analyses.noisy())


def test_reasons_stand_for_what_is_not_there() -> None:
    base = synthetic_analyses.noisy()
    same = tuple(
        dataclasses.replace(e, bins=tuple(dataclasses.replace(b, observed=1.0) for b in e.bins))
        for e in known(base).shrinkage
    )
    bare = dataclasses.replace(known(base), shrinkage=same, step=(), momentum=(), filters=())
    lacking = dataclasses.replace(base, regression=bare)
    assert not {"shrinkage", "step", "momentum", "filters"} & set(figures(lacking))
    lines = [note for note in notes(lacking) if "skipped" in note]
    for name in ("shrinkage", "step", "momentum", "filters"):
        assert any(QUESTIONS[name].title in line.lower() for line in lines)
    assert not NAMES & set(figures(dataclasses.replace(base, regression=None)))


@pytest.mark.parametrize("layers", [1, 2, 20])
def test_any_depth(layers: int) -> None:
    base = synthetic_analyses.analysis(layers=layers)
    made = figures(dataclasses.replace(base, regression=synthetic.regression(layers, full=layers > 1)))
    assert len(made["filters"].panels) <= 8 and len(made["profile-depth"].panels[0].data) <= 9
    assert made["filters"].panels[-1].title.startswith(f"after {layers} ")
    assert len(made["filters"].table.rows) == 3 * 10 * layers


@pytest.mark.parametrize("damage", ["short series", "text in a matrix", "matrix that is not square"])
def test_damaged_documents_skip_the_figure(damage: str) -> None:
    base = synthetic_analyses.everything(layers=2)
    profile, (first, second) = known(base).profile, base.preconditioners
    if damage == "short series":
        short = dataclasses.replace(profile.series[0], excess=())
        broken = dataclasses.replace(
            known(base), profile=dataclasses.replace(profile, series=(short, *profile.series[1:]))
        )
        assert {"profile", "profile-depth"} & set(figures(dataclasses.replace(base, regression=broken))) == set()
    else:
        refit = [[1.0, "a"], [2.0, 3.0]] if damage.startswith("text") else [[1.0], [2.0, 3.0]]
        damaged = dataclasses.replace(base, preconditioners=(dataclasses.replace(first, refit=refit), second))
        assert [panel.name for panel in figures(damaged)["preconditioners"].panels] == ["preconditioner-1"]
