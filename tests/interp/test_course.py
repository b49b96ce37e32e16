"""The trajectory estimate: what it recovers, its derivatives, and the statements that rest on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor

from interp.algebra.unrolling import label_indices
from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.families.parametrisations import BasisParametrisation
from interp.identify import course as course_room
from interp.identify.course import CourseFit, course_of, follow
from interp.identify.run import Run
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.results import Verdict
from interp.stats.averages import wilson

DIM, CONTEXT = 4, 16
MAPS = {"gd": ("yx",), "gd++": ("xx", "yx"), "diag": ("xx", "xy", "yx", "yy")}


@pytest.fixture(autouse=True)
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses over as many prompts as the fits, not 65 536: nothing here reads them."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


def network(
    xx: tuple[float, ...], yx: tuple[float, ...], noise: float = 0.0, sign: int = -1, seed: int = 0
) -> LinearTransformer:
    """One head of x for every layer, its weights disturbed by ``noise`` times the largest of P and of Q."""
    layers = len(yx)
    P, Q = torch.zeros(2, layers, 1, DIM + 1, DIM + 1, dtype=torch.float64)
    for layer, (a, b) in enumerate(zip(xx, yx, strict=True)):
        Q[layer, 0, :DIM, :DIM] = torch.eye(DIM)
        P[layer, 0] = torch.diag(torch.tensor([a] * DIM + [b], dtype=torch.float64))
    generator = torch.Generator().manual_seed(seed)
    P, Q = (
        W + noise * W.abs().amax((2, 3), keepdim=True) * torch.randn(W.shape, generator=generator, dtype=W.dtype)
        for W in (P, Q)
    )
    spec = ModelSpec.from_dict(
        {
            "tokens": [["x", DIM], ["y", 1]],
            "readout": {"channel": "y", "sign": sign},
            "task": {"name": "noisy_regression", "dim": DIM, "context": CONTEXT, "noise": {"uniform": [0, 1]}},
        }
    )
    return LinearTransformer(spec=spec, P=P, Q=Q)


def run_of(model: LinearTransformer, folder: Path, prompts: int = 512) -> Run:
    write_checkpoint(model, folder / "model.safetensors")
    return Run.of(open_checkpoint(str(folder / "model.safetensors")), prompts, 0)


def followed(model: LinearTransformer, family: str, folder: Path, prompts: int = 512) -> tuple[CourseFit, Tensor]:
    """The fit, and its numbers as a layer x map table."""
    run = run_of(model, folder, prompts)
    parts = run.network.fitted.prompts.gram, run.network.held_out.prompts.gram
    own, held_out = (course_of(run.network.layers, gram, *label_indices(run.spec)) for gram in parts)
    family_of = BasisParametrisation.of(MAPS[family], run.spec, run.network.live, run.network.layers.scale)
    fit = follow(family_of, own, held_out, [family_of.by_weights(run.network.layers, run.network.live)], 0)
    assert fit.fit is not None
    return fit, family_of.table(fit.fit.theta)


def verdict(model: LinearTransformer, folder: Path, prompts: int = 512) -> Verdict:
    run_of(model, folder)
    return analyse(open_checkpoint(str(folder / "model.safetensors")), prompts, 0, verdict_only=True).verdict


def test_a_planted_course_is_exact(tmp_path: Path) -> None:
    fit, table = followed(network((-0.02, -0.01, 0.0), (-0.03, -0.02, -0.04)), "gd++", tmp_path)
    torch.testing.assert_close(table[:, 1], torch.tensor([-0.03, -0.02, -0.04], dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(table[:2, 0], torch.tensor([-0.02, -0.01], dtype=torch.float64), atol=1e-9, rtol=0)
    assert min(fit.r2) > 1 - 1e-12


def test_equal_steps_under_noise_of_the_weights_are_all_known(tmp_path: Path) -> None:
    """The output alone leaves open which step comes when; the trajectory does not."""
    for seed in range(3):
        fit, table = followed(network((0.0,) * 3, (-0.03,) * 3, noise=0.02, seed=seed), "gd", tmp_path, 2048)
        assert bool(((table[:, 0] + 0.03).abs() < 0.01).all()), table
        assert fit.fit is not None and bool((fit.fit.stderr < 0.004).all())


def test_derivatives_are_those_of_differences(tmp_path: Path) -> None:
    run = run_of(network((-0.02, -0.01, 0.0), (-0.03, -0.02, -0.04), noise=0.1), tmp_path, 64)
    own = course_of(run.network.layers, run.network.fitted.prompts.gram, *label_indices(run.spec))
    family = BasisParametrisation.of(MAPS["diag"], run.spec, run.network.live, run.network.layers.scale)
    theta = family.by_weights(run.network.layers, run.network.live)
    match = course_room._Match(family, own, theta, torch.zeros_like(theta))
    jacobian = match.at(theta)[2]()
    for k, one in enumerate(torch.eye(len(theta), dtype=theta.dtype)):
        step = 1e-6
        difference = (match.at(theta - step * one)[1] - match.at(theta + step * one)[1]) / (2 * step)
        torch.testing.assert_close(jacobian[k], difference, rtol=1e-5, atol=1e-6 * float(jacobian.abs().max()))


def test_ascent_is_a_polynomial(tmp_path: Path) -> None:
    """Steps that make the residual grow are no gradient descent, exact as they are."""
    found = verdict(network((0.0,) * 3, (0.01,) * 3, sign=1), tmp_path)
    assert (found.algorithm, found.level, found.function) == ("polynomial", "as-a-whole", "polynomial")
    assert found.fidelity == pytest.approx(1.0)


def test_mixed_signs_are_a_polynomial(tmp_path: Path) -> None:
    assert verdict(network((0.0,) * 3, (-0.03, 0.02, -0.03)), tmp_path).algorithm == "polynomial"


def test_a_single_step_with_either_read_out_is_gradient_descent(tmp_path: Path) -> None:
    for sign in (-1, 1):
        found = verdict(network((0.0,), (0.03 * sign,), sign=sign), tmp_path)
        assert (found.algorithm, found.level) == ("gd", "layer-by-layer")
    assert verdict(network((0.0,), (-0.03,), sign=1), tmp_path).algorithm != "gd"  # away from the labels


@pytest.mark.parametrize(
    ("noise", "seed"),  # without noise all seeds are one network
    [(0.0, 0), (0.01, 0), (0.03, 1), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((0.01, 1), (0.03, 0)))],
)
def test_planted_families_under_noise_of_the_weights(noise: float, seed: int, tmp_path: Path) -> None:
    gd = verdict(network((0.0,) * 3, (-0.03, -0.02, -0.02), noise=noise, seed=seed), tmp_path, 1024)
    both = verdict(network((-0.015, -0.01, 0.0), (-0.03, -0.02, -0.02), noise=noise, seed=seed), tmp_path, 1024)
    half = verdict(network((-0.015, 0.0, 0.0), (-0.03, -0.02, -0.02), noise=noise, seed=seed), tmp_path, 1024)
    assert (gd.algorithm, both.algorithm, half.algorithm) == ("gd", "gd++", "gd++")
    assert {gd.level, both.level, half.level} <= {"layer-by-layer", "step-by-step"}


def test_random_weights_have_no_course(tmp_path: Path) -> None:
    model = network((0.0,) * 2, (-0.03,) * 2)
    generator = torch.Generator().manual_seed(0)
    P, Q = (0.1 * torch.randn(model.P.shape, generator=generator, dtype=torch.float64) for _ in range(2))
    found = verdict(dataclasses.replace(model, P=P, Q=Q), tmp_path)
    assert (found.algorithm, found.level, found.function) == ("unrecognized", None, None)


@pytest.mark.parametrize(("found", "count"), [(0, 100), (3, 10_000), (7, 7)])
def test_the_interval_of_a_share(found: int, count: int) -> None:
    expected = binomtest(found, count).proportion_ci(method="wilson")
    assert wilson(found, count) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
