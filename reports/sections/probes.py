"""What probes read from the activations. A score counts only as far as it beats its controls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from interp.reports.numbers import DASH, interval, is_finite, listed, number
from interp.reports.plots import (
    Point,
    axis,
    bounded,
    curve,
    heat_map,
    label,
    layer_axis,
    layout,
    log_axis,
    ordered_series,
    spans_decades,
)
from interp.reports.registry import GROUPS, section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Figure, Panel, ProbeReport, ProbeScore, Section, Series, Skipped, Table

__all__ = [
    "CONTROLS",
    "ProbeGroup",
    "above_all",
    "above_untrained",
    "depth_text",
    "gap_text",
    "probe_finding",
    "probe_groups",
    "probe_parts",
    "probe_report_sections",
    "published_finding",
    "target_words",
    "where_text",
]

CONTROLS = {
    "untrained": Series(
        key="untrained", label="untrained models", colour="var(--series-2)", symbol="square", dash="dash"
    ),
    "shuffled": Series(key="shuffled", label="shuffled targets", colour="var(--series-4)", symbol="x", dash="dot"),
    "inputs": Series(key="inputs", label="inputs alone", colour="var(--series-3)", symbol="line"),
}
_LOWEST = -0.25  # R^2 below it is drawn at the edge
_GREEK = {"lambda": "λ", "sigma": "σ", "tau": "τ", "Sigma": "Σ"}
_NETWORK = Series(key="network", label="the network", colour="var(--series-1)", symbol="circle")
KINDS = {
    "token": "one token",
    "within-prompt": "the implicit weights of every prompt",
    "gram": "the second moments of the context's tokens",
    "attention-linear": "a learned mean of the context's tokens, linearly",
    "attention-mlp": "a learned mean of the context's tokens, by an MLP",
}
_TARGETS = {
    "w": "the true weights of the prompt", "w-ols": "the least-squares weights",
    "w-ridge": "the weights of ridge regression with the true noise", "alpha": "Xᵀy",
    "noise": "the noise level of the prompt", "label": "the token's label, without noise",
    "current": "the token's own input or state",
    "preconditioned": "the token's input or state times the inverse of the inputs' second moments and the noise",
    "preconditioned-published": "the same by the six steps of arXiv 2309.05858", "next": "the next state",
}  # fmt: skip
_NUMBERED = {
    "chebyshev": "the same by {} steps of Chebyshev iteration",
    "previous": "the state {} before",
}


def target_words(names: Sequence[str]) -> str:
    """What targets are, as far as they are known: ``w, the true weights of the prompt; …``."""
    meanings = []
    for name in names:
        family, _, number_ = name.rpartition("-")
        count = f"{number_} token{'s' * (number_ != '1')}" if family == "previous" else number_
        words = _TARGETS.get(name) or _NUMBERED.get(family, "").format(count)
        meanings += [f"{name}, {words}"] if words else []
    return "; ".join(meanings)


def depth_text(layers: int) -> str:
    """Where in the network activations are, by the layers run: the input, or after so many layers."""
    return "in the input" if layers == 0 else f"after {layers} layer{'s' * (layers > 1)}"


def above(score: ProbeScore, control: str) -> bool:
    """Whether the probe finds more than this control does, clear at 95 %."""
    low = score.selectivity_ci.get(control, (None, None))[0]
    return is_finite(low) and low > 0


def above_untrained(score: ProbeScore) -> bool:
    """Whether the probe finds more than in any model like the untrained ones."""
    return above(score, "untrained")


def above_all(score: ProbeScore) -> bool:
    """Whether it beats every control: what is read is neither in the inputs nor in models that were never trained."""
    return bool(score.control) and all(above(score, control) for control in score.control)


def beside_controls(score: ProbeScore) -> tuple[float | None, tuple[float | None, float | None]]:
    """R^2 on the prompts of the controls, which is what they and the differences belong to."""
    return (score.r2, score.r2_ci) if score.paired_prompts is None else (score.paired_r2, score.paired_r2_ci)


def paired_prompts(scores: Sequence[ProbeScore]) -> int | None:
    """How many prompts the controls were measured on; None when on those of R^2 itself."""
    return next((score.paired_prompts for score in scores if score.paired_prompts is not None), None)


def _hardest(score: ProbeScore) -> str:
    """The control that leaves least."""
    return min(score.control, key=lambda name: score.selectivity.get(name) or 0.0)


def gap_text(score: ProbeScore, control: str) -> str:
    """R^2 minus that of a control, with its interval: ``+0.58 [+0.29, +0.67]``."""
    value = score.selectivity.get(control)
    if not is_finite(value):
        other = score.control.get(control)
        paired, _ = beside_controls(score)
        return f"{paired - other:+.3g}" if is_finite(paired) and is_finite(other) else "not measured"
    low, high = score.selectivity_ci.get(control, (None, None))
    interval = f" [{low:+.2f}, {high:+.2f}]" if is_finite(low) and is_finite(high) else ""
    return f"{value:+.2f}{interval}"


@dataclass(frozen=True, eq=False)
class ProbeGroup:
    """Scores of one protocol that are read from one kind of place."""

    protocol: str
    kind: str
    targets: tuple[str, ...]
    layers: tuple[int, ...]
    positions: tuple[int | None, ...]
    scores: Mapping[tuple[str, int, int | None], ProbeScore]  # target, layer, position

    @property
    def last(self) -> int | None:
        """The position with the most context."""
        return self.positions[-1]

    def of(self, target: str) -> list[ProbeScore]:
        return [score for (name, _, _), score in self.scores.items() if name == target]


def probe_groups(scores: Sequence[ProbeScore]) -> tuple[ProbeGroup, ...]:
    """By protocol (the sound one first) and kind, in the order of the scores."""
    keys = dict.fromkeys((score.protocol, score.kind) for score in scores)
    groups = []
    for protocol, kind in sorted(keys, key=lambda key: key[0] != "sound"):
        entries = [s for s in scores if (s.protocol, s.kind) == (protocol, kind)]
        groups.append(
            ProbeGroup(
                protocol=protocol,
                kind=kind,
                targets=tuple(dict.fromkeys(s.target for s in entries)),
                layers=tuple(sorted({s.layer for s in entries})),
                positions=tuple(sorted({s.position for s in entries}, key=lambda p: (p is None, p or 0))),
                scores={(s.target, s.layer, s.position): s for s in entries},
            )
        )
    return tuple(groups)


def where_text(position: int | None, kind: str = "token") -> str:
    """The place of a score in the prompt."""
    if position is None:
        return "the query" if kind == "token" else "the prompt"
    return f"token {position}"


def _best(group: ProbeGroup, target: str) -> ProbeScore | None:
    """The highest score of a target among those above all their controls."""
    scores = [score for score in group.of(target) if above_all(score) and is_finite(score.r2)]
    return max(scores, key=lambda score: score.r2 or 0.0, default=None)


def probe_finding(group: ProbeGroup) -> str:
    """Which targets are read better than by any control, from where, and by how much."""
    place = KINDS.get(group.kind, group.kind)
    place = place if group.protocol == "sound" else f"{place} (protocol {group.protocol})"
    scored = [target for target in group.targets if any(is_finite(score.r2) for score in group.of(target))]
    if not scored:
        return f"Nothing could be scored from {place}"
    best = {target: score for target in scored if (score := _best(group, target)) is not None}
    if not best:
        compared = any(score.selectivity_ci for score in group.scores.values())
        reason = (
            "no target is read better than by all controls" if compared else "there are no controls to compare with"
        )
        return f"From {place} {reason} ({len(scored)} tried)"
    ranked = sorted(best.items(), key=lambda pair: -(pair[1].selectivity.get(_hardest(pair[1])) or 0.0))
    several = len(group.positions) > 1
    texts = [
        f"{target} (R² {number(beside_controls(score)[0], 2)} {depth_text(score.layer)}"
        f"{f' at {where_text(score.position)}' if several else ''}, "
        f"{gap_text(score, _hardest(score))} above {_control(score)})"
        for target, score in ranked
    ]
    verb = "is" if len(best) == 1 else "are"
    few = paired_prompts(list(best.values()))
    where = f" (R² on the {few} prompts of the controls)" if few is not None else ""
    return (
        f"From {place}, {len(best)} of {len(scored)} targets {verb} read better than by any control{where}: "
        f"{listed(texts)}"
    )


def published_finding(group: ProbeGroup) -> str:
    """The same protocol as in a paper: no controls, so no claim but the errors."""
    text = f"As published ({group.protocol}), from {KINDS.get(group.kind, group.kind)}"
    texts = []
    for target in group.targets:
        scored = [score for score in group.of(target) if is_finite(score.mse)]
        if scored:
            least = min(scored, key=lambda score: score.mse or 0.0)
            where = f", {where_text(least.position)}" if group.kind == "token" else ""
            texts.append(f"{target} {number(least.mse, 2)} {depth_text(least.layer)}{where}")
    return f"{text}: lowest mean squared error of {listed(texts, most=3)}" if texts else f"{text}: nothing was scored"


def _control(score: ProbeScore) -> str:
    name = _hardest(score)
    return CONTROLS[name].label if name in CONTROLS else name


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


def _in_order(group: ProbeGroup, target: str) -> list[ProbeScore]:
    keys = [(target, layer, p) for p in group.positions for layer in group.layers]
    return [group.scores[key] for key in keys if key in group.scores]


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
    return tabulate(scores, columns | {"mean squared error": "mse"}, marked=above_untrained)


@section("probes", title="probes", where="probes")
def probes(analysis: Analysis) -> Iterator[Section | Skipped]:
    yield from probe_parts(analysis.probes) or (Skipped("no probes were run"),)


def probe_parts(scores: Sequence[ProbeScore]) -> tuple[Section, ...]:
    """For every kind of probe a map and curves against depth and, where there are several, against position."""
    made: list[Section] = []
    for index, group in enumerate(probe_groups(scores)):
        name, place = f"probe-{index}", KINDS.get(group.kind, group.kind)
        if group.protocol != "sound":
            figure = _published(name, group)
            title = f"As published ({group.protocol}), from {place}: mean squared errors"
            made.append(Section(name=name, title=title, figure=figure, table=_by_position(group, "mse")))
            if not any(score.selectivity_ci for score in group.scores.values()):
                continue
        figure = _map(f"{name}-map", group)
        made.append(
            Section(
                name=figure.name,
                title=f"Read from {place}",
                figure=figure,
                table=_by_position(group, "r2") if len(group.positions) > 1 else None,
            )
        )
        figure = _against_depth(f"{name}-depth", group)
        short = figure.table.only("target", "layers run", "R² [95 %]", "above untrained", "inputs", "shuffled")
        title = f"By depth, from {place}, at {where_text(group.last, group.kind)}"
        made.append(Section(name=figure.name, title=title, figure=figure, table=short))
        if len(group.positions) > 1:
            figure = _against_position(f"{name}-position", group)
            made.append(Section(name=figure.name, title=f"By position, from {place}", figure=figure))
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
    return (
        Section(
            name="found",
            title="What was found",
            remarks=findings or ("No probe was run",),
            notes=groups["probes"].notes,
        ),
        Section(name="targets", title="What was looked for", short="Targets", table=targets),
        *((read,) if read.parts else ()),
        *((replace(groups["interventions"], parts=parts),) if parts else ()),
        Section(name="notes", title="Notes, and what was skipped", short="Notes", remarks=notes or ("None",)),
    )


def _greek(formula: str) -> str:
    return "".join(_GREEK.get(word, word) for word in re.split(r"(\w+)", formula))


# --- maps -----------------------------------------------------------------------------------------------------------


def _map(name: str, group: ProbeGroup) -> Figure:
    several = len(group.positions) > 1
    narrow = len(group.positions) > 4 if several else len(group.layers) > 6  # cells have no room for numbers
    layers = [str(layer) for layer in group.layers]
    if several:
        tokens = ("token", ["query" if p is None else str(p) for p in group.positions])
        panels = [
            _heat(
                f"{name}-{i}",
                [[group.scores.get((target, layer, p)) for p in group.positions] for layer in group.layers],
                tokens,
                ("layers run", layers),
                narrow,
                title=target,
                height=110 + 26 * max(len(layers), 3),
                downwards=False,
            )
            for i, target in enumerate(group.targets)
        ]
    else:
        rows = [[group.scores.get((target, layer, group.last)) for layer in group.layers] for target in group.targets]
        names = ("target", [label(target) for target in group.targets])
        panels = [_heat(name, rows, ("layers run", layers), names, narrow, height=100 + 30 * max(len(rows), 2))]
    few = paired_prompts(scores := list(group.scores.values()))
    many = f", {max(score.prompts for score in scores)} in all" if few is not None else ""
    fewer = (
        f" Controls are measured on {few} of the prompts, and differences to them belong to the network's R² on the "
        f"same {few}, which the table has too: from fewer prompts less is read."
    )
    words = target_words(group.targets)
    return Figure(
        name=name,
        finding=probe_finding(group),
        description=f"R² on prompts that the probe has not seen{many}; 0 layers: the input. "
        f"{'With a dot' if narrow else 'In brackets'}: not clearly above all its controls, so it says nothing of what "
        f"training put there. A blank cell has no score.{fewer if few is not None else ''}"
        f"{f' Targets: {words}.' if words else ''}",
        panels=tuple(panels),
        legend=(),
        table=score_table([score for target in group.targets for score in _in_order(group, target)]),
        compact=several,
        scale=("R²: 0 or below", "1"),
    )


def _heat(
    name: str,
    rows: Sequence[Sequence[ProbeScore | None]],
    columns: tuple[str, list[str]],
    names: tuple[str, list[str]],
    narrow: bool,
    **more: Any,
) -> Panel:
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
    return heat_map(name, values, hover, columns, names, cells=cells, cell_size=9 if narrow else 12, **more)


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


def _against_depth(name: str, group: ProbeGroup) -> Figure:
    """At the position with the most context."""
    panels, shown = [], []
    for i, target in enumerate(group.targets):
        scores = [s for layer in group.layers if (s := group.scores.get((target, layer, group.last))) is not None]
        if scores:
            depths = layer_axis([s.layer for s in scores], "layers run")
            panels.append(_curves(f"{name}-{i}", target, [(s.layer, s) for s in scores], depths))
        shown += scores
    finding = f"By depth, at {where_text(group.last, group.kind)}: {_above_all(group)}"
    return _curve_figure(name, finding, panels, shown, "the layers run; 0 is the input")


def _against_position(name: str, group: ProbeGroup) -> Figure:
    """After the last layer."""
    last, panels, shown = group.layers[-1], [], []
    x = axis("token (context length)", zeroline=False)
    for i, target in enumerate(group.targets):
        scores = [s for p in group.positions if (s := group.scores.get((target, last, p))) is not None]
        places = [(s.position, s) for s in scores if s.position is not None]
        panels.append(_curves(f"{name}-{i}", target, places, x))
        shown += scores
    return _curve_figure(name, _growth(group), panels, shown, f"the number of tokens seen, {depth_text(last)}")


def _curve_figure(
    name: str, finding: str, panels: Sequence[Panel], shown: Sequence[ProbeScore], against: str
) -> Figure:
    few = paired_prompts(shown)
    same = f", all on the same {few} prompts; the first R² of the table is on all prompts" if few is not None else ""
    lost = any(is_finite(r2 := beside_controls(s)[0]) and r2 < 0 for s in shown)
    remarks = " In that difference an R² below 0 counts as 0." if lost else ""
    remarks += f" Triangles at the lower edge are below {_LOWEST}." if min(_scores(shown), default=0) < _LOWEST else ""
    return Figure(
        name=name,
        finding=finding,
        description=f"Held-out R² against {against}, beside the same probe on untrained models of the same shape "
        f"(their mean), on the inputs alone and on targets of other prompts{same}. Bars are 95 % intervals over "
        "sequences. What counts is the difference to the controls; under each title: to untrained models, at the last "
        f"point, with an interval that also covers how much they differ.{remarks}",
        panels=tuple(panels),
        legend=(_NETWORK, *(CONTROLS[key] for key in CONTROLS if any(is_finite(s.control.get(key)) for s in shown))),
        table=score_table(shown),
        compact=True,
    )


def _scores(scores: Sequence[ProbeScore]) -> list[float]:
    return [v for s in scores for v in (beside_controls(s)[0], *s.control.values()) if is_finite(v)]


def _curves(name: str, target: str, places: Sequence[tuple[int, ProbeScore]], x: dict[str, Any]) -> Panel:
    traces: list[dict[str, Any]] = []
    for key, series in CONTROLS.items():
        text = f"{label(target)}, {series.label}"
        points = [
            Point(at, v, None, f"{text}: {number(v, 3)}; the network above: {gap_text(s, key)}")
            for at, s in places
            if is_finite(v := s.control.get(key))
        ]
        if points:
            looks: dict[str, Any] = {"dash": series.dash, "marked": key != "inputs", "width": 1.5, "size": 6}
            traces.append(curve(series, points, floor=_LOWEST, **looks))
    points = [Point(at, r2, ends, _said(s)) for at, s in places for r2, ends in [beside_controls(s)] if is_finite(r2)]
    traces.append(curve(_NETWORK, points, floor=_LOWEST))
    gap = f"above untrained: {gap_text(places[-1][1], 'untrained')}" if places else ""
    lowest = max(min(_scores([s for _, s in places]), default=0.0), _LOWEST)
    plot = layout(x, bounded("R²", lowest))
    return Panel(name=name, title=target, subtitle=gap, data=traces, layout=plot, height=220)


def _above_all(group: ProbeGroup) -> str:
    """Which targets beat all three controls in the last layer."""
    last = group.layers[-1]
    scores = [group.scores.get((target, last, group.last)) for target in group.targets]
    scores = [s for s in scores if s is not None and is_finite(s.r2)]
    beating = [s.target for s in scores if above_all(s)]
    if not scores:
        return f"{depth_text(last)} there are no scores"
    if not beating:
        return f"{depth_text(last)} no target beats all controls"
    verb = "beats" if len(beating) == 1 else "beat"
    return f"{depth_text(last)}, {len(beating)} of {len(scores)} targets {verb} all controls ({', '.join(beating)})"


def _growth(group: ProbeGroup) -> str:
    """Which targets are read better with more context: intervals of the first and last position apart."""
    last, places = group.layers[-1], [p for p in group.positions if p is not None]
    grown, fallen = [], []
    for target in group.targets:
        ends = [group.scores.get((target, last, p)) for p in (places[0], places[-1])]
        bounds = [beside_controls(s)[1] for s in ends if s is not None]
        if len(bounds) < 2 or not all(is_finite(v) for pair in bounds for v in pair):
            continue
        (low_first, high_first), (low_last, high_last) = bounds
        if is_finite(low_last) and is_finite(high_first) and low_last > high_first:
            grown.append(target)
        elif is_finite(high_last) and is_finite(low_first) and high_last < low_first:
            fallen.append(target)
    parts = [f"better for {listed(grown)}"] if grown else []
    parts += [f"worse for {listed(fallen)}"] if fallen else []
    change = ", ".join(parts) if parts else "clearly neither better nor worse for any target"
    return f"From token {places[0]} to token {places[-1]} probes {depth_text(last)} get {change}"


# --- as published ---------------------------------------------------------------------------------------------------


def _published(name: str, group: ProbeGroup) -> Figure:
    """Mean squared errors by position (or layer), as a paper plots them: no controls, no split."""
    places = [p for p in group.positions if p is not None]
    along = len(places) > 1
    legend = ordered_series([depth_text(layer) for layer in group.layers], "layer-") if along else [_NETWORK]
    panels = []
    for i, target in enumerate(group.targets):
        errors = [score.mse for score in group.of(target) if is_finite(score.mse)]
        log = spans_decades(errors)
        if along:
            keys = [[(p, (target, layer, p)) for p in places] for layer in group.layers]
        else:
            keys = [[(layer, (target, layer, group.last)) for layer in group.layers]]
        traces = [curve(series, _errors(group, line), log=log) for series, line in zip(legend, keys, strict=True)]
        x = axis("token (context length)", zeroline=False) if along else layer_axis(group.layers, "layers run")
        title = "mean squared error"
        y = log_axis(title, errors, dense=False) if log else axis(title, rangemode="tozero")
        panels.append(Panel(name=f"{name}-{i}", title=target, data=traces, layout=layout(x, y), height=240))
    return Figure(
        name=name,
        finding=published_finding(group),
        description="Scored as the paper scores it, on what was fitted, to compare with its figures; it does not say "
        "whether a network is needed for it. R² in the table is of prompts that the fit has not seen. The notes name "
        "the weaknesses of the protocol.",
        panels=tuple(panels),
        legend=tuple(legend) if along else (),
        table=score_table([score for target in group.targets for score in _in_order(group, target)]),
        compact=True,
    )


def _errors(group: ProbeGroup, places: Sequence[tuple[int, tuple[str, int, int | None]]]) -> list[Point]:
    scores = [(at, s) for at, key in places if (s := group.scores.get(key)) is not None]
    return [
        Point(
            at, s.mse, None, f"{label(s.target)}, {depth_text(s.layer)}, {where_text(s.position)}: {number(s.mse, 3)}"
        )
        for at, s in scores
        if is_finite(s.mse)
    ]
