"""The explorer as a person uses it: every control, what it shows, and that nothing leaves the machine."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.exploration import explore
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.reports import explorer_data
from interp.reports.explorer import ExplorerPage, render_explorer

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 1]}}
SPEC = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK})
NAMES = ["x[0]", "x[1]", "x[2]", "y"]
HOSTILE = ModelSpec.from_dict(
    {
        "tokens": [["<script>alert(1)</script>", 3], ["<b>s</b>", 3], ["=1+1", 1]],
        "attention": {"keys": "causal"},
        "readout": {"channel": "<b>s</b>", "sign": 1},
    }
)


def network(seed: int, layers: int = 3, heads: int = 2, spec: ModelSpec = SPEC) -> LinearTransformer:
    generator = torch.Generator().manual_seed(seed)
    Q, P = torch.randn(2, layers, heads, spec.width, spec.width, generator=generator, dtype=torch.float64) * 0.1
    return LinearTransformer(spec=spec, Q=Q, P=P)


def regauged(model: LinearTransformer) -> LinearTransformer:
    return dataclasses.replace(model, P=-2 * model.P.flip(1), Q=model.Q.flip(1) / -2)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[LinearTransformer]]]:
    """Every kind of page, with the networks it shows."""
    folder = tmp_path_factory.mktemp("explorer")

    def page(name: str, models: dict[str, LinearTransformer]) -> tuple[Path, list[LinearTransformer]]:
        (folder / name).mkdir()
        paths = [folder / name / f"{stem}.safetensors" for stem in models]
        for path, model in zip(paths, models.values(), strict=True):
            write_checkpoint(model, path)
        made = render_explorer(explore([str(path) for path in paths]))
        made.write(folder / f"{name}.html")
        return folder / f"{name}.html", list(models.values())

    bad = network(1)
    bad.Q[1, 0, 2, 3], bad.Q[1, 0, 0, 1], bad.Q[1, 0, 3, 0] = float("nan"), float("inf"), -float("inf")
    nearly = regauged(dataclasses.replace(network(0), P=network(0).P * 1.01))
    steps = {f"step_{step}": network(min(step, 500)) for step in (0, 10, 20, 500, 4000)}
    return {
        "single": page("single", {"one": network(0)}),
        "float32": page("float32", {"one": network(0).to(torch.float32)}),
        "bad": page("bad", {"diverged": bad}),
        "pair": page("pair", {"a": network(0), "b": nearly}),
        "steps": page("steps", steps),
        "hostile": page("hostile", {"<img src=x onerror=alert(1)>": network(2, spec=HOSTILE)}),
    }


@dataclasses.dataclass
class Explorer:
    page: Any
    url: str
    requests: list[str]
    complaints: list[str]

    def elsewhere(self) -> list[str]:
        """Requests for anything but the page itself."""
        return [url for url in self.requests if url.split("#")[0] != self.url]

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.text_content().split())

    def choose(self, name: str, value: str) -> None:
        self.page.locator(f"#{name}").select_option(value)

    def slide(self, name: str, *keys: str) -> None:
        self.page.locator(f"#{name}").focus()
        for key in keys:
            self.page.keyboard.press(key)

    def place(self, row: int, column: int) -> list[float]:
        self.page.locator("#heat").scroll_into_view_if_needed()
        return self.page.evaluate(
            """([r, c]) => {
                const plot = document.getElementById("heat"), box = plot.getBoundingClientRect();
                const { xaxis, yaxis } = plot._fullLayout;
                return [box.x + xaxis._offset + xaxis.d2p(c), box.y + yaxis._offset + yaxis.d2p(r)];
            }""",
            [row, column],
        )

    def hover(self, row: int, column: int) -> list[str]:
        """The lines of the text beside the pointer."""
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(150)  # plotly answers the pointer with a delay
        self.page.mouse.move(*self.place(row, column))
        self.page.locator("#heat .hoverlayer .hovertext").first.wait_for(timeout=5000)
        lines = self.page.locator("#heat .hoverlayer .hovertext tspan.line")
        found = lines.all_text_contents() or [self.page.locator("#heat .hoverlayer .hovertext").text_content()]
        return [" ".join(line.split()) for line in found]

    def value(self, row: int, column: int) -> float:
        return float(self.hover(row, column)[0].split(" = ")[1].replace("Infinity", "inf"))

    def map(self) -> np.ndarray:
        shown = self.page.evaluate("document.getElementById('heat').data[0].z")
        return np.array([[np.nan if v is None else v for v in row] for row in shown])

    def address(self) -> dict[str, str]:
        fragment = self.page.evaluate("location.hash").lstrip("#")
        return dict(part.split("=") for part in fragment.split("&"))


Open = Callable[..., Explorer]


def opened_page(browser: Any, path: Path, fragment: str, width: int = 1280, scheme: str = "light") -> Explorer:
    """A page from file://, offline, every request and complaint noted."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    opened = Explorer(context.new_page(), path.as_uri(), [], [])

    def route(handler: Any) -> None:
        opened.requests.append(handler.request.url)
        if handler.request.url.split("#")[0] == opened.url:
            handler.continue_()
        else:
            handler.abort()

    opened.page.route("**/*", route)
    opened.page.on("console", lambda m: opened.complaints.append(f"{m.type}: {m.text}"))
    opened.page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
    opened.page.on("dialog", lambda d: (opened.complaints.append(f"dialog: {d.message}"), d.dismiss()))
    opened.page.goto(f"{opened.url}#{fragment}")
    opened.page.locator("html[data-ready=yes]").wait_for(state="attached")
    return opened


