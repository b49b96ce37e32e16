"""The explorer in a real browser: what its maps and panels show, and how they are moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from explored_pages import CLIPPED, NAMES, Open, comes_to

from interp.weight_maps import explore

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", ["pair", "hostile", *(pytest.param(k, marks=SLOW) for k in ("single", "bad", "steps"))]
)
def test_opens_offline_and_fits(show: Open, kind: str) -> None:
    opened = show(kind, width=1280)
    for width, scheme in ((1280, "light"), (390, "dark")):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.emulate_media(color_scheme=scheme)
        for m in ("Q", "copy", "left"):
            opened.choose("m", m)
            # plots follow the size of the window with a delay
            assert comes_to(opened.page, f"document.documentElement.scrollWidth <= {width}", True)
            assert comes_to(opened.page, CLIPPED, []) == []
    assert opened.page.locator("#heat .xtitle, #heat .ytitle").count() == 2
    assert opened.elsewhere() == []
    assert opened.complaints == []


def test_no_button_shares_the_weights(show: Open) -> None:
    opened = show("single")
    for plot in ("heat", "plot-row", "plot-spectrum", "plot-coefficient"):
        opened.page.locator(f"#{plot}").hover()
        names = opened.page.eval_on_selector_all(
            f"#{plot} .modebar-btn", "nodes => nodes.map(n => (n.dataset.title || n.ariaLabel || '').toLowerCase())"
        )
        assert names and not any(word in name for name in names for word in ("share", "cloud", "plotly", "edit"))


@pytest.mark.parametrize("kind", ["single", "float32"])
def test_hover_shows_the_files_number(show: Open, pages: dict[str, Any], kind: str) -> None:
    opened = show(kind)
    (model,) = pages[kind][1]
    opened.slide("l", "ArrowRight")
    opened.slide("h", "ArrowRight")
    for m, row, column in (("Q", 2, 3), ("P", 3, 3), ("P", 0, 1)):
        opened.choose("m", m)
        place, value = opened.hover(row, column)[0].split(" = ")
        assert place == f"{m}[{NAMES[row]}, {NAMES[column]}]"
        assert float(value) == float(getattr(model, m)[1, 1, row, column])


def test_sliders_and_selectors_from_the_keyboard(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single")
    (model,) = pages["single"][1]
    opened.slide("l", "End")
    assert opened.text("#l-shown") == "2" and opened.text("#map-title") == "Q: layer 2, head 0"
    opened.slide("l", "ArrowLeft", "Tab")
    assert opened.page.evaluate("document.activeElement.id") == "h"
    opened.page.keyboard.press("ArrowRight")
    np.testing.assert_array_equal(opened.map(), model.Q[1, 1])
    opened.page.keyboard.press("Home")
    opened.page.locator("#m").focus()
    opened.page.keyboard.press("ArrowDown")
    np.testing.assert_array_equal(opened.map(), model.P[1, 0])
    assert opened.address() == {"l": "1", "m": "P", "h": "0"}


def test_limits_of_the_colours(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "m=P&l=1")
    (model,) = pages["single"][1]
    zmax = "(({ zmin, zmax }) => [zmin, zmax])(document.getElementById('heat').data[0])"
    own, everywhere = float(model.P[1, 0].abs().max()), float(model.P.abs().max())
    assert opened.page.evaluate(zmax) == [-own, own]
    opened.choose("limits", "shared")
    assert opened.page.evaluate(zmax) == [-everywhere, everywhere]
    assert str(float(f"{everywhere:.3g}")) in opened.text("#status")
    opened.choose("limits", "set")
    opened.page.locator("#limit").fill("0.05")
    assert opened.page.evaluate(zmax) == [-0.05, 0.05]
    above, below = int((model.P[1, 0] > 0.05).sum()), int((model.P[1, 0] < -0.05).sum())
    assert f"{above + below} clipped." in opened.text("#status")
    assert f"{above} clipped above" in opened.text("#marks") and f"{below} clipped below" in opened.text("#marks")
    assert "clipped" in opened.hover(*np.argwhere(model.P[1, 0].numpy() > 0.05)[0].tolist())[-1]
    assert opened.address()["limits"] == "0.05"


def test_parts(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "l=1&h=1&m=P")
    (model,) = pages["single"][1]
    P, Q = model.P[1, 1].numpy(), model.Q[1, 1].numpy()
    scalar = np.diag([np.trace(P[:3, :3]) / 3] * 3 + [P[3, 3]])
    opened.choose("part", "scalar")
    np.testing.assert_allclose(opened.map(), scalar, rtol=1e-15, atol=1e-17)
    opened.choose("part", "rest")
    np.testing.assert_allclose(opened.map(), P - scalar, rtol=1e-12, atol=1e-17)
    assert opened.hover(0, 0)[1] == f"in the file: {P[0, 0]!r}".replace("np.float64(", "").replace(")", "")
    opened.choose("part", "gauge")
    norms = [np.linalg.norm(model.P[1, h]) * np.linalg.norm(model.Q[1, h]) for h in range(2)]
    head = int(np.argsort(norms)[::-1][1])  # head 1 of the gauge-fixed form is the smaller one
    p, q = model.P[1, head].numpy(), model.Q[1, head].numpy()
    k = np.sqrt(np.linalg.norm(q) / np.linalg.norm(p)) * np.sign(q.flat[np.abs(q).argmax()])
    np.testing.assert_allclose(opened.map(), k * p, rtol=1e-12)
    assert opened.hover(2, 1)[1].startswith(f"in its file: {p[2, 1]}") and f"head {head}" in opened.hover(2, 1)[1]
    opened.choose("m", "Q")
    np.testing.assert_allclose(opened.map(), q / k, rtol=1e-12)
    assert Q.shape == (4, 4)


def test_maps_of_all_heads(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "m=trace&l=1")
    (model,) = pages["single"][1]
    np.testing.assert_allclose(opened.map(), (model.P[1] * model.Q[1]).sum(0), rtol=1e-12)
    assert opened.page.locator("#part").is_disabled() and opened.page.locator("#h").is_disabled()
    assert "live weight energy" in opened.text("#meaning")


def test_marks_and_counts(show: Open) -> None:
    opened = show("bad", "l=1")
    assert "3 not finite" in opened.text("#status")
    for words in ("1 NaN", "1 plus infinity", "1 minus infinity"):
        assert words in opened.text("#marks")
    signs = [t for t in opened.page.locator("#heat .heatmap-label").all_text_contents() if t]
    assert sorted(signs) == sorted(["×", "∞", "−∞"])
    assert np.isnan(opened.value(2, 3)) and opened.value(0, 1) == np.inf and opened.value(3, 0) == -np.inf
    assert "not finite" in opened.text("#words-spectrum")


def test_dead_cells(show: Open) -> None:
    opened = show("single", "m=P&l=2")
    assert "12 of 16 cells are dead." in opened.text("#status") and "12 dead" in opened.text("#marks")
    assert opened.hover(0, 0)[-1] == "dead: no prediction depends on it"
    assert len(opened.hover(3, 0)) == 1


def test_click_shows_row_column_spectrum_and_coefficient(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single", "m=P&l=1&h=0")
    (model,) = pages["single"][1]
    opened.page.mouse.click(*opened.place(2, 1))
    opened.page.wait_for_function("document.getElementById('cell-title').textContent === 'Cell x[2], x[1]'")
    P = model.P[1, 0].numpy()
    data = "id => document.getElementById(id).data[0].y"
    np.testing.assert_array_equal(opened.page.evaluate(data, "plot-row"), P[2])
    np.testing.assert_array_equal(opened.page.evaluate(data, "plot-column"), P[:, 1])
    shown = opened.page.evaluate(data, "plot-spectrum")
    np.testing.assert_allclose(shown, np.linalg.svd(P, compute_uv=False), rtol=1e-6)  # kept in single precision
    names = opened.page.evaluate("document.getElementById('plot-coefficient').data.map(t => t.name)")
    assert names == ["ω_xx", "ω_xy", "τ_x:xx"]
    curve = opened.page.evaluate(data, "plot-coefficient")
    reference = explore([str(pages["single"][0].parent / "single" / "one.safetensors")])
    np.testing.assert_allclose([np.nan if v is None else v for v in curve], reference.checkpoints[0].coefficients[:, 0])
    assert opened.address()["cell"] == "2,1"
    opened.page.locator("#table-row summary").click()
    assert f"{P[2, 3]}" in opened.text("#table-row table")
    opened.page.locator("#table-spectrum summary").click()
    opened.page.locator("#table-spectrum tr").nth(len(P)).wait_for()  # the last row
    cells = opened.page.locator("#table-spectrum tr :last-child").all_inner_texts()[1:]
    expected = [float(f"{v:.7g}") for v in np.linalg.svd(P, compute_uv=False)]
    np.testing.assert_allclose([float(cell) for cell in cells], expected, rtol=2e-6)
    assert all(float(f"{float(cell):.7g}") == float(cell) for cell in cells)  # no digit that single precision lacks


def test_the_map_from_the_keyboard(show: Open, pages: dict[str, Any]) -> None:
    opened = show("single")
    (model,) = pages["single"][1]
    opened.page.locator("#heat").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "End"):
        opened.page.keyboard.press(key)
    assert opened.text("#cell-title") == "Cell x[0], y"
    assert float(opened.text("#cell-status").split(" = ")[1]) == float(model.Q[0, 0, 0, 3])
    opened.page.keyboard.press("Escape")
    assert "cell" not in opened.address()
    opened.page.keyboard.press("Tab")  # no trap
    assert opened.page.evaluate("document.activeElement.id") != "heat"


def test_two_checkpoints_and_their_difference(show: Open, pages: dict[str, Any]) -> None:
    opened = show("pair", "m=P&l=1&h=0")
    a, b = pages["pair"][1]
    np.testing.assert_array_equal(opened.map(), a.P[1, 0])
    opened.choose("view", "b")
    np.testing.assert_array_equal(opened.map(), b.P[1, 0])
    assert opened.value(1, 2) == float(b.P[1, 0, 1, 2])
    opened.choose("view", "aligned")  # b is a, its heads swapped and turned, 1 % larger
    aligned = opened.map()
    assert 1.0 < float(np.abs(aligned).max() / a.P[1, 0].abs().max()) < 1.01
    assert np.abs(aligned / a.P[1, 0].numpy() - aligned[0, 0] / a.P[1, 0, 0, 0].item()).max() < 1e-10
    assert f"{float(b.P[1, 1, 1, 2])} (head 1" in opened.hover(1, 2)[1]
    opened.choose("view", "diff")
    np.testing.assert_allclose(opened.map(), aligned - a.P[1, 0].numpy(), rtol=1e-12)
    assert opened.hover(1, 2)[0].startswith("ΔP[x[1], x[2]] = ") and opened.hover(1, 2)[1].startswith("A ")
    assert "= 0.01." in opened.text("#meaning")
    dashes = opened.page.evaluate("document.getElementById('plot-coefficient').data.map(t => t.line.dash)")
    assert set(dashes) == {"solid", "dash"}


def test_training_steps(show: Open, pages: dict[str, Any]) -> None:
    opened = show("steps", "m=P")
    models = pages["steps"][1]
    assert opened.text("#step-shown") == "4000 (5 of 5) duplicate"
    assert "Duplicate: the same weights as step_500.safetensors (step 500)" in opened.text("#meaning")
    assert "step_4000.safetensors holds the same weights as step_500.safetensors" in opened.text("main")
    opened.slide("step", "Home", "ArrowRight", "ArrowRight")
    assert opened.text("#step-shown") == "20 (3 of 5)"
    np.testing.assert_array_equal(opened.map(), models[2].P[0, 0])
    slider = opened.page.evaluate("(({ min, max, value }) => [min, max, value])(document.getElementById('step'))")
    assert slider == ["0", "4000", "20"]  # the true spacing
    opened.page.evaluate(
        "s => { s.value = 300; s.dispatchEvent(new Event('input')); }", opened.page.query_selector("#step")
    )
    assert opened.text("#step-shown") == "500 (4 of 5)"
    assert opened.page.evaluate("document.getElementById('plot-training').data[0].x") == [0, 10, 20, 500, 4000]
    opened.choose("view", "a")
    np.testing.assert_array_equal(opened.map(), models[0].P[0, 0])
