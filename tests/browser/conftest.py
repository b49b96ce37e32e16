"""Reports in a real browser with no network. Skipped where there is no Chromium."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from explored_pages import HOSTILE, PATIENCE, Explorer, Open, network, opened_page, regauged

from interp.checkpoints.canonical import write_checkpoint
from interp.models.transformer import LinearTransformer
from interp.reports.explorer import render_explorer
from interp.reports.html import render_report
from interp.results import Analysis, ProbeReport
from interp.weight_maps import explore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]


def _synthetic(name: str) -> ModuleType:
    """Results made for the report tests, which live in another folder and must be found when it is not collected."""
    folder = str(Path(__file__).parent.parent / "reports")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def analyses() -> dict[str, Analysis]:
    return dict(_synthetic("synthetic_kinds").many())


@pytest.fixture(scope="session")
def probe_reports() -> dict[str, ProbeReport]:
    made = _synthetic("synthetic_probes")
    return {
        "probes-query": made.report(made.at_the_query()),
        "probes-sequence": made.report(made.along_a_sequence()),
        "probes-hostile": made.hostile(),
    }


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install -e .[test])")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@dataclass
class Opened:
    """A page, and everything it did that a report must not do."""

    page: Any
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.text_content().split())


@pytest.fixture
def open_report(
    browser: Any, analyses: dict[str, Analysis], probe_reports: dict[str, ProbeReport], tmp_path: Path
) -> Iterator[Callable[..., Opened]]:
    """``open_report(kind)``: that report from file://, with every other request refused and noted."""
    contexts = []

    def opener(kind: str, *, scheme: str = "light", scripts: bool = True, frame: bool = False) -> Opened:
        path = tmp_path / f"{kind}.html"
        result = {**analyses, **probe_reports}[kind]
        render_report(result).write(path)
        if frame:
            path.write_text(f"<!DOCTYPE html>{render_report(result)._repr_html_()}", encoding="utf-8")
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme=scheme, java_script_enabled=scripts, offline=True
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        opened = Opened(page=page, url=path.as_uri())

        def route(handler: Any) -> None:
            opened.requests.append(handler.request.url)
            if handler.request.url == opened.url:
                handler.continue_()
            else:
                handler.abort()

        page.route("**/*", route)
        page.on("console", lambda m: opened.complaints.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (opened.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(opened.url)
        if scripts and not frame:
            page.locator("html[data-drawn=all]").wait_for()
        return opened

    yield opener
    for context in contexts:
        context.close()


# --- the explorer ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
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
