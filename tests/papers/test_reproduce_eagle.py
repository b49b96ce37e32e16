"""``interp-probe reproduce eagle``: tables measured anew and as shipped, and the page of curves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.reports.numbers import interval

Run = Callable[..., Any]


def test_parts_measured_anew_and_their_page(call: Run, tmp_path: Path) -> None:
    out, page = tmp_path / "tables.json", tmp_path / "page.html"
    ended = call("reproduce", "eagle", "--cells", "tail,sketched", "--out", str(out), "--report", str(page), "--json")
    shown = json.loads(ended.out)
    assert ended.code == 0 and shown["tables"] == json.loads(out.read_text(encoding="utf-8"))
    assert set(shown["tables"]) == {"tail", "sketched"}
    text = page.read_text(encoding="utf-8")
    links, places = set(re.findall(r'href="#([^"]+)"', text)), set(re.findall(r' id="([^"]+)"', text))
    assert {"figure-tail", "part-sketched", "provenance"} <= links <= places and "arXiv 2509.19702" in text

    rows = shown["tables"]["tail"]["rows"]
    for name in ("EAGLE 1e1", "EAGLE 1e3", "EAGLE 1e5"):
        logs = np.log([row[name] for row in rows if row[name] is not None and row[name] > 1e-24])
        # Of second order, log e' = 2 log e + const: every step down is twice the one before.
        assert (logs[-1] - logs[-2]) / (logs[-2] - logs[-3]) == pytest.approx(2.0, abs=0.2)
    for name in ("CG 1e3", "GD 1e3"):
        assert rows[-1][name] > 1e-5  # where EAGLE has been at rounding for long

    text = call("reproduce", "eagle", "--cells", "sketched", "--out", str(out)).out
    assert text.split()[0] == "Sketched" and f"Results: {out}" in text
    assert list(json.loads(out.read_text(encoding="utf-8"))) == ["tail", "sketched"]  # what it held is kept

    out.write_text('{"cells": []}', encoding="utf-8")
    ended = call("reproduce", "eagle", "--cells", "sketched", "--out", str(out))
    assert ended.code == 3 and "is not a table of results of eagle" in ended.err
    assert out.read_text(encoding="utf-8") == '{"cells": []}'


def test_the_shipped_tables(call: Run) -> None:
    shown = json.loads(call("reproduce", "eagle", "--json").out)["tables"]
    assert set(shown) == {"layers", "iterations", "tail", "distributed", "sketched", "timing"}
    for row in shown["iterations"]["rows"]:
        assert abs(row["ours"] - row["reference"]) <= 1
    text = " ".join(call("reproduce", "eagle").out.split())
    assert "Maragal_5, pf2177, bcsstm13, 162bit and N_pid: skipped" in text and "…" not in text
    beside = ("± difference", "± layer by layer", "± error of D", "η interval", "γ interval")
    for heading in {heading for row in shown["layers"]["rows"] for heading in row} - {"skipped", *beside}:
        assert heading in text  # no column is dropped where the line is short
    step = next(row for row in shown["layers"]["rows"] if row["η"])
    assert step["η interval"][0] < step["η"] < step["η interval"][1]
    assert interval(step["η"], tuple(step["η interval"])) in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["eagle", "--cells", "layer"], "'layers'"),
        (["eagle", "--report", "nowhere/page.html"], "nowhere/page.html"),
        (["closed-form", "--cells", "contxt"], "'context'"),
        (["mesa", "--cells", "loss"], "'losses'"),
        (["versatile", "--cells", "diag-l4-u55"], "'diag-l4-u5'"),
        (["versatile", "--cells", "diag-l1-u5", "--out", "nowhere/results.json"], "nowhere/results.json"),
    ],
)
def test_what_it_refuses(call: Run, arguments: list[str], told: str) -> None:
    ended = call("reproduce", *arguments)
    assert ended.code == 2 and told in ended.err
