"""The HTML report as a person uses it: what plots show, what controls do, and that nothing leaves the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from explored_pages import CLIPPED, comes_to
from repeats import repeats

from interp.reports.numbers import estimate
from interp.results import Analysis

KINDS = (
    "noisy",
    "single",
    "deep",
    "full",
    "unrecognized-noisy",
    "preconditioned",
    "everything",
    "closed-form",
    "refused",
    "empty",
    "all-none",
    "hostile",
    "bad-weights",
    "probes-query",
    "probes-sequence",
)
Open = Callable[..., Any]


def plots(opened: Any) -> list[str]:
    """Ids of the plots of the page, which are all drawn."""
    ids = opened.page.eval_on_selector_all(".plot", "nodes => nodes.map(node => node.id)")
    drawn = opened.page.eval_on_selector_all(".plot.js-plotly-plot", "nodes => nodes.map(node => node.id)")
    assert drawn == ids
    return ids


def hover(opened: Any, plot: str, x: float, y: float | str) -> str:
    """What the page says when the pointer rests on the data point (x, y) of a plot."""
    opened.page.locator(f"#{plot}").scroll_into_view_if_needed()
    place = opened.page.evaluate(
        """([id, x, y]) => {
            const plot = document.getElementById(id), box = plot.getBoundingClientRect();
            const { xaxis, yaxis } = plot._fullLayout;
            return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
        }""",
        [plot, x, y],
    )
    opened.page.mouse.move(0, 0)
    opened.page.wait_for_timeout(150)  # plotly answers the pointer with a delay
    opened.page.mouse.move(*place)
    label = opened.page.locator(f"#{plot} .hoverlayer .hovertext")
    label.first.wait_for()
    return " ".join(label.first.text_content().split())


@pytest.mark.parametrize("kind", KINDS)
def test_opens_offline_and_fits(open_report: Open, kind: str) -> None:
    """No request, no complaint, every axis labelled, nothing clipped: wide and narrow, light and dark."""
    opened = open_report(kind)
    page = opened.page
    for width, scheme in ((1280, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert plots(opened) or kind == "empty"
        # plots follow the size of the window with a delay
        assert comes_to(page, f"document.documentElement.scrollWidth <= {width}", True)
        assert comes_to(page, CLIPPED, []) == []
        for plot in plots(opened):
            titles = page.locator(f"#{plot} .xtitle, #{plot} .ytitle").all_text_contents()
            assert len(titles) == (1 if plot.startswith(("plot-losses", "plot-omegas", "plot-shifts")) else 2), plot
    sections = page.locator("main section").evaluate_all("all => all.map((one) => `#${one.id}`)")
    links = page.locator("nav a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert sections == links  # parts without content are in neither, but in the list of what was skipped
    assert len(sections) >= (3 if kind == "empty" else 5)
    assert opened.requests == [opened.url]
    assert opened.complaints == []


def test_no_button_shares_the_weights(open_report: Open) -> None:
    opened = open_report("diag")
    for plot in plots(opened):
        opened.page.locator(f"#{plot}").hover()
        names = opened.page.eval_on_selector_all(
            f"#{plot} .modebar-btn", "nodes => nodes.map(n => (n.dataset.title || n.ariaLabel || '').toLowerCase())"
        )
        assert any("png" in name for name in names)
        assert not any(word in name for name in names for word in ("share", "cloud", "plotly"))


def test_hover_shows_the_coefficient_and_its_error(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("diag")
    coefficient = analyses["diag"].layers[1].omega["yx"]
    assert coefficient.output is not None
    shown = hover(opened, "plot-coefficient-omega-yx", 0.84, coefficient.output)
    assert shown == "layer 1, output: -0.03122 ± 0.00018"
    loss = analyses["diag"].evidence.depth_losses[2]
    assert loss.mse is not None
    assert hover(opened, "plot-depth", 2, loss.mse) == f"after 2 layers: {estimate(loss.mse, loss.stderr)}"
    distance = analyses["diag"].implicit[3].distance["oracle"]
    assert distance is not None
    assert "after 3 layers: 0.0285 ± 0.0011" in hover(opened, "plot-distances", 3, distance)


def test_hover_shows_what_the_regression_section_holds(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("noisy")
    known = analyses["noisy"].regression
    assert known is not None
    ada = next(s for s in known.profile.series if s.name == "adarr")
    value, stderr = ada.excess[8], ada.stderr[8]
    assert value is not None
    shown = hover(opened, "plot-profile", 4.0, value)
    assert shown == f"adaptive ridge, σ = 4: {estimate(value, stderr)}"
    kept = known.filters[-1].bins[4]
    assert hover(opened, "plot-filter-4", kept.eigenvalue, kept.filter) == (
        f"σ 3.3 to 5, eigenvalue 25: {estimate(kept.filter, kept.stderr)}"
    )
    step = known.step[3].bins[6]
    assert hover(opened, "plot-step-3", step.x, step.observed) == f"layer 3: {estimate(step.observed, step.stderr)}"
    row = [e.coefficient for e in known.omegas.effects if e.layer is None].index("xy+yy")
    assert "worth: 0.63 ± 0.03" in hover(opened, "plot-omegas-0", 0.63, row)
    assert hover(opened, "plot-momentum", 3 + 0.12 * -0.5, 0.83) == "layer 3, w: along the momentum u: R² = 0.8300"


def test_hover_on_what_is_left_and_on_a_preconditioner(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("full")
    assert hover(opened, "plot-remainder-blocks", 2, 0) == (
        "layer 2, x ← x, read from Σ: 90 % of what is left (99.0 %; rank 38)"
    )
    assert hover(opened, "plot-remainder-shares", 2, 0.8) == "layer 2, four ω in its place: R² = 0.80 [0.77, 0.83]"
    entry = analyses["preconditioned"].preconditioners[1]
    opened = open_report("preconditioned")
    assert hover(opened, "plot-preconditioner-1", 1, 3) == (
        f"layer 1, Ω[3, 1]: {estimate(entry.refit[3][1], entry.refit_stderr[3][1])}"
    )


def test_hover_on_probes_shows_scores_and_controls(open_report: Open) -> None:
    opened = open_report("probes-query")
    assert hover(opened, "plot-probe-0-map", 4, 1) == (
        "label, after 4 layers, the query: R² = 0.90 [0.87, 0.93]untrained 0.05, above: +0.85 [+0.82, +0.88]"
        "shuffled -0.01, above: +0.91 [+0.88, +0.94]inputs 0.01, above: +0.89 [+0.86, +0.92]"
    )
    shown = hover(opened, "plot-probe-0-depth-1", 3, 0.01 + 0.04 * 3 / 4)
    assert shown.startswith("label, untrained models: 0.0400; the network above: +0.64 [")
    assert opened.complaints == [] and opened.requests == [opened.url]


def test_hostile_names_of_probe_targets_are_harmless(open_report: Open) -> None:
    opened = open_report("probes-hostile")
    assert opened.page.locator("main img, main script:not([type])").count() == 0
    assert "<img src=x onerror=alert(1)>" in opened.text("#targets")
    assert any("<img" in t for t in opened.page.locator("#plot-probe-0-map .ytick text").all_text_contents())
    assert opened.complaints == [] and opened.requests == [opened.url]


def test_a_newcomer_reads_the_page_from_the_top(open_report: Open) -> None:
    """Verdict, formula, coefficients, evidence, then details; every figure has a finding, a caption and a table."""
    opened = open_report("full")
    order = opened.page.eval_on_selector_all("main > section", "nodes => nodes.map(node => node.id)")
    assert order[:5] == ["verdict", "algorithm", "coefficients", "evidence", "noise"] and order[-1] == "provenance"
    for figure in opened.page.locator("main figure[id^=figure-]").all():
        assert len(figure.locator("h3").first.text_content().split()) > 4
        assert len(figure.locator("figcaption").text_content()) > 40
        assert figure.locator("table tbody tr").count() > 0
    assert "carry only 0.31 % of the weights of layers 2 and 3" in opened.text("#verdict")


def test_hover_on_a_heat_map_shows_the_exact_weight(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("deep")
    opened.page.locator("#layer").focus()
    for _ in range(4):
        opened.page.keyboard.press("ArrowRight")
    opened.page.locator("#head").select_option("2")
    names = [f"x[{i}]" for i in range(10)] + ["y"]
    for matrix, row, column in (("Q", 2, 3), ("P", 10, 10), ("P", 0, 10), ("Q", 10, 4)):
        place, value = hover(opened, f"heatmap-{matrix}", column, row).split(" = ")
        assert place == f"{matrix}[{names[row]}, {names[column]}]"
        weights = getattr(analyses["deep"].weights, matrix)
        assert float(value) == weights[4][2][row][column]


def test_selectors_work_from_the_keyboard(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("deep")
    page = opened.page
    page.locator("#layer").focus()
    page.keyboard.press("End")
    assert page.locator("#layer-shown").text_content() == "6"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "head"
    page.keyboard.press("ArrowDown")
    assert opened.text("#heatmap-status").startswith("Layer 5, head 1.")
    shown = page.evaluate("document.getElementById('heatmap-Q').data[0].z")
    assert analyses["deep"].weights.Q is not None
    assert shown == analyses["deep"].weights.Q[5][1]
    limit = page.evaluate("document.getElementById('heatmap-Q').data[0].zmax")
    assert limit == max(abs(v) for row in shown for v in row)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    data = page.evaluate("(({ zmin, zmax }) => [zmin, zmax])(document.getElementById('heatmap-Q').data[0])")
    largest = max(abs(v) for layer in analyses["deep"].weights.Q for head in layer for row in head for v in row)
    assert data == [-largest, largest]


def test_heat_map_table_follows_the_selection(open_report: Open, analyses: dict[str, Analysis]) -> None:
    opened = open_report("diag")
    page = opened.page
    page.locator("#heatmap-tables > summary").focus()
    page.keyboard.press("Enter")
    page.locator("#heatmap-table table").first.wait_for()
    page.locator("#layer").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#heatmap-table caption").all_text_contents()[0].startswith("Q of layer 1, head 0")
    cells = page.eval_on_selector_all(
        "#heatmap-table table:last-of-type tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    weights = analyses["diag"].weights
    assert weights.Q is not None and weights.P is not None
    expected = weights.Q[1][0] + weights.P[1][0]
    assert [[float(cell) for cell in row[1:]] for row in cells] == expected
    assert [row[0] for row in cells[:11]] == [*(f"x[{i}]" for i in range(10)), "y"]


def test_channels_are_drawn_and_named(open_report: Open) -> None:
    opened = open_report("diag")
    for matrix in ("Q", "P"):
        names = opened.page.locator(f"#heatmap-{matrix} .xtick text, #heatmap-{matrix} .ytick text").all_text_contents()
        assert sorted(names) == ["x", "x", "y", "y"]
        assert opened.page.locator(f"#heatmap-{matrix} .shapelayer path").count() == 2
    colours = opened.page.evaluate("document.getElementById('heatmap-P').data[0].colorscale")
    middle, low, high = (colours[i][1] for i in (4, 0, 8))
    assert colours[4][0] == 0.5
    assert len({middle, low, high}) == 3


def test_weights_that_are_not_finite_are_marked(open_report: Open) -> None:
    opened = open_report("bad-weights")
    assert "not finite" not in opened.text("#heatmap-status")
    opened.page.locator("#layer").focus()
    opened.page.keyboard.press("ArrowRight")
    assert "3 not finite (×)" in opened.text("#heatmap-status")
    marks = opened.page.locator("#heatmap-Q .heatmap-label").all_text_contents()
    assert [mark for mark in marks if mark] == ["×"] * 3
    values = [hover(opened, "heatmap-Q", c, r).split(" = ")[1] for r, c in ((2, 3), (4, 5), (10, 10))]
    assert values == ["NaN", "NaN", "Infinity"]
    limit = opened.page.evaluate("document.getElementById('heatmap-Q').data[0].zmax")
    assert math.isfinite(limit) and 0 < limit < 1


def test_legend_hides_and_shows_a_series_everywhere(open_report: Open) -> None:
    opened = open_report("diag")
    button = opened.page.get_by_role("button", name="weight", exact=True)
    visible = "id => document.getElementById(id).data.map(trace => trace.visible)"
    button.focus()
    opened.page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    for name in ("xx", "xy", "yx", "yy"):
        assert opened.page.evaluate(visible, f"plot-coefficient-omega-{name}") == [True, False, True]
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate(visible, "plot-coefficient-omega-yx") == [True, True, True]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(open_report: Open, scheme: str) -> None:
    opened = open_report("diag", scheme=scheme)
    page = opened.page

    def brightness() -> tuple[float, float]:
        """Of the page and of the text of a plot."""
        colours = page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#plot-depth .xtitle')).fill]"
        )
        back, ink = (sum(map(float, re.findall(r"\d+", colour)[:3])) / 765 for colour in colours)
        return back, ink

    for dark in ((scheme == "dark"), (scheme != "dark"), (scheme == "dark")):
        back, ink = brightness()
        assert (back < 0.2 and ink > 0.8) if dark else (back > 0.8 and ink < 0.2)
        assert page.locator("#theme").text_content() == ("Light colours" if dark else "Dark colours")
        page.locator("#theme").click()


def test_a_hostile_file_is_shown_and_harmless(open_report: Open) -> None:
    opened = open_report("hostile")
    plots(opened)
    assert opened.page.locator("h1").text_content() == "<script>alert(1)</script>"
    assert "<script>alert(1)</script>" in opened.page.title()
    opened.page.locator("#heatmap-tables > summary").click()
    opened.page.locator("#heatmap-table tr").first.wait_for()  # filled by an event that comes after the click
    assert "<b><script>alert(1)</script></b>[0]" in opened.text("#heatmap-table")
    assert "Q[<b><script>alert(1)</script></b>[0], " in hover(opened, "heatmap-Q", 0, 0)
    assert opened.page.locator("main img, main script:not([type])").count() == 0
    ladder = opened.page.locator("#plot-losses .ytick text").all_text_contents()
    assert any("<img src=x" in text for text in ladder)
    assert opened.complaints == []
    assert opened.requests == [opened.url]


def test_works_in_a_sandboxed_frame(open_report: Open) -> None:
    """As a notebook shows it."""
    opened = open_report("diag", frame=True)
    frame = opened.page.frame_locator("iframe")
    frame.locator("html[data-drawn=all]").wait_for(state="attached", timeout=120_000)  # when the machine is busy
    assert frame.locator("#heatmap-P.js-plotly-plot").count() == 1
    assert frame.locator("#verdict h2").text_content() == "recognized: diag"
    assert opened.complaints == []


def test_without_scripts_the_tables_are_there(open_report: Open) -> None:
    opened = open_report("diag", scripts=False)
    assert opened.page.locator("noscript").is_visible()
    assert "-0.02256 ± 0.00018" in opened.text("#figure-coefficients table")


def test_a_page_can_hold_every_figure(open_report: Open) -> None:
    drawn = plots(open_report("everything"))
    for figure in (
        "swaps",
        "interpolation",
        "stress",
        "absorption",
        "trajectory",
        "shifts",
        "law",
        "agreement",
        "remainder",
    ):
        assert any(plot.startswith(f"plot-{figure}") for plot in drawn), figure


@pytest.mark.parametrize("kind", repeats(["closed-form", "empty", "probes-sequence", "single", "everything"], 4))
def test_accessibility(open_report: Open, kind: str) -> None:
    """No violation that axe-core calls serious or critical, with every table open; in dark only colours differ."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    opened = open_report(kind)
    opened.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for scheme, rules in (("light", None), ("dark", {"runOnly": ["color-contrast"]})):
        opened.page.emulate_media(color_scheme=scheme)
        serious = [
            (violation["id"], node["target"], node.get("failureSummary"))
            for violation in axe.Axe().run(opened.page, options=rules).response["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]
        assert serious == []
