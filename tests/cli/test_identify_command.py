"""``interp-probe identify``: the numbers of the main command, without what takes long."""

from __future__ import annotations

import json

FEW = "128"  # prompts: enough to recover a planted network


def test_it_says_what_the_main_command_says(few_losses, call, tiny):
    short = json.loads(call("identify", tiny, "--prompts", FEW, "--json").out)
    whole = json.loads(call(tiny, "--prompts", FEW, "--json").out)
    for field in ("schema", "checkpoint", "task", "layers", "families", "verdict"):
        assert short[field] == whole[field]
    assert short["evidence"]["losses"] == whole["evidence"]["losses"]
    assert whole["probes"] and not short["probes"]
    assert "further evidence" in short["skipped"] and "further evidence" not in whole["skipped"]


def test_the_terminal(probe, tiny):
    ended = probe("identify", tiny, "--prompts", FEW)
    assert ended.code == 0
    assert ended.out.startswith("RECOGNIZED: DIAG")


def test_bad_input(call, tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"not a checkpoint")
    for name, code in (("bad.safetensors", 3), ("missing.safetensors", 3)):
        ended = call("identify", str(tmp_path / name))
        assert ended.code == code
        assert ended.err.startswith("interp-probe: ") and ended.err.count("\n") == 1
