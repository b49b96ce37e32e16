"""Scores and their intervals, and verdicts that are read at both ends of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp.algebra.sensitivity import predict
from interp.analysis import analyse
from interp.checkpoints.opening import open_checkpoint
from interp.families.omegas import OmegaFit
from interp.identify.choose import choose, identify
from interp.identify.networks import SharedKeys
from interp.identify.networks.shared_keys import JUDGED
from interp.identify.run import Run
from interp.identify.score import EXPLODED, RECOGNIZED, Score, bootstrap_fidelity
from interp.stats.bootstrap import MOST_GROUPS, r_squared

ORDINARY = Path(__file__).parents[1] / "ordinary" / "networks"


def noisy(seed: int, count: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A reference, and a prediction of R^2 = 1 - noise^2."""
    generator = torch.Generator().manual_seed(seed)
    reference, error = torch.randn(2, count, 1, dtype=torch.float64, generator=generator)
    return reference + noise * error, reference


@pytest.mark.parametrize("bad", [1e9, float("inf"), float("nan")])
def test_one_prompt_on_which_the_algorithm_explodes_is_counted_and_does_not_decide(bad):
    prediction, reference = noisy(0, 4000, 0.1)
    before = bootstrap_fidelity(prediction, reference, 0, cap=EXPLODED)
    prediction[7] = bad
    after = bootstrap_fidelity(prediction, reference, 0, cap=EXPLODED)
    assert (before.exploded, after.exploded, after.prompts) == (0, 1, 4000)
    assert before.fidelity is not None and after.fidelity is not None
    # One error counts as EXPLODED times its own square, below 4^2 here, and the mean one: no more than this of 4000.
    assert 0 <= before.fidelity - after.fidelity < EXPLODED * 17 / 4000
    assert r_squared(prediction, reference, seed=0)[0] in (None, pytest.approx(-bad * bad / 4000, rel=0.1))


def test_groups_beyond_the_most_are_put_together_without_loss():
    prediction, reference = noisy(1, 3 * MOST_GROUPS + 5, 0.3)
    value, (low, high) = r_squared(prediction, reference, seed=0)
    expected = 1 - float((prediction - reference).square().sum() / (reference - reference.mean()).square().sum())
    assert value == pytest.approx(expected, rel=1e-12)
    assert low is not None and high is not None
    # The standard error of mean e^2 / mean y^2 for normal e and y, with 1.96 to either side.
    expected_width = 2 * 1.96 * 0.3**2 * (4 / len(reference)) ** 0.5
    assert high - low == pytest.approx(expected_width, rel=0.15)


def test_the_ends_of_a_gain_cover_it():
    covered = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        reference, one, two = torch.randn(3, 500, 1, dtype=torch.float64, generator=generator)
        smaller, larger = reference + 0.2 * one, reference + 0.1 * (0.5 * one + 0.75**0.5 * two)
        scores = [bootstrap_fidelity(p, reference, seed) for p in (larger, smaller)]
        low, value, high = (scores[0].gain(scores[1], end) for end in (-1, 0, 1))
        assert low < value < high
        covered.append(low <= 0.2**2 - 0.1**2 <= high)
    assert 0.90 <= sum(covered) / len(covered) <= 0.99


def test_a_score_is_read_at_either_end():
    edge = Score(fidelity=RECOGNIZED, interval=(RECOGNIZED - 0.01, RECOGNIZED + 0.01))
    assert [edge.reaches(RECOGNIZED, end) for end in (-1, 0, 1)] == [False, True, True]
    below = Score(fidelity=RECOGNIZED - 0.005, interval=(RECOGNIZED - 0.01, RECOGNIZED + 0.01))
    assert [below.reaches(RECOGNIZED, end) for end in (-1, 0, 1)] == [False, False, True]
    unknown = Score(fidelity=None, interval=(None, None))
    assert not any(unknown.reaches(0.0, end) for end in (-1, 0, 1))


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.of(open_checkpoint(str(ORDINARY / "l2-h1.safetensors")), 512, 0)


def test_intervals_of_a_fidelity_hold_its_value_on_many_more_prompts(run: Run):
    network = run.network
    assert isinstance(network, SharedKeys)
    fit = next(fit for fit in identify(run).fits if fit.family.name == "gd")
    assert isinstance(fit, OmegaFit)
    scores = []
    for judging in range(40):
        judged = replace(network, judging=judging).judged
        assert judged.drawn.count == JUDGED
        scores.append(judged.score(judged.predicted(fit.layers), judging))
    truth = sum(score.fidelity or 0.0 for score in scores) / len(scores)
    ends = [s.interval for s in scores if s.interval[0] is not None]
    covered = [low <= truth <= high for low, high in ends if low is not None and high is not None]
    assert len(covered) == 40 and sum(covered) >= 34  # P(fewer | 95 %) < 0.002


def test_what_a_fit_is_scored_on_was_not_fitted(run: Run):
    network = run.network
    assert isinstance(network, SharedKeys)
    x = [half.drawn.x[:, 0, 0] for half in (network.fitted, network.held_out, network.judged)]
    values = torch.cat(x)
    assert len(values.unique()) == len(values)


def test_the_predictions_of_chunks_are_those_of_the_whole(run: Run):
    network = run.network
    assert isinstance(network, SharedKeys)
    judged = network.judged
    torch.testing.assert_close(judged.predicted(network.layers), predict(network.layers, judged.prompts))
    torch.testing.assert_close(judged.prediction, judged.predicted(network.layers), rtol=1e-9, atol=1e-9)


def test_a_family_at_the_edge_is_a_rival_and_the_larger_one_is_named(run: Run):
    """By the numbers: gd++ follows this network after every layer, and the gain of diag is within its error of the
    bar."""
    verdict = analyse(run.checkpoint, 1024, 0, verdict_only=True).verdict
    assert (verdict.algorithm, verdict.rivals) == ("diag", ("gd++",))


def test_a_network_far_from_every_edge_has_no_rivals():
    verdict = analyse(open_checkpoint("zoo:gdpp-l4-u5"), 256, 0, verdict_only=True).verdict
    assert (verdict.algorithm, verdict.rivals) == ("gd++", ())


def test_a_fit_that_is_worse_than_what_it_contains_is_called_failed(run: Run):
    fits = list(identify(run).fits)
    failed = [replace(f, score=replace(f.score, fidelity=-3.0)) if f.family.name == "diag" else f for f in fits]
    names = {f.family.name for f in fits}
    assert {"gd", "gd++", "diag"} <= names
    assert choose(failed)[1]["diag"] != choose(fits)[1]["diag"]
    assert "failed" in choose(failed)[1]["diag"]