@pytest.fixture(scope="module")
def kept(browser: Any) -> Iterator[dict[str, Explorer]]:
    """Pages that stay open from test to test: the fragment says all that is shown."""
    opened: dict[str, Explorer] = {}
    yield opened
    for explorer in opened.values():
        explorer.page.context.close()


@pytest.fixture
def show(browser: Any, pages: dict[str, Any], kept: dict[str, Explorer]) -> Iterator[Open]:
    """``show(kind)``: that page, at the address of ``fragment``; a page of its own where more is asked for."""
    fresh: list[Explorer] = []

    def opener(kind: str | Path, fragment: str = "l=0", **more: Any) -> Explorer:
        if isinstance(kind, Path) or more:
            fresh.append(opened_page(browser, kind if isinstance(kind, Path) else pages[kind][0], fragment, **more))
            return fresh[-1]
        if kind not in kept:
            kept[kind] = opened_page(browser, pages[kind][0], fragment)
            return kept[kind]
        page = kept[kind].page
        page.goto(f"{kept[kind].url}#{fragment}")
        page.evaluate("document.activeElement.blur(); new Promise((done) => setTimeout(done, 50))")
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        return kept[kind]

    yield opener
    for explorer in fresh:
        explorer.page.context.close()


CLIPPED = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
    const box = plot.getBoundingClientRect();
    return [...plot.querySelectorAll("svg.main-svg text")]
        .filter((text) => text.textContent && !text.closest(".modebar"))
        .map((text) => [text.textContent, text.getBoundingClientRect()])
        .filter(([, r]) => r.width && (r.left < box.left - 1 || r.right > box.right + 1
                                       || r.top < box.top - 1 || r.bottom > box.bottom + 1))
        .map(([text]) => `${plot.id}: ${text}`);
})"""


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
            opened.page.wait_for_timeout(250)  # plots follow the size of the window with a delay
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
            assert opened.page.evaluate(CLIPPED) == []
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
    assert names == ["ω xx", "ω xy", "τ x:xx"]
    curve = opened.page.evaluate(data, "plot-coefficient")
    reference = explore([str(pages["single"][0].parent / "single" / "one.safetensors")])
    np.testing.assert_allclose([np.nan if v is None else v for v in curve], reference.checkpoints[0].coefficients[:, 0])
    assert opened.address()["cell"] == "2,1"
    opened.page.locator("#table-row summary").click()
    assert f"{P[2, 3]}" in opened.text("#table-row table")


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


def test_search(show: Open) -> None:
    opened = show("single")
    opened.page.keyboard.press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"
    opened.page.keyboard.press("Escape")
    for words, title, cell in (
        ("layer 2 head 1", "Q: layer 2, head 1", None),
        ("l1", "Q: layer 1, head 1", None),
        ("x[2]", "Q: layer 1, head 1", "Cell x[2], x[2]"),
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(show: Open, scheme: str) -> None:
    opened = show("single", scheme=scheme)

    def brightness() -> tuple[float, float, float]:
        colours = opened.page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#heat .xtitle')).fill,"
            " document.getElementById('heat').data[0].colorscale[4][1]]"
        )
        return tuple(sum(map(float, re.findall(r"\d+", c)[:3])) / 765 for c in colours)  # type: ignore[return-value]

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
