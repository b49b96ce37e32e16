"""The comparison with classical solvers. Behaviour only: it never says what a network is."""

from __future__ import annotations

from collections.abc import Mapping

from interp.reports.baseline_looks import coinciding
from interp.reports.numbers import DASH, Interval, interval, is_finite, listed, number, percent
from interp.reports.plots import (
    SYMBOLS,
    Point,
    charted,
    column_height,
    count_axis,
    curve,
    label,
    layer_axis,
    log_axis,
    marks,
    name_axis,
    note,
    plot,
    tick_text,
    wrapped,
)
from interp.reports.registry import section
from interp.reports.tabulate import points, tabulate
from interp.results import Analysis, Behaviour, Match, Panel, Section, Series, Solver, Table

__all__ = ["behaviour_finding", "share_text", "shift_finding", "similarity_finding", "weights_finding"]

COUNTS = ("context-half", "context-double")  # shifts that change the number of tokens
AGREES = 0.01  # predictions that agree to 1 % of their mean square
FINE = 1e-4  # of a share: a narrower interval would print digits that nobody asks for
UNLIKE = 0.9  # predictions that have so little in common with others that no more is said of how far off they are
_LEAST = 1e-6  # distances below it are drawn at the edge
_COLOURS = (*(f"var(--series-{k})" for k in range(1, 7)), "var(--muted)")


def share_text(value: float | None, bounds: tuple[float | None, float | None]) -> str:
    """A share that is missed, with its interval where that has a say in the digits; it may exceed 1."""
    if not is_finite(value):
        return DASH
    low, high = bounds
    if is_finite(low) and is_finite(high) and high - low > FINE * abs(value):
        return interval(value, bounds)
    return number(value, 2)


def weights_finding(behaviour: Behaviour) -> str:
    """What the compared weights are worth, where they are a fit; empty where they are exact."""
    r2 = behaviour.linearity_r2[-1] if behaviour.linearity_r2 else None
    fit = (
        f"The network's weights are a fit to the tokens of every prompt; after the last layer it accounts for "
        f"{percent(r2)} of the variance"
    )
    return fit if behaviour.weights == "tokens" else ""


def last_matches(behaviour: Behaviour) -> dict[str, Match]:
    """The match after the last layer, by solver, closest first."""
    depth = max((entry.layer for entry in behaviour.matches), default=0)
    entries = [entry for entry in behaviour.matches if entry.layer == depth and is_finite(entry.distance)]
    return {entry.solver: entry for entry in sorted(entries, key=lambda entry: entry.distance or 0.0)}


def _solvers(behaviour: Behaviour) -> dict[str, Solver]:
    return {solver.name: solver for solver in behaviour.solvers}


def _label(behaviour: Behaviour, name: str) -> str:
    solver = _solvers(behaviour).get(name)
    return name if solver is None else solver.label


def mark_text(solver: Solver, mark: float) -> str:
    """``4`` steps, or a penalty."""
    return f"{mark:.0f}" if solver.unit == "steps" else number(mark, 2)


def _mark(solver: Solver, entry: Match) -> str:
    """The number of an iterate, with its interval where it has one: ``4 [3, 5]``."""
    low, high = entry.best_ci
    if not (is_finite(low) and is_finite(high)) or low == high:
        return mark_text(solver, entry.best)
    return f"{mark_text(solver, entry.best)} [{mark_text(solver, low)}, {mark_text(solver, high)}]"


def iterate_text(behaviour: Behaviour, entry: Match) -> str:
    """``gradient descent after 4 steps [3, 5]``."""
    solver = _solvers(behaviour).get(entry.solver)
    if solver is None:
        return entry.solver
    if solver.unit == "steps":
        return f"{solver.label} after {_mark(solver, entry)} step{'s' * (entry.best != 1)}"
    return f"ridge regression with the penalty {_mark(solver, entry)}"


def behaviour_finding(behaviour: Behaviour) -> str:
    """Which solver the network is most like after its last layer, and that this is behaviour."""
    last = last_matches(behaviour)
    if not last:
        return "Nothing could be compared with classical solvers"
    entry = next(iter(last.values())) if behaviour.closest is None else last[behaviour.closest]
    missed = f"it misses {share_text(entry.distance, entry.distance_ci)} of the energy of the network's weights"
    none = "Behaves like no classical solver with fixed numbers"
    if behaviour.closest is not None:
        alike = listed([_label(behaviour, name) for name in behaviour.alike]) if behaviour.alike else ""
        text = f"Behaves most like {iterate_text(behaviour, entry)}: {missed} after the last layer"
        return text + (alike and f". As close, or nearly: {alike}")
    if not (entry.distance or 0.0) < 1 - AGREES:
        return (
            f"{none}: no iterate of any is nearer to the network's weights than no weights at all, by "
            f"{percent(AGREES)} or more of their energy"
        )
    return f"{none}: the closest is {iterate_text(behaviour, entry)}, and {missed}"


