"""Verdicts: planted algorithms are named, everything else is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis
import planting
import pytest
import torch
from hypothesis import strategies as st
from planting import Planted
from repeats import repeats
from torch import Tensor

from interp.algebra.structure import Sketch
from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.errors import LayoutError, UsageError
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import BasisParametrisation, SketchedParametrisation
from interp.identify.choose import choose
from interp.identify.estimates import Estimate
from interp.identify.family import FAMILIES
from interp.identify.networks.shared_keys import JUDGED
from interp.identify.score import Score
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.results import Analysis

PROMPTS = 512
SUBSETS = [subset for subset in planting.SUBSETS if subset]  # without any omega nothing is planted


@pytest.fixture(autouse=True)
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses over as many prompts as the fits, not 65 536: verdicts here do not hang on their last digit."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


def verdict_of(model: LinearTransformer, prompts: int = PROMPTS, whole: bool = False) -> Analysis:
    """The verdict and what it rests on; with ``whole`` with the further evidence, which must come through too."""
    return analyse(planting.checkpoint(model), prompts, verdict_only=not whole)


def check_planted(planted: Planted, whole: bool = False) -> None:
    result = verdict_of(planted.model, whole=whole)
    assert result.verdict.algorithm == planted.right_verdict, result.families
    assert ("constant" in result.verdict.summary) is (planted.right_verdict == "unrecognized")
    for layer, row in zip(result.layers, planted.omega, strict=True):
        for name, value in zip(planting.OMEGAS, row.tolist(), strict=True):
            found = layer.omega[name]
            if not found.live:
                continue
            size = abs(value) or float(row.abs().max())  # of a coefficient that is 0: the largest of its layer
            assert found.weight is not None and abs(found.weight - value) <= 1e-9 * size
            if found.stderr is not None:  # None: the output estimate does not determine it
                assert found.output is not None and abs(found.output - value) <= 1e-6 * size
            if found.undetermined is None:
                assert found.refit is not None and abs(found.refit - value) <= 1e-6 * size


@pytest.mark.parametrize("seed", repeats(range(24), 8))
def test_planted_networks_are_recovered(seed: int) -> None:
    check_planted(planting.random_planted(seed, subset=SUBSETS[seed % 15], largest=8), whole=seed == 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(210))
def test_planted_networks_of_any_size_are_recovered(seed: int) -> None:
    check_planted(planting.random_planted(seed, subset=SUBSETS[seed % 15]))


def check_unrecognized(model: LinearTransformer, whole: bool = False) -> None:
    result = verdict_of(model, whole=whole)
    assert result.verdict.algorithm == "unrecognized", result.families
    assert not result.verdict.recognized
    assert not any(row.chosen for row in result.families)


def dense(seed: int) -> LinearTransformer:
    return planting.random_dense(seed, 1 + seed % 8, 2 + seed % 14, size=(0.3, 0.6, 1.0, 1.5)[seed % 4])


def broken(seed: int, largest: int = 32) -> LinearTransformer:
    """A planted network, every weight of its heads disturbed by as much as the weights themselves."""
    return planting.random_planted(seed, subset=planting.OMEGAS, largest=largest, noise=1.0).model


@pytest.mark.parametrize("seed", repeats(range(10), 3))
def test_dense_random_networks_are_not_recognized(seed: int) -> None:
    check_unrecognized(dense(seed), whole=seed == 0)


@pytest.mark.parametrize("seed", repeats(range(10), 3))
def test_networks_with_the_symmetry_broken_are_not_recognized(seed: int) -> None:
    check_unrecognized(broken(seed, largest=8), whole=seed == 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_many_dense_random_networks_are_not_recognized(seed: int) -> None:
    check_unrecognized(dense(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_many_networks_with_the_symmetry_broken_are_not_recognized(seed: int) -> None:
    check_unrecognized(broken(seed))


@pytest.mark.parametrize("size", [3.0, 30.0, 1e3, 1e100])
def test_divergent_networks_get_a_verdict(size: float) -> None:
    model = planting.random_dense(0, 6, 4, size=size)
    check_unrecognized(model, whole=True)
    assert "diverge" in verdict_of(model).verdict.summary


def planted_heads(dim: int, context: int, layers: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """(P, Q, omega): all four omegas in scrambled heads."""
    label = -0.2 / (context * (dim + 8))
    omega = torch.tensor([[-0.2 / context, label, -0.4 / context, label]] * layers, dtype=torch.float64)
    heads = planting.scramble(*planting.block_scalar_heads(omega, dim), 4, torch.Generator().manual_seed(0))
    return *heads, omega


@pytest.mark.parametrize(("dim", "context"), repeats([(1, 1), (6, 3), (1, 6), (2, 1), (2, 2), (6, 1)], 2))
def test_tiny_dimensions_and_contexts_shorter_than_the_dimension(dim: int, context: int) -> None:
    P, Q, omega = planted_heads(dim, context)
    check_planted(Planted(LinearTransformer(spec=planting.spec_for(dim, context), P=P, Q=Q), omega), whole=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": {"keys": "all"}},
        {"attention": {"scale": "1/n"}},
        {"attention": {"scale": "1/(n+1)", "keys": "all"}},
        {"attention": {"scale": -0.5}},
        {"residual": False},
        {"readout": {"channel": "y", "sign": 1}},
        {"clip": 1e3},
    ],
)
def test_every_setting_of_the_model(fields: dict[str, object]) -> None:
    """Coefficients are those of K, so the scale is not part of them."""
    P, Q, omega = planted_heads(4, 10)
    planted = Planted(LinearTransformer(spec=planting.spec_for(4, 10, **fields), P=P, Q=Q), omega)
    check_planted(planted, whole=not {"residual", "readout"}.isdisjoint(fields))


def test_the_label_may_come_first() -> None:
    P, Q, omega = planted_heads(3, 8)
    fields = planting.spec_for(3, 8).to_dict()
    order = torch.tensor([3, 0, 1, 2])
    P, Q = (value[..., order, :][..., order] for value in (P, Q))
    spec = ModelSpec.from_dict({**fields, "tokens": [["y", 1], ["x", 3]]})
    check_planted(Planted(LinearTransformer(spec=spec, P=P, Q=Q), omega))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-6), (torch.float16, 1e-2)])
def test_files_of_lower_precision(dtype: torch.dtype, rounding: float, tmp_path: Path) -> None:
    """Rounded weights are still block-scalar, and coefficients are off by their rounding. The scale 1/n keeps float16
    weights well above the smallest numbers that it has."""
    omega = torch.tensor([[-0.2, -0.02, -0.4, -0.02]] * 2, dtype=torch.float64)
    P, Q = planting.block_scalar_heads(omega, 4)
    spec = planting.spec_for(4, 10, attention={"keys": "context", "scale": "1/n"})
    path = tmp_path / "model.safetensors"
    write_checkpoint(LinearTransformer(spec=spec, P=P, Q=Q).to(dtype), path)
    result = analyse(open_checkpoint(str(path)), PROMPTS, verdict_only=True)
    assert (result.verdict.algorithm, result.checkpoint.dtype) == ("diag", str(dtype).removeprefix("torch."))
    for layer, row in zip(result.layers, omega, strict=True):
        found = [layer.omega[name].weight for name in planting.OMEGAS if layer.omega[name].live]
        expected = [v for name, v in zip(planting.OMEGAS, row.tolist(), strict=True) if layer.omega[name].live]
        assert found == pytest.approx(expected, rel=rounding)


def test_a_network_that_predicts_nothing() -> None:
    P, Q, _ = planted_heads(3, 8)
    nothing = verdict_of(LinearTransformer(spec=planting.spec_for(3, 8), P=0 * P, Q=Q))
    # Without omega_yx the label of the query stays 0, and six scrambled heads leave rounding of it.
    rounding = verdict_of(planting.random_planted(22, subset=("xx",), largest=8).model)
    for result in (nothing, rounding):
        assert result.verdict.algorithm == "unrecognized"
        assert result.verdict.fidelity is None and "constant" in result.verdict.summary
        assert not result.verdict.solves_task


def test_a_clip_that_is_always_met_leaves_nothing_to_analyse() -> None:
    P, Q, _ = planted_heads(3, 8)
    result = verdict_of(LinearTransformer(spec=planting.spec_for(3, 8, clip=0.01), P=P, Q=Q))
    assert "meet the clip" in result.verdict.summary
    assert (result.layers, result.families) == ((), ())


def test_a_clip_that_is_sometimes_met_is_noted() -> None:
    P, Q, omega = planted_heads(3, 8)
    result = verdict_of(LinearTransformer(spec=planting.spec_for(3, 8, clip=7.0), P=P, Q=Q))
    assert result.verdict.algorithm == "diag"
    assert "meet the clip; they are left out" in result.evidence.notes[0]
    assert result.layers[0].omega["yx"].output == pytest.approx(float(omega[0, 2]), rel=1e-6)


def test_trace_terms_are_named_equivariant() -> None:
    dim, layers = 3, 2
    tau = {name: torch.full((layers,), -0.01, dtype=torch.float64) for name in ("x:xx", "x:yy", "y:xx")}
    tau["x:yy"] /= 10  # lambda is some ten times tr Sigma
    omega = torch.tensor([[-0.02, -0.002, -0.05, -0.002]] * layers, dtype=torch.float64)
    heads, traces = planting.block_scalar_heads(omega, dim), planting.trace_heads(tau, dim)
    P, Q = (torch.cat(pair, 1) for pair in zip(heads, traces, strict=True))
    P, Q = planting.scramble(P, Q, P.shape[1] + 2, torch.Generator().manual_seed(2))
    result = verdict_of(LinearTransformer(spec=planting.spec_for(dim, 10), P=P, Q=Q))
    assert result.verdict.algorithm == "equivariant"
    for name, values in tau.items():
        found = result.layers[0].trace[name]
        assert found.weight == pytest.approx(float(values[0]), rel=1e-9)
        assert found.refit == pytest.approx(float(values[0]), rel=1e-6)
    for name, value in zip(planting.OMEGAS, omega[0].tolist(), strict=True):
        assert result.layers[0].omega[name].output == pytest.approx(value, rel=1e-6)
    split = result.layers[0].split
    assert split.residual == pytest.approx(0, abs=1e-12)
    assert split.trace is not None and split.trace > 0.1


def test_a_planted_preconditioner_is_recovered() -> None:
    dim, generator = 4, torch.Generator().manual_seed(1)
    root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    omega = -torch.linalg.inv(root + 4 * torch.eye(dim, dtype=torch.float64)) / 10  # not symmetric
    P, Q = torch.zeros(2, 1, 1, dim + 1, dim + 1, dtype=torch.float64)
    P[..., dim, dim], Q[..., :dim, :dim] = 1.0, omega.T
    P, Q = planting.scramble(P, Q, 3, generator)
    task = {
        "name": "noisy_regression",
        "dim": dim,
        "context": 10,
        "noise": {"fixed": 0.5},
        "covariance": [4, 2, 1, 0.5],
    }
    spec = ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task})
    result = verdict_of(LinearTransformer(spec=spec, P=P, Q=Q))
    assert result.verdict.algorithm == "preconditioned-gd"
    for found in (result.preconditioners[0].weight, result.preconditioners[0].refit):
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), omega, rtol=1e-6, atol=1e-9)


def test_what_cannot_be_analysed_is_refused_in_one_line() -> None:
    P, Q, _ = planted_heads(3, 8)

    def model(**fields: object) -> LinearTransformer:
        return LinearTransformer(spec=planting.spec_for(3, 8, **fields), P=P, Q=Q)

    for refused, error, words in (
        (model(attention={"keys": "causal"}), LayoutError, "causal"),
        (model(readout={"channel": "x", "sign": 1}), LayoutError, "expected 'y'"),
        (model(task=None), LayoutError, "names no task"),
        (model(tokens=[["a", 3], ["y", 1]]), LayoutError, "needs x: 3 and y: 1"),
    ):
        with pytest.raises(error, match=words):
            verdict_of(refused)
    for prompts, words in ((63, "64 or more"), (10**9, "--prompts")):
        with pytest.raises(UsageError, match=words):
            verdict_of(model(), prompts)


NOTHING = Estimate(torch.zeros(0), torch.zeros(0), (), (), 0.0)


def candidate(name: str, fidelity: float | None, parameters: int, lower: float | None = None) -> OmegaFit:
    """A scored family of so many numbers."""
    low = fidelity if lower is None else lower
    return OmegaFit(
        family=FAMILIES[name],
        parameters=parameters,
        parametrisation=BasisParametrisation(maps=(), live=((True,) * parameters,), scale=1.0, residual=1.0),
        output=NOTHING,
        fit=NOTHING,
        refit=NOTHING,
        prediction=torch.zeros(0, 1),
        predict=lambda prompts: torch.zeros(0, 1),
        score=Score(fidelity=fidelity, interval=(low, fidelity)),
    )


def chosen(**left: float | None) -> str | None:
    """The choice among families that leave the given shares unexplained (gdpp: gd++, pgd: preconditioned-gd)."""
    rows = {"gd": ("gd", 4), "gdpp": ("gd++", 7), "diag": ("diag", 14), "pgd": ("preconditioned-gd", 400)}
    candidates = tuple(
        candidate(rows[key][0], None if value is None else 1 - value, rows[key][1]) for key, value in left.items()
    )
    found, why = choose(candidates)
    assert set(why) == {c.family.name for c in candidates}
    return None if found is None else found.family.name


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({"gd": 0.0, "gdpp": 0.0, "diag": 0.0}, "gd"),  # all exact: the smallest
        ({"gd": 0.02, "gdpp": 0.018, "diag": 0.017}, "gd"),  # none improves materially
        ({"gd": 0.02, "gdpp": 0.0195, "diag": 0.014}, "diag"),  # by more than 0.005
        ({"gd": 0.02, "gdpp": 0.012, "diag": 0.011}, "gd++"),
        ({"gd": 0.02, "gdpp": 0.0195, "diag": 0.0149}, "diag"),  # gd++ is as good as diag, but no better than gd
        ({"gd": 0.02, "gdpp": 0.016, "diag": 0.012}, "diag"),  # small steps add up
        ({"gd": 0.02, "gdpp": 0.014, "diag": 0.010}, "gd++"),  # what diag adds to gd++ is not material
        ({"gd": 0.049, "gdpp": 0.0445, "diag": 0.0449}, "gd"),  # almost 0.005 is not enough
        ({"gd": 1e-3, "gdpp": 9e-5, "diag": 8e-5}, "gd++"),  # ten times less left
        ({"gd": 1e-7, "gdpp": 1e-9, "diag": 1e-9}, "gd"),  # a negligible remainder needs no further term
        ({"gd": 2e-6, "gdpp": 1e-6, "diag": 0.0}, "diag"),  # exactly what the smaller is not
        ({"gd": 0.5, "gdpp": 0.06, "diag": 0.051}, None),  # nothing reaches 0.95
        ({"gd": None, "gdpp": None, "diag": None}, None),
        ({"gd": 0.04, "gdpp": 0.04, "diag": 0.04, "pgd": 0.02}, "gd"),  # a free matrix has to gain 0.05
        ({"gd": 0.08, "gdpp": 0.08, "diag": 0.08, "pgd": 0.001}, "preconditioned-gd"),
        ({"gd": 0.01, "gdpp": 0.009, "diag": 0.009, "pgd": 1e-14}, "preconditioned-gd"),  # it is exact
        ({"gd": 0.3, "gdpp": 0.3, "diag": 0.04, "pgd": 0.001}, "diag"),  # preconditioned-gd does not contain diag
        ({"gd": 0.3, "gdpp": 0.3, "diag": 0.04, "pgd": 1e-14}, "preconditioned-gd"),  # but is what the network is
        ({"gd": 0.3, "gdpp": 0.058, "diag": 0.049, "pgd": 0.001}, "diag"),  # without containing it, and less than 0.05
    ],
)
def test_choice_of_the_family(left: dict[str, float | None], expected: str | None) -> None:
    assert chosen(**left) == expected


@hypothesis.given(st.lists(st.one_of(st.floats(0, 0.1), st.sampled_from([0.0, 1e-8, 1e-5])), min_size=4, max_size=4))
def test_the_choice_has_earned_its_numbers(left: list[float]) -> None:
    """Whatever the scores: the chosen family is materially better than every recognized one that it contains, or was
    reached through one that is; and no family improves on it materially."""
    rows = (("gd", 4), ("gd++", 7), ("diag", 14), ("equivariant", 20))
    candidates = tuple(candidate(name, 1 - share, n) for (name, n), share in zip(rows, left, strict=True))
    found, why = choose(candidates)
    recognized = [c for c in candidates if c.score.recognized]
    assert (found is None) is (not recognized)
    if found is None:
        return
    assert why[found.family.name] == "the smallest family that explains the network"
    reason = {c.family.name: why[c.family.name] for c in recognized}
    smaller = [c for c in recognized if c.parameters < found.parameters]
    if smaller:  # climbed to from one that it leaves materially less than, exactly, or ten times less
        assert any(
            c.score.unexplained - found.score.unexplained > 0.005
            or found.score.unexplained * 10 < c.score.unexplained > 1e-6
            for c in smaller
        )
    for c in recognized:
        if c.parameters > found.parameters:
            assert found.score.unexplained - c.score.unexplained <= 0.005
            worse = any(
                s.score.unexplained < c.score.unexplained for s in candidates if s.family.name in c.family.contains
            )
            assert reason[c.family.name].startswith("explains") or (worse and "failed" in reason[c.family.name])


def test_a_sketch_is_not_hidden_by_a_family_that_barely_passes() -> None:
    """It contains gd++, which is not recognized, but not diag, which is."""
    sketch, diag = candidate("gd++ (sketched)", 1 - 1e-6, 54), candidate("diag", 0.951, 18)
    assert choose((candidate("gd++", 0.93, 9), diag, sketch))[0] is sketch
    assert choose((candidate("diag", 0.995, 18), sketch))[0] is not sketch  # less than its worth
    unsure = replace(diag, score=Score(fidelity=0.951, interval=(0.94, 0.99999)))
    assert choose((unsure, sketch))[0] is unsure


@pytest.mark.parametrize(("beyond", "fidelity", "found"), [
    (1e-8, 0.97, "gd++ (sketched)"),  # no layer can read all of x, as gd++ has it
    (1e-8, 0.94, "gd++"),  # but this does not explain the network
    (0.2, 0.97, "gd++"),
    (0.2, 0.993, "gd++ (sketched)"),  # surely better, by less than the worth of numbers that are fitted
])  # fmt: skip
def test_what_layers_read_counts_where_it_is_plain_or_explains_more(beyond: float, fidelity: float, found: str) -> None:
    projector = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    sketch = Sketch((projector,), (1,), ((1.0, beyond),), (projector,))
    structure = SketchedParametrisation((), ((True,),), 1.0, 1.0, ((),), sketch=sketch)
    larger = replace(candidate("gd++ (sketched)", fidelity, 1), parametrisation=structure)
    chosen, reasons = choose((candidate("gd++", 0.99, 1), larger))
    assert chosen is not None and chosen.family.name == found
    if beyond < 0.1 and found != "gd++":
        assert reasons["gd++"] == "here layers read all of x, which those of the network cannot (gd++ (sketched))"


def test_ten_times_less_must_be_sure() -> None:
    """One prompt that outweighs the others decides the shares, and reaches far in the interval."""
    smaller, larger = candidate("gd++", 1 - 8e-4, 7), candidate("diag", 1 - 1e-5, 14)
    assert choose((smaller, larger))[0] is larger
    wide = replace(smaller, score=Score(fidelity=1 - 8e-4, interval=(1 - 2e-3, 1 - 2e-5)))
    assert choose((wide, larger))[0] is wide


def test_why_the_other_families_are_not_the_one() -> None:
    rows = (("gd", 0.02, 4), ("gd++", 0.0195, 7), ("diag", 0.0149, 14), ("equivariant", 0.0148, 20))
    found, why = choose(tuple(candidate(name, 1 - left, n) for name, left, n in rows))
    assert found is not None and found.family.name == "diag"
    assert why == {
        "gd": "diag leaves 0.015 of the variance, this 0.02",
        "gd++": "explains materially no more than gd, which it contains",
        "diag": "the smallest family that explains the network",
        "equivariant": "explains materially no more than diag, which it contains",
    }


def test_the_prompts_behind_the_fidelity_are_counted() -> None:
    result = verdict_of(planting.random_planted(3, subset=planting.OMEGAS, largest=4).model, 200)
    assert result.evidence.held_out == JUDGED
    P, Q, _ = planted_heads(3, 8)
    clipped = verdict_of(LinearTransformer(spec=planting.spec_for(3, 8, clip=7.0), P=P, Q=Q))
    left_out = int(clipped.evidence.notes[0].split(" meet")[0].split()[-1])  # of half of the prompts
    assert left_out > 0 and clipped.evidence.held_out is not None
    assert 0.95 * JUDGED < clipped.evidence.held_out < JUDGED  # those that meet the clip are left out here too


def test_a_family_whose_interval_reaches_too_low_is_not_recognized() -> None:
    found, why = choose((candidate("gd", 0.97, 4, lower=0.85), candidate("diag", 0.98, 14, lower=0.96)))
    assert found is not None and found.family.name == "diag"
    assert why["gd"] == "the interval of its fidelity reaches below 0.9"
