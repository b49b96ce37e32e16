"""What goes wrong ends with one line on stderr, nothing on stdout, and the documented exit code."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import safetensors.torch
import torch

from interp.checkpoints.canonical import write_checkpoint
from interp.models.specification import AttentionSpec
from interp.models.transformer import LinearTransformer

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def as_installed() -> Iterator[None]:
    """Without the suite's run-time type checks, which would stop ill-typed input before the package's own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


def assert_refused(ended: Any, code: int, *words: str) -> None:
    assert (ended.code, ended.out) == (code, ""), ended
    assert ended.err.startswith("interp-probe: ") and ended.err.endswith("\n") and ended.err.count("\n") == 1, ended.err
    for word in words:
        assert word in ended.err


# One process for every exit code -------------------------------------------------------------------------------------


def test_2_usage_as_a_process(probe: Run, tiny: str) -> None:
    assert_refused(probe(tiny, "--jsn"), 2, "--json")


def test_3_unsafe_file_as_a_process(probe: Run, tmp_path: Path) -> None:
    marker = tmp_path / "it ran"
    (tmp_path / "model.pt").write_bytes(pickle.dumps({"W": Trap(marker)}))
    assert_refused(probe(str(tmp_path / "model.pt")), 3, "never unpickled")
    assert not marker.exists()


