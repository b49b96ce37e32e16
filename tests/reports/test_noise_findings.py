"""Sentences on how a network deals with noise: true of the numbers they are made of, and of no others."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import synthetic_regression as synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.reports.numbers import layers_named
from interp.reports.sections.adaptation import shrinkage_finding, step_finding
from interp.reports.sections.implicit import momentum_finding
from interp.reports.sections.noise import (
    depth_profile_finding,
    filter_finding,
    profile_baselines,
    profile_finding,
    recovered_sentence,
    standing,
    trained_levels,
)
from interp.results import NoiseProfile

ADA = "adaptive ridge"


def test_profile_says_where_the_network_wins_and_where_it_loses() -> None:
    assert profile_finding(synthetic.profile()) == (
        "On average over the noise of training (σ from 0 to 5) the network beats every baseline; "
        f"beyond, at σ = 6, it loses to {ADA} and beats the 5 others"
    )


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (0.226, f"the network is even with {ADA} and beats the 5 others"),
        (1.0, f"the network loses to {ADA} and “ridge, one penalty (8.41)” and beats the 4 others"),
        (99.0, f"the network loses to every baseline, most of all to {ADA}"),
    ],
)
def test_profile_standing_in_the_range_of_training(network: float, text: str) -> None:
    profile = synthetic.profile({"network": [network] * 13})
    assert profile_finding(profile).split("; beyond")[0].endswith(text)


def test_profile_of_a_network_that_overflows() -> None:
    nowhere = synthetic.profile({"network": [None] * 13})
    assert profile_finding(nowhere) == "The network's loss at fixed noise levels was not measured, or overflows"
    beyond = synthetic.profile({"network": [0.1] * 12 + [None]})
    assert profile_finding(beyond).endswith("the network beats every baseline; beyond, at σ = 6, it overflows")


def test_profile_on_a_few_levels_is_averaged_over_them_alone() -> None:
    levels = [sigma in (1.0, 3.0) for sigma in synthetic.SIGMA]
    network = [0.01 if inside else 50.0 for inside in levels]
    profile = synthetic.profile({"network": network}, levels=(1.0, 3.0), trained=(1.0, 3.0))
    assert [profile.sigma[i] for i in trained_levels(profile)] == [1.0, 3.0]
    assert "(σ = 1 and 3) the network beats every baseline" in profile_finding(profile)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=13, max_size=13), st.floats(0.0, 0.5))
def test_standing_is_what_the_averages_say(network: list[float], stderr: float) -> None:
    profile = synthetic.profile({"network": network}, stderr=stderr)
    indices = list(range(11))
    known = standing(profile, indices)
    assert known is not None
    labels = (*known.better, *known.even, *known.worse)
    assert sorted(labels) == sorted(synthetic.LABELS.values())  # each baseline once
    own = np.mean(network[:11])
    for series in profile_baselines(profile):
        theirs = np.mean([series.excess[i] for i in indices])
        gap = 1.959964 * stderr * np.hypot(own, theirs)
        if series.label in known.better:
            assert theirs < own - gap * (1 - 1e-9)
        elif series.label in known.worse:
            assert theirs > own + gap * (1 - 1e-9)
        else:
            assert abs(theirs - own) <= gap * (1 + 1e-9) + 1e-12


def test_early_read_outs_that_are_worse_are_named_with_their_noise() -> None:
    assert depth_profile_finding(synthetic.profile()) == (
        "No layer raises the error of its read-out at any noise level"
    )
    raised = [0.1 if sigma < 2 else 7.0 for sigma in synthetic.SIGMA]
    assert depth_profile_finding(synthetic.profile({"layer-3": raised})) == (
        "Read out early, the prediction can be worse than before the layer: layer 2 at σ 2 to 6"
    )
    unsure = synthetic.profile({"layer-3": raised}, stderr=0.6)
    assert "No layer raises" in depth_profile_finding(unsure)


def test_recovered_sentence_has_the_averages() -> None:
    assert recovered_sentence(synthetic.profile()) == (
        "On average over the noise of training it is 0.100 ± 0.004 for the network and 0.110 ± 0.004 for the recovered "
        "algorithm (diag)."
    )


# --- filters ----------------------------------------------------------------------------------------------------------

QUIET, LOUD = (0.1, 1.6), (3.3, 5.0)


def filters(quiet: float, loud: float, *, stderr: float = 0.004):
    return (
        synthetic.spectral(1, QUIET, 0.3, 1.0),
        synthetic.spectral(2, QUIET, quiet, 1.0, stderr=stderr),
        synthetic.spectral(2, LOUD, loud, 0.6, stderr=stderr),
    )


def test_filter_that_responds_to_noise_is_measured_against_ridge() -> None:
    text = filter_finding(filters(0.8, 0.6))
    assert text.startswith("The filter of the last layer responds to the noise 0.50 times as strongly as ridge's")
    gaps = [(0.2 * (k + 1) / 10) ** 2 for k in range(10)] + [0.0] * 10
    assert f"differs from it by {np.sqrt(np.mean(gaps)):.3f}" in text


def test_filter_that_does_not_respond_is_said_so() -> None:
    assert "does not respond to the noise: between σ 0.1 to 1.6 and σ 3.3 to 5 it changes by" in (
        filter_finding(filters(0.5, 0.5))
    )
    assert "does not respond" in filter_finding(filters(0.8, 0.6, stderr=0.2))  # not clear at 95 %
    assert "but not as ridge's (-0.25 times it)" in filter_finding(filters(0.6, 0.7))


def test_filter_with_one_noise_level() -> None:
    (_, one, _) = filters(0.8, 0.6)
    assert filter_finding((one,)).startswith(
        "What the last layer keeps of least squares differs from what ridge keeps by"
    )
    assert filter_finding(()) == "The filter of no layer was measured"


# --- adaptation -------------------------------------------------------------------------------------------------------


def test_shrinkage_names_directions_and_which_prediction_holds() -> None:
    entries = (
        synthetic.adaptation(0, (0.98, 0.8)),
        synthetic.adaptation(1, (1.0, 1.2), fits=False),
        synthetic.adaptation(2, (1.0, 1.0001)),  # less than its error
    )
    assert shrinkage_finding(entries) == (
        "With more label energy the factor on the labels falls in layer 0 and rises in layer 1; the layer's own "
        "weights predict it in layers 0, 1 and 2, the recovered algorithm in layers 0 and 2 (R² 0.9 or more)"
    )


def test_step_says_what_it_would_be_without_omega_xy_only_where_the_algorithm_holds() -> None:
    known = synthetic.adaptation(3, (0.09, -0.004))
    text = step_finding((synthetic.adaptation(0, (0.02, 0.02)), known))
    assert text.startswith("With more residual energy the step falls in layer 3; both predictions hold in every layer")
    assert text.endswith("It changes most in layer 3: from 0.0900 to -0.0040, without ω_xy from 0.090 to 0.18")
    missed = synthetic.adaptation(3, (0.09, -0.004), fits=False)
    assert "without ω_xy" not in step_finding((missed,))
    still = step_finding((synthetic.adaptation(0, (0.02, 0.02)),))
    assert still.startswith("With more residual energy the step does not change in any layer, beyond its error")


def test_predictions_that_cannot_be_scored_are_not_claimed() -> None:
    blank = dataclasses.replace(synthetic.adaptation(0, (0.5, 0.7)), r2=None, r2_by_weights=None)
    assert "predict" not in shrinkage_finding((blank,))
    missed = dataclasses.replace(blank, r2=0.1, r2_by_weights=-4.0)
    assert "neither prediction holds in any layer" in shrinkage_finding((missed,))


# --- momentum ---------------------------------------------------------------------------------------------------------


def test_momentum_is_compared_with_the_plain_gradient() -> None:
    assert momentum_finding(synthetic.momentum(4)) == (
        "The change of w is explained better by momentum than by the plain gradient in layers 2 and 3, better by the "
        "plain gradient than by momentum in layer 1, by both together to R² = 0.85 to 1.000"
    )


def test_a_network_without_momentum() -> None:
    none = [dataclasses.replace(m, eta=None, eta_r2=None) for m in synthetic.momentum(3)]
    assert momentum_finding(none).startswith("There is no momentum: u stays 0, and plain gradient steps")
    nothing = [dataclasses.replace(m, step_r2=None) for m in none]
    assert momentum_finding(nothing) == "No layer moves the implicit weights"


def test_layers_named() -> None:
    assert [layers_named(k) for k in ([], [2], [0, 1], [0, 1, 4])] == [
        "no layer",
        "layer 2",
        "layers 0 and 1",
        "layers 0, 1 and 4",
    ]


def test_every_regression_has_every_sentence() -> None:
    for layers, levels, full in itertools.product((1, 4, 7), (None, (1.0, 3.0), (0.0,)), (False, True)):
        made = synthetic.regression(layers, levels=levels, full=full)
        profile: NoiseProfile = made.profile
        for sentence in (
            profile_finding(profile),
            depth_profile_finding(profile),
            recovered_sentence(profile),
            filter_finding(made.filters),
            shrinkage_finding(made.shrinkage),
            step_finding(made.step),
            momentum_finding(made.momentum),
        ):
            assert sentence and "None" not in sentence and "nan" not in sentence
