"""The explore and diff commands: what they write, print and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interp.checkpoints.canonical import write_checkpoint
from interp.models.specification import AttentionSpec
from interp.models.transformer import LinearTransformer

Run = Callable[..., Any]


def test_explore_writes_a_page_and_says_so(probe: Run, tiny: str) -> None:
    ended = probe("explore", tiny, "--out", "page.html")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("page.html: ") and "All numbers are exact, but singular values" in ended.out
    text = (Path(tiny).parent / "page.html").read_text(encoding="utf-8")
    assert "tiny.safetensors" in text and sorted(p.name for p in Path(tiny).parent.iterdir()) == [
        "page.html",
        "tiny.safetensors",
    ]


def test_explore_in_json(call: Run, tiny: str, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    ended = call("explore", tiny, "--out", str(out), "--json")
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out, parse_constant=lambda constant: pytest.fail(f"the document holds {constant}"))
    assert (document["schema"], document["kind"]) == ("interp-probe-explore/1", "single")
    assert document["checkpoints"][0]["coefficients"][1]["omega_yx"] == pytest.approx(-0.08)
    assert document["page"]["bytes"] == out.stat().st_size


def test_explore_shows_what_cannot_be_analysed(
    call: Run, variant: Run, model: LinearTransformer, tmp_path: Path
) -> None:
    P = model.P.clone()
    P[0, 0, 0, 0] = float("nan")
    path = variant(attention=AttentionSpec(keys="causal"), task=None, P=P)
    ended = call("explore", path, "--out", str(tmp_path / "page.html"), "--json")
    assert (ended.code, ended.err) == (0, "")
    entry = json.loads(ended.out)["checkpoints"][0]
    assert entry["counts"]["nan"] == 1 and entry["coefficients"][0]["omega_xx"] is None


def test_explore_opens_the_page(call: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(asked.append(url)) or len(asked) == 1)
    out = tmp_path / "a page.html"
    assert call("explore", tiny, "--out", str(out), "--open").err == ""
    assert asked == [out.as_uri()]
    again = call("explore", tiny, "--out", str(out), "--open")
    assert again.code == 0 and "found no browser" in again.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("explore",), 2, "CHECKPOINT"),
        (("explore", "TINY", "--out", "/no/such/folder/page.html"), 2, "does not exist"),
        (("explore", "TINY", "--out", "TINY"), 2, "is being read"),
        (("explore", "TINY", "zoo:one-step-1000-tasks"), 2, "same tokens and layers"),
        (("explore", "TINY", "missing.safetensors"), 3, "missing.safetensors"),
        (("diff", "TINY"), 2, "B"),
        (("diff", "TINY", "TINY", "--open"), 2, "--out"),
    ],
)
def test_what_is_refused(call: Run, tiny: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    before = Path(tiny).read_bytes()
    ended = call(*(tiny if word == "TINY" else word for word in arguments))
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err and ended.err.count("\n") == 1
    assert Path(tiny).read_bytes() == before and not Path("explorer.html").exists()


def test_diff_sees_through_the_gauge(call: Run, tiny: str, model: LinearTransformer, tmp_path: Path) -> None:
    other = str(tmp_path / "other.safetensors")
    write_checkpoint(LinearTransformer(spec=model.spec, P=-4 * model.P.flip(1), Q=model.Q.flip(1) / -4), other)
    document = json.loads(call("diff", tiny, other, "--json").out)
    assert document["schema"] == "interp-probe-diff/1" and not document["same_weights"]
    assert all(layer["distance"] < 1e-12 for layer in document["layers"])
    assert [head["b"] for head in document["layers"][0]["heads"]] == [1, 0]
    changed = str(tmp_path / "changed.safetensors")
    P = model.P.clone()
    P[1, 0, 3, 3] *= 2
    write_checkpoint(LinearTransformer(spec=model.spec, P=P, Q=model.Q), changed)
    ended = call("diff", tiny, changed, "--out", str(tmp_path / "diff.html"))
    assert (ended.code, ended.err) == (0, "") and "ω_yx: -0.08, -0.16" in " ".join(ended.out.split())
    assert "B − A" in (tmp_path / "diff.html").read_text(encoding="utf-8")
