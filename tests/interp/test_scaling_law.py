"""The scaling law of EAGLE: when it holds, what breaks it, and what is left out of it."""

from __future__ import annotations

import math

import planting_eagle
import pytest
import torch
from torch import Tensor

from interp.algebra.gauge import live_coordinates
from interp.algebra.linear_prompts import gram_prompts
from interp.families.parametrisations import BasisParametrisation
from interp.families.scaling_law import MOST, Norms, _law, batch_norms, scaling_laws
from interp.identify.estimates import Estimate
from interp.models.gram import HeadLayers
from interp.models.tasks import MatrixCompletion
from interp.results.completion import ScalingLaw

NORMS = torch.tensor([40.0, 9.0, 2.0, 0.5], dtype=torch.float64)
ETA, GAMMA = 0.9, 1.7


def gdpp(planted: planting_eagle.PlantedEagle) -> BasisParametrisation:
    """The numbers of gd++ in a planted network; the last omega_xx is not among them."""
    spec, task = planted.model.spec, planting_eagle.small_task("full")
    network = HeadLayers(P=planted.model.P, Q=planted.model.Q, scale=1.0, residual=1.0)
    prompts = gram_prompts(task.sample(64, 0), spec)
    live = live_coordinates(network, prompts.gram, prompts.query, prompts.readout)
    return BasisParametrisation.of(("xx", "yx"), spec, live, 1.0)


@pytest.fixture(scope="module")
def shape() -> BasisParametrisation:
    """xx and yx of four layers."""
    return gdpp(planting_eagle.plant("full", seed=1, heads=1))


def judged(
    shape: BasisParametrisation, factors: list[list[float]], scatter: float = 0.0, norms: Tensor = NORMS
) -> ScalingLaw:
    """The law for steps that are off it by ``factors`` (two rows of four), with norms that vary by ``scatter``."""
    generator = torch.Generator().manual_seed(0)
    square = norms[:, None] * (scatter * torch.randn(len(norms), 400, generator=generator, dtype=torch.float64)).exp()
    off = torch.tensor(factors, dtype=torch.float64)
    values = torch.stack([-ETA * off[0], -GAMMA * off[1]], 1) / norms[:, None]
    return _law(Norms("largest", square), values, 0.0 * values, torch.tensor(shape.live), shape)


def test_steps_that_follow_the_law(shape: BasisParametrisation) -> None:
    law = judged(shape, [[1.0] * 4] * 2)
    assert law.holds and (law.eta, law.gamma) == (pytest.approx(ETA), pytest.approx(GAMMA))
    assert law.explained == pytest.approx(1.0) and law.slope == pytest.approx(1.0) and law.spread == pytest.approx(1.0)
    assert law.points[-1].eta is None and law.points[-1].gamma == pytest.approx(GAMMA)


def test_one_batch_is_as_far_off_as_batches_are(shape: BasisParametrisation) -> None:
    """A layer may be off by more than the usual factor where batches are, and its interval says so."""
    factors = [[1.0, 1.0, 0.5, 1.0], [1.0, 1.0, 0.5, 1.0]]
    assert not judged(shape, factors).holds
    law = judged(shape, factors, scatter=0.25)
    assert law.holds and law.spread is not None and law.spread > 1.5
    low, high = law.points[1].eta_ci
    assert low is not None and high is not None
    # Of log eta: the scatter of one of three layers beside their mean.
    assert math.log(high / low) == pytest.approx(2 * 1.96 * 0.25 * (2 / 3) ** 0.5, rel=0.15)


@pytest.mark.parametrize("scatter", [0.0, 0.3, 3.0])
def test_a_law_that_leaves_more_than_it_says_is_none(shape: BasisParametrisation, scatter: float) -> None:
    """However little is known of the norms."""
    law = judged(shape, [[1.0, 0.4, 1.0, 1.0], [0.3, 1.0, 0.2, 1.0]], scatter, NORMS.sqrt().sqrt())
    assert not law.holds and law.explained is not None and law.explained < 1.0 - MOST


