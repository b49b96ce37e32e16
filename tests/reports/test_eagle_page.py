"""The page of EAGLE's curves: what is drawn, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.reports.eagle_page import eagle_figures, eagle_page

TAIL = [
    {"iteration": 0, "EAGLE 1e1": 1.0, "CG 1e1": 1.1},
    {"iteration": 1, "EAGLE 1e1": 1e-9, "CG 1e1": 0.5},
    {"iteration": 2, "EAGLE 1e1": None, "CG 1e1": 0.25},
]


def layer(model: str, run: int, error: float | None) -> dict[str, Any]:
    return {
        "model": model, "layers run": run, "paper": 1e-4, "difference": 1e-5, "layer by layer": 1e-5,
        "error of D": error, "± error of D": 0.01,
        "zero / error": None if error is None else 0.1 / error,
    }  # fmt: skip


def tables() -> dict[str, Any]:
    trained = [layer("eagle-full", 0, 0.1), layer("eagle-full", 1, 0.002), layer("eagle-sketch", 0, None)]
    return {"tail": {"rows": TAIL}, "layers": {"rows": [*trained, {"model": "x", "skipped": "skipped, because"}]}}


def test_curves_end_where_there_is_no_number() -> None:
    tail, depth = eagle_figures(tables())
    eagle, cg = tail.panels[0].data
    assert (eagle["x"], eagle["y"]) == ([0, 1], [1.0, 1e-9]) and cg["x"] == [0, 1, 2]
    assert [s.label for s in tail.legend] == ["EAGLE, κ = 10", "CG, κ = 10"]
    assert tail.table.rows[2][0] == "2" and len(tail.table.rows) == 3
    full, sketch = depth.panels[0].data
    assert full["y"] == [0.1, 0.002] and sketch["y"] == []
    assert depth.finding.endswith("divided by 50 (eagle-full)") and len(depth.table.rows) == 3


def test_only_what_was_measured_is_drawn(tmp_path: Path) -> None:
    assert [f.name for f in eagle_figures({"tail": {"rows": TAIL}})] == ["tail"]
    assert [f.name for f in eagle_figures({"layers": tables()["layers"]})] == ["depth"]
    skipped = {"layers": {"rows": [{"model": "eagle-full", "skipped": "skipped, because no such model ships"}]}}
    assert eagle_figures(skipped) == ()
    eagle_page(tables()).write(tmp_path / "page.html")
    assert "<h2" in (tmp_path / "page.html").read_text(encoding="utf-8")
