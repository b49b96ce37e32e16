"""A golden file names what moved, and only that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import planting
import pytest
import torch

from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import Checkpoint, open_checkpoint
from interp.errors import LayoutError, UnreadableFile
from interp.golden import compare_with_golden, differences, golden_of, read_golden, update_golden
from interp.models.transformer import LinearTransformer
from interp.results import Analysis, to_frame
from interp.results.golden import Golden, Moved, Tolerance
from interp.results.plain_data import from_plain, to_plain

PROMPTS = 512


@pytest.fixture(autouse=True, scope="module")
def few_losses() -> Iterator[None]:
    """A golden file keeps no loss, so a few prompts do for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.identify.losses.OPERATIONS", 0.0)
        yield


@pytest.fixture(scope="module")
def diag() -> Checkpoint:
    return open_checkpoint("zoo:diag-l4-u5")


@pytest.fixture(scope="module")
def golden(diag: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "diag.json"
    update_golden(diag, path, prompts=PROMPTS)
    return path


def with_added(checkpoint: Checkpoint, layer: int, omega: str, amount: float) -> Checkpoint:
    """The checkpoint with one more head, which adds ``amount`` to one coefficient of K and nothing else."""
    row = [amount if name == omega else 0.0 for name in planting.OMEGAS]
    table = torch.zeros(checkpoint.model.layers, 4, dtype=torch.float64)
    table[layer] = torch.tensor(row)
    P, Q = planting.block_scalar_heads(table, checkpoint.model.spec.width - 1)
    model = checkpoint.model.to(torch.float64)
    return replace(checkpoint, model=replace(model, P=torch.cat([model.P, P], 1), Q=torch.cat([model.Q, Q], 1)))


def test_the_same_checkpoint_has_not_moved(diag: Checkpoint, golden: Path) -> None:
    assert compare_with_golden(diag, golden)[1] == []


def test_scrambled_heads_are_no_difference(diag: Checkpoint, golden: Path) -> None:
    model = diag.model.to(torch.float64)
    P, Q = planting.scramble(model.P, model.Q, 4, torch.Generator().manual_seed(1))
    assert compare_with_golden(replace(diag, model=replace(model, P=P, Q=Q)), golden)[1] == []


@pytest.mark.parametrize(("layer", "omega"), [(0, "xx"), (1, "xy"), (3, "yx"), (2, "yy")])
def test_one_changed_omega_is_named_with_its_size(diag: Checkpoint, golden: Path, layer: int, omega: str) -> None:
    old = read_golden(golden).coefficients[f"layer {layer}"][omega].output
    (moved,) = compare_with_golden(with_added(diag, layer, omega, 0.05 * old), golden)[1]
    assert moved.figure == f"layer {layer}, omega_{omega}"
    assert (moved.golden, moved.now) == pytest.approx((old, 1.05 * old), rel=1e-6)
    assert moved.allowed == pytest.approx(0.01 * abs(old))


def test_a_change_within_the_tolerance_is_no_difference(diag: Checkpoint, golden: Path) -> None:
    old = read_golden(golden).coefficients["layer 1"]["xy"].output
    assert compare_with_golden(with_added(diag, 1, "xy", 0.009 * old), golden)[1] == []


def test_a_deep_gd_network_has_no_blind_spot(tmp_path: Path) -> None:
    """Its refit within diag is not determined in any layer but one; the output estimates are, so they are compared."""
    omega = torch.tensor([[0.0, 0.0, -0.02 * (1 + layer), 0.0] for layer in range(4)], dtype=torch.float64)
    P, Q = planting.block_scalar_heads(omega, 3)
    gd = planting.checkpoint(LinearTransformer(spec=planting.spec_for(3, 8), P=P, Q=Q))
    result = update_golden(gd, tmp_path / "gd.json", prompts=PROMPTS)
    assert result.layers[1].omega["yx"].undetermined is not None
    (moved,) = compare_with_golden(with_added(gd, 1, "yx", -0.002), tmp_path / "gd.json")[1]
    assert moved.figure == "layer 1, omega_yx"
    assert (moved.golden, moved.now) == pytest.approx((-0.04, -0.042), rel=1e-6)


def test_another_algorithm_is_named_first(diag: Checkpoint, golden: Path) -> None:
    other = open_checkpoint("zoo:gdpp-l4-u5")
    first, *rest = compare_with_golden(other, golden)[1]
    assert first == Moved(figure="verdict.algorithm", golden="diag", now="gd++")
    assert any("omega_xy" in moved.figure for moved in rest)


@pytest.fixture(scope="module")
def result(diag: Checkpoint) -> Analysis:
    return analyse(diag, 128, verdict_only=True)


def altered(result: Analysis, change: Callable[[dict[str, Any]], object]) -> list[Moved]:
    """What differs when the golden file is that of ``result`` but for ``change``."""
    document = json.loads(json.dumps(to_plain(golden_of(result))))
    change(document)
    return differences(from_plain(Golden, document, "document"), result)


def test_every_other_difference_is_named(result: Analysis) -> None:
    xx = result.layers[0].omega["xx"].output
    assert xx is not None

    def entry(document: dict[str, Any]) -> dict[str, Any]:
        return document["coefficients"]["layer 0"]

    assert altered(result, lambda d: None) == []
    for key in ("recognized", "solves_task"):
        change = altered(result, lambda d, key=key: d["verdict"].update({key: False}))
        assert change == [Moved(figure=f"verdict.{key}", golden=False, now=True)]
    fidelity = result.verdict.fidelity
    for value in (0.9, None):
        (moved,) = altered(result, lambda d, value=value: d["fidelity"].update(value=value))
        assert (moved.figure, moved.golden, moved.allowed) == ("fidelity", value, 0.01)
        assert moved.now == pytest.approx(fidelity)
    without_values = {
        "layer 0, omega_xx": [lambda d: entry(d).pop("xx"), lambda d: entry(d)["xx"].update(stderr=None)],
        "layer 0, trace x:xx": [lambda d: entry(d).update({"x:xx": {"output": 1.0, "stderr": 0.1}})],
        "layer 3": [lambda d: d["coefficients"].pop("layer 3")],
        "layer 4": [lambda d: d["coefficients"].update({"layer 4": {"xx": {"output": 1.0, "stderr": 0.1}}})],
    }
    for figure, changes in without_values.items():
        for change in changes:
            (moved,) = altered(result, change)
            assert moved.figure == figure and moved.note
    (moved,) = altered(result, lambda d: entry(d)["xx"].update(output=2 * xx))
    assert (moved.figure, moved.note) == ("layer 0, omega_xx", None)
    assert (moved.golden, moved.now, moved.change) == pytest.approx((2 * xx, xx, abs(xx)))
    assert moved.stderr == pytest.approx(2**0.5 * (result.layers[0].omega["xx"].stderr or 0.0))
    assert str(moved).startswith(f"layer 0, omega_xx: {2 * xx:.6g} -> {xx:.6g}, moved by ")


def test_differences_are_a_table(result: Analysis) -> None:
    moved = altered(result, lambda d: (d["verdict"].update(algorithm="gd"), d["fidelity"].update(value=0.5)))
    frame = to_frame(moved)
    assert frame["figure"].tolist() == ["verdict.algorithm", "fidelity"]
    assert frame["golden"].tolist() == ["gd", "0.5"] and frame["allowed"].isna().tolist() == [True, False]


@pytest.mark.parametrize(("errors", "moves"), [(3.9, False), (4.1, True)])
def test_what_is_uncertain_may_move_by_four_standard_errors(result: Analysis, errors: float, moves: bool) -> None:
    xx = result.layers[0].omega["xx"].output
    assert xx is not None
    stderr = abs(xx)  # so large that the relative tolerance is the smaller one

    def change(document: dict[str, Any]) -> None:
        document["coefficients"]["layer 0"]["xx"] = {"output": xx + errors * stderr, "stderr": stderr}

    assert bool(altered(result, change)) is moves


def test_tolerances_survive_an_update(diag: Checkpoint, golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text(golden.read_text().replace('"relative": 0.01', '"relative": 0.2'))
    update_golden(diag, path, prompts=128)
    assert read_golden(path).tolerance == Tolerance(relative=0.2)
    assert read_golden(path).provenance.prompts == 128


def test_the_file_is_small_and_says_where_it_comes_from(golden: Path) -> None:
    text = golden.read_text()
    assert len(text) < 5000 and text.endswith("}\n")
    assert json.loads(text)["provenance"]["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"format": "interp-probe-golden", "version": 1', "\x00", "[" * 100_000],
    ids=["empty", "open", "cut", "binary", "deep"],
)
def test_what_is_not_json_is_unreadable(text: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=r"not readable as JSON .*delete it and run .* --update"):
        read_golden(path)


def test_what_is_not_text_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "bytes.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match="not readable"):
        read_golden(path)
    with pytest.raises(UnreadableFile, match="not readable"):
        read_golden(tmp_path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("format", "other"),
        ("version", 2),
        ("verdict", None),
        ("coefficients", []),
        ("fidelity.value", "high"),
        ("tolerance.relative", -1),
        ("tolerance.standard_errors", True),
        ("tolerance.fidelity", None),
        ("provenance.prompts", 12.5),
        ("provenance.seed", -1),
        ("coefficients.layer 0", 3),
        ("coefficients.layer 0.xx", 3),
        ("coefficients.layer 0.xx.output", None),
        ("coefficients.layer 0.xx.output", 10**400),
        ("coefficients.layer 0.xx.stderr", -1.0),
        ("coefficients.layer 0.xx.stderr", float("nan")),
    ],
)
def test_a_damaged_field_is_named(golden: Path, where: str, value: object, tmp_path: Path) -> None:
    document = json.loads(golden.read_text())
    *parents, last = where.split(".")
    table = document
    for key in parents:
        table = table[key]
    table[last] = value
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(document))
    with pytest.raises(LayoutError, match=last) as caught:
        read_golden(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "null", "3", '"text"'])
