"""EAGLE in networks for matrix completion: planted, scrambled, named; what breaks the law is gd++."""

from __future__ import annotations

import json
from pathlib import Path

import planting
import planting_eagle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planting_eagle import REGIMES, PlantedEagle
from repeats import repeats

from interp.algebra.structure import Sketch, SketchMap, find_sketch, nearest_projector, sketch_maps
from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.cli.main import main
from interp.models.gram import HeadLayers, head_layers
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.results import Analysis, RecoveredCompletion

PROMPTS = 512


@pytest.fixture(autouse=True)
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


def analysed(model: LinearTransformer, verdict_only: bool = False) -> Analysis:
    return analyse(planting.checkpoint(model), PROMPTS, verdict_only=verdict_only)


def check_coefficients(result: Analysis, planted: PlantedEagle) -> None:
    """Recovered to 1e-8: the algorithm's own numbers."""
    assert result.recovered is not None
    for layer, row in enumerate(result.recovered.layers):
        assert row.coefficients["yx"].value == pytest.approx(float(planted.yx[layer]), rel=1e-8)
        if layer + 1 < len(planted.xx):
            assert row.coefficients["xx"].value == pytest.approx(float(planted.xx[layer]), rel=1e-8)
        else:
            assert "xx" not in row.coefficients  # never read


@pytest.mark.parametrize("regime", REGIMES)
def test_planted_eagle_is_named_and_recovered_in_every_regime(regime: str) -> None:
    planted = planting_eagle.plant(regime, seed=1)
    result = analysed(planted.model)
    assert result.verdict.algorithm == "eagle" and result.verdict.recognized, (result.families, result.completion)
    assert result.verdict.fidelity == pytest.approx(1.0, abs=1e-12)
    check_coefficients(result, planted)
    found = result.completion
    assert found is not None and found.regime == regime
    assert max(a.difference or 0.0 for a in found.agreement) < 1e-14
    assert max(a.layerwise or 0.0 for a in found.agreement) < 1e-14
    law = next(law for law in found.laws if law.statistic == "largest")
    # The planted norms are the largest of other 1024 prompts than those analysed.
    gamma = planting_eagle.GAMMA / (planting_eagle.MACHINES if regime == "machines" else 1)
    assert (
        law.holds
        and law.eta == pytest.approx(planting_eagle.ETA, rel=0.35)
        and law.gamma == pytest.approx(gamma, rel=0.35)
    )
    assert law.points[-1].eta is None and law.points[0].eta_ci[0] < law.points[0].eta_ci[1]
    if regime == "sketch":
        assert [row.rank for row in found.sketch] == [planting_eagle.RANK] * 4
    if regime == "machines":
        assert found.machines is not None and found.machines.inputs == ((0, 1), (2, 3), (4, 5))
        assert found.machines.numbers == (7 + 2) * 2


@pytest.mark.parametrize("apart", [False, True])
def test_the_subspaces_of_a_sketch_are_recovered(apart: bool) -> None:
    planted = planting_eagle.plant("sketch", seed=2, heads=8, apart=apart)
    layers = head_layers(planted.model, 7)
    found = find_sketch(layers, planted.model.spec)
    assert isinstance(found, Sketch)
    torch.testing.assert_close(torch.stack(found.reads), planted.projectors, rtol=0, atol=1e-8)
    torch.testing.assert_close(torch.stack(found.writes), planted.written, rtol=0, atol=1e-8)
    r = planting_eagle.RANK
    assert found.numbers == 4 * (r * (6 - r) + ((r + 1) * (5 - r) if apart else 0))
    for layer, maps in enumerate(sketch_maps(planted.model.spec, found)):
        numbers = [m.by_weights(layers, layer, planted.model.spec) for m in maps if isinstance(m, SketchMap)]
        assert numbers == pytest.approx([float(planted.xx[layer]), float(planted.yx[layer])], rel=1e-8)


@pytest.mark.parametrize("seed", repeats([3, 8, 10], 1))
def test_sketched_eagle_is_named_where_the_norms_seen_hardly_change(seed: int) -> None:
    """Random sketches see as much of A late as early, and the planted norms are the largest of one batch."""
    result = analysed(planting_eagle.plant("sketch", seed=seed).model, verdict_only=True)
    assert result.verdict.algorithm == "eagle", result.completion


def test_a_sketch_that_is_not_orthonormal_writes_what_it_reads() -> None:
    """T = -S S^T Sigma S S^T: the eigenvalues of S S^T differ, so a part of its range is nearer to them."""
    n, r = 6, 3
    frame = torch.linalg.qr(torch.randn(n, r, generator=torch.Generator().manual_seed(5), dtype=torch.float64))[0]
    K = frame @ torch.tensor([1.0, 0.8, 0.4], dtype=torch.float64).diag() @ frame.mT
    assert float(nearest_projector(K @ K).trace()) == pytest.approx(2.0)
    P, Q = torch.zeros(2, 2, 1, n + 2, n + 2, dtype=torch.float64)
    P[:, 0, :n, :n], Q[:, 0, :n, :n] = -K, K
    P[:, 0, n:, n:] = -torch.eye(2, dtype=torch.float64)
    found = find_sketch(HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0), planting_eagle.plant("sketch", 0).model.spec)
    assert isinstance(found, Sketch) and all(w is read for w, read in zip(found.writes, found.reads, strict=True))
    torch.testing.assert_close(found.reads[0], frame @ frame.mT, rtol=0, atol=1e-8)


