"""The report as one HTML file that needs nothing else: no network, no server, no other file.

The page holds its style, its scripts, plotly.js and all data. A content security policy lists the scripts by their hash
and allows no connection, so even a name in a checkpoint that smuggled markup past the escaping could not run or send.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from interp import __version__
from interp.reports.heatmaps import Heatmaps, heatmaps
from interp.reports.numbers import DASH, plain
from interp.reports.page import HERE, Page, environment, policy
from interp.reports.registry import sections_of
from interp.reports.sections.probes import probe_report_sections
from interp.reports.sections.verdict import Head, head
from interp.reports.typeset import typeset
from interp.results import Analysis, Figure, ProbeReport, Section

__all__ = ["render_figures", "render_report"]

Pairs = Sequence[tuple[str, str]]


def render_report(result: Analysis | ProbeReport) -> Page:
    """The report; the same result always gives the same text."""
    facts = (*_facts(result), *_flat(result.provenance))
    title = f"Report on {plain(result.checkpoint.name)}"
    name = result.checkpoint.name
    if isinstance(result, ProbeReport):
        return _page(title, name, "what can be read from the activations", probe_report_sections(result), facts)
    return _page(title, name, "report", sections_of(result), facts, head(result), heatmaps(result))


def render_figures(
    title: str,
    shown: Sequence[Figure],
    *,
    source: str,
    found: Sequence[str] = (),
    parts: Sequence[Section] = (),
    command: str | None = None,
    recorded: Mapping[str, Any] = MappingProxyType({}),
) -> Page:
    """A reproduced paper: sentences on its claims, figures, tables, and where it all comes from. ``recorded`` is the
    provenance of the numbers."""
    claims = [Section(name="found", title="What was found", remarks=tuple(found))] if found else []
    figures = tuple(Section(name=f.name, title=f.short or f.name, figure=f) for f in shown)
    sections = [*claims, Section(name="figures", title="Figures", parts=figures), *parts]
    where = [("command", command)] if command else []
    facts = [("source", source), ("tool", f"interp-probe {__version__}"), *where, *_flat(recorded)]
    return _page(title, title, "reproduce", sections, facts)


def _page(
    title: str,
    name: str,
    tool: str,
    sections: Sequence[Section],
    facts: Pairs,
    verdict: Head | None = None,
    weights: Heatmaps | None = None,
) -> Page:
    from plotly.offline import get_plotlyjs  # slow to import, and only pages need it

    maps = ("heat.js", "heatmaps.js") if weights is not None else ()
    scripts = [get_plotlyjs(), *((HERE / script).read_text(encoding="utf-8") for script in ("page.js", *maps))]
    text = _environment().get_template("report.html").render(
        name=name, tool=tool, sections=sections, facts=facts, verdict=verdict, heatmaps=weights,
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts], policy=policy(scripts),
    )  # fmt: skip
    return Page(text=text, title=title)


@cache
def _environment() -> Environment:
    made = environment()
    made.filters |= {"typeset": typeset, "cell": lambda text: typeset(text, powers=False), "runs": _runs}
    return made


def _runs(parts: Iterable[Section]) -> Iterator[tuple[bool, list[Section]]]:
    """Parts that stand beside each other, and those of full width."""
    for half, run in itertools.groupby(parts, key=lambda part: part.half):
        yield half, list(run)


def _facts(result: Analysis | ProbeReport) -> list[tuple[str, str]]:
    """What was analysed."""
    checkpoint = result.checkpoint
    read = f"{'-' if checkpoint.readout_sign < 0 else '+'}{checkpoint.readout_channel}"
    channels = ", ".join(f"{name} (size {size})" for name, size in checkpoint.tokens)
    return [
        ("file", checkpoint.name),
        ("sha256", checkpoint.sha256),
        ("layout", f"{checkpoint.layout}, {checkpoint.dtype}"),
        ("network", f"layers: {checkpoint.layers}, heads: {checkpoint.heads}, numbers: {checkpoint.parameters}"),
        ("tokens", channels),
        ("attention", f"keys: {checkpoint.keys}, scale: {checkpoint.scale}"),
        ("residual stream", "yes" if checkpoint.residual else "no"),
        ("clip", DASH if checkpoint.clip is None else f"±{checkpoint.clip:g}"),
        ("prediction", f"{read} of {'every token' if checkpoint.keys == 'causal' else 'the query'}"),
        *((f"task: {name}", value) for name, value in _flat(result.task)),
    ]


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for field, value in fields.items():
        name = field.replace("_", " ")
        if isinstance(value, Mapping):
            out += _flat(value, f"{prefix}{name}: ")
        elif isinstance(value, (list, tuple)):
            out.append((f"{prefix}{name}", ", ".join(map(_said, value))))
        else:
            out.append((f"{prefix}{name}", _said(value)))
    return out


def _said(value: Any) -> str:
    """A field of a document for people: no more digits than tell two values apart, and no code."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