def test_json_that_is_no_table_is_no_golden_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(LayoutError, match='expected "format"'):
        read_golden(path)


def test_a_damaged_file_is_not_overwritten(diag: Checkpoint, tmp_path: Path) -> None:
    """Its tolerances would be lost without a word."""
    path = tmp_path / "damaged.json"
    path.write_text("{")
    with pytest.raises(UnreadableFile, match="delete it"):
        update_golden(diag, path)
    assert path.read_text() == "{"


def test_a_missing_golden_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"no such golden file; make it with .* --update"):
        read_golden(tmp_path / "absent.json")


def pytest_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest as a user runs it: another folder, and the plugin through the entry point of the installed package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
    )


def test_the_fixture_passes_fails_by_name_and_updates(tmp_path: Path) -> None:
    omega = torch.tensor([[-0.02, -0.002, -0.05, -0.002], [-0.01, -0.002, -0.08, -0.003]], dtype=torch.float64)
    for name, factor in (("same", 1.0), ("moved", 1.05)):
        changed = omega.clone()
        changed[1, 2] *= factor
        P, Q = planting.block_scalar_heads(changed, 2)
        write_checkpoint(LinearTransformer(spec=planting.spec_for(2, 8), P=P, Q=Q), tmp_path / f"{name}.safetensors")
    golden = tmp_path / "golden.json"
    update_golden(open_checkpoint(str(tmp_path / "same.safetensors")), golden, prompts=128)
    (tmp_path / "test_models.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.parametrize('name', ['same', 'moved', 'missing'])\n"
        "def test_model(name, recovered_algorithm):\n"
        "    recovered_algorithm(f'{name}.safetensors', 'golden.json')\n"
    )
    ran = pytest_run(tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout and "2 failed" in ran.stdout
    assert "moved.safetensors no longer runs the algorithm of golden.json:" in ran.stdout
    assert "  layer 1, omega_yx: -0.08 -> -0.084, moved by 0.004 = " in ran.stdout
    assert "missing.safetensors" in ran.stdout and "Traceback" not in ran.stdout

    ran = pytest_run(tmp_path, "--update-golden", "-k", "moved")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert read_golden(golden).coefficients["layer 1"]["yx"].output == pytest.approx(-0.084, rel=1e-9)
