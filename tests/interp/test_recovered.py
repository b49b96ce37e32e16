"""The recovered algorithm in figures and words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import planting
import pytest
import torch

from interp.algebra.gauge import LiveCoordinates, live_coordinates, project
from interp.algebra.sensitivity import Prompts, sensitivities
from interp.analysis import analyse
from interp.evidence.omega_coefficients import omega_layers
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import BasisParametrisation
from interp.identify.estimates import Estimate, output_estimate
from interp.identify.score import Score
from interp.identify.verdict import score_words
from interp.models.gram import HeadLayers, head_layers
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer
from interp.results import Layer

LAYERS = 2


@dataclass(frozen=True)
class Setting:
    """A planted network of two layers, disturbed, with its candidate diag fitted on a few prompts."""

    planted: planting.Planted
    network: HeadLayers
    live: LiveCoordinates
    diag: OmegaFit


@pytest.fixture(scope="module")
def setting() -> Setting:
    planted = planting.random_planted(11, layers=LAYERS, subset=planting.OMEGAS, largest=4, noise=0.2)
    spec = planted.model.spec
    grams = task_of(spec.task).sample(200, 0).grams(spec)
    network = head_layers(planted.model, grams.context)
    prompts = Prompts(grams.gram, grams.query, (spec.width - 1,), -1)
    live = live_coordinates(network, prompts.gram, prompts.query, prompts.readout)
    parametrisation = BasisParametrisation.of(planting.OMEGAS, spec, live, network.scale)
    output = output_estimate(parametrisation, network, sensitivities(network, prompts))
    diag = planting.omega_fit("diag", spec, live, network.scale, output, score=Score(fidelity=0.5, interval=(0.4, 0.6)))
    return Setting(planted, network, live, diag)


def layers_with(setting: Setting, **changes: Estimate) -> tuple[Layer, ...]:
    candidate = replace(setting.diag, **changes)
    return omega_layers(setting.network, setting.planted.model.spec, setting.live, candidate)


def test_coefficients_are_those_of_the_estimates(setting: Setting) -> None:
    output = setting.diag.output
    assert output is not None
    fit = replace(output, theta=output.theta + 1.0, stderr=output.stderr * 0.5)
    found = layers_with(setting, refit=fit)
    names = [(0, "xx"), (0, "xy"), (0, "yx"), (0, "yy"), (1, "yx"), (1, "yy")]  # x is not read after the last layer
    for k, (layer, name) in enumerate(names):
        c = found[layer].omega[name]
        assert (c.output, c.stderr) == (float(output.theta[k]), float(output.stderr[k]))
        assert (c.refit, c.refit_stderr) == (float(fit.theta[k]), float(fit.stderr[k]))
        assert c.live
    for name in ("xx", "xy"):
        c = found[1].omega[name]
        assert not c.live and (c.weight, c.output, c.refit, c.stderr) == (None,) * 4


def test_traces_of_the_family_diag_have_a_weight_alone(setting: Setting) -> None:
    c = layers_with(setting)[0].trace["y:xx"]
    assert c.weight is not None and c.live
    assert (c.output, c.refit, c.stderr, c.undetermined) == (None,) * 4


def test_the_split_is_of_the_live_energy(setting: Setting) -> None:
    """Block-scalar part, what the traces add to it, and the rest; the first two by projections of their own."""
    spec, model = setting.planted.model.spec, setting.planted.model
    families = [
        BasisParametrisation.of(names, spec, setting.live, 1.0).maps
        for names in (planting.OMEGAS, (*planting.OMEGAS, "traces"))
    ]
    for index, layer in enumerate(layers_with(setting)):
        block, whole = (project(model.P[index], model.Q[index], maps, setting.live, index) for maps in families)
        assert layer.split.block_scalar == pytest.approx(block.explained / block.energy)
        assert layer.split.trace == pytest.approx((whole.explained - block.explained) / block.energy)
        shares = (layer.split.block_scalar, layer.split.trace, layer.split.residual)
        assert None not in shares and sum(s or 0.0 for s in shares) == pytest.approx(1.0, abs=1e-12)
        assert all(s is not None and 0 < s < 1 for s in shares)


def test_a_layer_without_weights_has_no_split(setting: Setting) -> None:
    nothing = replace(setting, network=replace(setting.network, P=0 * setting.network.P))
    split = layers_with(nothing)[0].split
    assert (split.block_scalar, split.trace, split.residual) == (None, None, None)


def undetermined(estimate: Estimate, k: int, *partners: int) -> Estimate:
    rows = list(estimate.partners)
    rows[k] = partners
    return replace(
        estimate, determined=tuple(ok and i != k for i, ok in enumerate(estimate.determined)), partners=tuple(rows)
    )


def test_what_the_refit_does_not_determine_names_its_partners(setting: Setting) -> None:
    output = setting.diag.output
    assert output is not None
    c = layers_with(setting, refit=undetermined(output, 2, 0, 5))[0].omega["yx"]
    assert c.undetermined == (
        "the refit does not determine it on these prompts; it trades off against xx of layer 0, yy of layer 1"
    )
    assert c.stderr is not None  # the output estimate stands all the same


def test_what_the_output_does_not_determine_has_no_standard_error(setting: Setting) -> None:
    """Its least-squares standard error would be that of one of many solutions."""
    output = setting.diag.output
    assert output is not None
    exact = replace(output, stderr=output.stderr * 1e-9)  # so that no error exceeds its size
    c = layers_with(setting, output=undetermined(exact, 4), refit=exact)[1].omega["yx"]
    assert c.stderr is None
    assert c.undetermined == "the output does not determine it on these prompts"


def test_a_standard_error_beyond_the_size_is_said(setting: Setting) -> None:
    output = setting.diag.output
    assert output is not None
    wide = replace(output, stderr=output.theta.abs() * 1.1)
    assert (
        layers_with(setting, refit=wide)[0].omega["xx"].undetermined
        == "the standard error of the refit exceeds its size"
    )
    unknown = replace(output, stderr=output.stderr * float("nan"))
    c = layers_with(setting, refit=unknown)[0].omega["xx"]
    assert c.refit_stderr is None and c.undetermined is not None


@pytest.mark.parametrize(
    ("fidelity", "words"),
    [(1.0, "1 to rounding"), (1 - 1e-11, "1 to rounding"), (1 - 3e-6, "0.99999700")],
)
def test_fidelities_near_one_keep_their_digits(fidelity: float, words: str) -> None:
    assert score_words(Score(fidelity=fidelity, interval=(fidelity, fidelity))).startswith(words)


@pytest.mark.parametrize(("omega_yx", "solves", "name"), [(-0.05, True, "gd"), (0.05, False, "polynomial")])
def test_the_verdict_has_the_figures_of_the_task(omega_yx: float, solves: bool, name: str) -> None:
    P, Q = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, omega_yx, 0.0]], dtype=torch.float64), 3)
    model = LinearTransformer(spec=planting.spec_for(3, 8, noise=1.0), P=P, Q=Q)
    result = analyse(planting.checkpoint(model), 256, verdict_only=True)
    found, rows = result.verdict, {row.name: row for row in result.evidence.losses}
    assert (found.algorithm, found.recognized, found.solves_task) == (name, True, solves)
    assert found.fidelity is not None and found.fidelity > 1 - 1e-12
    for row in ("network", "null", "oracle"):
        assert f"{rows[row].mse:.3g}" in found.summary
