"""The page of EAGLE's curves: what is drawn, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_html_report import Page

from interp.reports.eagle_page import eagle_figures, eagle_page

TAIL = [
    {"iteration": 0, "EAGLE 1e1": 1.0, "CG 1e1": 1.1},
    {"iteration": 1, "EAGLE 1e1": 1e-9, "CG 1e1": 0.5},
    {"iteration": 2, "EAGLE 1e1": None, "CG 1e1": 0.25},
]


def layer(model: str, run: int, error: float | None) -> dict[str, Any]:
    return {
        "model": model, "verdict": "gd++", "layers run": run, "paper": 1e-4, "difference": 1e-5, "layer by layer": 1e-5,
        "error of D": error, "± error of D": 0.01,
        "zero / error": None if error is None else 0.1 / error, "η": 0.9, "η interval": [0.8, 1.05],
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
    assert depth.finding.endswith("divided by 50 (eagle-full, gd++)") and len(depth.table.rows) == 3


def test_only_what_was_measured_is_drawn(tmp_path: Path) -> None:
    assert [f.name for f in eagle_figures({"tail": {"rows": TAIL}})] == ["tail"]
    assert [f.name for f in eagle_figures({"layers": tables()["layers"]})] == ["depth"]
    skipped = {"layers": {"rows": [{"model": "eagle-full", "skipped": "skipped, because no such model ships"}]}}
    assert eagle_figures(skipped) == ()
    eagle_page(tables()).write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2" in text and "0.90 [0.80, 1.05]" in text and "interval<" not in text


def falling(*errors: float | None) -> str:
    return eagle_figures({"tail": {"rows": [{"iteration": k, "EAGLE 1e5": e} for k, e in enumerate(errors)]}})[
        0
    ].finding


def test_the_title_follows_from_the_curve() -> None:
    assert falling(1.0, 0.1, 1e-3, 1e-6, 1e-12, 1e-15, None) == (
        "EAGLE's error falls ever faster near the end: its logarithm grows 2.0 times or more in one of the last "
        "iterations"
    )
    stalled = falling(1.0, 0.1, 1e-2, 2e-2, 1.9e-2, 1e-4, 1e-8)
    assert stalled.endswith("before, it hardly falls for κ = 100000 at iterations 3 to 4")
    linear = falling(*(10.0**-k for k in range(12)))
    assert linear == "EAGLE's error does not fall ever faster for every κ"


def test_the_page_has_the_tables_their_source_and_what_was_skipped() -> None:
    timing = {
        "title": "CPU seconds.",
        "rows": [
            {"matrix": "a", "ours": 1.5, "± ours": 0.1},
            {"matrix": "b", "skipped": "skipped, because it is long"},
        ],
        "provenance": {"torch": "2.13"},
    }
    page = Page(eagle_page({**tables(), "timing": timing}, "interp-probe reproduce eagle").text)
    for words in ("arXiv 2509.19702", "1.50 ± 0.10", "b: skipped, because it is long", "interp-probe reproduce eagle"):
        assert words in page.words
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    ids = {"#" + (attributes["id"] or "") for _, attributes in page.tags if attributes.get("id")}
    assert set(links) <= ids and "#part-timing" in links
    assert "Error by iteration" in page.words
