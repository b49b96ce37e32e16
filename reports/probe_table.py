"""Probe scores in a terminal: per place that is read, targets by layer, each score beside what controls leave of it.

Where many positions of a sequence were probed, the table is of the last one, and a map of R² shows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.text import Text

from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.probe_findings import above_untrained
from interp.reports.terminal_layout import Columns, items, line, section, show
from interp.results import ProbeReport, ProbeScore

__all__ = ["print_probes", "render_probes"]

_TITLES = {
    "within-prompt": "Read from the implicit weights of every prompt (within-prompt)",
    "gram": "Read from the second moments of the context's tokens (gram)",
}
_NOTES = (
    "R² on prompts that the probe has not seen, with a 95 % interval over sequences; layer 0 is the input",
    "above untrained: R² minus that of the same probe on untrained models of the same shape; the interval also covers "
    "how much untrained models differ, so that it holds 0 for one of them",
    "inputs and shuffled: R² of the same probe at layer 0, and on the targets of other prompts",
    "transplant: effect 1 and error 0 when predictions follow; own: the prompt's own weights, which change nothing; "
    "random: other weights as far away, whose error stays",
    "erased: R² of a probe before and after, and the rise of the loss in units of the mean square of the answer; "
    "random: as many random directions",
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
        parts += section(f"Mean squared error as published ({protocol})", "", _map(published, "mse"))
    if any(row.reason is None for row in report.transplants):
        parts += section("Implicit weights of another prompt put in place (transplant)", "", _transplants(report))
    if any(row.reason is None for row in report.erasures):
        position = report.erasures[0].position
        place = "the query" if position is None else f"position {position}"
        parts += section(f"Targets erased from one token ({place})", "", _erasures(report))
    unscored = dict.fromkeys(f"{s.target}: {s.reason}" for s in report.probes if s.reason is not None)
    skipped = _skipped(report)
    expected = [f"{t.name} = {t.formula}: expected {t.expectation}" for t in report.targets]
    parts += section("Targets", "", items(expected))
    parts += section("Notes", "", items([*_NOTES, *report.notes, *unscored, *skipped]))
    known = report.provenance
    facts = [f"{name} {known[name]}" for name in ("prompts", "seed") if known.get(name) is not None]
    facts += [str(known[name]) for name in ("tool", "time", "command") if known.get(name) is not None]
    return Group(*parts, Text(), line(" · ".join(facts), "dim"))


def _transplants(report: ProbeReport) -> RenderableType:
    """What was put in place, and how far predictions followed: effect 1 and error 0 when they do."""
    headers = ("layer", "what", "effect [95 %]", "error", "own", "random [95 %]", "its error", "fired")
    table = Columns(*((header, "left") for header in headers))
    for row in report.transplants:
        if row.reason is not None:
            continue
        table.add(
            str(row.layer), row.kind, interval(row.effect, row.effect_ci), _size(row.error), _size(row.own),
            interval(row.random, row.random_ci), _size(row.random_error), f"{row.fired}/{row.prompts}",
        )  # fmt: skip
    return table


def _erasures(report: ProbeReport) -> RenderableType:
    headers = ("layer", "directions", "R²", "after", "loss gained [95 %]", "random [95 %]", "fired")
    table = Columns(*((header, "left") for header in headers))
    before = None
    for row in report.erasures:
        if row.reason is not None:
            continue
        if row.target != before:
            table.add("", row.target, "", "", "", "", "")
        before = row.target
        table.add(
            str(row.layer), str(row.rank), _share(row.r2), _share(row.r2_erased), interval(row.effect, row.effect_ci),
            interval(row.random, row.random_ci), f"{row.fired}/{row.prompts}",
        )  # fmt: skip
    return table


def _skipped(report: ProbeReport) -> list[str]:
    """The interventions that were not made, those of the same reason together."""
    layers: dict[tuple[str, str], list[str]] = {}
    for row in report.transplants:
        if row.reason is not None:
            layers.setdefault((f"transplant of {row.kind}", row.reason), []).append(str(row.layer))
    for row in report.erasures:
        if row.reason is not None:
            layers.setdefault((f"erasure of {row.target}", row.reason), []).append(str(row.layer))
    return [f"{what} after layer {', '.join(found)}: {reason}" for (what, reason), found in layers.items()]


def _size(value: float | None) -> str:
    return f"{value:.1g}" if is_finite(value) else DASH


def _title(kind: str, position: int | None) -> str:
    if kind != "token":
        return _TITLES.get(kind, kind)
    return f"Read from one token ({'the query' if position is None else f'position {position}'})"


def _table(scores: Sequence[ProbeScore]) -> RenderableType:
    headers = ("layer", "R² [95 %]", "above untrained", "inputs", "shuffled")
    table = Columns(*((header, "left") for header in headers))
    before = None
    for score in _by_target(scores):
        if score.target != before:
            table.add("", score.target, "", "", "")
        gap = _difference(score.selectivity.get("untrained"), score.selectivity_ci.get("untrained", (None, None)))
        controls = (_share(score.control.get(name)) for name in ("inputs", "shuffled"))
        style = "bold" if above_untrained(score) else ""
        table.add(str(score.layer), interval(score.r2, score.r2_ci), gap, *controls, style=style)
        before = score.target
    return table


def _map(scores: Sequence[ProbeScore], figure: Literal["r2", "mse"]) -> RenderableType:
    """One figure, with positions as columns."""
    positions = list(dict.fromkeys(score.position for score in scores))
    found = {(s.target, s.layer, s.position): s for s in scores}
    table = Columns(
        ("target", "left"), ("layer", "left"), *(("query" if p is None else f"t={p}", "right") for p in positions)
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
