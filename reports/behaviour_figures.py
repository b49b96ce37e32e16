"""Figures of the comparison with classical solvers: along the depth, and outside the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp.reports.baseline_looks import coinciding
from interp.reports.behaviour_findings import (
    averages,
    behaviour_finding,
    last_matches,
    mark_text,
    share_text,
    shift_finding,
    weights_finding,
)
from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.plots import (
    SYMBOLS,
    Point,
    axis,
    column_height,
    count_axis,
    curve,
    error_bars,
    label,
    layer_axis,
    layout,
    log_axis,
    note,
    tick_text,
    wrapped,
)
from interp.results import Analysis, Behaviour, Figure, Match, Panel, Series, Solver, Table

__all__ = ["shift_figure", "trajectory_figure"]

_COLOURS = (*(f"var(--series-{k})" for k in range(1, 7)), "var(--muted)")
Interval = tuple[float | None, float | None]
_LEAST = 1e-6  # distances below it are drawn at the edge


def _series(found: Behaviour) -> dict[str, Series]:
    return {
        solver.name: Series(
            key=f"solver-{k}",
            label=solver.label,
            colour=_COLOURS[k % len(_COLOURS)],
            symbol=SYMBOLS[(k + k // len(_COLOURS)) % len(SYMBOLS)],  # no two have both in common
        )
        for k, solver in enumerate(found.solvers)
    }


def trajectory_figure(analysis: Analysis) -> Figure | None:
    """Distance of every layer's weights to the best iterate of every solver, and which iterate that is."""
    found = analysis.behaviour
    if found is None or not found.matches:
        return None
    fitted = weights_finding(found)
    series, solvers = _series(found), {solver.name: solver for solver in found.solvers}
    depths = layer_axis(sorted({entry.layer for entry in found.matches}), "layers run")
    near, steps, curves = [], [], {}
    known: list[float] = []
    for name, drawn in series.items():
        own = [entry for entry in found.matches if entry.solver == name and is_finite(entry.distance)]
        known += [max(entry.distance or 0.0, _LEAST) for entry in own]
        near.append(_near(drawn, own, solvers[name]))
        curves[drawn.label] = [Point(e.layer, max(e.distance or 0.0, _LEAST), None, "") for e in own]
        if solvers[name].unit == "steps" and own:
            steps.append(_steps(drawn, own, solvers[name]))
    counted = [entry for entry in found.matches if solvers[entry.solver].unit == "steps"]
    most = max((v for e in counted for v in (e.best, e.best_ci[1]) if is_finite(v)), default=1.0)
    bounds = [v for e in found.matches for v in (e.distance, *e.distance_ci) if is_finite(v) and v > _LEAST]
    count = count_axis("steps of the best iterate", most)
    panels = (
        Panel(
            name="trajectory-distance",
            title="distance to the best iterate",
            data=near,
            layout=layout(depths, log_axis("distance", [*known, *bounds], dense=True)),
            height=280,
        ),
        Panel(
            name="trajectory-steps", title="which iterate that is", data=steps, layout=layout(depths, count), height=280
        ),
    )
    return Figure(
        name="trajectory",
        finding=behaviour_finding(found),
        description=(f"{fitted}. " if fitted else "")
        + "This is behaviour, seen from outside: it does not say what the network is. After every layer the weights by "
        "which it would predict are compared with all iterates of each solver: E|w − w_k|² / E|w|², 0 for the same "
        "weights, 1 for as far as no weights at all. A solver's free numbers are tuned to the network after "
        "its last layer, and the iterate is chosen, on other prompts than the distance is measured on. A solver that "
        "the network follows is close after every layer, not only the last. Bars are 95 % intervals over prompts; "
        f"distances below {tick_text(_LEAST)} are drawn there.{coinciding(curves, log=True)}",
        panels=panels,
        legend=tuple(series.values()),
        table=Table(
            header=(
                "solver", "layers run", "best iterate [95 %]", "distance [95 %]", "as many steps as layers",
                "cosine of errors [95 %]", "of predicting zero",
            ),
            rows=tuple(_row(found, solvers[entry.solver], entry) for entry in found.matches),
        ),
    )  # fmt: skip


def _near(series: Series, own: list[Match], solver: Solver) -> dict[str, Any]:
    points = [
        Point(
            entry.layer,
            max(entry.distance or 0.0, _LEAST),
            None,
            f"{series.label}, best at {mark_text(solver, entry.best)} {solver.unit}: "
            f"{share_text(entry.distance, entry.distance_ci)}",
        )
        for entry in own
    ]
    return curve(series, points, log=True) | _bars(series, points, [entry.distance_ci for entry in own])


def _bars(series: Series, points: Sequence[Point], bounds: Sequence[Interval], least: float = _LEAST) -> dict[str, Any]:
    """Error bars from the ends of intervals, no lower than ``least``."""
    low = [p.y - max(b[0], least) if is_finite(b[0]) else 0.0 for p, b in zip(points, bounds, strict=True)]
    high = [max(b[1], least) - p.y if is_finite(b[1]) else 0.0 for p, b in zip(points, bounds, strict=True)]
    return {"error_y": error_bars(low, high, series.colour)}


