"""Tied families: named where all layers do the same, and only there; their estimates and derivatives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from repeats import repeats
from test_course import network, run_of, verdict

from interp.algebra.unrolling import label_indices
from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.families.omegas import OMEGAS
from interp.families.tied import TiedParametrisation
from interp.identify import course as course_room
from interp.identify import estimates as estimates_room
from interp.identify.course import course_of
from interp.identify.estimates import output_estimate
from interp.models.transformer import LinearTransformer


@pytest.mark.parametrize(("noise", "seed"), repeats([(0.0, 0), (0.01, 0), (0.0, 1), (0.01, 1)], 2))
def test_equal_layers_are_tied(noise: float, seed: int, tmp_path: Path) -> None:
    gd = verdict(network((0.0,) * 3, (-0.03,) * 3, noise, seed=seed), tmp_path)
    both = verdict(network((-0.015,) * 3, (-0.03,) * 3, noise, seed=seed), tmp_path)
    assert (gd.algorithm, both.algorithm) == ("gd", "gd++") and gd.tied and both.tied
    assert gd.level == both.level == "layer-by-layer"


@pytest.mark.parametrize(("noise", "seed"), repeats([(0.01, 0), (0.0, 0), (0.0, 1), (0.01, 1)], 1))
def test_different_layers_are_not(noise: float, seed: int, tmp_path: Path) -> None:
    gd = verdict(network((0.0,) * 3, (-0.03, -0.027, -0.033), noise, seed=seed), tmp_path)
    both = verdict(network((-0.01, -0.015, 0.0), (-0.03,) * 3, noise, seed=seed), tmp_path)
    assert (gd.algorithm, both.algorithm) == ("gd", "gd++") and not (gd.tied or both.tied)


def test_one_layer_is_not_tied(tmp_path: Path) -> None:
    found = verdict(network((0.0,), (-0.03,)), tmp_path)
    assert (found.algorithm, found.tied) == ("gd", False)


def test_a_looped_network_is_recognized_from_its_file(tmp_path: Path) -> None:
    """The algorithm that is recovered has every layer of every pass, with the same numbers."""
    one = network((-0.015,), (-0.03,))
    fields = {**one.spec.to_dict(), "loops": 4}
    model = LinearTransformer.unrolled(type(one.spec).from_dict(fields), {"Q": one.Q, "P": one.P})
    write_checkpoint(model, tmp_path / "m.safetensors")
    found = analyse(open_checkpoint(str(tmp_path / "m.safetensors")), 256, 0, verdict_only=True)
    assert (found.verdict.algorithm, found.verdict.tied) == ("gd++", True) and len(
        found.layers
    ) == found.checkpoint.layers == 4
    assert found.recovered is not None and found.recovered.parameters == 2
    numbers = {(layer, term.name): term.number for layer, term in found.recovered.terms()}
    assert [numbers[layer, "yx"] for layer in range(4)] == pytest.approx([-0.03] * 4)
    assert [numbers[layer, "xx"] for layer in range(3)] == pytest.approx([-0.015] * 3)


def test_derivatives_are_those_of_differences(tmp_path: Path) -> None:
    """Of the read-outs after every layer, and of the predictions."""
    run = run_of(network((-0.02, -0.01, 0.0), (-0.03, -0.02, -0.04), noise=0.1), tmp_path, 64)
    network_, half = run.network, run.network.fitted
    own = course_of(network_.layers, half.prompts.gram, *label_indices(run.spec))
    family = TiedParametrisation.of(OMEGAS, run.spec, network_.live, network_.layers.scale)
    theta = family.by_weights(network_.layers, network_.live)
    assert len(theta) == 4
    followed = course_room._Match(family, own, theta, torch.zeros_like(theta))
    predicted = estimates_room._Match(family, half.prompts, half.prediction, half.weight)
    for match, along in ((followed, 0), (predicted, -1)):
        jacobian = match.at(theta)[2]().movedim(along, 0)
        for k, one in enumerate(torch.eye(len(theta), dtype=theta.dtype)):
            step = 1e-6 * one
            difference = (match.at(theta - step)[1] - match.at(theta + step)[1]) / 2e-6
            torch.testing.assert_close(jacobian[k], difference, rtol=1e-5, atol=1e-6 * float(jacobian.abs().max()))


def test_the_output_estimate_is_one_regression_over_all_layers(tmp_path: Path) -> None:
    """Exact for equal layers; between the layers' own numbers otherwise."""
    for steps in ((-0.03,) * 3, (-0.03, -0.02, -0.04)):
        run = run_of(network((0.0,) * 3, steps), tmp_path, 256)
        half = run.network.fitted
        family = TiedParametrisation.of(("yx",), run.spec, run.network.live, run.network.layers.scale)
        found = output_estimate(family, run.network.layers, half.sensed)
        assert found.theta.shape == (1,) and found.determined == (True,)
        assert min(steps) - 1e-12 <= float(found.theta) <= max(steps) + 1e-12
