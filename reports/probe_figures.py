"""Figures of probe scores: maps over layers and positions, and curves beside their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp.reports.findings import listed
from interp.reports.numbers import is_finite, number
from interp.reports.plots import Point, axis, curve, label, layer_axis, layout, log_axis, ordered_series, spans_decades
from interp.reports.probe_findings import (
    ProbeGroup,
    above_all,
    beside_controls,
    depth_text,
    gap_text,
    paired_prompts,
    probe_finding,
    probe_groups,
    published_finding,
    target_words,
    where_text,
)
from interp.reports.probe_rows import in_order, said, score_table
from interp.results import Figure, Panel, ProbeScore, Series

__all__ = ["probe_figures"]

_NETWORK = Series(key="network", label="the network", colour="var(--series-1)", symbol="circle")
_CONTROLS = {
    "untrained": (Series(key="untrained", label="untrained models", colour="var(--series-2)", symbol="square"), "dash"),
    "inputs": (Series(key="inputs", label="inputs alone", colour="var(--series-3)", symbol="line"), "solid"),
    "shuffled": (Series(key="shuffled", label="shuffled targets", colour="var(--series-4)", symbol="x"), "dot"),
}
_LOWEST = -0.25  # R^2 below it is drawn at the edge


def probe_figures(scores: Sequence[ProbeScore]) -> tuple[Figure, ...]:
    """For every kind of probe a map and curves against depth and, where there are several, against position."""
    made: list[Figure] = []
    for number_, group in enumerate(probe_groups(scores)):
        name = f"probe-{number_}"
        if group.protocol != "sound":
            made.append(_published(name, group))
            if not any(score.selectivity_ci for score in group.scores.values()):
                continue
        made += [_map(f"{name}-map", group), _against_depth(f"{name}-depth", group)]
        if len(group.positions) > 1:
            made.append(_against_position(f"{name}-position", group))
    return tuple(made)


# --- maps -----------------------------------------------------------------------------------------------------------


def _map(name: str, group: ProbeGroup) -> Figure:
    several = len(group.positions) > 1
    if several:
        panels = tuple(_target_map(f"{name}-{i}", group, target) for i, target in enumerate(group.targets))
    else:
        panels = (_whole_map(name, group),)
    doubt = "With a dot" if _narrow(group) else "In brackets"
    few = paired_prompts(scores := list(group.scores.values()))
    many = f", {max(score.prompts for score in scores)} in all" if few is not None else ""
    words = target_words(group.targets)
    return Figure(
        name=name,
        finding=probe_finding(group),
        description=f"R² on prompts that the probe has not seen{many}; 0 layers: the input. "
        f"{doubt}: not clearly above all its controls, so it says nothing of what training put there. "
        f"A blank cell has no score.{_on_fewer(few)}{f' Targets: {words}.' if words else ''}",
        panels=panels,
        legend=(),
        table=score_table([score for target in group.targets for score in in_order(group, target)]),
        compact=several,
        scale=("R²: 0 or below", "1"),
    )


def _on_fewer(prompts: int | None) -> str:
    """Which prompts the controls were measured on, where they are fewer than those of R^2."""
    if prompts is None:
        return ""
    return (
        f" Controls are measured on {prompts} of the prompts, and differences to them belong to the network's R² on "
        f"the same {prompts}, which the table has too: from fewer prompts less is read."
    )


def _narrow(group: ProbeGroup) -> bool:
    """Whether the cells of its maps are too narrow for numbers."""
    return len(group.positions) > 4 if len(group.positions) > 1 else len(group.layers) > 6


def _heat(
    rows: list[list[ProbeScore | None]], columns: Sequence[str], names: Sequence[str], short: bool
) -> dict[str, Any]:
    def cell(score: ProbeScore | None) -> str:
        if score is None or not is_finite(score.r2):
            return ""
        if short:
            return "" if above_all(score) else "●"
        text = "<0" if score.r2 < -0.005 else f"{score.r2:z.2f}"
        return label(text if above_all(score) else f"({text})")

    return {
        "type": "heatmap",
        "z": [[score.r2 if score is not None and is_finite(score.r2) else None for score in row] for row in rows],
        "x": list(range(len(columns))),
        "y": list(range(len(names))),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "var(--shade)"], [1, "var(--heat)"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "text": [[cell(score) for score in row] for row in rows],
        "texttemplate": "%{text}",
        "textfont": {"color": "var(--ink)", "size": 9 if short else 12},
        "customdata": [["not probed" if score is None else said(score) for score in row] for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": True,
    }


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }


def _whole_map(name: str, group: ProbeGroup) -> Panel:
    """Targets by layers, at the one place that was probed."""
    rows = [[group.scores.get((target, layer, group.last)) for layer in group.layers] for target in group.targets]
    layers = [str(layer) for layer in group.layers]
    names = [label(target) for target in group.targets]
    data = _heat(rows, layers, names, short=_narrow(group))
    y = axis("target", **_ticks(names)) | {"range": [len(names) - 0.5, -0.5]}
    height = 100 + 30 * max(len(names), 2)
    return Panel(
        name=name, title="", data=[data], layout=layout(axis("layers run", **_ticks(layers)), y), height=height
    )


def _target_map(name: str, group: ProbeGroup, target: str) -> Panel:
    """Layers by positions, for one target."""
    rows = [[group.scores.get((target, layer, p)) for p in group.positions] for layer in group.layers]
    tokens = ["query" if p is None else str(p) for p in group.positions]
    layers = [str(layer) for layer in group.layers]
    data = _heat(rows, tokens, layers, short=_narrow(group))
    plot = layout(axis("token", **_ticks(tokens)), axis("layers run", **_ticks(layers)))
    return Panel(name=name, title=target, data=[data], layout=plot, height=110 + 26 * max(len(layers), 3))


# --- curves ---------------------------------------------------------------------------------------------------------


def _against_depth(name: str, group: ProbeGroup) -> Figure:
    where = where_text(group.last, group.kind)
    panels = []
    for i, target in enumerate(group.targets):
        scores = [s for layer in group.layers if (s := group.scores.get((target, layer, group.last))) is not None]
        if not scores:
            continue
        plot = layout(layer_axis([s.layer for s in scores], "layers run"), _r2_axis(scores))
        panels.append(_curves(f"{name}-{i}", target, scores, [s.layer for s in scores], plot))
    return _curve_figure(
        name, group, panels, f"By depth, at {where}: {_above_all(group)}", "the layers run; 0 is the input"
    )


def _against_position(name: str, group: ProbeGroup) -> Figure:
    """After the last layer."""
    last = group.layers[-1]
    panels = []
    for i, target in enumerate(group.targets):
        scores = [
            s for p in group.positions if p is not None and (s := group.scores.get((target, last, p))) is not None
        ]
        known = [s.position for s in scores if s.position is not None]
        plot = layout(axis("token (context length)", zeroline=False), _r2_axis(scores))
        panels.append(_curves(f"{name}-{i}", target, scores, known, plot))
    return _curve_figure(name, group, panels, _growth(group), f"the number of tokens seen, {depth_text(last)}")


def _curve_figure(name: str, group: ProbeGroup, panels: list[Panel], finding: str, against: str) -> Figure:
    shown = [s for target in group.targets for s in in_order(group, target) if _belongs(name, group, s)]
    present = [key for key in _CONTROLS if any(is_finite(s.control.get(key)) for s in group.scores.values())]
    few = paired_prompts(shown)
    same = f", all on the same {few} prompts; the first R² of the table is on all prompts" if few is not None else ""
    values = [v for s in shown for v in (beside_controls(s)[0], *s.control.values()) if is_finite(v)]
    lost = any((own := beside_controls(s)[0]) is not None and own < 0 for s in shown)
    remarks = " In that difference an R² below 0 counts as 0." if lost else ""
    remarks += f" Triangles at the lower edge are below {_LOWEST}." if any(v < _LOWEST for v in values) else ""
    return Figure(
        name=name,
        finding=finding,
        description=f"Held-out R² against {against}, beside the same probe on untrained models of the same shape "
        f"(their mean), on the inputs alone and on targets of other prompts{same}. Bars are 95 % intervals over "
        "sequences. What counts is the difference to the controls; under each title: to untrained models, at the last "
        f"point, with an interval that also covers how much they differ.{remarks}",
        panels=tuple(panels),
        legend=(_NETWORK, *(_CONTROLS[key][0] for key in present)),
        table=score_table(shown),
        compact=True,
    )


def _belongs(name: str, group: ProbeGroup, score: ProbeScore) -> bool:
    return score.layer == group.layers[-1] if name.endswith("position") else score.position == group.last


def _r2_axis(scores: Sequence[ProbeScore]) -> dict[str, Any]:
    values = [v for s in scores for v in (beside_controls(s)[0], *s.control.values()) if is_finite(v)]
    low = min([v for v in values if v >= _LOWEST] + ([_LOWEST] if any(v < _LOWEST for v in values) else []), default=0)
    return axis("R²", range=[min(low, 0.0) - 0.06, 1.06])


def _curves(name: str, target: str, scores: Sequence[ProbeScore], places: Sequence[int], plot: dict[str, Any]) -> Panel:
    traces: list[dict[str, Any]] = []
    for key, (series, dash) in _CONTROLS.items():
        points = [
            Point(
                at, v, None, f"{label(target)}, {series.label}: {number(v, 3)}; the network above: {gap_text(s, key)}"
            )
            for at, s in zip(places, scores, strict=True)
            if is_finite(v := s.control.get(key))
        ]
        if points:
            drawn = curve(series, points, floor=_LOWEST, dash=dash, marked=key != "inputs", width=1.5, size=6)
            traces.append(drawn)
    known = [(at, s) for at, s in zip(places, scores, strict=True) if is_finite(beside_controls(s)[0])]
    trace = curve(_NETWORK, [Point(at, beside_controls(s)[0] or 0.0, None, said(s)) for at, s in known], floor=_LOWEST)
    if known:
        trace["error_y"] = _bars([s for _, s in known])
    traces.append(trace)
    last = scores[-1] if scores else None
    gap = "" if last is None else f"above untrained: {gap_text(last, 'untrained')}"
    return Panel(name=name, title=target, subtitle=gap, data=traces, layout=plot, height=220)


def _bars(scores: Sequence[ProbeScore]) -> dict[str, Any]:
    low, high = [], []
    for score in scores:
        own, (bottom, top) = beside_controls(score)
        value = own or 0.0
        bounded = is_finite(bottom) and is_finite(top) and value >= _LOWEST
        low.append(value - bottom if bounded and is_finite(bottom) else 0.0)
        high.append(top - value if bounded and is_finite(top) else 0.0)
    return {
        "type": "data",
        "symmetric": False,
        "array": high,
        "arrayminus": low,
        "color": _NETWORK.colour,
        "thickness": 1.5,
        "width": 4,
    }


def _above_all(group: ProbeGroup) -> str:
    """Which targets beat all three controls in the last layer."""
    last = group.layers[-1]
    found = [s for t in group.targets if (s := group.scores.get((t, last, group.last))) is not None and is_finite(s.r2)]
    beating = [s.target for s in found if above_all(s)]
    if not found:
        return f"{depth_text(last)} there are no scores"
    if not beating:
        return f"{depth_text(last)} no target beats all controls"
    verb = "beats" if len(beating) == 1 else "beat"
    return f"{depth_text(last)}, {len(beating)} of {len(found)} targets {verb} all controls ({', '.join(beating)})"


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
    legend = ordered_series([depth_text(layer) for layer in group.layers], "layer-") if len(places) > 1 else []
    panels = []
    for i, target in enumerate(group.targets):
        known = [score.mse for score in group.of(target) if is_finite(score.mse)]
        log = spans_decades(known)
        if len(places) > 1:
            traces = [
                curve(series, _errors([group.scores.get((target, layer, p)) for p in places], places), log=log)
                for series, layer in zip(legend, group.layers, strict=True)
            ]
            x = axis("token (context length)", zeroline=False)
        else:
            scores = [group.scores.get((target, layer, group.last)) for layer in group.layers]
            traces = [curve(_NETWORK, _errors(scores, group.layers), log=log)]
            x = layer_axis(group.layers, "layers run")
        y = (
            log_axis("mean squared error", known, dense=False)
            if log
            else axis("mean squared error", rangemode="tozero")
        )
        panels.append(Panel(name=f"{name}-{i}", title=target, data=traces, layout=layout(x, y), height=240))
    return Figure(
        name=name,
        finding=published_finding(group),
        description="Scored as the paper scores it, on what was fitted, to compare with its figures; it does not say "
        "whether a network is needed for it. R² in the table is of prompts that the fit has not seen. The notes name "
        "the weaknesses of the protocol.",
        panels=tuple(panels),
        legend=tuple(legend),
        table=score_table([score for target in group.targets for score in in_order(group, target)]),
        compact=True,
    )


def _errors(scores: Sequence[ProbeScore | None], places: Sequence[int]) -> list[Point]:
    return [
        Point(
            at, s.mse, None, f"{label(s.target)}, {depth_text(s.layer)}, {where_text(s.position)}: {number(s.mse, 3)}"
        )
        for at, s in zip(places, scores, strict=True)
        if s is not None and is_finite(s.mse)
    ]