def _steps(series: Series, own: list[Match], solver: Solver) -> dict[str, Any]:
    points = [Point(entry.layer, entry.best, None, f"{series.label}: {_mark(solver, entry)} steps") for entry in own]
    return curve(series, points) | _bars(series, points, [entry.best_ci for entry in own], 0.0)


def _mark(solver: Solver, entry: Match) -> str:
    low, high = entry.best_ci
    doubt = f" [{mark_text(solver, low)}, {mark_text(solver, high)}]" if is_finite(low) and is_finite(high) else ""
    return f"{mark_text(solver, entry.best)}{doubt}"


def _row(found: Behaviour, solver: Solver, entry: Match) -> tuple[str, ...]:
    null = found.null_similarity[entry.layer] if entry.layer < len(found.null_similarity) else None
    return (
        solver.label,
        str(entry.layer),
        _mark(solver, entry) + (" (penalty)" if solver.unit == "penalty" else ""),
        share_text(entry.distance, entry.distance_ci),
        number(entry.at_budget, 3),
        interval(entry.similarity, entry.similarity_ci),
        number(null, 3),
    )


def shift_figure(analysis: Analysis) -> Figure | None:
    """Disagreement of predictions outside the task, and sensitivity to the query."""
    found = analysis.behaviour
    if found is None or not any(is_finite(v) for shift in found.shifts for v in shift.disagreement.values()):
        return None
    series, order = _series(found), [name for name in last_matches(found) if any(name == s.name for s in found.solvers)]
    known = [max(v, _LEAST) for shift in found.shifts for v in shift.disagreement.values() if is_finite(v)]
    traces = []
    for at, name in enumerate(order):
        aside = 0.8 * (at - (len(order) - 1) / 2) / max(len(order), 1)  # so that equal ones do not cover each other
        shifts = [(k, s, s.disagreement[name]) for k, s in enumerate(found.shifts)]
        kept = [(k, s, value) for k, s, value in shifts if is_finite(value)]
        points = [
            Point(
                k + aside,
                max(v, _LEAST),
                None,
                f"{series[name].label}, {s.label}: {share_text(v, s.disagreement_ci[name])}",
            )
            for k, s, v in kept
        ]
        bounds = [s.disagreement_ci[name] for _, s, _ in kept]
        upright = curve(series[name], points, log=True, lines=False) | _bars(series[name], points, bounds)
        traces.append(_sideways(upright))
    names = [wrapped(shift.label) for shift in found.shifts]
    rows = [len(names) - 0.5, -0.5]
    y = axis("", tickvals=list(range(len(names))), ticktext=names, range=rows, showgrid=False, zeroline=False)
    ends = [v for shift in found.shifts for pair in shift.disagreement_ci.values() for v in pair if is_finite(v)]
    x = log_axis("disagreement", [*known, *(v for v in ends if v > _LEAST)], dense=False, most=4)
    absent = [
        note(label(s.reason), x=0.5, xref="paper", y=k) for k, s in enumerate(found.shifts) if s.reason is not None
    ]
    means = (
        " The solvers keep their steps, fixed for sums over the tokens, where the network takes means over them: with "
        "another number of tokens they part for that reason alone."
        if averages(analysis.checkpoint.scale)
        else ""
    )
    sensed = {solver.name: share_text(solver.sensitivity, solver.sensitivity_ci) for solver in found.solvers}
    return Figure(
        name="shifts",
        finding=shift_finding(found, analysis.checkpoint.scale),
        description="E(p − p_k)² / E p² for the network's predictions p and those of each solver at the iterate that "
        "matches the last layer, with the numbers tuned on the task: 0 for the same predictions. "
        f"The table's last row: how far dp/dx of the query is from the solver's weights.{means} Bars are 95 % "
        "intervals over prompts.",
        panels=(
            Panel(
                name="shifts", title="", data=traces,
                layout=layout(x, y, annotations=absent), height=column_height(names, len(order)),
            ),
        ),
        legend=tuple(series[name] for name in order),
        table=Table(
            header=("prompts", *(series[name].label for name in order)),
            rows=(
                *(
                    (shift.label, *(shift.reason or _cell(found, k, name) for name in order))
                    for k, shift in enumerate(found.shifts)
                ),
                ("sensitivity to the query", *(sensed.get(name, DASH) for name in order)),
            ),
        ),
    )  # fmt: skip


def _sideways(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace of upright values, with its values to the right."""
    bars = {"error_x": trace["error_y"]} if "error_y" in trace else {}
    return {key: value for key, value in trace.items() if key != "error_y"} | bars | {"x": trace["y"], "y": trace["x"]}


def _cell(found: Behaviour, shift: int, name: str) -> str:
    entry = found.shifts[shift]
    return share_text(entry.disagreement.get(name), entry.disagreement_ci.get(name, (None, None)))
