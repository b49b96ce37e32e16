"""Causal networks: planted algorithms are named and their numbers returned, everything else is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planting_channels import channel_spec, planted, scrambled

from interp.algebra.channels import block_means, map_name
from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.errors import LayoutError, UsageError
from interp.evidence.sequence_evidence import objectives
from interp.families.block_scalar import BlockScalarFit
from interp.families.channel_heads import BlockHeads, free_numbers, live_channels, refit_heads
from interp.identify.choose import Choice, identify
from interp.identify.networks import SequenceHalf
from interp.identify.run import Run
from interp.models.constructions import CHANNELS, gradient_step, preconditioned_step, richardson
from interp.models.tasks import LinearDynamics
from interp.models.tasks.linear_dynamics import InitialLaw
from interp.models.token_pass import states
from interp.models.transformer import LinearTransformer
from interp.results import Analysis

SEQUENCES = 192


def found_in(model: LinearTransformer, path: Path, sequences: int = SEQUENCES) -> Choice:
    write_checkpoint(model, path / "model.safetensors")
    return identify(Run.of(open_checkpoint(str(path / "model.safetensors")), sequences, 1))


def name_of(choice: Choice) -> str | None:
    return None if choice.chosen is None else choice.chosen.named


def heads_of(choice: Choice) -> BlockScalarFit:
    fit = choice.fit_of("revalg")
    assert isinstance(fit, BlockScalarFit)
    return fit


SETTINGS = [
    (1, 1, LinearDynamics(dim=4, context=12)),
    (1, 6, LinearDynamics(dim=3, context=20, initial=InitialLaw(kind="normal", value=1.0))),
    (2, 4, LinearDynamics(dim=2, context=10, dynamics="contracting")),
    (3, 2, LinearDynamics(dim=5, context=16, dynamics="fixed", teacher=3)),
    (4, 3, LinearDynamics(dim=3, context=12, start=0.4)),
    (6, 6, LinearDynamics(dim=2, context=9)),
]


@pytest.mark.parametrize(("layers", "heads", "task"), SETTINGS)
def test_planted_block_scalar_networks_are_recovered(layers, heads, task, tmp_path):
    model, k = planted(task, layers, heads, seed=layers)
    found = found_in(scrambled(model, 7), tmp_path)
    fit = heads_of(found)
    assert name_of(found) == "revalg" and fit.score.unexplained < 1e-12 and fit.how == "weights"
    for layer in range(layers):
        live = fit.live.maps(layer)
        torch.testing.assert_close(fit.projections[layer].k[live], k[layer][live], rtol=0, atol=1e-8)
        assert live.any()


def test_proposition_1_is_one_step_of_gradient_descent_and_revalg(tmp_path):
    task = LinearDynamics(dim=4, context=15, start=0.3)
    found = found_in(scrambled(gradient_step(task, 0.07), 2), tmp_path)
    step = found.fit_of("gradient step")
    assert name_of(found) == "revalg" and step is not None and step.score.unexplained < 1e-12
    assert step.theta.eta == pytest.approx(0.07, abs=1e-8)
    assert step.theta.w0 == pytest.approx(0.3, abs=1e-8)


def test_a_matrix_to_start_from_is_returned(tmp_path):
    W_0 = 0.5 * torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    task = LinearDynamics(dim=3, context=15, start=tuple(map(tuple, W_0.tolist())))
    found = found_in(scrambled(gradient_step(task, 0.05), 2), tmp_path)
    step = found.fit_of("gradient step, W₀ a matrix")
    assert name_of(found) == "gd" and found.chosen is step and step is not None  # a matrix is not block-scalar
    assert step.theta.eta == pytest.approx(0.05, abs=1e-8)
    torch.testing.assert_close(step.theta.w0, W_0, rtol=0, atol=1e-7)


def test_proposition_2_is_revalg_and_not_one_step(tmp_path):
    task = LinearDynamics(dim=3, context=12)
    model = preconditioned_step(task, 1.0, richardson((1.0, 1.5), (0.0, 0.3), scale=8.0, inverse_lambda=0.001))
    found = found_in(scrambled(model, 1), tmp_path)
    assert name_of(found) == "revalg" and heads_of(found).score.unexplained < 1e-12
    assert not any(fit.recognized for fit in found.fits if fit is not found.chosen)


@pytest.mark.parametrize("dynamics", ["orthogonal", "fixed", "contracting"])
@pytest.mark.parametrize(("layers", "heads", "scale", "start"), [(1, 2, 0.2, 0.0), (2, 3, 0.1, 0.7), (1, 4, 1e-3, 1.0)])
def test_unstructured_networks_are_not_named(layers, heads, scale, start, dynamics, tmp_path):
    task = LinearDynamics(dim=4, context=12, dynamics=dynamics, start=start)
    generator = torch.Generator().manual_seed(layers)
    Q, P = (scale * torch.randn(layers, heads, 16, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    found = found_in(LinearTransformer(spec=channel_spec(task, 4.0), Q=Q, P=P), tmp_path)
    assert found.chosen is None


@pytest.mark.parametrize("claimed", ["fixed", "orthogonal"])
def test_a_network_that_knows_its_one_teacher_by_heart_is_not_named(claimed, tmp_path):
    """On its own task M A_t s_t with M = eta W is the same as eta B_t s_t, a step of gradient descent."""
    task = LinearDynamics(dim=4, context=12, dynamics="fixed", teacher=5)
    W = task.sample(1, 0).W[0]
    model = gradient_step(task, 0.1)
    P = model.P.clone()
    out, state, previous = (model.spec.channel(name).indices for name in ("out", "state", "previous"))
    P[0, 0, out, state], P[0, 0, out, previous] = 0.0, 0.1 * W
    named = LinearDynamics(dim=4, context=12, dynamics=claimed)
    found = found_in(LinearTransformer(spec=channel_spec(named, None), Q=model.Q, P=P), tmp_path)
    assert found.chosen is None


def test_the_refit_undoes_a_disturbance():
    task = LinearDynamics(dim=3, context=10)
    model, _ = planted(task, 2, 2, 4, strength=0.6)
    tokens = task.sample(96, 0).inputs(model.spec)[0]
    heads = BlockHeads(block_means(model.Q, 3), block_means(model.P, 3))
    target = heads.predict(model.spec, tokens)
    live = live_channels(model.spec, model.Q, model.P, tokens[:16], 3)
    generator = torch.Generator().manual_seed(1)
    moved = BlockHeads(
        heads.q * (1 + 0.1 * torch.randn(heads.q.shape, generator=generator, dtype=torch.float64)), heads.p
    )
    fit = refit_heads(model.spec, moved, free_numbers(live, 2), tokens, target, seed=0, steps=12)
    before, after = (float((h.predict(model.spec, tokens) - target).square().sum()) for h in (moved, fit))
    assert before > 1e-3 * float(target.square().sum()) and after < 1e-2 * before


def whole(model: LinearTransformer, path: Path) -> Analysis:
    write_checkpoint(model, path / "model.safetensors")
    return analyse(open_checkpoint(str(path / "model.safetensors")), 128, 0)


def test_the_whole_analysis_of_proposition_1(tmp_path):
    task = LinearDynamics(dim=3, context=20)
    result = whole(scrambled(gradient_step(task, 0.1), 0), tmp_path)
    assert (result.verdict.algorithm, result.verdict.solves_task) == ("revalg", True)
    assert "one step of gradient descent, η = 0.1" in result.verdict.summary
    found = result.sequences
    assert found is not None and found.gradient_step is not None and found.gradient_step.exact
    names = [name for name in CHANNELS]
    maps = result.layers[0].maps
    assert maps[map_name(names, 0, 2, 3, 1)].weight == pytest.approx(0.1, abs=1e-10)
    assert sum(abs(c.weight or 0.0) > 1e-10 for c in maps.values()) == 1
    head = result.layers[0].heads[0]
    assert len(head.Q) == len(head.P) == 4 and head.residual is not None
    losses = {row.name: row.loss or 0.0 for row in found.losses}
    assert losses["oracle"] < losses["ridge"] < losses["gd-1"] < losses["null"]
    assert losses["recovered"] == pytest.approx(losses["network"], rel=1e-9)
    assert Analysis.from_dict(result.to_dict()) == result


def test_a_fidelity_short_of_one_is_not_printed_as_one(tmp_path):
    model, _ = planted(LinearDynamics(dim=3, context=12), 1, 2, seed=1)
    generator = torch.Generator().manual_seed(0)
    moved = model.P * (1 + 3e-3 * torch.randn(model.P.shape, generator=generator, dtype=torch.float64))
    result = whole(LinearTransformer(spec=model.spec, Q=model.Q, P=moved), tmp_path)
    assert result.verdict.algorithm == "revalg" and 0.99995 < (result.verdict.fidelity or 0.0) < 1 - 1e-10
    assert "R² = 0.9999" in result.verdict.summary
    assert [row.label for row in result.evidence.depth_losses] == ["read-out after 0 layers", "read-out after 1 layer"]


def test_heads_that_come_close_are_not_said_to_be_another_thing(tmp_path):
    """A step from a matrix that is nearly a number: smaller than the heads that nearly are it, and exact."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    W_0 = 0.5 * torch.eye(3, dtype=torch.float64) + 1e-2 * noise
    task = LinearDynamics(dim=3, context=15, start=tuple(map(tuple, W_0.tolist())))
    result = whole(scrambled(gradient_step(task, 0.05), 2), tmp_path)
    heads = next(row for row in result.families if row.name == "revalg")
    assert result.verdict.algorithm == "gd" and (heads.fidelity or 0.0) > 0.99