def test_a_layer_may_condition_other_columns_than_it_reads() -> None:
    """Such a network is no EAGLE with one sketch, whatever its numbers, and is recovered all the same."""
    planted = planting_eagle.plant("sketch", seed=1, apart=True)
    result = analysed(planted.model)
    assert result.verdict.algorithm == "eagle", (result.families, result.completion)
    assert result.verdict.fidelity == pytest.approx(1.0, abs=1e-12)
    check_coefficients(result, planted)
    found, recovered = result.completion, result.recovered
    assert found is not None and max(a.difference or 0.0 for a in found.agreement) < 1e-14
    assert [row.written_rank for row in found.sketch[:-1]] == [planting_eagle.RANK + 1] * 3
    for row in found.sketch[:-1]:
        shares = (planted.written[row.layer] * planted.projectors).sum((-1, -2)) / planting_eagle.RANK
        assert list(row.read_by) == pytest.approx(shares.tolist(), abs=1e-8)
    assert isinstance(recovered, RecoveredCompletion)
    basis = torch.tensor(recovered.written[0], dtype=torch.float64)
    torch.testing.assert_close(basis @ basis.mT, planted.written[0], rtol=0, atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 7), rank=st.integers(1, 7), scale=st.sampled_from([-3.0, 1e-9, 2.0]), seed=st.integers(0, 99))
def test_the_nearest_projector_to_a_multiple_of_one_is_that_one(n: int, rank: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    S = torch.linalg.qr(torch.randn(n, min(rank, n), generator=generator, dtype=torch.float64))[0]
    skew = torch.randn(n, n, generator=generator, dtype=torch.float64)
    found = nearest_projector(scale * (S @ S.mT + skew - skew.mT))
    assert found is not None
    torch.testing.assert_close(found, S @ S.mT, rtol=0, atol=1e-9)
    assert nearest_projector(torch.zeros(n, n, dtype=torch.float64)) is None


BROKEN = {
    "constant steps": [[1.0, 0.4, 0.16, 1.0], [1.0, 0.4, 0.16, 0.064]],  # nearly: the norm falls by about 2.5 a layer
    "one short step": [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.2, 1.0]],
    "every other layer": [[1.0, 0.3, 1.0, 1.0], [0.3, 1.0, 0.3, 1.0]],
}


@pytest.mark.parametrize(
    ("regime", "how"),
    repeats(
        [
            ("full", "constant steps"),
            ("sketch", "every other layer"),
            ("machines", "one short step"),
            ("full", "one short step"),
        ],
        2,
    ),
)
def test_steps_that_break_the_law_are_gdpp(regime: str, how: str) -> None:
    factors = torch.tensor(BROKEN[how], dtype=torch.float64)
    planted = planting_eagle.plant(regime, seed=3, factors=factors)
    result = analysed(planted.model)
    assert result.verdict.algorithm == "gd++" and result.verdict.recognized, result.completion
    check_coefficients(result, planted)
    assert result.completion is not None and not any(law.holds for law in result.completion.laws)


@pytest.mark.parametrize("seed", repeats(range(2), 1))
def test_unstructured_networks_are_not_named(seed: int) -> None:
    spec = planting_eagle.plant("full", seed=1).model.spec
    generator = torch.Generator().manual_seed(seed)
    P, Q = 0.12 * torch.randn(2, 4, 2, 8, 8, generator=generator, dtype=torch.float64)
    result = analysed(LinearTransformer(spec=spec, P=P, Q=Q), verdict_only=True)
    assert result.verdict.algorithm == "unrecognized" and not result.verdict.recognized, result.families
    assert not result.verdict.solves_task


def test_the_command_line_names_a_plain_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "planted.safetensors"
    write_checkpoint(planting_eagle.plant("machines", seed=4).model, path)
    with pytest.raises(SystemExit) as ended:
        main([str(path), "--json", "--prompts", str(PROMPTS)])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert document["verdict"]["algorithm"] == "eagle" and document["completion"]["regime"] == "machines"
    document.pop("sections")  # what reports say of it
    assert Analysis.from_dict(document).to_dict() == document
    with pytest.raises(SystemExit) as ended:
        main([str(path), "--prompts", str(PROMPTS)])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and "RECOGNIZED: EAGLE" in said
    for arguments in (["unroll", str(path)], ["inspect", str(path)]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0


def test_the_scale_of_the_attention_is_part_of_the_law() -> None:
    planted = planting_eagle.plant("full", seed=5)
    fields = planted.model.spec.to_dict() | {"attention": {"keys": "context", "scale": 0.5}}
    model = LinearTransformer(spec=ModelSpec.from_dict(fields), P=2.0 * planted.model.P, Q=planted.model.Q)
    found = analysed(model).completion
    assert found is not None and found.laws[0].eta == pytest.approx(planting_eagle.ETA, rel=0.35)
