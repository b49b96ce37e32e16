"""Reports in a real browser with no network. Skipped where there is no Chromium."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interp.reports.html import render_report, write_report
from interp.results import Analysis, ProbeReport

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
    return dict(_synthetic("synthetic_analyses").many())


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

    def opener(
        kind: str, *, width: int = 1280, scheme: str = "light", scripts: bool = True, frame: bool = False
    ) -> Opened:
        path = tmp_path / f"{kind}.html"
        result = {**analyses, **probe_reports}[kind]
        write_report(result, path)
        if frame:
            content = render_report(result).replace("&", "&amp;").replace('"', "&quot;")
            path.write_text(
                f'<!DOCTYPE html><iframe sandbox="allow-scripts" srcdoc="{content}"></iframe>', encoding="utf-8"
            )
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme=scheme, java_script_enabled=scripts, offline=True
        )
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
