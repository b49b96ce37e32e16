"""Titles claim no more than the numbers they stand over: what is like nothing is not called close to something."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
import synthetic_evidence
import synthetic_regression
from shown import figure_of
from synthetic_behaviour import behaviour

from interp.reports.html import _flat, render_report
from interp.reports.sections.algorithm import matrix_sentences, preconditioner_finding
from interp.reports.sections.behaviour import behaviour_finding, share_text, shift_finding
from interp.reports.sections.coefficients import remarks
from interp.reports.sections.families import family_finding
from interp.reports.sections.implicit import distance_finding, momentum_finding
from interp.reports.sections.noise import depth_profile_finding, profile_finding
from interp.reports.sections.omegas import omega_finding
from interp.reports.sections.remainder import remainder_finding, split_finding
from interp.reports.sections.replacement import interpolation_finding
from interp.reports.sections.stress import span_text, stress_finding
from interp.reports.sections.verdict import open_questions
from interp.reports.typeset import typeset
from interp.results import Analysis, Interpolation, Stress

BASE = synthetic_analyses.noisy()


def with_path(path: Interpolation) -> Analysis:
    return dataclasses.replace(BASE, evidence=dataclasses.replace(BASE.evidence, replaced=512, interpolation=path))


def with_stress(*entries: Stress) -> Analysis:
    return dataclasses.replace(BASE, evidence=dataclasses.replace(BASE.evidence, replaced=512, stress=entries))


@pytest.mark.parametrize(
    ("height", "share", "said"),
    [
        (3e18, 0.6, "the error rises to 3e18, from 3.25"),  # a few prompts explode: the mean is unsure, the rise is not
        (100.0, 0.9, "the error rises to 103, from 3.25"),
        (1.0, 0.6, "from 3.25 to 3.25, no barrier is clear: at most 67 % of the error"),
        (1.0, 0.1, "the error rises to 4.2, from 3.25"),
        (0.001, 0.6, "the error stays level"),
    ],
)
def test_a_path_is_level_only_where_the_error_between_its_ends_is(height: float, share: float, said: str) -> None:
    path = dataclasses.replace(synthetic_evidence.path(height=height), barrier_stderr=share * height)
    assert said in interpolation_finding(with_path(path))


def test_agreement_apart_from_training_is_said() -> None:
    (entry, *_) = [e for e in synthetic_evidence.stress(0.02, 0.3) if e.name == "covariance"]
    entry = dataclasses.replace(entry, agrees=None)  # 0.02 in training, then 0.006, 0.0018 …
    assert span_text(entry) == "not in training, though within 1 % at 3, 10, 30 and 100 (1 to 100 tried)"
    text = stress_finding(with_stress(entry))
    assert "not within 1 % of the network in training: there 2.0 % of the variance is unexplained, on" in text
    assert text.endswith("with unevenness of the inputs 3, 10, 30 and 100")
    (other, *_) = synthetic_evidence.stress(0.02, 2.0)
    assert span_text(other) == "nowhere within 1 % (5 to 80 tried)"


def test_zeroing_is_said_to_exaggerate_only_where_it_does() -> None:
    effect = synthetic_regression.omega_effect("yx", None, (0.16, 0.01), (0.95, 0.05))
    omegas = dataclasses.replace(synthetic_regression.effects(), effects=(effect,))
    assert BASE.regression is not None
    analysis = dataclasses.replace(BASE, regression=dataclasses.replace(BASE.regression, omegas=omegas))
    figure = figure_of(analysis, "omegas")
    assert omega_finding(analysis).endswith("Zeroing alone would say as little as 0.17 times as much")
    assert figure is not None and "exaggerates" not in figure.description + figure.finding


def test_weights_farther_than_none_are_close_to_no_baseline() -> None:
    last = dataclasses.replace(BASE.implicit[-1], distance={"ols": 3.22, "gd-1": 3.44}, distance_stderr={"ols": 0.03})
    text = distance_finding(dataclasses.replace(BASE, implicit=(last,)))
    assert "like those of no baseline" in text and "3.22 ± 0.03" in text and "closest" not in text


def test_solvers_no_nearer_than_no_weights_are_not_named_the_closest() -> None:
    found = behaviour(None)
    far = dataclasses.replace(found, matches=tuple(dataclasses.replace(m, distance=0.997) for m in found.matches))
    assert "no iterate of any is nearer" in behaviour_finding(far) and "closest" not in behaviour_finding(far)


def test_accounts_that_explain_nothing_are_not_compared() -> None:
    entries = synthetic_regression.momentum(3)
    little = [dataclasses.replace(m, step_r2=0.01, eta_r2=0.012) for m in entries]
    assert "by neither (R² below 0.05) in layers 0, 1 and 2" in momentum_finding(little)
    alone = [dataclasses.replace(m, step_r2=6e-5, eta_r2=None, both_r2=None) for m in entries]
    assert momentum_finding(alone).endswith("explain nothing of the change of w to speak of (R² below 0.05)")


def test_matrices_unlike_both_references_are_close_to_neither() -> None:
    entries = [
        dataclasses.replace(entry, distance={"identity": 0.99, "inverse covariance": 0.995})
        for entry in synthetic_regression.preconditioners()
    ]
    assert preconditioner_finding(entries) == (
        "The matrix is like neither the identity nor the inverse covariance (relative distance 0.99, of 1 at most)"
    )
    alone = [dataclasses.replace(entry, distance={"identity": 0.95}) for entry in entries]
    assert preconditioner_finding(alone) == "The matrix is not like the identity (relative distance 0.95, of 1 at most)"


def test_families_below_a_constant_are_not_called_near() -> None:
    poor = synthetic_analyses.unrecognized()
    families = tuple(dataclasses.replace(f, fidelity=-0.001) for f in poor.families)
    text = family_finding(dataclasses.replace(poor, families=families))
    assert "none predicts better than a constant" in text and "nearest" not in text


def test_one_layer_is_not_the_least_of_them_nor_at_least() -> None:
    one = dataclasses.replace(BASE, layers=BASE.layers[:1])
    for text in (split_finding(one), remainder_finding(one)):
        assert "least" not in text and "layer 0" not in text.lower() and "every" not in text


def test_averages_are_said_only_of_several_noise_levels() -> None:
    one = synthetic_regression.profile(levels=(1.0,), trained=(1.0, 1.0))
    text = profile_finding(one)
    assert text.startswith("At the noise of training (σ = 1) the network") and "average" not in text


def test_the_last_baseline_is_named() -> None:
    profile = synthetic_regression.profile()
    few = dataclasses.replace(profile, series=tuple(s for s in profile.series if s.name in ("network", "ols")))
    assert "the other one" not in profile_finding(few)


def test_one_layer_is_not_read_out_early() -> None:
    profile = synthetic_regression.profile({"layer-1": [99.0] * 13})
    ends = tuple(s for s in profile.series if s.name in ("network", "layer-0", "layer-1"))
    text = depth_profile_finding(dataclasses.replace(profile, series=ends))
    assert text == "The only layer makes the prediction worse than none at all at σ 0 to 6"


def test_steps_for_sums_are_not_those_for_means() -> None:
    found = behaviour()
    shift = dataclasses.replace(
        found.shifts[1], name="context-double", label="twice as many context tokens",
        disagreement=dict.fromkeys(found.shifts[1].disagreement, 1.0),
    )  # fmt: skip
    found = dataclasses.replace(found, shifts=(found.shifts[0], shift))
    assert "another step for their mean" in shift_finding(found, "1/n")
    assert "another step" not in shift_finding(found, "1") + shift_finding(behaviour(), "1/n")


def test_what_is_only_rounding_is_said_to_be() -> None:
    (entry, *_) = synthetic_regression.preconditioners()
    dim = len(entry.refit)
    refit = [[2.0 if i == j else 4e-29 for j in range(dim)] for i in range(dim)]
    (text,) = matrix_sentences([dataclasses.replace(entry, refit=refit)])
    assert text.endswith("2.0 on the diagonal, off it nothing but rounding")


def test_estimates_far_apart_are_an_open_question() -> None:
    layer = BASE.layers[1]
    yx = dataclasses.replace(layer.omega["yx"], weight=1.0, output=0.01, refit=0.012, stderr=1e-5, refit_stderr=1e-5)
    layers = (BASE.layers[0], dataclasses.replace(layer, omega={**layer.omega, "yx": yx}), *BASE.layers[2:])
    assert any("ω_yx of layer 1" in text for text in open_questions(dataclasses.replace(BASE, layers=layers)))
    assert [r.short for r in remarks(yx)] == ["estimates far apart"]


def test_a_second_panel_is_described_only_where_there_is_one() -> None:
    for analysis in (BASE, synthetic_analyses.full()):
        figure = figure_of(analysis, "remainder")
        assert figure is not None and ("Second:" in figure.description) == (len(figure.panels) == 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rises by up to 1e25)", "rises by up to 10<sup>25</sup>)"),
        ("R² = 5.6e-5 of it", "R² = 5.6·10<sup>−5</sup> of it"),
        ("(4 ± 4)e-4;", "(4 ± 4)·10<sup>−4</sup>;"),
        ("|w − w_k|² / p_k", "|w − w<sub>k</sub>|² / p<sub>k</sub>"),
        ("sha 204c9e28, v1e5, 1e5x, file-1e5.npz", "sha 204c9e28, v1e5, 1e5x, file-1e5.npz"),
        ("<b> < 1e5", "&lt;b&gt; &lt; 10<sup>5</sup>"),
    ],
)
def test_prose_has_powers_of_ten(text: str, said: str) -> None:
    assert str(typeset(text)) == said


def test_provenance_is_for_people_and_its_command_breaks_between_arguments() -> None:
    made = dict(_flat({"task": {"std": 0.31622776601683794, "list": (0.1, 2)}, "verdict_only": False, "none": None}))
    assert made == {"task: std": "0.3162278", "task: list": "0.1, 2", "verdict only": "no", "none": "—"}
    analysis = dataclasses.replace(BASE, provenance={"command": "interp-probe a.pt --report <x>.html"})
    text = render_report(analysis).text
    assert '<span class="argument">--report</span> <span class="argument">&lt;x&gt;.html</span>' in text


@pytest.mark.parametrize(
    ("bounds", "said"),
    [((0.9979, 1.0005), "0.9993 [0.9979, 1.0005]"), ((0.93, 1.1), "1.00 [0.93, 1.10]"), ((None, None), "1.00")],
)
def test_an_interval_has_the_digits_that_show_it(bounds: tuple[float | None, float | None], said: str) -> None:
    assert share_text(0.9993, bounds) == said
    assert share_text(1.0, (0.999999999986, 1.0)) == "1.0"
