"""``interp-probe sweep``: many checkpoints, of which some are broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from repeats import repeats

from interp.errors import UsageError
from interp.sweep import checkpoints_of, document_names

FEW = "128"  # prompts: enough to recover a planted network


@pytest.fixture
def folder(tiny, variant, tmp_path) -> Path:
    """Two good checkpoints and a broken one."""
    place = tmp_path / "many"
    place.mkdir()
    Path(tiny).rename(place / "a.safetensors")
    Path(variant(residual=True)).rename(place / "c.safetensors")
    (place / "b.safetensors").write_bytes(b"no checkpoint")
    (place / "notes.txt").write_text("not one")
    return place


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_broken_file_does_not_stop_the_others(quick, probe, call, folder, tmp_path, jobs):
    out = tmp_path / "out"
    run = call if jobs == "1" else probe  # and so in this process, or in processes of a process of its own
    ended = run("sweep", str(folder), "--out", str(out), "--prompts", FEW, "--jobs", jobs, "--json")
    assert ended.code == 5
    assert ended.err.startswith("interp-probe: 1 of 3 checkpoints")
    rows = json.loads(ended.out)["rows"]
    assert [Path(row["checkpoint"]).name for row in rows] == ["a.safetensors", "b.safetensors", "c.safetensors"]
    assert [row["exit_code"] for row in rows] == [0, 3, 0]
    assert rows[1]["document"] is None and "b.safetensors" in rows[1]["error"]
    assert sorted(path.name for path in out.iterdir()) == ["a.json", "c.json"]
    for row in (rows[0], rows[2]):
        document = json.loads(Path(row["document"]).read_text())
        assert row["algorithm"] == document["verdict"]["algorithm"] == "diag"
        assert row["fidelity"] == document["verdict"]["fidelity"]


def test_a_document_is_made_again_only_when_it_is_another(quick, call, folder, tmp_path):
    (folder / "b.safetensors").unlink()
    out = tmp_path / "out"

    def times(prompts: str) -> dict[str, int]:
        assert call("sweep", str(folder), "--out", str(out), "--prompts", prompts).code == 0
        return {path.name: path.stat().st_mtime_ns for path in out.iterdir()}

    first = times(FEW)
    (out / "c.json").write_text("{ half of a docu")
    again = times(FEW)
    assert again["a.json"] == first["a.json"]
    assert json.loads((out / "c.json").read_text())["schema"] == "interp-probe/1"
    other = times("130")
    assert other["a.json"] != first["a.json"]


def test_a_document_of_another_kind_is_made_again(quick, call, tiny, tmp_path):
    """The verdict alone, one read by another description, and one of another version."""
    out, spec = tmp_path / "out", tmp_path / "task.toml"
    place = out / "tiny.json"

    def swept(*more: str) -> dict:
        assert call("sweep", tiny, "--out", str(out), "--prompts", FEW, *more).code == 0
        return json.loads(place.read_text())

    first = swept()
    assert first["evidence"]["swaps"] and first["provenance"]["verdict_only"] is False
    place.write_text(call("identify", tiny, "--prompts", FEW, "--json").out)
    assert swept()["evidence"]["swaps"]

    described = '[task]\nname = "noisy_regression"\ndim = 3\ncontext = {}\nnoise = {{uniform = [0, 1]}}\n'
    for context in (9, 10):
        spec.write_text(described.format(context))
        assert swept("--spec", str(spec))["task"]["context"] == context
    assert swept()["task"]["context"] == 8


@pytest.mark.parametrize("field", repeats(["tool", "prompts", "seed", "verdict_only"], 1))
def test_a_document_that_does_not_say_how_it_was_made_is_made_again(field, quick, call, tiny, tmp_path):
    arguments = ["sweep", tiny, "--out", str(tmp_path), "--prompts", FEW]
    assert call(*arguments).code == 0
    place = tmp_path / "tiny.json"
    document = json.loads(place.read_text())
    del document["provenance"][field]
    place.write_text(json.dumps(document | {"verdict": document["verdict"] | {"summary": "stale"}}))
    assert call(*arguments).code == 0
    assert json.loads(place.read_text())["verdict"]["summary"] != "stale"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder that not even the superuser can write to")
def test_a_folder_that_cannot_be_written_is_refused_first(call, tiny, monkeypatch):
    monkeypatch.setattr("interp.cli.sweep.sweep", None)  # nothing may be analysed
    ended = call("sweep", tiny, "--out", "/proc")
    assert ended.code == 2
    assert ended.err.startswith("interp-probe: cannot write to the folder --out /proc") and ended.err.count("\n") == 1


def test_the_table(quick, call, folder, tmp_path):
    ended = call("sweep", str(folder), "--out", str(tmp_path / "out"), "--prompts", FEW)
    assert ended.code == 5
    assert "diag" in ended.out and "failed, exit code 3" in ended.out
    lines = ended.out.splitlines()
    assert [sum(name in line for line in lines) for name in ("a.safetensors", "c.safetensors")] == [1, 1]  # not folded


def test_a_folder_with_things_that_are_no_files(quick, call, folder, tmp_path):
    """Each is named with what is wrong with it, and the good files are analysed."""
    (folder / "gone.pt").symlink_to(tmp_path / "nowhere")
    (folder / "loop.pt").symlink_to(folder / "loop.pt")
    os.mkfifo(folder / "pipe.npz")
    (folder / "inner.pt").mkdir()
    (folder / "\x1b[31mred.pt").write_bytes(b"no checkpoint")
    ended = call("sweep", str(folder), "--out", str(tmp_path / "out"), "--prompts", FEW)
    assert ended.code == 5 and ended.out.count("diag") == 2
    for words in (
        "leads nowhere",
        "loop.pt cannot be opened",
        "pipe.npz is not a regular file",
        "inner.pt is a folder",
    ):
        assert words in ended.out
    assert "\x1b" not in ended.out + ended.err


def test_whatever_one_file_brings_about(call, folder, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise TypeError("unhashable")

    monkeypatch.setattr("interp.analysis.analyse", broken)
    ended = call("sweep", str(folder), "--out", str(tmp_path / "out"), "--prompts", FEW, "--json")
    assert [row["exit_code"] for row in json.loads(ended.out)["rows"]] == [6, 3, 6] and ended.code == 5


@pytest.mark.parametrize("arguments", [[], ["EMPTY"], ["zoo:diag-l4-u5", "zoo:diag-l4-u5"]])
def test_usage(call, tmp_path, arguments):
    (tmp_path / "empty").mkdir()
    named = [str(tmp_path / "empty") if word == "EMPTY" else word for word in arguments]
    ended = call("sweep", *named, "--out", str(tmp_path / "out"))
    assert ended.code == 2
    assert ended.err.startswith("interp-probe: ") and ended.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_documents_of_files_with_one_name_are_apart():
    names = document_names(["a/m.safetensors", "b/m.safetensors", "zoo:diag-l4-u5", "c/m.pt", "d/<m>.npz"])
    assert names == ("m.json", "m-2.json", "diag-l4-u5.json", "m.pt.json", "-m-.npz.json")


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no checkpoint"):
        checkpoints_of([str(tmp_path)])
