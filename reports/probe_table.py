"""Probe scores in a terminal: per place that is read, targets by layer, each score beside what controls leave of it.

Where many positions of a sequence were probed, the table is of the last one, and a map of R² shows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.text import Text

from interp.reports.causal_findings import (
    erasure_finding,
    linear,
    linearity_finding,
    skipped_checks,
    transplant_finding,
)
from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.probe_findings import above_untrained, beside_controls, paired_prompts
from interp.reports.terminal_layout import Columns, items, line, section, show
from interp.results import ProbeReport, ProbeScore

__all__ = ["print_probes", "render_probes"]

_TITLES = {
    "within-prompt": "Read from the implicit weights of every prompt (within-prompt)",
    "gram": "Read from the second moments of the context's tokens (gram)",
}
_NOTES = (
    "R² on prompts that the probe has not seen, with a 95 % interval over sequences",
    "layers run: 0 is the input, 1 what the first layer leaves (layer 0 in the tables of coefficients)",
    "above untrained: R² minus that of the same probe on untrained models of the same shape; the interval also covers "
    "how much untrained models differ, so that it holds 0 for one of them",
    "inputs and shuffled: R² of the same probe in the input, and on the targets of other prompts",
    "paired: the R² on the prompts of the controls, where those are fewer; differences belong to it. In the difference "
    "to untrained models an R² below 0 counts as 0",
    "transplant: effect 1 and error 0 when predictions follow; random: other weights as far away, whose error stays",
    "erased: the rise of the loss in units of the mean square of the answer, and the R² of a probe before and after; "
    "random: as many (rank) random directions",
    "changed: in how many prompts the hook changed the tokens",
)


def print_probes(report: ProbeReport, console: Console) -> None:
    """Print the table."""
    show(render_probes(report), console)


def render_probes(report: ProbeReport) -> RenderableType:
    """The whole table as one rich renderable."""
    parts: list[RenderableType] = [line(f"{report.checkpoint.name}: what its activations hold", "bold")]
    sound = [score for score in report.probes if score.protocol == "sound"]
    for kind in dict.fromkeys(score.kind for score in sound):
        own = [score for score in sound if score.kind == kind]
        positions = list(dict.fromkeys(score.position for score in own))
        if len(positions) > 1:
            parts += section(f"R² by position ({kind})", "bold: somewhere above untrained models", _map(own, "r2"))
        last = positions[-1]
        parts += section(_title(kind, last), "", _table([score for score in own if score.position == last]))
    for protocol in dict.fromkeys(s.protocol for s in report.probes if s.protocol != "sound"):
        published = [score for score in report.probes if score.protocol == protocol]
        for kind in dict.fromkeys(score.kind for score in published):
            own = [score for score in published if score.kind == kind]
            name = protocol if kind == "token" else f"{protocol}, {kind}"
            parts += section(f"Mean squared error as published ({name})", "", _map(own, "mse"))
            if any(score.selectivity_ci for score in own):
                parts += section(f"The same probes on prompts that they have not seen ({name})", "", _table(own))
    if report.implicit:
        parts += section(
            "How linear the implicit model of a prompt is", linearity_finding(report.implicit), *_fits(report)
        )
    if any(row.reason is None for row in report.transplants):
        title = "Implicit weights of another prompt put in place (transplant)"
        parts += section(title, transplant_finding(report.transplants), _transplants(report))
    if any(row.reason is None for row in report.erasures):
        position = report.erasures[0].position
        place = "the query" if position is None else f"position {position}"
        title = f"Targets erased from one token ({place})"
        parts += section(title, erasure_finding(report.erasures), _erasures(report))
    unscored = dict.fromkeys(f"{s.target}: {s.reason}" for s in report.probes if s.reason is not None)
    skipped = skipped_checks(report)
    expected = [f"{t.name} = {t.formula}: expected {t.expectation}" for t in report.targets]
    parts += section("Targets", "", items(expected))
    parts += section("Notes", "", items([*_NOTES, *report.notes, *unscored, *skipped]))
    known = report.provenance
    facts = [f"{name} {known[name]}" for name in ("prompts", "seed") if known.get(name) is not None]
    facts += [str(known[name]) for name in ("tool", "time", "command") if known.get(name) is not None]
    return Group(*parts, Text(), line(" · ".join(facts), "dim"))


def _fits(report: ProbeReport) -> list[RenderableType]:
    """A table, unless every figure is 1."""
    if linear(report.implicit):
        return []
    table = Columns(("layers run", "left"), ("tokens before", "left"), ("R² [95 %]", "left"))
    for fit in report.implicit:
        before = "all" if fit.position is None else str(fit.position)
        table.add(str(fit.layer), before, fit.reason or interval(fit.linearity_r2, fit.linearity_r2_ci))
    return [table]


def _transplants(report: ProbeReport) -> RenderableType:
    """What was put in place, and how far predictions followed: effect 1 and error 0 when they do."""
    headers = ("layers", "what", "effect [95 %]", "error", "random [95 %]", "its error", "changed")
    table = Columns(*((header, "left") for header in headers))
    for row in report.transplants:
        if row.reason is not None:
            continue
        table.add(
            str(row.layer), row.kind, interval(row.effect, row.effect_ci), _size(row.error),
            interval(row.random, row.random_ci), _size(row.random_error), f"{row.fired}/{row.prompts}",
        )  # fmt: skip
    return table


def _erasures(report: ProbeReport) -> RenderableType:
    headers = ("layers", "loss gained [95 %]", "random [95 %]", "R²", "after", "rank", "changed")
    table = Columns(*((header, "left") for header in headers))
    before = None
    for row in report.erasures:
        if row.reason is not None:
            continue
        if row.target != before:
            table.add("", row.target, "", "", "", "", "")
        before = row.target
        table.add(
            str(row.layer), interval(row.effect, row.effect_ci), interval(row.random, row.random_ci), _share(row.r2),
            _share(row.r2_erased), str(row.rank), f"{row.fired}/{row.prompts}",
        )  # fmt: skip
    return table


def _size(value: float | None) -> str:
    return f"{value:.1g}" if is_finite(value) else DASH


def _title(kind: str, position: int | None) -> str:
    if kind != "token":
        return _TITLES.get(kind, kind)
    return f"Read from one token ({'the query' if position is None else f'position {position}'})"


def _table(scores: Sequence[ProbeScore]) -> RenderableType:
    paired = ("paired",) if paired_prompts(scores) is not None else ()
    headers = ("layers" if paired else "layers run", "R² [95 %]", *paired, "above untrained", "inputs", "shuffled")
    table = Columns(*((header, "left") for header in headers))
    before = None
    for score in _by_target(scores):
        if score.target != before:
            table.add("", score.target, *[""] * (len(headers) - 2))
        gap = _difference(score.selectivity.get("untrained"), score.selectivity_ci.get("untrained", (None, None)))
        controls = (_share(score.control.get(name)) for name in ("inputs", "shuffled"))
        style = "bold" if above_untrained(score) else ""
        own = [_share(beside_controls(score)[0])] if paired else []
        table.add(str(score.layer), interval(score.r2, score.r2_ci), *own, gap, *controls, style=style)
        before = score.target
    return table


def _map(scores: Sequence[ProbeScore], figure: Literal["r2", "mse"]) -> RenderableType:
    """One figure, with positions as columns."""
    positions = list(dict.fromkeys(score.position for score in scores))
    found = {(s.target, s.layer, s.position): s for s in scores}
    table = Columns(
        ("target", "left"), ("layers run", "left"), *(("query" if p is None else f"t={p}", "right") for p in positions)
    )
    before = None
    for target, layer in dict.fromkeys((s.target, s.layer) for s in _by_target(scores)):
        row = [found.get((target, layer, position)) for position in positions]
        bold = any(score is not None and above_untrained(score) for score in row)
        show_one = _share if figure == "r2" else number
        cells = [show_one(None if score is None else getattr(score, figure)) for score in row]
        table.add(target if target != before else "", str(layer), *cells, style="bold" if bold else "")
        before = target
    return table


def _by_target(scores: Sequence[ProbeScore]) -> list[ProbeScore]:
    order = {target: at for at, target in enumerate(dict.fromkeys(score.target for score in scores))}
    return sorted(scores, key=lambda score: (order[score.target], score.layer))


def _difference(value: float | None, bounds: tuple[float | None, float | None]) -> str:
    if not (is_finite(value) and is_finite(bounds[0]) and is_finite(bounds[1])):
        return DASH
    return f"{value:+z.2f} [{bounds[0]:+z.2f}, {bounds[1]:+z.2f}]"


def _share(value: float | None) -> str:
    return f"{value:z.3f}" if is_finite(value) else DASH
