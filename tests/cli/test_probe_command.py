"""``interp-probe probe``: the table, the document, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest

from interp.models.specification import AttentionSpec
from interp.models.transformer import LinearTransformer

Run = Callable[..., Any]
FEW = ("--prompts", "128")


@pytest.fixture(autouse=True)
def as_installed() -> Iterator[None]:
    """Without the suite's run-time type checks, which would stop ill-typed input before the package's own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def refuse(constant: str) -> None:
    raise AssertionError(f"the document holds {constant}")


def test_the_document(call: Run, tiny: str) -> None:
    ended = call("probe", tiny, "--target", "w", "--target", "label", "--layers", "0,2", *FEW, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out, parse_constant=refuse)
    assert found["schema"] == "interp-probe/1" and found["checkpoint"]["name"] == "tiny.safetensors"
    assert {"task", "probes", "targets", "provenance", "notes"} <= set(found)
    rows = {(p["target"], p["kind"], p["layer"]) for p in found["probes"]}
    assert rows == {
        *(("w", kind, layer) for kind in ("token", "within-prompt", "gram") for layer in (0, 2)),
        *(("label", "token", layer) for layer in (0, 2)),
    }
    for entry in found["probes"]:
        assert set(entry["control"]) == {"untrained", "shuffled", "inputs"}
        assert isinstance(entry["r2"], float) and len(entry["r2_ci"]) == 2 and isinstance(entry["mse"], float)
        assert entry["position"] is None and entry["protocol"] == "sound" and entry["reason"] is None
        assert len(entry["selectivity_ci"]["untrained"]) == 2
    again = json.loads(call("probe", tiny, "--target", "w", "--layers", "0,2", *FEW, "--json").out)
    assert [p["r2"] for p in again["probes"]] == [p["r2"] for p in found["probes"] if p["target"] == "w"]


def test_the_table_as_a_process(probe: Run, tiny: str) -> None:
    ended = probe("probe", tiny, "--target", "label", "--target", "w", *FEW)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("tiny.safetensors") and "\x1b" not in ended.out
    assert "above untrained" in ended.out
    for layer in range(3):
        assert any(re.fullmatch(rf"  (w|label)? +{layer}  +-?\d.*\[.*\].*", line) for line in lines)


def test_positions_of_the_context(call: Run, tiny: str) -> None:
    found = json.loads(
        call("probe", tiny, "--target", "current", "--positions", "1,3-4", "--layers", "2", *FEW, "--json").out
    )
    assert [p["position"] for p in found["probes"]] == [1, 3, 4]
    text = call("probe", tiny, "--target", "current", "--positions", "1,3-4", *FEW).out
    assert all(f"t={position}" in text for position in (1, 3, 4))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "next"], ["'next'", "w-ols", "chebyshev-K"]),
        (["--target", "weights"], ["'weights'", "w-ridge"]),
        (["--target", "chebyshev-65"], ["64"]),
        (["--layers", "3"], ["1 to 2"]),
        (["--protocol", "mesa"], ["'mesa'", "sound, akyurek"]),
        (["--protocol", "akyurek", "--target", "label"], ["alpha, w-ols, w"]),
        (["--layers", "2-1"], ["--layers", "0,2-4"]),
        (["--layers", "one"], ["--layers", "'one'"]),
        (["--layers", ""], ["--layers"]),
        (["--layers", "0,,1"], ["--layers"]),
        (["--layers", "0-999999999"], ["--layers"]),
        (["--positions", "-1"], ["--positions"]),
        (["--positions", "8"], ["0 to 7"]),
        (["--prompts", "63"], ["64"]),
        (["--prompts", "many"], ["--prompts"]),
        (["--seed", "-1"], ["--seed"]),
        (["--spec", "no-such.toml"], ["no-such.toml"]),
        (["--target"], ["--target"]),
        (["--report", "no/such/folder/probes.html"], ["does not exist"]),
    ],
)
def test_usage(arguments: list[str], words: list[str], call: Run, tiny: str) -> None:
    ended = call("probe", tiny, *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert ended.err.startswith("interp-probe: ")
    for word in words:
        assert word in ended.err


def test_files_that_cannot_be_probed(call: Run, variant: Run, model: LinearTransformer, tmp_path: Path) -> None:
    missing = call("probe", str(tmp_path / "missing.safetensors"))
    assert (missing.code, missing.out) == (3, "")
    P = model.P.clone()
    P[0, 0, 0, 0] = float("nan")
    assert call("probe", variant(P=P)).code == 3
    no_task = call("probe", variant(task=None))
    assert no_task.code == 4 and "task" in no_task.err
    other = call("probe", variant(task={"name": "linear_dynamics", "dim": 4, "context": 8}))
    assert other.code == 4 and other.err.count("\n") == 1


def test_a_causal_model_of_regression_prompts(call: Run, variant: Run) -> None:
    path = variant(attention=AttentionSpec(keys="causal"))
    ended = call("probe", path, "--target", "label", *FEW)
    assert (ended.code, ended.err) == (0, "")
    assert "skipped, because" in call("probe", path, "--target", "w", *FEW).out.replace("\n    ", " ")
