"""``interp-probe reproduce mesa`` shows what ships, the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from interp.papers.mesa import PAPER
from interp.papers.paper import shipped_results

Run = Callable[..., Any]


@pytest.fixture
def cells(call: Run) -> list[dict[str, Any]]:
    return json.loads(call("reproduce", "mesa", "--json").out)["cells"]


def test_the_shipped_losses(cells) -> None:
    rows = {row["cell"]: row for row in cells if row["group"] == "losses"}
    assert {"lsa-1", "lsa-2", "lsa-4", "lsa-6", "gd-1", "prop-2", "ridge"} <= set(rows)
    for name in ("lsa-1", "gd-1", "prop-2"):
        assert rows[name]["within_bar"] is True
        assert abs(rows[name]["ratio"] - rows[name]["ours"] / rows[name]["paper"]) < 1e-12


def test_the_shipped_compressions(cells) -> None:
    rows = [row for row in cells if row["group"] == "compression"]
    assert {"lsa-4", "lsa-6"} <= {row["network"] for row in rows}
    for network in {row["network"] for row in rows}:
        own = [row for row in rows if row["network"] == network]
        assert {row["per_head"] for row in own if row["kind"] == "published"} == {32, 16, 8, 4}
        assert {row["per_head"] for row in own if row["kind"] == "refit"} == {32, 16, 8, 4}
        assert len([row for row in own if row["kind"] == "interpolated"]) == 5


def test_the_shipped_probes(cells) -> None:
    rows = [row for row in cells if row["group"] == "probes"]
    claims = {row["cell"]: row["within_bar"] for row in rows if row.get("claim")}
    for network in ("lsa-6", "lsa-6-key-40"):
        for words in ("rises with depth at t = 20", "rises with the position", "not in the inputs", "at chance"):
            assert [held for cell, held in claims.items() if cell.startswith(f"{network}:") and words in cell] == [True]
    assert all(row["r2_ci"][0] <= row["r2"] <= row["r2_ci"][1] for row in rows if "target" in row)


def test_the_shipped_training(cells) -> None:
    rows = [row for row in cells if row["group"] == "training"]
    curve = [row for row in rows if "step" in row]
    assert [row["step"] for row in curve] == list(range(0, 3501, 250))
    assert curve[-1]["ours"] < 0.2 * curve[0]["ours"]
    judged = [row for row in rows if row["within_bar"] is not None]
    assert len(judged) == 2 and all(row["within_bar"] and row["ratio"] <= 1.05 for row in judged)


def test_every_section_is_in_the_terminal_and_on_the_page(call: Run, tmp_path) -> None:
    text = call("reproduce", "mesa", "--report", str(tmp_path / "mesa.html")).out
    page = (tmp_path / "mesa.html").read_text(encoding="utf-8")
    for section in PAPER.sections(shipped_results("mesa")):
        assert f"\n{section.title}\n" in text
        name = section.name if section.figure is None else f"figure-{section.name}"
        assert f'href="#{name}"' in page and f'id="{name}"' in page
    assert "…" not in text


@pytest.mark.parametrize("content", ["[1]", '{"losses": 3}', '{"loss": {"rows": []}}', "{"])
@pytest.mark.parametrize(("paper", "cell"), [("mesa", "losses"), ("versatile", "diag-l1-u5")])
def test_results_of_another_kind_are_refused_and_left_alone(paper, cell, content, call: Run, tmp_path) -> None:
    out = tmp_path / "results.json"
    out.write_text(content)
    ended = call("reproduce", paper, "--cells", cell, "--out", str(out))
    assert ended.code == 3 and str(out) in ended.err and out.read_text() == content
