"""The report as one HTML file that needs nothing else: no network, no server, no other file.

The page holds its style, its scripts, plotly.js and all data. A content security policy lists the scripts by their hash
and allows no connection, so even a name in a checkpoint that smuggled markup past the escaping could not run or send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from interp import __version__
from interp.reports.heatmaps import heatmaps
from interp.reports.numbers import DASH, listed, plain
from interp.reports.page import Page, assets, rendered
from interp.reports.registry import sections_of
from interp.reports.sections.probes import probe_report_sections
from interp.reports.sections.verdict import head
from interp.results import Analysis, Figure, ProbeReport, Section

__all__ = ["render_figures", "render_report"]


def render_report(result: Analysis | ProbeReport) -> Page:
    """The report; the same result always gives the same text."""
    name, facts = result.checkpoint.name, (*_facts(result), *_flat(result.provenance))
    title, more = f"Report on {plain(name)}", {"name": name, "facts": facts}
    if isinstance(result, ProbeReport):
        return _page(title, probe_report_sections(result), tool="what can be read from the activations", **more)
    verdict, maps = head(result), heatmaps(result)
    return _page(title, sections_of(result), tool="report", verdict=verdict, heatmaps=maps, **more)


def render_figures(
    title: str, shown: Sequence[Figure], *, source: str, found: Sequence[str] = (), parts: Sequence[Section] = (),
    command: str | None = None, recorded: Mapping[str, Any] = MappingProxyType({}),
) -> Page:  # fmt: skip
    """A reproduced paper: sentences on its claims, figures, tables, and where it all comes from. ``recorded`` is the
    provenance of the numbers."""
    claims = [Section(name="found", title="What was found", remarks=tuple(found))] if found else []
    figures = tuple(Section(name=f.name, title=f.short or f.name, figure=f) for f in shown)
    sections = [*claims, Section(name="figures", title="Figures", parts=figures), *parts]
    where = [("command", command)] if command else []
    facts = [("source", source), ("tool", f"interp-probe {__version__}"), *where, *_flat(recorded)]
    return _page(title, sections, name=title, tool="reproduce", facts=facts)


def _page(title: str, sections: Sequence[Section], **more: Any) -> Page:
    maps = ("heat.js", "heatmaps.js") if "heatmaps" in more else ()
    scripts, style = assets(("page.js", *maps), ("report.css",))
    values = {"sections": sections, "verdict": None, "heatmaps": None} | more
    return Page(text=rendered("report.html", scripts, style, **values), title=title)


def _facts(result: Analysis | ProbeReport) -> list[tuple[str, str]]:
    """What was analysed."""
    checkpoint = result.checkpoint
    read = f"{'-' if checkpoint.readout_sign < 0 else '+'}{checkpoint.readout_channel}"
    unused = [f"{plain(name)} ({looks_like})" for name, looks_like in checkpoint.unused.items()]
    return [
        ("file", checkpoint.name),
        ("sha256", checkpoint.sha256),
        ("layout", f"{checkpoint.layout}, {checkpoint.dtype}"),
        ("network", f"layers: {checkpoint.layers}, heads: {checkpoint.heads}, numbers: {checkpoint.parameters}"),
        ("tokens", ", ".join(f"{name} (size {size})" for name, size in checkpoint.tokens)),
        ("attention", f"keys: {checkpoint.keys}, scale: {checkpoint.scale}"),
        ("residual stream", _said(checkpoint.residual)),
        ("clip", DASH if checkpoint.clip is None else f"±{checkpoint.clip:g}"),
        ("prediction", f"{read} of {'every token' if checkpoint.keys == 'causal' else 'the query'}"),
        *([("left out of the file", listed(unused, 12))] if unused else []),
        *((f"task: {name}", value) for name, value in _flat(result.task)),
    ]


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for field, value in fields.items():
        name = prefix + field.replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        else:
            yield name, ", ".join(map(_said, value)) if isinstance(value, (list, tuple)) else _said(value)


def _said(value: Any) -> str:
    """A field of a document for people: no more digits than tell two values apart, and no code."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
