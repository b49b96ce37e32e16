"""What probes read from the activations. A score counts only as far as it beats its controls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.plots import (
    Point,
    axis,
    bounded,
    charted,
    curve,
    heat_map,
    label,
    layer_axis,
    log_axis,
    ordered_series,
    plot,
    spans_decades,
)
from interp.reports.probe_scores import (
    CONTROLS,
    ProbeGroup,
    above,
    above_all,
    beside_controls,
    depth_finding,
    depth_text,
    gap_text,
    growth_finding,
    paired_prompts,
    probe_finding,
    probe_groups,
    published_finding,
    target_words,
    where_text,
)
from interp.reports.registry import GROUPS, section
from interp.reports.tabulate import points, tabulate
from interp.results import Analysis, Panel, ProbeReport, ProbeScore, Section, Series, Skipped, Table

__all__ = ["probe_parts", "probe_report_sections"]

_LOWEST = -0.25  # R^2 below it is drawn at the edge
_GREEK = {"lambda": "λ", "sigma": "σ", "tau": "τ", "Sigma": "Σ"}
_SHORT = ("target", "layers run", "R² [95 %]", "above untrained", "inputs", "shuffled")  # columns in a terminal
_NETWORK = Series(key="network", label="the network", colour="var(--series-1)", symbol="circle")


def _said(score: ProbeScore) -> str:
    """Everything of one score, for the pointer."""
    where = f"{label(score.target)}, {depth_text(score.layer)}, {where_text(score.position, score.kind)}"
    if not is_finite(score.r2):
        return f"{where}: {label(score.reason or 'not scored')}"
    lines = [f"{where}: R² = {interval(score.r2, score.r2_ci)}"]
    if score.paired_prompts is not None:
        lines.append(f"on the {score.paired_prompts} prompts of the controls {interval(*beside_controls(score))}")
    lines += [
        f"{name} {value:z.2f}, above: {gap_text(score, name)}"
        for name in CONTROLS
        if is_finite(value := score.control.get(name))
    ]
    return "<br>".join(lines)


def score_table(scores: Sequence[ProbeScore]) -> Table:
    """With the R^2 that differences belong to in a column of its own, where it is another."""
    few = paired_prompts(scores)
    columns: dict[str, Any] = {
        "target": "target", "layers run": "layer", "token": lambda s: DASH if s.position is None else str(s.position),
        "R² [95 %]": lambda s: interval(s.r2, s.r2_ci) if is_finite(s.r2) or s.reason is None else s.reason,
    }  # fmt: skip
    if few is not None:
        columns[f"on {few} prompts"] = lambda s: interval(*beside_controls(s)) if is_finite(s.r2) else ""
    for name in CONTROLS:
        columns[name] = lambda s, name=name: number(s.control.get(name), 3)
        columns[f"above {name}"] = lambda s, name=name: gap_text(s, name) if name in s.control else DASH
    return tabulate(scores, columns | {"mean squared error": "mse"}, marked=lambda s: above(s, "untrained"))


@section("probes", title="probes", where="probes")
def probes(analysis: Analysis) -> tuple[Section, ...] | Skipped:
    return probe_parts(analysis.probes) or Skipped("no probes were run")


def probe_parts(scores: Sequence[ProbeScore]) -> tuple[Section, ...]:
    """For every kind of probe a map and curves against depth and, where there are several, against position."""
    made: list[Section] = []
    for index, group in enumerate(probe_groups(scores)):
        name, place, several = f"probe-{index}", group.place, len(group.positions) > 1
        if group.protocol != "sound":
            made.append(_published(name, group))
            if not group.compared:
                continue
        made.append(_map(f"{name}-map", group))
        title = f"By depth, from {place}, at {where_text(group.last, group.kind)}"
        made.append(_against_depth(f"{name}-depth", title, group))
        if several:
            made.append(_against_position(f"{name}-position", f"By position, from {place}", group))
    return tuple(made)


def probe_report_sections(report: ProbeReport) -> tuple[Section, ...]:
    """The sections of a page of probes alone."""
    from interp.reports.sections.interventions import intervention_parts, skipped_checks

    groups = {group.name: group for group in GROUPS}
    findings = tuple(probe_finding(group) for group in probe_groups(report.probes) if group.protocol == "sound")
    unscored = dict.fromkeys(f"{s.target}: {s.reason}" for s in report.probes if s.reason is not None)
    notes = (*report.checkpoint.notes, *report.notes, *unscored, *skipped_checks(report))
    columns = {
        "target": "name", "formula": lambda t: _greek(t.formula),
        "expected of linear layers": lambda t: _greek(t.expectation), "source": "source",
    }  # fmt: skip
    targets = tabulate(report.targets, columns)
    read = Section(name="probes", title="Scores, with their controls", short="Scores", parts=probe_parts(report.probes))
    parts = tuple(intervention_parts(report.implicit, report.transplants, report.erasures))
    remarks, explained = findings or ("No probe was run",), groups["probes"].notes
    return (
        Section(name="found", title="What was found", remarks=remarks, notes=explained),
        Section(name="targets", title="What was looked for", short="Targets", table=targets),
        *((read,) if read.parts else ()),
        *((replace(groups["interventions"], parts=parts),) if parts else ()),
        Section(name="notes", title="Notes, and what was skipped", short="Notes", remarks=notes or ("None",)),
    )


def _greek(formula: str) -> str:
    return "".join(_GREEK.get(word, word) for word in re.split(r"(\w+)", formula))


# --- maps -----------------------------------------------------------------------------------------------------------


def _map(name: str, group: ProbeGroup) -> Section:
    several = len(group.positions) > 1
    narrow = len(group.positions) > 4 if several else len(group.layers) > 6  # cells have no room for numbers
    layers, at = ("layers run", [str(layer) for layer in group.layers]), group.scores.get
    if several:
        tokens = ("token", ["query" if p is None else str(p) for p in group.positions])
        height, panels = 110 + 26 * max(len(group.layers), 3), []
        for i, target in enumerate(group.targets):
            rows = [[at((target, layer, p)) for p in group.positions] for layer in group.layers]
            panels.append(_heat(f"{name}-{i}", rows, tokens, layers, narrow, height, title=target, downwards=False))
    else:
        rows = [[at((target, layer, group.last)) for layer in group.layers] for target in group.targets]
        names = ("target", [label(target) for target in group.targets])
        panels = [_heat(name, rows, layers, names, narrow, 100 + 30 * max(len(rows), 2))]
    few = paired_prompts(scores := list(group.scores.values()))
    many = f", {max(score.prompts for score in scores)} in all" if few is not None else ""
    fewer = (
        f" Controls are measured on {few} of the prompts, and differences to them belong to the network's R² on the "
        f"same {few}, which the table has too: from fewer prompts less is read."
    )
    words = target_words(group.targets)
    description = (
        f"R² on prompts that the probe has not seen{many}; 0 layers: the input. "
        f"{'With a dot' if narrow else 'In brackets'}: not clearly above all its controls, so it says nothing of what "
        f"training put there. A blank cell has no score.{fewer if few is not None else ''}"
        f"{f' Targets: {words}.' if words else ''}"
    )
    return charted(
        name, f"Read from {group.place}", probe_finding(group), description, panels, score_table(group.in_order()),
        compact=several, scale=("R²: 0 or below", "1"), short=_by_position(group, "r2") if several else None,
    )  # fmt: skip


def _heat(
    name: str, rows: Sequence[Sequence[ProbeScore | None]], columns: tuple[str, list[str]],
    names: tuple[str, list[str]], narrow: bool, height: int, **more: Any,
) -> Panel:  # fmt: skip
    def cell(score: ProbeScore | None) -> str:
        if score is None or not is_finite(score.r2):
            return ""
        if narrow:
            return "" if above_all(score) else "●"
        text = "<0" if score.r2 < -0.005 else f"{score.r2:z.2f}"
        return label(text if above_all(score) else f"({text})")

    values = [[score.r2 if score is not None and is_finite(score.r2) else None for score in row] for row in rows]
    hover = [["not probed" if score is None else _said(score) for score in row] for row in rows]
    cells = [[cell(score) for score in row] for row in rows]
    more |= {"cells": cells, "cell_size": 9 if narrow else 12, "height": height}
    return heat_map(name, values, hover, columns, names, **more)


def _by_position(group: ProbeGroup, field: Literal["r2", "mse"]) -> Table:
    def cell(score: ProbeScore | None) -> str:
        value = None if score is None else getattr(score, field)
        return number(value, 3) if field == "mse" else f"{value:z.2f}" if is_finite(value) else DASH

    rows = [
        (target, str(layer), *(cell(group.scores.get((target, layer, p))) for p in group.positions))
        for target in group.targets
        for layer in group.layers
    ]
    tokens = ("query" if p is None else f"t={p}" for p in group.positions)
    return Table(header=("target", "layers run", *tokens), rows=tuple(rows))


# --- curves ---------------------------------------------------------------------------------------------------------


def _against_depth(name: str, title: str, group: ProbeGroup) -> Section:
    """At the position with the most context."""
    panels, shown = [], []
    for i, target in enumerate(group.targets):
        if scores := group.along(target, group.layers, (group.last,)):
            depths = layer_axis([s.layer for s in scores], "layers run")
            panels.append(_curves(f"{name}-{i}", target, [(s.layer, s) for s in scores], depths))
        shown += scores
    made = _curve_section(name, title, depth_finding(group), panels, shown, "the layers run; 0 is the input")
    return replace(made, table=score_table(shown).only(*_SHORT))


def _against_position(name: str, title: str, group: ProbeGroup) -> Section:
    """After the last layer."""
    last, panels, shown = group.layers[-1], [], []
    x = axis("token (context length)", zeroline=False)
    for i, target in enumerate(group.targets):
        scores = group.along(target, (last,), group.positions)
        places = [(s.position, s) for s in scores if s.position is not None]
        panels.append(_curves(f"{name}-{i}", target, places, x))
        shown += scores
    against = f"the number of tokens seen, {depth_text(last)}"
    return _curve_section(name, title, growth_finding(group), panels, shown, against)


def _curve_section(
    name: str, title: str, finding: str, panels: Sequence[Panel], shown: Sequence[ProbeScore], against: str
) -> Section:
    few = paired_prompts(shown)
    same = f", all on the same {few} prompts; the first R² of the table is on all prompts" if few is not None else ""
    lost = any(is_finite(r2 := beside_controls(s)[0]) and r2 < 0 for s in shown)
    remarks = " In that difference an R² below 0 counts as 0." if lost else ""
    remarks += f" Triangles at the lower edge are below {_LOWEST}." if min(_scores(shown), default=0) < _LOWEST else ""
    description = (
        f"Held-out R² against {against}, beside the same probe on untrained models of the same shape "
        f"(their mean), on the inputs alone and on targets of other prompts{same}. Bars are 95 % intervals over "
        "sequences. What counts is the difference to the controls; under each title: to untrained models, at the last "
        f"point, with an interval that also covers how much they differ.{remarks}"
    )
    legend = (_NETWORK, *(CONTROLS[key] for key in CONTROLS if any(is_finite(s.control.get(key)) for s in shown)))
    return charted(name, title, finding, description, panels, score_table(shown), legend=legend, compact=True)


def _scores(scores: Sequence[ProbeScore]) -> list[float]:
    return [v for s in scores for v in (beside_controls(s)[0], *s.control.values()) if is_finite(v)]


def _curves(name: str, target: str, places: Sequence[tuple[int, ProbeScore]], x: dict[str, Any]) -> Panel:
    traces: list[dict[str, Any]] = []
    for key, series in CONTROLS.items():
        text = f"{label(target)}, {series.label}"
        seen = [
            Point(at, v, None, f"{text}: {number(v, 3)}; the network above: {gap_text(s, key)}")
            for at, s in places
            if is_finite(v := s.control.get(key))
        ]
        if seen:
            looks: dict[str, Any] = {"dash": series.dash, "marked": key != "inputs", "width": 1.5, "size": 6}
            traces.append(curve(series, seen, floor=_LOWEST, **looks))
    traces.append(curve(_NETWORK, [Point(at, *beside_controls(s), _said(s)) for at, s in places], floor=_LOWEST))
    gap = f"above untrained: {gap_text(places[-1][1], 'untrained')}" if places else ""
    lowest = max(min(_scores([s for _, s in places]), default=0.0), _LOWEST)
    return plot(name, traces, x, bounded("R²", lowest), 220, target, gap)


def _published(name: str, group: ProbeGroup) -> Section:
    """Mean squared errors by position (or layer), as a paper plots them: no controls, no split."""
    places = [p for p in group.positions if p is not None]
    along = len(places) > 1
    legend = ordered_series([depth_text(layer) for layer in group.layers], "layer-") if along else [_NETWORK]
    lines = [((layer,), places) for layer in group.layers] if along else [(group.layers, (group.last,))]
    panels = []
    for i, target in enumerate(group.targets):
        errors = [score.mse for score in group.of(target) if is_finite(score.mse)]
        log, title = spans_decades(errors), "mean squared error"
        traces = [
            curve(series, _errors(group.along(target, *line), "position" if along else "layer"), log=log)
            for series, line in zip(legend, lines, strict=True)
        ]
        x = axis("token (context length)", zeroline=False) if along else layer_axis(group.layers, "layers run")
        y = log_axis(title, errors, dense=False) if log else axis(title, rangemode="tozero")
        panels.append(plot(f"{name}-{i}", traces, x, y, 240, target))
    description = (
        "Scored as the paper scores it, on what was fitted, to compare with its figures; it does not say "
        "whether a network is needed for it. R² in the table is of prompts that the fit has not seen. The notes name "
        "the weaknesses of the protocol."
    )
    title = f"As published ({group.protocol}), from {group.place}: mean squared errors"
    return charted(
        name, title, published_finding(group), description, panels, score_table(group.in_order()),
        legend=legend if along else (), compact=True, short=_by_position(group, "mse"),
    )  # fmt: skip


def _errors(scores: Sequence[ProbeScore], along: str) -> list[Point]:
    def text(s: ProbeScore, _: str) -> str:
        return f"{label(s.target)}, {depth_text(s.layer)}, {where_text(s.position)}: {number(s.mse, 3)}"

    return points(scores, along, "mse", text)