def test_4_layout_unknown_as_a_process(probe: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", A=np.zeros((3, 4)), B=np.zeros(7))
    assert_refused(probe(str(tmp_path / "model.npz"), "--json"), 4, "A float64 (3, 4)", "--spec")


@pytest.mark.parametrize(
    "fields",
    [
        {"spectrum": {"decay": 2, "rank": 1100}},
        {"spectrum": {"decay": 1, "rank": 10**12}},
        {"spectrum": [1e200, 1.0]},
        {"spectrum": [10**400, 1.0]},
        {"noise": 10**400},
        {"kernel": {"width": 10**400}, "spectrum": None},
    ],
)
def test_numbers_of_a_task_that_no_float_holds(fields: dict[str, Any], call: Run, variant: Run) -> None:
    task = {"name": "matrix_completion", "dim": 3, "context": 3, "outputs": 1, "queries": 1, **fields}
    assert_refused(call(variant(task=task)), 4, "task.")


@pytest.mark.parametrize("field", ["shift", "spread", "weight_std", "noise"])
def test_numbers_of_other_tasks_that_no_float_holds(field: str, call: Run, variant: Run) -> None:
    huge = {field: {"fixed": 10**400} if field == "noise" else 10**400}
    assert_refused(call(variant(task={"name": "simple_regression", "context": 7, **huge})), 4, f"task.{field}")
    if field in ("noise", "weight_std"):
        task = {"name": "noisy_regression", "dim": 3, "context": 7, "noise": {"fixed": 1}, **huge}
        assert_refused(call(variant(task=task)), 4, f"task.{field}")


# Files that cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.99])
def test_a_truncated_file(share: float, call: Run, tiny: str) -> None:
    content = Path(tiny).read_bytes()
    Path(tiny).write_bytes(content[: int(share * len(content))])
    assert_refused(call(tiny), 3, "tiny.safetensors")


def test_a_folder_and_a_missing_file(call: Run, tmp_path: Path) -> None:
    assert_refused(call(str(tmp_path)), 3, "folder")
    assert_refused(call(str(tmp_path / "missing.safetensors")), 3, "No such file")


def test_a_header_larger_than_the_file(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}" + b" " * 100)
    assert_refused(call(str(path)), 3, "header")


def test_arrays_larger_than_memory_are_not_made(call: Run, tmp_path: Path) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**10)}
    with open(tmp_path / "huge.npy", "wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
    assert_refused(call(str(tmp_path / "huge.npy")), 3)


def test_a_name_that_is_not_utf8(call: Run, tiny: str, tmp_path: Path) -> None:
    """The file is sound, and is not called damaged."""
    named = os.path.join(os.fsencode(tmp_path), b"mod\xff.safetensors")
    try:
        Path(tiny).rename(os.fsdecode(named))
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert_refused(call(os.fsdecode(named)), 3, "not UTF-8", "rename")


@pytest.mark.parametrize("content", ['{"schema": "interp-probe/1"}', "[]", "not a checkpoint\n"])
def test_text_is_no_checkpoint(content: str, call: Run, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content, encoding="utf-8")
    assert_refused(call(str(tmp_path / "other.json")), 3)


@pytest.mark.parametrize("kind", ["torch zip", "object array", "object array in a zip"])
def test_nothing_is_unpickled(kind: str, call: Run, tmp_path: Path) -> None:
    marker, path = tmp_path / "it ran", tmp_path / "model.bin"
    trap = np.array([Trap(marker)], dtype=object)
    if kind == "torch zip":
        torch.save({"W": torch.eye(3)}, path)
        with zipfile.ZipFile(path) as old:
            members = {name: old.read(name) for name in old.namelist()}
        name = next(name for name in members if name.endswith("data.pkl"))
        with zipfile.ZipFile(path, "w") as new:
            for member, content in members.items():
                new.writestr(member, pickle.dumps(Trap(marker)) if member == name else content)
    elif kind == "object array":
        with open(path, "wb") as file:
            np.save(file, trap, allow_pickle=True)
    else:
        with open(path, "wb") as file:
            np.savez(file, W=trap)
    assert_refused(call(str(path)), 3)
    assert not marker.exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(value: float, call: Run, variant: Run, model: LinearTransformer) -> None:
    Q = model.Q.clone()
    Q[1, 0, 2, 3] = value
    assert_refused(call(variant(Q=Q)), 3, "Q")
    assert_refused(call("unroll", variant(Q=Q)), 3, "Q")


# Files that read well and mean nothing -------------------------------------------------------------------------------


def test_causal_keys(call: Run, variant: Run) -> None:
    path = variant(attention=AttentionSpec(keys="causal"))
    assert_refused(call(path), 4, "attention.keys", "causal", "noisy_regression", "'context' or 'all'")
    assert_refused(call("unroll", path), 4, "causal")
    assert call("inspect", path).code == 0  # what the message advises


def test_no_task(call: Run, variant: Run) -> None:
    assert_refused(call(variant(task=None)), 4, "task", "noisy_regression")


@pytest.mark.parametrize(
    ("task", "word"),
    [
        ({"name": "noisy_regresion", "dim": 3, "context": 8, "noise": {"fixed": 0}}, "noisy_regression"),
        ({"name": "noisy_regression", "dim": 5, "context": 8, "noise": {"fixed": 0}}, "channels"),
        ({"name": "noisy_regression", "dim": 10**9, "context": 8, "noise": {"fixed": 0}}, "channels"),
        ({"name": "noisy_regression", "dim": 3, "context": 10**9, "noise": {"fixed": 0}}, "task.context 1000000000"),
        ({"name": "noisy_regression", "dim": 3, "context": 10**30, "noise": {"fixed": 0}}, "single prompt"),
        ({"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [1, 0]}}, "lo <= hi"),
        ({"name": "noisy_regression", "dim": 3, "noise": {"fixed": 0}}, "context"),
    ],
)
def test_a_task_that_does_not_fit(task: dict[str, Any], word: str, call: Run, variant: Run) -> None:
    path = variant(task=task)
    assert_refused(call(path), 4, word)
    assert_refused(call("unroll", path), 4, word)


def test_more_prompts_than_memory_holds(call: Run, variant: Run) -> None:
    path = variant(task={"name": "noisy_regression", "dim": 3, "context": 10**7, "noise": {"fixed": 0}})
    assert_refused(call(path), 2, "2048 prompts", "expected 6 or fewer")
    assert_refused(call("unroll", path, "--prompts", "7"), 2, "7 prompts", "expected 6 or fewer")


def raw(path: Path, shape: tuple[int, ...], **changes: Any) -> str:
    """A file that claims to be canonical, whatever it holds."""
    fields = {"format": "interp-linear-transformer", "version": 1, "tokens": [["x", 3], ["y", 1]], **changes}
    tensors = {name: torch.zeros(shape, dtype=torch.float64) for name in ("P", "Q")}
    safetensors.torch.save_file(tensors, path, metadata={"interp": json.dumps(fields)})
    return str(path)


@pytest.mark.parametrize(
    ("shape", "changes", "word"),
    [
        ((2, 1, 4, 3), {}, "(2, 1, 4, 3)"),
        ((4, 4), {}, "(4, 4)"),
        ((2, 1, 5, 5), {}, "5"),
        ((2, 1, 4, 4), {"tokens": [["x", 2], ["y", 1]]}, "3"),
        ((2, 1, 4, 4), {"version": 2}, "version 2"),
        ((2, 1, 4, 4), {"readout": {"channel": "z"}}, "z"),
        *(((2, 1, 4, 4), {"loops": loops}, "loops is") for loops in (0, -1, 1.5, "3", True, None, [2], 10**12)),
        ((2, 1, 4, 4), {"attenton": {}}, "attention"),
    ],
)
def test_shapes_and_fields_that_contradict_each_other(
    shape: tuple[int, ...], changes: dict[str, Any], word: str, call: Run, tmp_path: Path
) -> None:
    assert_refused(call(raw(tmp_path / "wrong.safetensors", shape, **changes)), 4, word)


# Usage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspct", "CKPT"], ["'inspect'"]),
        (["zoo:diag-l4"], ["zoo", "diag-l4-u5"]),
        (["diag-l4-u5"], ["'zoo:diag-l4-u5'"]),
        (["CKPT", "--prompts", "3"], ["64"]),
        (["CKPT", "--prompts", "many"], ["--prompts"]),
        (["CKPT", "--prompts", "1000000000000"], ["GiB"]),
        (["CKPT", "--seed", "-1"], ["--seed"]),
        (["unroll", "CKPT", "--seed", "18446744073709551616"], ["--seed"]),
        (["CKPT", "another"], ["another"]),
        (["--json"], ["CHECKPOINT"]),
        (["CKPT", "--spec", "no-such.toml"], ["no-such.toml"]),
        (["CKPT", "--report", "FOLDER/missing/report.html"], ["does not exist"]),
        (["CKPT", "--report", "FOLDER"], ["folder"]),
        (["CKPT", "--report", "FOLDER/" + "r" * 300], ["no usable file name"]),
        (["CKPT", "--report", "/dev/null"], ["device"]),
        (["CKPT", "--report", "/proc/report.html"], ["may not be written to"]),
        (["check", "CKPT"], ["--golden"]),
        (["check", "CKPT", "--golden", "FOLDER/missing/golden.json", "--update"], ["does not exist"]),
        (["check", "CKPT", "--golden", "FOLDER/golden.json", "--seed", "1"], ["--update"]),
        (["train", "no-such-recipe"], ["no-such-recipe"]),
        (["train", "diag-l4-u5", "--out", "FOLDER/missing/model.safetensors"], ["does not exist"]),
        (["unroll", "CKPT", "--prompts", "0"], ["--prompts"]),
    ],
)
def test_usage(arguments: list[str], words: list[str], call: Run, tiny: str, tmp_path: Path) -> None:
    filled = [a.replace("CKPT", tiny).replace("FOLDER", str(tmp_path)) for a in arguments]
    assert_refused(call(*filled), 2, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.safetensors"]


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    call: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interp.analysis.analyse", lambda *a, **k: pytest.fail("the analysis ran first"))
    assert_refused(call(tiny, "--report", str(tmp_path)), 2)


def test_a_report_over_the_checkpoint_itself(call: Run, tiny: str) -> None:
    before = Path(tiny).read_bytes()
    assert_refused(call(tiny, "--report", tiny), 2, "being read")
    assert Path(tiny).read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "code", "word"),
    [
        ("seed = 0", f"seed = {2**70}", 4, "optimiser.seed"),
        ("context = 8", "context = 1000000000", 4, "task.context 1000000000"),
        ("context = 8", "context = 1000000", 2, "GiB"),
    ],
)
def test_a_recipe_beyond_all_bounds(old: str, new: str, code: int, word: str, call: Run, tmp_path: Path) -> None:
    recipe = """
name = "tiny"
task = { name = "noisy_regression", dim = 2, context = 8, noise = { fixed = 1 } }
model = { parametrisation = "gd++", layers = 1 }
optimiser = { seed = 0, search_prompts = 1000 }
"""
    (tmp_path / "tiny.toml").write_text(recipe.replace(old, new), encoding="utf-8")
    out = str(tmp_path / "model.safetensors")
    assert_refused(call("train", str(tmp_path / "tiny.toml"), "--out", out), code, word)


def test_a_description_that_is_not_toml(call: Run, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("tokens = [", encoding="utf-8")
    assert_refused(call(tiny, "--spec", str(tmp_path / "spec.toml")), 4, "TOML")


def test_the_weights_of_a_model_are_checked_whatever_its_precision(
    call: Run, model: LinearTransformer, tmp_path: Path
) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        path = tmp_path / f"{dtype}.safetensors"
        write_checkpoint(replace(model, Q=model.Q.to(dtype), P=(model.P / 0).to(dtype)), path)
        assert_refused(call(str(path)), 3, "P")


def test_a_folder_that_may_not_be_written_to(
    call: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")  # root may write everywhere

    monkeypatch.setattr("interp.cli.running.tempfile.NamedTemporaryFile", refuse)
    assert_refused(
        call(tiny, "--report", str(tmp_path / "report.html")), 2, "may not be written to (Permission denied)"
    )