def test_where_norms_hardly_change_the_law_holds_and_equal_steps_would_too(shape: BasisParametrisation) -> None:
    norms, off = torch.linspace(1.0, 0.9, 4, dtype=torch.float64), [[1.0, 1.2, 0.9, 1.0], [0.9, 1.1, 1.2, 1.0]]
    law = judged(shape, off, 0.2, norms)
    assert law.holds and law.explained is not None and law.explained < 1.0 - MOST
    assert law.why.endswith("equal steps would fit as well")
    assert not judged(shape, off, 0.01, norms).holds  # the norms are known, and do not account for the steps
    assert not judged(shape, [[1.0, 2.0, 0.5, 1.0], [0.5, 1.0, 2.0, 1.0]], 0.4, norms).holds


def test_the_means_over_layers_come_with_their_errors(shape: BasisParametrisation) -> None:
    """Student's interval of the logarithms, and what is not known of the norms where layers are no further apart."""
    law = judged(shape, [[1.2, 1.0, 1 / 1.2, 1.0], [1.1, 1 / 1.1, 1.1, 1 / 1.1]])
    for value, (low, high), sd, t, n in (
        (law.eta, law.eta_ci, math.log(1.2), 4.302653, 3),
        (law.gamma, law.gamma_ci, math.log(1.1) * (4 / 3) ** 0.5, 3.182446, 4),
    ):
        assert value is not None and low is not None and high is not None
        assert math.log(high / value) == pytest.approx(t * sd / n**0.5, rel=1e-5)
        assert value / low == pytest.approx(high / value)
    low, high = judged(shape, [[1.0] * 4] * 2, scatter=0.2).gamma_ci
    assert low is not None and high is not None
    assert math.log(high / low) == pytest.approx(2 * 1.96 * 0.2 * (3 / 4) ** 0.5 / 2, rel=0.15)
    assert judged(shape, [[1.0] * 4, [1.0, -1.0, 1.0, 1.0]]).eta_ci == (None, None)


def test_equal_steps_are_no_law(shape: BasisParametrisation) -> None:
    same = (NORMS / NORMS[0]).tolist()
    law = judged(shape, [same, same], scatter=3.0)
    assert not law.holds and law.why == "all layers take the same steps" and law.explained is None


def test_a_step_in_the_wrong_direction_is_no_law(shape: BasisParametrisation) -> None:
    assert "wrong direction" in judged(shape, [[1.0] * 4, [1.0, -1.0, 1.0, 1.0]], scatter=0.3).why


@pytest.mark.parametrize("how", ["not determined", "no error", "a large error"])
def test_what_is_not_known_is_left_out(how: str) -> None:
    """Not taken for exact: a step that is far off the law, but not known, does not break it, and gets no interval."""
    planted = planting_eagle.plant("full", seed=2, heads=1)
    theta = torch.stack([planted.xx, planted.yx], 1).flatten()
    theta = torch.cat([theta[:6], theta[7:]])  # xx and yx by layer, without the last xx
    theta[3] *= 50.0  # yx of layer 1
    stderr, determined = 1e-6 * theta.abs(), [True] * 7
    task = MatrixCompletion.from_dict(dict(planted.model.spec.task or {}))
    network = HeadLayers(P=planted.model.P, Q=planted.model.Q, scale=1.0, residual=1.0)

    def laws() -> ScalingLaw:
        fit = Estimate(theta, stderr, tuple(determined), ((),) * len(theta), 0.0)
        return scaling_laws(gdpp(planted), fit, network, task, planted.model.spec, 0)[0]

    assert not laws().holds
    if how == "not determined":
        determined[3] = False
    else:
        stderr[3] = float("nan") if how == "no error" else 2.0 * float(theta[3].abs())
    law = laws()
    assert law.holds and law.points[1].gamma is None and law.points[1].gamma_ci == (None, None)
    assert law.points[1].eta is not None and law.gamma == pytest.approx(planting_eagle.GAMMA, rel=0.35)
    determined[:] = [False] * 7
    assert not laws().holds and "two known steps" in laws().why


def test_prompts_that_diverge_do_not_spoil_the_norms() -> None:
    planted = planting_eagle.plant("full", seed=1, heads=1)
    task, spec = planting_eagle.small_task("full"), planted.model.spec
    wild = HeadLayers(P=1e28 * planted.model.P, Q=planted.model.Q, scale=1.0, residual=1.0)
    for norms in batch_norms(wild, task, spec, gdpp(planted), 0):
        assert bool(torch.isfinite(norms.square).all())