def similarity_finding(behaviour: Behaviour) -> str:
    """How far errors are the solver's own errors, beside those of predicting zero."""
    entry = last_matches(behaviour).get(behaviour.closest or "")
    if entry is None or not is_finite(entry.similarity):
        return ""
    null = behaviour.null_similarity[-1] if behaviour.null_similarity else None
    return (
        f"Its errors are those of {_label(behaviour, entry.solver)} to a cosine of "
        f"{interval(entry.similarity, entry.similarity_ci)} (those of predicting zero: {number(null, 2)})"
    )


def shift_finding(behaviour: Behaviour, scale: str | float | int = "1") -> str:
    """Outside the task, where the closest solver still predicts what the network does. ``scale`` is what the network
    multiplies its sums by."""
    name = behaviour.closest or next(iter(last_matches(behaviour)), "")
    missed = [(s, share) for s in behaviour.shifts if is_finite(share := s.disagreement.get(name))]
    if not missed:
        return "Outside the task nothing could be compared"
    solver, agrees = _label(behaviour, name), percent(AGREES)
    worst, _ = max(missed, key=lambda pair: pair[1])
    same = [s.label for s, share in missed if share <= AGREES]
    if len(same) == len(missed):
        return f"Outside the task, too, it predicts what {solver} does, to {agrees} everywhere"
    if all(share >= UNLIKE for _, share in missed):
        return f"Its predictions are unlike those of {solver}, in the task and outside of it"
    most = f"most with {worst.label} ({share_text(worst.disagreement[name], worst.disagreement_ci[name])})"
    steps = name in _solvers(behaviour) and _solvers(behaviour)[name].unit == "steps"
    if steps and averages(scale) and worst.name in COUNTS:
        most += "; there a step fixed for the sum over the tokens is another step for their mean, which the network "
        most += "takes"
    if not same:
        return f"Its predictions differ from those of {solver} everywhere, {most}"
    return f"Its predictions are those of {solver} to {agrees} with {listed(same)}; they differ {most}"


def averages(scale: str | float | int) -> bool:
    """Whether the network takes means over its tokens, so that what it does depends less on their number."""
    return isinstance(scale, str) and scale.startswith("1/")


