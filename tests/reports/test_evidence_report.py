"""What people are told of replaced layers, of the path to the algorithm, and of stress."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
import synthetic_evidence as made
from shown import absorption_figure, figures, interpolation_figure, stress_figure, swap_figure
from synthetic_evidence import given

from interp.reports.html import render_report
from interp.reports.sections.replacement import absorption_finding, interpolation_finding, swap_finding
from interp.reports.sections.stress import stress_finding
from interp.results import Analysis, Interpolation, Outcome

BASE = synthetic_analyses.analysis()


def changed(**fields: object) -> Analysis:
    return dataclasses.replace(BASE, evidence=dataclasses.replace(BASE.evidence, replaced=2048, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("analysis", "said"),
    [
        (changed(swaps=made.swaps(3)), "Each layer can be replaced by the recovered algorithm's with no change but"),
        (changed(swaps=made.swaps(3, exact=False)), "stay within 1 % of the network's; leaving any of them"),
        (changed(swaps=made.swaps(3, wrong=(2,))), "can stand in for layers 0 and 1 alone to 1 % of the predictions, "
                                                   "not for layer 2 (the error rises by up to 5e5)"),
        (changed(swaps=made.swaps(2, wrong=(0, 1))), "no single layer of it can stand in"),
        (changed(swaps=made.swaps(1, wrong=(0,))), "In the place of the only layer, the recovered algorithm leaves"),
        (changed(), "No layer was replaced"),
    ],
)  # fmt: skip
def test_what_is_said_of_swaps(analysis: Analysis, said: str) -> None:
    assert said in swap_finding(analysis)


def test_a_layer_that_can_be_left_out_proves_nothing() -> None:
    first, second = made.swaps(2)
    idle = dataclasses.replace(second, idle=made.outcome(0.001, 0.9999))
    text = swap_finding(changed(swaps=(first, idle)))
    assert "That says little of layer 1, which can be left out as well" in text
    assert "far more" not in text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (made.path(), "the error stays level"),
        (made.path(end=1.0), "has no barrier, from 3.25 to 4.25"),
        (made.path(height=1600.0), "rises to 1603, from 3.25: they behave alike but are not near each other"),
        (made.path(height=1e5), "rises to 1e5, from 3.25"),
        (Interpolation(points=made.path().points, barrier=None, barrier_stderr=None), "overflows"),
        (None, "No path"),
    ],
)
def test_what_is_said_of_the_path(path: Interpolation | None, said: str) -> None:
    assert said in interpolation_finding(changed(interpolation=path))


@pytest.mark.parametrize(
    ("stress", "said"),
    [
        (made.stress(), "wherever it was tried: 5 to 80 examples; noise σ 0 to 20; inputs 0.25 to 2 times as large; "
                        "variances of the inputs up to 100 times as uneven as in training"),
        (made.stress(0.002, 2.0), "for 10 to 30 examples; noise σ 0 to 7.5; inputs 0.75 to 1.25 times as large; "
                                  "variances of the inputs up to 3 times as uneven as in training; beyond, they part"),
        (made.stress(0.02, 2.0), "nowhere within 1 % of the network: in training already 2.0 % of the variance"),
        ((), "Nothing outside"),
    ],
)  # fmt: skip
def test_what_is_said_of_stress(stress: tuple[object, ...], said: str) -> None:
    assert said in stress_finding(changed(stress=stress))


def test_what_is_said_of_the_rest() -> None:
    assert (
        "64 more directions per layer to make it 0.99: the rest that matters is not of rank 4 or less"
        in absorption_finding(made.absorption(0.52, 0.55, 0.46, 0.39, 0.51, 0.54, 0.59, 0.9998))
    )
    assert "1 more direction per layer makes it 0.99: the rest that matters is of low rank" in absorption_finding(
        made.absorption(0.5, 0.995)
    )
    assert "the rest taken out of all layers at once" in absorption_finding(made.absorption(0.998, 1.0))
    assert "no number of directions" in absorption_finding(made.absorption(0.5, 0.6))
    assert absorption_finding(()) == "Nothing was added to the ω and traces"


def test_figures_draw_the_numbers_with_their_bars() -> None:
    analysis = given(BASE, like="opaque")
    made_figures = [maker(analysis) for maker in (swap_figure, interpolation_figure, stress_figure, absorption_figure)]
    swap, path, stress, rest = (figure for figure in made_figures if figure is not None)
    assert [figure.finding for figure in (swap, path, stress, rest)] == [
        swap_finding(analysis),
        interpolation_finding(analysis),
        stress_finding(analysis),
        absorption_finding(analysis.evidence.absorption),
    ]

    replaced, idle = swap.panels[0].data
    assert idle["y"] == pytest.approx([1.2, 2.2, 3.2, 4.2]) and idle["error_y"]["array"][0] > 0
    assert replaced["marker"]["symbol"][2:] == ["triangle-up"] * 2  # beyond the axis
    assert swap.table.rows[3][1] == "510000 ± 5100"

    mixed, fading = path.panels[0].data
    assert mixed["x"] == fading["x"] == pytest.approx([k / 10 for k in range(11)])
    assert mixed["y"][0] == pytest.approx(3.25) and mixed["marker"]["symbol"][5] == "triangle-up"
    assert len(path.table.rows) == 11

    by_name = {panel.name: panel for panel in stress.panels}
    noise = by_name["stress-noise"].data[0]
    assert noise["y"] == pytest.approx([0.002] * 4 + [0.008, 0.032, 0.128])
    assert noise["error_y"]["arrayminus"][-1] == pytest.approx(0.2 * 0.128)
    assert by_name["stress-noise"].subtitle == "within 1 %: 0 to 5 (of 0 to 20 tried)"
    dash, shade = by_name["stress-noise"].layout["shapes"]
    assert dash["y0"] == 0.01 and shade["x1"] == pytest.approx(5, rel=0.1)

    assert rest.panels[0].layout["xaxis"]["ticktext"][-1] == "64" and len(rest.table.rows) == 8


def test_a_change_that_may_be_none_is_at_the_edge() -> None:
    first = dataclasses.replace(made.swaps(1)[0], swapped=made.outcome(0.01, 0.998, stderr=3.0))
    figure = swap_figure(changed(swaps=(first,)))
    assert figure is not None and figure.panels[0].data[0]["marker"]["symbol"] == ["triangle-down"]


def test_evidence_of_nothing_draws_nothing() -> None:
    nothing = Outcome(fidelity=None, fidelity_ci=(None, None), mse=None, stderr=None, change=None, change_stderr=None)
    lost = dataclasses.replace(made.swaps(1)[0], swapped=nothing, idle=nothing)
    for maker in (swap_figure, interpolation_figure, stress_figure, absorption_figure):
        assert maker(BASE) is None
        assert maker(changed(swaps=(lost,), stress=(dataclasses.replace(made.stress()[0], points=()),))) is None


def test_the_report_has_them_and_the_closest_family_is_called_so() -> None:
    text = render_report(given(BASE, like="opaque")).text
    for name in ("swaps", "interpolation", "stress", "absorption"):
        assert f'id="figure-{name}"' in text
    closest = given(synthetic_analyses.unrecognized(), like="opaque")
    assert "recovered algorithm" not in " ".join(f.finding + f.description for f in figures(closest).values())