def test_the_passage_is_run_once_for_all_positions(monkeypatch):
    task = LinearDynamics(dim=3, context=10)
    model = gradient_step(task, 0.1)
    drawn = task.sample(16, 0)
    half, _ = SequenceHalf.of(model, drawn)
    runs = []
    monkeypatch.setattr("interp.evidence.sequence_evidence.states", lambda *given: runs.append(0) or states(*given))
    assert {row.position for row in objectives(model, half, 1, (5, 8, 9))} == {5, 8, 9} and len(runs) == 1


def test_a_network_that_does_nothing_is_no_algorithm(tmp_path):
    task = LinearDynamics(dim=3, context=10)
    zero = torch.zeros(1, 1, 12, 12, dtype=torch.float64)
    result = whole(LinearTransformer(spec=channel_spec(task), Q=zero, P=zero), tmp_path)
    assert (result.verdict.algorithm, result.verdict.solves_task) == ("unrecognized", False)


def test_a_network_that_diverges_says_so(tmp_path):
    task = LinearDynamics(dim=3, context=20)
    model, _ = planted(task, 6, 2, 0, clip=None)
    huge = LinearTransformer(spec=model.spec, Q=1e6 * model.Q, P=1e6 * model.P)
    result = whole(huge, tmp_path)
    assert result.verdict.algorithm == "unrecognized" and "diverge" in result.verdict.summary


def test_what_cannot_be_identified_is_an_error(tmp_path):
    task = LinearDynamics(dim=3, context=10)
    model = gradient_step(task, 0.1)
    write_checkpoint(model, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="64 or more"):
        analyse(open_checkpoint(str(tmp_path / "model.safetensors")), 10)
    spec = channel_spec(task)
    other = {**spec.to_dict(), "task": {"name": "noisy_regression", "dim": 3, "context": 5, "noise": {"fixed": 0}}}
    write_checkpoint(
        LinearTransformer(spec=type(spec).from_dict(other), Q=model.Q, P=model.P), tmp_path / "b.safetensors"
    )
    with pytest.raises(LayoutError, match="the task needs x: 3 and y: 1"):
        analyse(open_checkpoint(str(tmp_path / "b.safetensors")), 128)
