"""What an omega is worth: known figures of two-layer networks, and what must hold for any network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from interp.evidence.ablation import NAMES, Full, KeptOmegas, compensated, heavy_sample, omega_effects, refitted
from interp.models.gram import forward
from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.training.objective import adjusted_losses, linearise, loss
from interp.results import OmegaEffect, OmegaEffects

TWO_LAYERS = torch.tensor([[True] * 4, [False, False, True, True]])


def spec_for(dim: int, context: int, noise: Mapping[str, Any], **fields: Any) -> ModelSpec:
    task = {"name": "noisy_regression", "dim": dim, "context": context, "noise": noise}
    return ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task, **fields})


def effects(
    omega: list[list[float]], spec: ModelSpec, prompts: int, kept: torch.Tensor = TWO_LAYERS, seed: int = 0
) -> OmegaEffects:
    table = torch.tensor(omega, dtype=torch.float64)
    return omega_effects("diag", table, kept, task_of(spec.task), spec, 1.0, prompts, seed)


def effect(found: OmegaEffects, coefficient: str, layer: int | None = None) -> OmegaEffect:
    return next(e for e in found.effects if (e.coefficient, e.layer) == (coefficient, layer))


# (xx, xy, yx, yy) of layer 0 and (yx, yy) of layer 1 of trained networks, d = 10, n = 20, and half their excess loss:
# as trained, with omega_xy, omega_yy or both set to zero, and optimal without omega_xy and without omega_yy. Made with
# another implementation (L-BFGS on 6000 prompts, tested on 60 000).
REFERENCES = [
    (
        {"choice": [1, 3]},
        [[-0.0151, -0.0003, -0.0239, -0.0003], [0.0, 0.0, -0.1133, -0.0010]],
        {"whole": 0.2012, "xy": 0.226, "yy": 0.299, "xy+yy": 0.453},
        {"xy": 0.2070, "yy": 0.2128},
    ),
    (
        {"uniform": [0, 5]},
        [[-0.0153, -0.00035, -0.0222, -0.00051], [0.0, 0.0, -0.1107, -0.00064]],
        {"whole": 0.2413, "xy": 0.284, "yy": 0.460, "xy+yy": 0.870},
        {},
    ),
]


@pytest.mark.parametrize(("noise", "omega", "zeroed", "refitted"), REFERENCES, ids=["two levels", "uniform"])
def test_known_figures_of_networks_without_their_momentum_terms(
    noise: dict[str, Any], omega: list[list[float]], zeroed: dict[str, float], refitted: dict[str, float]
) -> None:
    """Tolerance: four standard errors, and 6 % because the omegas are rounded (omega_xy to one digit: its effect on the
    loss, here 0.025 to 0.4, moves by up to 5 %)."""
    found = effects(omega, spec_for(10, 20, noise), prompts=4096)
    assert found.excess is not None and found.excess_stderr is not None

    def check(value: float | None, error: float | None, expected: float, relative: float) -> None:
        assert value is not None and error is not None and found.excess is not None and found.excess_stderr is not None
        spread = error + found.excess_stderr
        assert (found.excess + value) / 2 == pytest.approx(expected, rel=relative, abs=2 * spread)

    check(0.0, 0.0, zeroed.pop("whole"), 0.06)
    for name, expected in zeroed.items():
        cut = effect(found, name)
        check(cut.zeroed, cut.zeroed_stderr, expected, 0.06)
    for name, expected in refitted.items():
        cut = effect(found, name)
        # The optimum does not depend on the rounding of where the fit starts, so only the few prompts of the fit
        # add to the errors: 2048 of them for 5 coefficients cost about 5 / 2048 times a heavy tail, below 2 %.
        check(cut.refitted, cut.refitted_stderr, expected, 0.02)
        assert cut.worth is not None and cut.refitted is not None and found.refitted is not None
        assert cut.worth == pytest.approx(cut.refitted - found.refitted, abs=1e-12)
    # Zeroing exaggerates: the two terms substitute for each other.
    for name in ("xy", "yy", "xy+yy"):
        cut = effect(found, name)
        assert cut.refitted is not None and cut.zeroed is not None and cut.refitted < 0.7 * cut.zeroed
    assert found.refitted is not None and found.refitted < 0


def test_every_coefficient_is_taken_out_of_all_layers_and_of_each() -> None:
    found = effects(REFERENCES[0][1], spec_for(3, 6, {"uniform": [0, 2]}), prompts=64)
    assert [(e.coefficient, e.layer) for e in found.effects] == [
        *((name, None) for name in (*NAMES, "xy+yy")),
        *((name, 0) for name in NAMES),
        ("yx", 1),
        ("yy", 1),
    ]  # fmt: skip
    assert found.note is not None and "32 prompts are too few for 6 coefficients" in found.note
    assert {e.refitted for e in found.effects} == {None} and found.refitted is None
    # A coefficient that only one layer has is the same taken out of all layers or of that one.
    assert replace(effect(found, "xy", 0), layer=None) == effect(found, "xy")


def test_without_omega_yx_nothing_is_predicted() -> None:
    """The excess is then the mean square of the oracle's weights; no refit can help."""
    spec = spec_for(3, 8, {"uniform": [0, 2]})
    found = effects([[0.0, 0.0, -0.1, 0.0]], spec, 512, kept=torch.tensor([[False, False, True, False]]))
    (cut,) = found.effects
    task = task_of(spec.task)
    oracle = task.oracle_weights(task.sample(20_000, 5)).square().sum(1)
    assert found.excess is not None and cut.zeroed is not None and cut.zeroed_stderr is not None
    expected, error = float(oracle.mean()), float(oracle.std()) / 20_000**0.5
    assert abs(found.excess + cut.zeroed - expected) < 4 * (error + cut.zeroed_stderr)
    assert cut.refitted == cut.zeroed


