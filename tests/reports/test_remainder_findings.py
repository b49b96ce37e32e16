"""Sentences on what omegas are worth and what they leave, on synthetic analyses."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
import synthetic_regression as synthetic

from interp.reports.sections.algorithm import preconditioner_finding
from interp.reports.sections.omegas import diverges, omega_finding
from interp.reports.sections.remainder import remainder_finding, remainder_sentences, where_it_lies
from interp.results import Analysis, OmegaEffects, Split


def with_omegas(omegas: OmegaEffects, base: Analysis | None = None) -> Analysis:
    base = base or synthetic_analyses.noisy()
    assert base.regression is not None
    return dataclasses.replace(base, regression=dataclasses.replace(base.regression, omegas=omegas))


def test_worth_is_the_figure_and_zeroing_is_said_to_exaggerate() -> None:
    assert omega_finding(synthetic_analyses.noisy()) == (
        "What each ω is worth, by the squared error without it and the others refitted: ω_yx 6.90 ± 0.15, ω_xy + ω_yy "
        "0.63 ± 0.03, ω_xx 0.160 ± 0.015, ω_xy 0.100 ± 0.007 and ω_yy 0.050 ± 0.006. Zeroing alone exaggerates: "
        "without ω_xx the algorithm diverges"
    )


def test_zeroing_says_how_many_times_too_much_when_nothing_diverges() -> None:
    effects = tuple(e for e in synthetic.effects().effects if e.coefficient in ("yx", "yy") and e.layer is None)
    text = omega_finding(with_omegas(dataclasses.replace(synthetic.effects(), effects=effects)))
    assert text.endswith("ω_yy 0.050 ± 0.006. Zeroing alone would say up to 118 times as much")


def test_what_was_not_refitted_has_no_worth() -> None:
    text = omega_finding(with_omegas(synthetic.effects(refitted=False)))
    assert text.startswith(
        "Set to zero in all layers, the others left as they are, the ω cost: ω_xx diverges (36000 ± 34000), ω_yx"
    )
    assert "worth" not in text


def test_effects_of_another_algorithm_than_the_recognized_one_are_said_to_be() -> None:
    text = omega_finding(with_omegas(synthetic.effects(), synthetic_analyses.unrecognized_and_noisy()))
    assert text.startswith("What each ω of the diag algorithm fitted to it is worth")


@pytest.mark.parametrize(
    ("value", "stderr", "expected"),
    [
        (3.6e4, 3.4e4, True),
        (3.6e4, 3.4e3, False),  # large and sure: it does cost that much
        (1e-4, 1e-4, False),  # unsure and small: nothing explodes
        (-5.0, 9.0, False),
        (50.0, None, True),
        (None, 1.0, False),
    ],
)
def test_diverging_means_beyond_predicting_zero_and_unsure(
    value: float | None, stderr: float | None, expected: bool
) -> None:
    assert diverges(synthetic_analyses.noisy(), value, stderr) is expected


def test_full_networks_carry_little_in_the_omegas_and_yet_behave() -> None:
    full = synthetic_analyses.full()
    assert remainder_finding(full) == (
        "The four ω carry only 0.31 % of the weights of layers 2 and 3, and yet refitted they predict what the network "
        "predicts to R² = 0.99969 [0.99962, 0.99974]"
    )
    sentences = list(remainder_sentences(full))
    assert sentences[0].startswith(
        "Layer 2: the four ω carry 0.31 % of the weights and, put in its place, R² = 0.80 [0.77, 0.83] of the "
        "behaviour. Of what is left, 90 % is in x ← x, read from Σ, and its rank is about 38."
    )
    assert len(sentences) == 2


def test_a_network_that_no_omegas_explain_is_not_called_surprising() -> None:
    full = synthetic_analyses.full()
    families = tuple(dataclasses.replace(f, chosen=False) for f in full.families)
    verdict = dataclasses.replace(full.verdict, algorithm="unrecognized", recognized=False)
    text = remainder_finding(dataclasses.replace(full, families=families, verdict=verdict))
    assert "only" not in text and "yet" not in text


def test_a_regular_network() -> None:
    text = remainder_finding(synthetic_analyses.noisy())
    assert text.startswith("The four ω carry at least 99.31 % of the weights of every layer, and refitted they predict")
    whole = Split(block_scalar=1 - 1e-9, trace=0.0, residual=1e-9)
    base = synthetic_analyses.analysis()
    planted = dataclasses.replace(base, layers=tuple(dataclasses.replace(x, split=whole) for x in base.layers))
    assert "carry more than 99.9999 % of the weights" in remainder_finding(planted)


def test_where_it_lies_is_the_largest_block() -> None:
    place = where_it_lies(synthetic.remainder(0, energy=0.9))
    assert place is not None
    assert (place.where, place.share) == ("x ← x, read from Σ", 0.9)
    assert where_it_lies(synthetic.remainder(0)) is None


def test_preconditioner_is_named_by_what_it_is_closer_to() -> None:
    first, second = synthetic.preconditioners()
    assert preconditioner_finding((first, second)) == (
        "The matrix is closer to the inverse covariance (relative distance 0.050 to 0.10) than to the identity (0.60) "
        "in layers 0 and 1"
    )
    other = dataclasses.replace(second, distance={"identity": 0.1, "inverse covariance": 0.7})
    assert preconditioner_finding((first, other)).endswith(
        "in layer 0; it is closer to the identity (relative distance 0.10) than to the inverse covariance (0.70) "
        "in layer 1"
    )
    alone = dataclasses.replace(first, distance={"identity": 0.6})
    assert preconditioner_finding((alone,)) == (
        "The matrix differs from a multiple of the identity by 0.60 of its size"
    )