def _series(behaviour: Behaviour) -> dict[str, Series]:
    """No two have both colour and symbol in common."""
    colours = len(_COLOURS)
    symbols = [SYMBOLS[(k + k // colours) % len(SYMBOLS)] for k in range(len(behaviour.solvers))]
    return {
        s.name: Series(key=f"solver-{k}", label=s.label, colour=_COLOURS[k % colours], symbol=symbols[k])
        for k, s in enumerate(behaviour.solvers)
    }


@section("trajectory", title="classical solvers along the depth", where="behaviour", part="behaviour")
def trajectory(_: Analysis, behaviour: Behaviour) -> Section | None:
    """Distance of every layer's weights to the best iterate of every solver, and which iterate that is."""
    if not behaviour.matches:
        return None
    series, solvers = _series(behaviour), _solvers(behaviour)
    panels, curves = _trajectory_panels(behaviour, series)
    fitted, similar = weights_finding(behaviour), similarity_finding(behaviour)
    zero = dict(enumerate(behaviour.null_similarity))
    columns = {
        "after the last layer": lambda m: solvers[m.solver].label,
        "best iterate": lambda m: mark_text(solvers[m.solver], m.best) + _unit(solvers[m.solver]),
        "distance [95 %]": lambda m: share_text(m.distance, m.distance_ci),
    }
    last = tabulate(last_matches(behaviour).values(), columns, marked=lambda m: m.solver == behaviour.closest)
    description = (
        f"{fitted}{'. ' if fitted else ''}This is behaviour, seen from outside: it does not say what the network is. "
        "After every layer the weights by which it would predict are compared with all iterates of each solver: E|w − "
        "w_k|² / E|w|², 0 for the same weights, 1 for as far as no weights at all. A solver's free numbers are tuned "
        "to the network after its last layer, and the iterate is chosen, on other prompts than the distance is "
        "measured on. A solver that the network follows is close after every layer, not only the last. Bars are 95 % "
        f"intervals over prompts; distances below {tick_text(_LEAST)} are drawn there.{coinciding(curves, log=True)}"
    )
    columns = {
        "solver": lambda m: solvers[m.solver].label, "layers run": "layer",
        "best iterate [95 %]": lambda m: _mark(solvers[m.solver], m) + _unit(solvers[m.solver]),
        "distance [95 %]": lambda m: share_text(m.distance, m.distance_ci), "as many steps as layers": "at_budget:3",
        "cosine of errors [95 %]": "similarity", "of predicting zero": lambda m: number(zero.get(m.layer), 3),
    }  # fmt: skip
    title = "As behaviour, beside classical solvers (this does not say what the network is)"
    return charted(
        "trajectory", title, behaviour_finding(behaviour), description, panels, tabulate(behaviour.matches, columns),
        legend=series.values(), short=last, remarks=(similar,) if similar else (),
    )  # fmt: skip


def _trajectory_panels(
    behaviour: Behaviour, series: Mapping[str, Series]
) -> tuple[tuple[Panel, ...], dict[str, list[Point]]]:
    """The distances by depth and the iterates that they are of, and the points of every solver's distances."""
    solvers, matches = _solvers(behaviour), [m for m in behaviour.matches if is_finite(m.distance)]
    near, steps, curves = [], [], {}
    for name, line in series.items():
        entries, solver = [m for m in matches if m.solver == name], solvers[name]
        said = f"{line.label}, best at"
        drawn = [
            Point(
                m.layer, max(m.distance or 0.0, _LEAST), m.distance_ci,
                f"{said} {mark_text(solver, m.best)} {solver.unit}: {share_text(m.distance, m.distance_ci)}",
            )
            for m in entries
        ]  # fmt: skip
        near.append(curve(line, drawn, log=True, floor=_LEAST))
        curves[line.label] = drawn
        if solver.unit == "steps" and entries:
            counted = points(entries, "layer", "best", lambda m, _, of=solver: f"{of.label}: {_mark(of, m)} steps")
            steps.append(curve(line, counted))
    bounds = [y for trace in near for y in trace["y"]]
    bounds += [v for m in matches for v in m.distance_ci if is_finite(v) and v > _LEAST]
    counts = [v for m in behaviour.matches if solvers[m.solver].unit == "steps" for v in (m.best, m.best_ci[1])]
    most = max((v for v in counts if is_finite(v)), default=1.0)
    depths = layer_axis(sorted({m.layer for m in behaviour.matches}), "layers run")
    far, count = log_axis("distance", bounds, dense=True), count_axis("steps of the best iterate", most)
    return (
        plot("trajectory-distance", near, depths, far, 280, "distance to the best iterate"),
        plot("trajectory-steps", steps, depths, count, 280, "which iterate that is"),
    ), curves


def _unit(solver: Solver) -> str:
    return " (penalty)" if solver.unit == "penalty" else ""


@section("shifts", title="classical solvers outside the task", where="behaviour", part="behaviour")
def shifts(analysis: Analysis, behaviour: Behaviour) -> Section | None:
    """Disagreement of predictions outside the task, and sensitivity to the query."""
    if not any(is_finite(v) for s in behaviour.shifts for v in s.disagreement.values()):
        return None
    series, solvers = _series(behaviour), _solvers(behaviour)
    order = [name for name in last_matches(behaviour) if name in solvers]
    data, drawn = [], []
    for k, name in enumerate(order):
        shares = [(at, s.label, s.disagreement[name], s.disagreement_ci[name]) for at, s in enumerate(behaviour.shifts)]
        found = [
            Point(at, max(share, _LEAST), ends, f"{series[name].label}, {where}: {share_text(share, ends)}")
            for at, where, share, ends in shares
            if is_finite(share)
        ]
        aside = 0.8 * (k - (len(order) - 1) / 2) / max(len(order), 1)  # so that equal ones do not cover each other
        data.append(marks(series[name], found, log=True, floor=_LEAST, aside=aside, sideways=True))
        drawn += data[-1]["x"]
    drawn += [v for s in behaviour.shifts for pair in s.disagreement_ci.values() for v in pair if is_finite(v)]
    names = [wrapped(shift.label) for shift in behaviour.shifts]
    x = log_axis("disagreement", [v for v in drawn if v >= _LEAST], dense=False, most=4)
    missing = [(k, s.reason) for k, s in enumerate(behaviour.shifts) if s.reason is not None]
    panel = plot(
        "shifts", data, x, name_axis(names, showgrid=False), column_height(names, len(order)),
        annotations=[note(label(reason), x=0.5, xref="paper", y=k) for k, reason in missing],
    )  # fmt: skip
    means = averages(analysis.checkpoint.scale) and (
        " The solvers keep their steps, fixed for sums over the tokens, where the network takes means over them: "
        "with another number of tokens they part for that reason alone."
    )
    none: Interval = (None, None)
    rows = [
        (s.label, *(s.reason or share_text(s.disagreement.get(n), s.disagreement_ci.get(n, none)) for n in order))
        for s in behaviour.shifts
    ]
    sensed = (share_text(solvers[n].sensitivity, solvers[n].sensitivity_ci) for n in order)
    description = (
        "E(p − p_k)² / E p² for the network's predictions p and those of each solver at the iterate that matches the "
        "last layer, with the numbers tuned on the task: 0 for the same predictions. The table's last row: how far "
        f"dp/dx of the query is from the solver's weights.{means or ''} Bars are 95 % intervals over prompts."
    )
    header = ("prompts", *(series[name].label for name in order))
    table = Table(header=header, rows=(*rows, ("sensitivity to the query", *sensed)))
    finding, legend = shift_finding(behaviour, analysis.checkpoint.scale), [series[name] for name in order]
    return charted("shifts", "Classical solvers outside the task", finding, description, [panel], table, legend=legend)