def test_a_coefficient_that_is_zero_loses_nothing_by_zeroing() -> None:
    found = effects([[-0.02, 0.0, -0.05, -0.001], [0.0, 0.0, -0.05, -0.001]], spec_for(3, 8, {"uniform": [0, 2]}), 256)
    assert effect(found, "xy").zeroed == effect(found, "xy").zeroed_stderr == 0.0


def test_the_order_of_the_channels_does_not_matter() -> None:
    spec = spec_for(3, 8, {"uniform": [0, 2]})
    swapped = ModelSpec.from_dict(spec.to_dict() | {"tokens": [["y", 1], ["x", 3]]})
    assert effects(REFERENCES[0][1], spec, 256) == effects(REFERENCES[0][1], swapped, 256)


def test_refits_stop_when_they_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is zeroed is still measured; those of single layers go first."""
    for allowance, refitted_too in ((1e9, {None, 0, 1}), (1.5e8, {None}), (1e7, set())):
        monkeypatch.setattr("interp.evidence.ablation.OPERATIONS", allowance)
        found = effects(REFERENCES[0][1], spec_for(3, 8, {"uniform": [0, 1]}), 1024)
        assert {e.layer for e in found.effects if e.refitted is not None} == refitted_too
        assert (found.refitted is None) == (not refitted_too)
        assert None not in {e.zeroed for e in found.effects}
        assert (found.note is None) == (allowance == 1e9) and (found.note is None or "too long" in found.note)


# --- the parts ------------------------------------------------------------------------------------------------------


def test_kept_omegas_hold_the_others_at_zero() -> None:
    generator = torch.Generator().manual_seed(1)
    table = -0.02 * torch.rand(3, 4, generator=generator, dtype=torch.float64)
    kept = torch.randint(2, (3, 4), generator=generator).to(torch.float64)
    spec = spec_for(3, 8, {"uniform": [0, 2]})
    sample = heavy_sample(task_of(spec.task), spec, 64, 3)
    everything, family = KeptOmegas(torch.ones_like(kept), 3, 1.0, 1.0), KeptOmegas(kept, 3, 1.0, 1.0)
    torch.testing.assert_close(
        adjusted_losses(family, table, sample), adjusted_losses(everything, table * kept, sample), rtol=0, atol=0
    )
    local = linearise(family, table, sample)
    for k in range(table.numel()):
        step = torch.zeros(12, dtype=torch.float64)
        step[k] = 1e-6 * float(table.abs().max())
        step = step.view_as(table)
        slope = (loss(family, table + step, sample) - loss(family, table - step, sample)) / float(2 * step.sum())
        # Central differences of step 1e-6: error 1e-12 from curvature, 1e-10 from rounding, relative to the largest.
        assert float(local.gradient[k]) == pytest.approx(slope, abs=1e-8 * float(local.gradient.abs().max()))
    assert not bool(local.gradient[kept.flatten() == 0].any())
    assert family.without(("xy", "yy"), 1).kept[1].tolist() == [kept[1, 0], 0, kept[1, 2], 0]


def test_the_other_coefficients_make_up_for_a_small_lost_one() -> None:
    """To second order: the loss of the compensated start is that of the refit, where zeroing alone costs far more."""
    spec = spec_for(10, 20, {"choice": [1, 3]})
    table = torch.tensor(REFERENCES[0][1], dtype=torch.float64)
    sample = heavy_sample(task_of(spec.task), spec, 1024, 0)
    family = KeptOmegas(TWO_LAYERS.to(torch.float64), 10, 1.0, 1.0)
    full = Full(family, table, sample, linearise(family, table, sample))
    cut = family.without(("yy",), 1)
    starts = [loss(cut, theta, sample) for theta in compensated(full, cut)]
    zeroed, best = loss(cut, table, sample), loss(cut, refitted(full, cut), sample)
    assert min(starts) - best < 0.3 * (zeroed - best)


def test_heavy_prompts_are_drawn_more_often_and_weighted_back() -> None:
    spec = spec_for(4, 8, {"uniform": [0, 3]})
    task = task_of(spec.task)
    sample = heavy_sample(task, spec, 4096, 0)
    plain = task.sample(40_000, 9).grams(spec).gram.square().sum((-1, -2))
    heavy = sample.gram.square().sum((-1, -2))
    assert float(heavy.mean()) > 1.5 * float(plain.mean())
    for power in (0.0, 0.5, 1.0):
        weighted, expected = sample.weight * heavy**power, plain**power
        error = float(weighted.std()) / 64 + float(expected.std()) / 200
        assert abs(float(weighted.mean()) - float(expected.mean())) < 4 * error + 1e-9
    assert float(sample.weight.min()) > 0 and float(sample.weight.max()) < 2.0
    tail = plain > plain.quantile(0.99)
    share = float((heavy > float(plain[tail].min())).double().mean())
    assert share > 0.04  # the largest hundredth is drawn several times as often


def test_a_sample_is_repeatable_and_of_the_asked_size() -> None:
    spec = spec_for(3, 6, {"fixed": 1.0}, attention={"keys": "all"})
    task = task_of(spec.task)
    first, second = heavy_sample(task, spec, 200, 7), heavy_sample(task, spec, 200, 7)
    assert first.count == 200 and not first.closed_form
    assert torch.equal(first.gram, second.gram) and torch.equal(first.weight, second.weight)
    assert not torch.equal(first.gram, heavy_sample(task, spec, 200, 8).gram)
    # With keys "all" the query is one of them.
    family = KeptOmegas(torch.ones(1, 4, dtype=torch.float64), 3, 1.0, 1.0)
    table = torch.tensor([[0.0, 0.0, -0.1, 0.0]], dtype=torch.float64)
    read = forward(family.maps(table), first.gram, first.query).queries[-1][:, 0, 3]
    expected = 0.5 * (-read - (first.oracle * first.query[:, 0, :3]).sum(-1)) ** 2
    torch.testing.assert_close(adjusted_losses(family, table, first), expected)
