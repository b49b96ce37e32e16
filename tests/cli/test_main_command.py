"""``interp-probe CHECKPOINT``: the verdict in the terminal, the JSON document of the contract, the report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from interp.checkpoints.canonical import write_checkpoint
from interp.models.transformer import LinearTransformer

FEW = "128"
OMEGAS = {"xx", "xy", "yx", "yy"}
ALGORITHMS = {
    "gd", "gd++", "diag", "preconditioned-gd", "equivariant", "polynomial", "eagle", "revalg", "closed-form",
    "unrecognized",
}  # fmt: skip
TOP = {
    "schema", "checkpoint", "task", "layers", "families", "verdict", "evidence", "probes", "implicit", "provenance",
}  # fmt: skip
Run = Callable[..., Any]


def document(text: str) -> dict[str, Any]:
    """The one JSON document of a text, which may hold neither NaN nor Infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"the document holds {constant}")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def comparable(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run by intent."""
    kept = {key: value for key, value in found["provenance"].items() if key not in ("time", "command")}
    return {**found, "provenance": kept}


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_figure(value: object) -> bool:
    """A number, or null for what is not one."""
    return value is None or is_number(value)


def is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_figure, value))


def assert_contract(found: Mapping[str, Any]) -> None:
    """Contract 6.3, field by field; more fields are allowed."""
    assert set(found) >= TOP and found["schema"] == "interp-probe/1"
    verdict = found["verdict"]
    assert verdict["algorithm"] in ALGORITHMS
    assert isinstance(verdict["recognized"], bool) and isinstance(verdict["solves_task"], bool)
    assert is_figure(verdict["fidelity"]) and is_interval(verdict["fidelity_ci"])
    assert isinstance(verdict["summary"], str) and verdict["summary"]
    for number, layer in enumerate(found["layers"]):
        assert layer["index"] == number and set(layer["omega"]) == OMEGAS
        for coefficient in layer["omega"].values():
            assert all(is_figure(coefficient[key]) for key in ("weight", "output", "refit", "stderr"))
            assert isinstance(coefficient["live"], bool)
        shares = [layer["split"][key] for key in ("block_scalar", "trace", "residual")]
        assert shares == [None] * 3 or math.isclose(sum(shares), 1.0, abs_tol=1e-9)
    for entry in found["probes"]:
        assert {"layer", "target", "kind"} <= set(entry) and is_interval(entry["r2_ci"])
        assert is_figure(entry["r2"]) and is_figure(entry["mse"])
        assert set(entry["control"]) == {"untrained", "shuffled", "inputs"} and all(
            map(is_figure, entry["control"].values())
        )
    for number, entry in enumerate(found["implicit"]):
        assert entry["layer"] == number and is_figure(entry["a"]) and is_figure(entry["linearity_r2"])
        assert entry["distance"] and all(map(is_figure, entry["distance"].values()))
    assert isinstance(found["task"], dict) and isinstance(found["families"], list)
    assert isinstance(found["evidence"], dict)
    assert len(found["checkpoint"]["sha256"]) == 64
    assert found["provenance"]["seed"] == 0 and "torch" in found["provenance"]["versions"]


def assert_planted(found: Mapping[str, Any]) -> None:
    """The planted omegas of the tiny model, where they have a say; the last layer's x is read by nobody."""
    assert found["verdict"]["algorithm"] == "diag" and found["verdict"]["recognized"]
    planted = [{"xx": -0.02, "xy": -0.003, "yx": -0.05, "yy": -0.004}, {"yx": -0.08, "yy": -0.005}]
    for layer, expected in zip(found["layers"], planted, strict=True):
        live = {name for name, entry in layer["omega"].items() if entry["live"]}
        assert live == set(expected)
        for name, value in expected.items():
            for estimate in ("weight", "output", "refit"):
                # a planted network is recovered to rounding, amplified by the conditioning of the regression
                assert math.isclose(layer["omega"][name][estimate], value, rel_tol=1e-6)


def test_json_is_one_document_that_keeps_the_contract(probe: Run, call: Run, tiny: str) -> None:
    ended = probe(tiny, "--json", "--prompts", FEW)
    assert (ended.code, ended.err) == (0, "")
    found = document(ended.out)
    assert_contract(found)
    assert_planted(found)
    assert found["verdict"]["solves_task"] and found["checkpoint"]["name"] == "tiny.safetensors"
    assert found["provenance"]["command"] == f"interp-probe {tiny} --json --prompts {FEW}"
    # another process, options first: the same numbers to the last bit
    again = call("--json", "--prompts", FEW, tiny)
    assert (again.code, again.err) == (0, "")
    assert comparable(document(again.out)) == comparable(found)
    other = document(call(tiny, "--json", "--prompts", FEW, "--seed", "1").out)
    assert other["layers"] != found["layers"]


def test_text_has_the_verdict_first_and_the_report_is_written_beside_it(
    quick: None, call: Run, tiny: str, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    report = folder / "report.html"
    report.write_text("an older report", encoding="utf-8")
    ended = call(tiny, "--report", str(report), "--prompts", FEW)
    assert (ended.code, ended.err) == (0, "")
    assert "DIAG" in ended.out.splitlines()[0]
    assert ended.out.rstrip().endswith(f"Report: {report}")
    assert "\x1b" not in ended.out
    assert list(folder.iterdir()) == [report]  # no temporary file stays
    text = report.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>") and "tiny.safetensors" in text


def test_with_json_and_report_stdout_stays_one_document(quick: None, call: Run, tiny: str, tmp_path: Path) -> None:
    ended = call(tiny, "--json", "--report", str(tmp_path / "report.html"), "--prompts", FEW)
    assert_contract(document(ended.out))
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_shipped_model(few_losses: None, call: Run) -> None:
    ended = call("zoo:gdpp-l4-u5", "--json", "--prompts", "256")
    assert (ended.code, ended.err) == (0, "")
    found = document(ended.out)
    assert_contract(found)
    assert found["verdict"]["algorithm"] == "gd++" and found["verdict"]["solves_task"]
    assert found["checkpoint"]["name"] == "zoo:gdpp-l4-u5"


SPEC = """
tokens = [["x", "D-1"], ["y", 1]]
[weights]
Q = "'query {l}'.T @ keys[l, h]"
P = "values[l, h]"
[task]
name = "noisy_regression"
dim = "D-1"
context = 8
noise = { uniform = [0, 1] }
"""


def test_a_foreign_file_with_a_description(quick: None, call: Run, model: LinearTransformer, tmp_path: Path) -> None:
    mixing = np.random.default_rng(0).normal(size=(2, 4, 4))
    keys = np.linalg.inv(mixing).transpose(0, 2, 1)[:, None] @ model.Q.numpy()  # query^T keys = Q
    path, spec = tmp_path / "foreign.npz", tmp_path / "spec.toml"
    np.savez(path, **{"query 0": mixing[0].T.T, "query 1": mixing[1]}, keys=keys, values=model.P.numpy())
    spec.write_text(SPEC, encoding="utf-8")
    ended = call(str(path), "--spec", str(spec), "--json", "--prompts", FEW)
    assert (ended.code, ended.err) == (0, "")
    found = document(ended.out)
    assert_planted(found)
    assert found["checkpoint"]["layout"] == "spec file"


def test_a_network_that_is_no_algorithm_is_refused(
    few_losses: None, call: Run, variant: Run, model: LinearTransformer
) -> None:
    noise = np.random.default_rng(0).normal(size=model.P.shape)
    found = document(call(variant(P=model.P + 0.02 * model.P.new_tensor(noise)), "--json", "--prompts", FEW).out)
    assert_contract(found)
    assert found["verdict"]["algorithm"] == "unrecognized" and not found["verdict"]["recognized"]


def test_a_network_that_diverges_still_gives_a_document(
    few_losses: None, call: Run, variant: Run, model: LinearTransformer
) -> None:
    ended = call(variant(P=model.P * 1e40), "--json", "--prompts", FEW)
    assert ended.code == 0
    found = document(ended.out)
    assert_contract(found)
    assert not found["verdict"]["solves_task"]
    assert (
        found["verdict"]["fidelity"] is None and {"implicit", "coefficients", "replacement"} <= found["skipped"].keys()
    )
    assert call(variant(P=model.P * 1e40), "--prompts", FEW).code == 0


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>.safetensors", "träfo ω.safetensors", "[red] a b.safetensors", "x" * 240 + ".st"]
)
def test_odd_names(name: str, quick: None, call: Run, model: LinearTransformer, tmp_path: Path) -> None:
    if "/" in name:
        name = name.replace("/", "∕")  # the one character a file name cannot hold
    path, report = tmp_path / name, tmp_path / "report.html"
    write_checkpoint(model, path)
    ended = call(str(path), "--report", str(report), "--prompts", "64")
    assert (ended.code, ended.err) == (0, "")
    assert name[:20] in ended.out.replace("\n", "")
    assert "<script>alert" not in report.read_text(encoding="utf-8")
