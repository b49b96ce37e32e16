"""The explorer in a real browser: addresses, search, help, tables, export, colours, frames, accessibility."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explored_pages import NAMES, PATIENCE, Open, network

from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.reports import explorer_data
from interp.reports.explorer import ExplorerPage, render_explorer
from interp.weight_maps import explore

SLOW = pytest.mark.slow


def test_deep_links(show: Open, pages: dict[str, Any]) -> None:
    opened = show("steps", "l=2&m=Q&h=1&step=20&view=b&limits=shared&cell=3,0")
    np.testing.assert_array_equal(opened.map(), pages["steps"][1][2].Q[2, 1])
    assert opened.text("#cell-title") == "Cell y, x[0]" and opened.page.locator("#limits").input_value() == "shared"
    opened.page.evaluate("location.hash = '#l=0&m=P&h=0&step=10&view=diff'")
    opened.page.wait_for_function("document.getElementById('map-title').textContent.startsWith('P: layer 0')")
    assert "step 10 − first step" in opened.text("#map-title")
    opened.page.evaluate("location.hash = '#l=99&m=<b>&h=-1&step=x&view=&limits=-3&cell=9,9'")
    opened.page.wait_for_function("document.getElementById('map-title').textContent.startsWith('Q: layer 0')")
    assert opened.complaints == []


@pytest.mark.parametrize("kind", ["pair", "steps"])
def test_an_address_brings_back_what_the_controls_chose(show: Open, kind: str) -> None:
    """Everything is set by keyboard and pointer, and the address opened in a fresh page."""
    opened = show(kind)
    opened.choose("m", "P")
    opened.slide("l", "End", "ArrowLeft")
    opened.slide("h", "ArrowRight")
    if kind == "steps":
        opened.slide("step", "ArrowLeft", "ArrowLeft")
    for name, value in (("part", "gauge"), ("view", "diff"), ("limits", "set")):
        opened.choose(name, value)
    opened.page.locator("#limit").fill("0.04")
    opened.page.mouse.click(*opened.place(2, 3))
    assert opened.text("#cell-title") == "Cell x[2], y"
    again = show(kind, opened.page.evaluate("location.hash").lstrip("#"), width=1280)
    for place in ("#map-title", "#status", "#cell-title", "#cell-status", "#words-coefficient", "#marks"):
        assert again.text(place) == opened.text(place)
    for control in ("m", "part", "view", "l", "h", "limits", "limit"):
        assert again.page.locator(f"#{control}").input_value() == opened.page.locator(f"#{control}").input_value()
    np.testing.assert_array_equal(again.map(), opened.map())
    assert again.address() == opened.address() and len(opened.address()) >= 7


def test_search(show: Open) -> None:
    opened = show("single")
    opened.page.keyboard.press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"
    opened.page.keyboard.press("Escape")
    for words, title, cell in (
        ("layer 2 head 1", "Q: layer 2, head 1", None),
        ("l1", "Q: layer 1, head 1", None),
        ("x[2]", "Q: layer 1, head 1", "Cell x[2], x[2]"),
        ("layer 2 x[1]", "Q: layer 2, head 1", "Cell x[1], x[1]"),
        ("l1 x[0]", "Q: layer 1, head 1", "Cell x[0], x[0]"),
        ("omega_yx", "G copied in place, all heads: layer 1", "Cell y, x[0]"),
        ("tau_x:yy", "Traces of G, all heads: layer 1", "Cell x[0], y"),
    ):
        opened.page.keyboard.press("/")
        opened.page.keyboard.type(words)
        opened.page.keyboard.press("Enter")
        assert opened.text("#map-title") == title
        if cell:
            assert opened.text("#cell-title") == cell
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("no such thing")
    assert opened.text("#search-count") == "nothing found"
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("layer")
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    assert opened.text("#map-title") == "Traces of G, all heads: layer 1"


def test_help(show: Open) -> None:
    opened = show("single")
    opened.page.keyboard.press("?")
    assert opened.page.locator("#help").is_visible()
    assert opened.page.evaluate("document.activeElement.id") == "help-title"  # read from its beginning
    opened.page.keyboard.press("Escape")
    assert not opened.page.locator("#help").is_visible()
    opened.page.locator("#help-open").click()
    opened.page.locator("#help-close").click()
    assert not opened.page.locator("#help").is_visible()


def test_the_map_as_a_table(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "m=P")
    (model,) = pages["single"][1]
    opened.page.locator("#matrix-table > summary").focus()
    opened.page.keyboard.press("Enter")
    opened.page.locator("#matrix-table table").wait_for()
    opened.slide("l", "ArrowRight")
    cells = opened.page.eval_on_selector_all(
        "#matrix-table tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [row[0] for row in cells] == NAMES
    np.testing.assert_array_equal([[float(cell) for cell in row[1:]] for row in cells], model.P[1, 0])


def test_export(show: Open, pages: dict[str, Any]) -> None:
    opened = show("hostile")
    (model,) = pages["hostile"][1]
    files = {}
    for kind in ("png", "svg", "csv"):
        with opened.page.expect_download() as download:
            opened.page.locator(f"#export-{kind}").click()
        assert download.value.suggested_filename == f"q-layer-0-head-0.{kind}"
        files[kind] = Path(download.value.path()).read_bytes()
    assert files["png"].startswith(b"\x89PNG") and len(files["png"]) > 5000
    assert b"<svg" in files["svg"] and b"<script" not in files["svg"]
    rows = list(csv.reader(io.StringIO(files["csv"].decode("utf-8"))))
    assert rows[0][1] == "<script>alert(1)</script>[0]" and rows[7][0] == "'=1+1"
    np.testing.assert_array_equal([[float(v) for v in row[1:]] for row in rows[1:]], model.Q[0, 0])
    assert opened.complaints == [] and opened.elsewhere() == []


def test_a_hostile_file_is_shown_and_harmless(show: Open) -> None:
    opened = show("hostile", "cell=0,0")
    assert opened.page.locator("h1").text_content() == "<img src=x onerror=alert(1)>.safetensors"
    assert opened.hover(0, 3)[0].startswith("Q[<script>alert(1)</script>[0], <b>s</b>[0]] = ")
    opened.page.locator("#matrix-table > summary").click()
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("script")
    assert opened.page.locator("#search-results button").count() > 3
    assert opened.page.locator("main img, main script, main b").count() == 0
    assert opened.complaints == [] and opened.elsewhere() == []


def test_export_of_a_difference(show: Open, pages: dict[str, Any]) -> None:
    """The CSV has the numbers of the map, which are those of the files; the pictures have its title and channels."""
    opened = show("pair", "l=1&m=Q&h=0&view=diff")
    a, _ = pages["pair"][1]
    files = {}
    for kind in ("png", "svg", "csv"):
        with opened.page.expect_download() as download:
            opened.page.locator(f"#export-{kind}").click()
        assert download.value.suggested_filename == f"q-layer-1-head-0-b-minus-a.{kind}"
        files[kind] = Path(download.value.path()).read_bytes()
    rows = list(csv.reader(io.StringIO(files["csv"].decode("utf-8"))))
    values = np.array([[float(v) for v in row[1:]] for row in rows[1:]])
    assert rows[0][1:] == NAMES == [row[0] for row in rows[1:]]
    np.testing.assert_array_equal(values, opened.map())
    first = opened.value(1, 2)
    assert first == values[1, 2]
    assert 0 < np.abs(values).max() < 0.01 * float(a.Q.abs().max())  # B is A, in another gauge and 1 % larger
    words = files["svg"].decode("utf-8")
    assert "B − A" in words and "destination channel" in words and ">x<" in words and ">y<" in words
    width, height = (int.from_bytes(files["png"][k : k + 4], "big") for k in (16, 20))
    assert (width, height) == (1800, 1800)


def test_limits_shared_by_all_heads_and_of_most_cells(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "m=Q&l=2&h=1")
    (model,) = pages["single"][1]
    zmax = "document.getElementById('heat').data[0].zmax"
    sizes = np.sort(np.abs(model.Q[2, 1].numpy()).ravel())
    opened.page.locator("#limits").focus()
    for key, limit in (("ArrowDown", float(model.Q.abs().max())), ("ArrowDown", sizes[int(0.98 * (len(sizes) - 1))])):
        opened.page.keyboard.press(key)
        opened.settled()
        assert opened.page.evaluate(zmax) == limit
    opened.slide("h", "ArrowLeft")  # and the map of another head has its own
    assert opened.page.evaluate(zmax) != limit and opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(show: Open, scheme: str) -> None:
    opened = show("single", scheme=scheme)

    def brightness() -> list[float]:
        colours = opened.page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#heat .xtitle')).fill,"
            " document.getElementById('heat').data[0].colorscale[4][1]]"
        )
        return [sum(map(float, re.findall(r"\d+", c)[:3])) / 765 for c in colours]

    for dark in (scheme == "dark", scheme != "dark"):
        back, ink, zero = brightness()
        assert (back < 0.2 and ink > 0.8 and zero < 0.2) if dark else (back > 0.8 and ink < 0.2 and zero > 0.8)
        opened.page.locator("#theme").click()


def test_prints_in_light_colours_without_controls(show: Open) -> None:
    opened = show("single", scheme="dark")
    opened.page.emulate_media(media="print")
    assert not opened.page.locator("#choose").is_visible() and opened.page.locator("#heat").is_visible()


def test_thinned_numbers_are_marked(show: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer_data, "SMALL", 0)
    model = network(3)
    write_checkpoint(model, tmp_path / "one.safetensors")
    page = render_explorer(explore([str(tmp_path / "one.safetensors")]))
    page.write(tmp_path / "thin.html")
    opened = show(tmp_path / "thin.html", "l=1&h=1&m=P")
    assert "numbers of 16 bits" in opened.text("#thinned") and opened.page.locator("#thinned").is_visible()
    step = float(model.P[1, 1].abs().max()) / (2**15 - 2)
    np.testing.assert_allclose(opened.map(), model.P[1, 1], rtol=0, atol=0.5001 * step)
    shown = opened.hover(2, 3)[0]
    assert " = ≈ " in shown and float(shown.split("≈ ")[1]) == pytest.approx(float(model.P[1, 1, 2, 3]), abs=1e-4)


def test_works_in_a_notebooks_frame(show: Open, pages: dict[str, Any], tmp_path: Path, browser: Any) -> None:
    text = pages["pair"][0].read_text(encoding="utf-8")
    frame = ExplorerPage(text=text, thinned="")._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html>{frame}", encoding="utf-8")
    context = browser.new_context(offline=True)
    context.set_default_timeout(PATIENCE)
    page, complaints = context.new_page(), []
    page.on("console", lambda m: complaints.append(m.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "notebook.html").as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("#heat.js-plotly-plot").wait_for()
    inside.locator("#view").select_option("diff")
    assert inside.locator("#map-title").text_content() == "Q: layer 0, head 0, B − A"
    assert complaints == []
    context.close()


@pytest.mark.parametrize("kind", ["bad", "steps", pytest.param("pair", marks=SLOW)])
def test_accessibility(show: Open, kind: str) -> None:
    """No violation that axe-core calls serious or critical, with every table and the help open, light and dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    opened = show(kind, "l=1&m=P&limits=0.05")
    opened.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for scheme, opening in (("light", False), ("dark", False), ("dark", True)):
        opened.page.emulate_media(color_scheme=scheme)
        if opening:
            opened.page.keyboard.press("?")
        found = axe.Axe().run(opened.page).response["violations"]
        serious = [
            (violation["id"], node["target"], node.get("failureSummary"))
            for violation in found
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]
        assert serious == []


def test_a_shipped_model(show: Open, tmp_path: Path) -> None:
    render_explorer(explore(["zoo:full-l4-u5"])).write(tmp_path / "zoo.html")
    opened = show(tmp_path / "zoo.html", "l=2&m=P&cell=3,4")
    model = open_checkpoint("zoo:full-l4-u5").model
    assert opened.value(10, 10) == float(model.P[2, 0, 10, 10])
    np.testing.assert_array_equal(opened.map(), model.P[2, 0])
