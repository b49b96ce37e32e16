"""EAGLE's sections: what is drawn, and what is left out."""

from __future__ import annotations

from typing import Any

from interp.papers.eagle_figures import eagle_sections
from interp.results import Figure

TAIL = [
    {"iteration": 0, "EAGLE 1e1": 1.0, "CG 1e1": 1.1},
    {"iteration": 1, "EAGLE 1e1": 1e-9, "CG 1e1": 0.5},
    {"iteration": 2, "EAGLE 1e1": None, "CG 1e1": 0.25},
]


def eagle_figures(tables: dict[str, Any]) -> tuple[Figure, ...]:
    return tuple(section.figure for section in eagle_sections(tables) if section.figure is not None)


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


def test_only_what_was_measured_is_drawn() -> None:
    assert [f.name for f in eagle_figures({"tail": {"rows": TAIL}})] == ["tail"]
    assert [f.name for f in eagle_figures({"layers": tables()["layers"]})] == ["depth"]
    skipped = {"layers": {"rows": [{"model": "eagle-full", "skipped": "skipped, because no such model ships"}]}}
    assert eagle_figures(skipped) == ()
    (section,) = eagle_sections(skipped)
    assert section.notes == ("eagle-full: skipped, because no such model ships",)
    table = eagle_figures(tables())[1].table
    assert table.header[:2] == ("model", "layers run") and "η interval" not in table.header
    assert table.only("η").rows[0] == ("0.90 [0.80, 1.05]",)
    assert "x: skipped, because" in eagle_figures(tables())[1].description


def falling(*errors: float | None) -> str:
    return eagle_figures({"tail": {"rows": [{"iteration": k, "EAGLE 1e5": e} for k, e in enumerate(errors)]}})[
        0
    ].finding


def test_the_title_follows_from_the_curve() -> None:
    faster = falling(1.0, 0.1, 1e-3, 1e-6, 1e-12, 1e-15, None)
    assert "2.0 times" in faster and "κ" not in faster
    assert falling(1.0, 0.1, 1e-2, 2e-2, 1.9e-2, 1e-4, 1e-8).endswith("κ = 100000 at iterations 3 to 4")
    assert " not " in falling(*(10.0**-k for k in range(12)))


def test_tables_have_errors_with_their_values_and_what_was_skipped() -> None:
    rows = [
        {"matrix": "a", "ours": 1.5, "± ours": 0.1},
        *({"matrix": name, "skipped": "skipped, because it is long"} for name in "bc"),
    ]
    (section,) = eagle_sections({"timing": {"title": "CPU seconds.", "rows": rows}})
    assert section.table is not None and section.table.header == ("matrix", "ours")
    assert section.table.rows == (("a", "1.50 ± 0.10"),)
    assert section.notes == ("CPU seconds.", "b and c: skipped, because it is long")
