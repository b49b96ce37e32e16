"""The algorithm in the network's place: layer by layer, by degrees, and with what is left of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from interp.reports.numbers import Z95, estimate, interval, is_finite, layers_named, number, percent, several
from interp.reports.plots import Point, axis, charted, curve, label, layer_axis, log_axis, marks, plot
from interp.reports.registry import section
from interp.reports.sections.losses import loss, stand_in
from interp.reports.tabulate import points, tabulate
from interp.results import Absorption, Analysis, Interpolation, LayerSwap, Outcome, Section, Series

__all__ = ["AGREES", "absorption_finding", "change_text", "interpolation_finding", "stands_in", "swap_finding"]

AGREES = 0.01  # share of the variance of the network's predictions up to which an account agrees with it

LEVEL = 0.01  # of the network's error: a barrier lower than this is none

ROUNDING = 1e-9  # of the error: a change smaller than this is none

EXPLODES = 10  # times the error at the ends of a path: a larger one is a barrier, however unsure its mean

LOW = 4  # directions up to which a rest is of low rank

ABSORBED = 0.99  # R^2 from which the behaviour is said to be restored

_HIGHEST = 100.0  # times the error of predicting zero: what is larger is drawn at the edge
_LOWEST = 1e-4  # of the network's error: what is smaller is drawn at the edge


def stands_in(outcome: Outcome) -> bool:
    """Whether the predictions surely stay within 1 % of the network's."""
    low = outcome.fidelity_ci[0]
    return is_finite(low) and low >= 1 - AGREES


def _unchanged(outcome: Outcome) -> bool:
    finite = is_finite(outcome.change) and is_finite(outcome.mse)
    return finite and abs(outcome.change or 0.0) <= ROUNDING * (outcome.mse or 0.0)


def change_text(outcome: Outcome) -> str:
    """The change of the error, or that there is none but rounding."""
    return "0 to rounding" if _unchanged(outcome) else estimate(outcome.change, outcome.change_stderr)


def swap_finding(analysis: Analysis) -> str:
    swaps = analysis.evidence.swaps
    if not swaps:
        return "No layer was replaced"
    who = stand_in(analysis)
    good = [s.layer for s in swaps if stands_in(s.swapped)]
    bad = [s for s in swaps if s.layer not in good]
    if not bad and all(_unchanged(s.swapped) for s in swaps):
        return f"Each layer can be replaced by the {who}'s with no change but rounding{_control(swaps)}"
    if not bad:
        within = "predictions stay within 1 % of the network's"
        return f"Each layer alone can be replaced by the {who}'s: {within}{_control(swaps)}"
    where = layers_named([s.layer for s in bad])
    rises = [s.swapped.change for s in bad if is_finite(s.swapped.change)]
    much = f" (the error rises by up to {_size(max(rises))})" if rises and max(rises) > 0 else ""
    if analysis.verdict.recognized and good:
        return (
            f"The {who} agrees with the network, but not in the place of every layer: it can stand in "
            f"for {layers_named(good)} alone to 1 % of the predictions, not for {where}{much}"
        )
    if len(swaps) == 1:
        left = swaps[0].swapped.fidelity
        share = percent(1 - left) if is_finite(left) else "an unknown share"
        return f"In the place of the only layer, the {who} leaves {share} of what the network predicts unexplained"
    if analysis.verdict.recognized:
        part = "no single layer of it can stand in for the network's"
        return f"The {who} follows the network as a whole, but {part}{much}"
    return f"The closest family cannot stand in for {where}{much}"


def _size(value: float) -> str:
    if value < 1e4:
        return number(value, 2)
    mantissa, power = f"{value:.0e}".split("e+")
    return f"{mantissa}e{int(power)}"


def _control(swaps: Sequence[LayerSwap]) -> str:
    """What leaving layers out costs, so that replacing them at no cost says something."""
    idle = [s.layer for s in swaps if stands_in(s.idle)]
    if not idle:
        return f"; leaving {'any of them' if len(swaps) > 1 else 'it'} out changes far more"
    return f". That says little of {layers_named(idle)}, which can be left out as well"


def interpolation_finding(analysis: Analysis) -> str:
    path = analysis.evidence.interpolation
    if path is None or not path.points:
        return "No path between the network and an algorithm was run"
    start = f"On the straight path from the network's weights to the {stand_in(analysis)}'s"
    first, last = path.points[0].mixed.mse, path.points[-1].mixed.mse
    if not is_finite(path.barrier) or not is_finite(first) or not is_finite(last):
        return f"{start} the error overflows"
    step = f"from {number(first, 3)} to {number(last, 3)}"
    highest = path.barrier + Z95 * (path.barrier_stderr or 0.0)
    peak = max(p.mixed.mse for p in path.points if is_finite(p.mixed.mse))
    if _rises(path, peak, max(first, last)):
        apart = ": they behave alike but are not near each other" if analysis.verdict.recognized else ""
        level = abs(last - first) <= 0.1 * first
        ends = f"from {number(first, 3)}" if level else f"with {number(first, 3)} and {number(last, 3)} at its ends"
        return f"{start} the error rises to {_size(peak)}, {ends}{apart}"
    if highest > LEVEL * first:
        return f"{start}, {step}, no barrier is clear: at most {number(100 * highest / first, 2)} % of the error"
    if abs(last - first) <= LEVEL * first:
        return f"{start} the error stays level"
    return f"{start} the error has no barrier, {step}"


def _rises(path: Interpolation, peak: float, ends: float) -> bool:
    """Whether there surely is a barrier. Where a few prompts explode the standard error is as large as the mean, and
    yet no accident of the same prompts makes it many times that of the ends."""
    height, error = path.barrier or 0.0, path.barrier_stderr or 0.0
    return height > LEVEL * ends and (height > Z95 * error or peak > EXPLODES * ends)


def absorption_finding(rows: Sequence[Absorption]) -> str:
    scored = [row for row in rows if is_finite(row.fidelity)]
    if not scored:
        return "Nothing was added to the ω and traces"
    first = interval(scored[0].fidelity, scored[0].fidelity_ci)
    enough = next((row for row in scored if (row.fidelity or 0.0) >= ABSORBED), None)
    if enough is scored[0]:
        return (
            f"The weights' own ω and traces, the rest taken out of all layers at once, predict what the network "
            f"predicts: R² = {first}"
        )
    without = f"The weights' own ω and traces alone predict R² = {first} of what the network predicts"
    if enough is None:
        return f"{without}, and no number of directions of the rest restores it"
    if enough.directions <= LOW:
        count = f"{several(enough.directions, 'more direction')} per layer make{'s' * (enough.directions == 1)}"
        return f"{without}; {count} it 0.99: the rest that matters is of low rank"
    count = f"it takes {enough.directions} more directions per layer"
    return f"{without}; {count} to make it 0.99: the rest that matters is not of rank {LOW} or less"


def _limits(analysis: Analysis, outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Of an axis of errors or of their rise."""
    null = loss(analysis.evidence.losses, "null")
    errors = [o.mse for o in outcomes if is_finite(o.mse) and o.mse > 0]
    least = min(errors, default=1.0)
    top = null.mse if null is not None and is_finite(null.mse) and null.mse > 0 else max(least, 1.0)
    return _LOWEST * least, _HIGHEST * max(top, least)


def _edges(values: Sequence[float], floor: float, ceiling: float) -> str:
    below, above = sum(v < floor for v in values), sum(v > ceiling for v in values)
    small = f"too small or not clearly above 0: {below}, larger: {above}"
    return f" Triangles at the edges are values beyond the axis ({small})." if below or above else ""


@section("swaps", title="layers replaced one by one", where="evidence")
def swaps(analysis: Analysis) -> Section | None:
    """What the error gains when one layer is replaced, or left out."""
    entries, who = analysis.evidence.swaps, stand_in(analysis)
    replaced = Series(key="swapped", label=f"replaced by the {who}'s", colour="var(--series-3)", symbol="diamond")
    idle = Series(key="idle", label="control: the layer left out", colour="var(--muted)", symbol="x")
    outcomes = [o for s in entries for o in (s.swapped, s.idle) if is_finite(o.change)]
    if not outcomes:
        return None
    floor, ceiling = _limits(analysis, outcomes)
    log = _spread_above_zero(outcomes, floor, ceiling)
    edges: dict[str, Any] = {"floor": floor, "ceiling": ceiling} if log else {}
    data = []
    for series, aside in ((replaced, -0.08), (idle, 0.08)):
        rows = [(s.layer, o) for s in entries if is_finite((o := getattr(s, series.key)).change)]
        points = [
            Point(
                layer, _drawn(o, ceiling) if log else o.change, o.change_stderr,
                f"layer {layer}, {label(series.label)}: {change_text(o)}; R² {interval(o.fidelity, o.fidelity_ci)}",
            )
            for layer, o in rows
        ]  # fmt: skip
        data.append(marks(series, points, log=log, size=10, aside=aside, **edges))
    y = axis("change of the squared error (label²)", rangemode="tozero")
    if log:
        y = log_axis("rise of the squared error (label²)", [floor, ceiling], dense=False)
        y["range"] = [math.log10(floor) - 0.25, math.log10(ceiling) + 0.25]
    path = analysis.evidence.interpolation
    whole = path.points[0].mixed if path is not None and path.points else None
    errs = "" if whole is None else f" The network as it is errs by {estimate(whole.mse, whole.stderr)}."
    description = (
        f"One layer of the network at a time is replaced by that layer of the {who}, the others stay; on "
        f"{analysis.evidence.replaced} prompts that were not fitted. As a control the layer is left out: where that "
        f"costs nothing, replacing it proves nothing.{errs} Bars are 95 % intervals."
        f"{_edges([_drawn(o, ceiling) for o in outcomes], floor, ceiling) if log else ''}"
    )
    columns = {
        "layer": "layer", "rise of the error ± stderr": lambda s: change_text(s.swapped),
        "R² against the network [95 %]": "swapped.fidelity",
        "control: left out ± stderr": lambda s: change_text(s.idle), "R², left out [95 %]": "idle.fidelity",
    }  # fmt: skip
    panel = plot("swaps", data, layer_axis([s.layer for s in entries], "layer that is replaced"), y, 320)
    title, table, legend = "Layers replaced one by one", tabulate(entries, columns), (replaced, idle)
    return charted("swaps", title, swap_finding(analysis), description, [panel], table, legend=legend, half=True)


def _spread_above_zero(outcomes: Sequence[Outcome], floor: float, ceiling: float) -> bool:
    """Whether a log axis shows the changes of the error: not where most of them are falls, or none is within its ends.
    Where one is beyond the axis no other has room beside it."""
    drawn = [_drawn(o, ceiling) for o in outcomes]
    falls = [o for o in outcomes if -(o.change or 0.0) > max(Z95 * (o.change_stderr or 0.0), floor)]
    inside = [v for v in drawn if floor <= v <= ceiling]
    return any(v > ceiling for v in drawn) or bool(inside and 2 * len(falls) < len(outcomes))


def _drawn(outcome: Outcome, ceiling: float) -> float:
    """The rise of the error, or -1 where it may be none, which has no place on a log axis. A mean that a few exploding
    prompts lift beyond the axis is large, however unsure."""
    change = outcome.change or 0.0
    return change if change > min(Z95 * (outcome.change_stderr or 0.0), ceiling) else -1.0


@section("interpolation", title="the path to the algorithm", where="evidence")
def interpolation(analysis: Analysis) -> Section | None:
    """The error on the straight path from the network to the algorithm."""
    points = () if analysis.evidence.interpolation is None else analysis.evidence.interpolation.points
    outcomes = [o for p in points for o in (p.mixed, p.idle) if is_finite(o.mse)]
    if not outcomes:
        return None
    _, ceiling = _limits(analysis, outcomes)
    values = [o.mse for o in outcomes if is_finite(o.mse)]
    log = max(values) > 5 * min(values) > 0
    mixed = Series(key="mixed", label=f"to the {stand_in(analysis)}", colour="var(--series-3)", symbol="diamond")
    idle = Series(key="idle", label="control: to layers that do nothing", colour="var(--muted)", symbol="x")
    looks: tuple[tuple[Series, dict[str, Any]], ...] = ((mixed, {"width": 2.5}), (idle, {"dash": "dot", "size": 6}))
    data = []
    for series, look in looks:
        drawn = [
            Point(p.share, o.mse, o.stderr, f"{100 * p.share:.0f} % {label(series.label)}: {_error_text(o)}")
            for p in points
            for o in [getattr(p, series.key)]
        ]
        data.append(curve(series, drawn, log=log, ceiling=ceiling, **look))
    title, inside = "mean squared error", [min(v, ceiling) for v in values]
    y = log_axis(title, inside, dense=True) if log else axis(title, rangemode="tozero")
    x = axis("from the network (0) to the algorithm (1)", range=[-0.03, 1.03], zeroline=False)
    description = (
        "All layers at once move in a straight line from the network's products of weights to those of the "
        f"{stand_in(analysis)}, (1 - t) K + t K', whatever the gauge of the heads; on {analysis.evidence.replaced} "
        "prompts that were not fitted. Two accounts of one solution have no barrier between them. Control: the same "
        f"path to layers that do nothing. Bars are 95 % intervals.{_edges(values, 0.0, ceiling)}"
    )
    columns = {
        "share of the way": lambda p: f"{100 * p.share:.0f} %", "error ± stderr": "mixed.mse:stderr",
        "change to the network's ± stderr": lambda p: change_text(p.mixed), "R² [95 %]": "mixed.fidelity",
        "control: error ± stderr": "idle.mse:stderr", "control: R² [95 %]": "idle.fidelity",
    }  # fmt: skip
    panels, table = [plot("interpolation", data, x, y, 320)], tabulate(points, columns)
    title, finding = "The path to the algorithm", interpolation_finding(analysis)
    return charted("interpolation", title, finding, description, panels, table, legend=(mixed, idle), half=True)


def _error_text(outcome: Outcome) -> str:
    return f"{estimate(outcome.mse, outcome.stderr)}; R² {interval(outcome.fidelity, outcome.fidelity_ci)}"


@section("absorption", title="directions of the rest", where="left")
def absorption(analysis: Analysis) -> Section | None:
    """R^2 against the network by how many directions of the remainder are kept in every layer."""
    rows = [row for row in analysis.evidence.absorption if is_finite(row.fidelity)]
    if not rows:
        return None
    lowest = max(min(v for row in rows for v in (row.fidelity, row.fidelity_ci[0]) if is_finite(v)), -0.1)
    margin = 0.05 * max(1 - lowest, 1e-3)  # a rise from 0.98 to 1 is seen as well as one from 0
    series = Series(key="absorption", label="R²", colour="var(--series-1)", symbol="circle")
    drawn = points(enumerate(rows), "0", "1.fidelity", lambda e, r2: f"{e[1].directions} directions: R² {r2}")
    ticks = {"tickvals": list(range(len(rows))), "ticktext": [str(row.directions) for row in rows]}
    x = axis("directions kept of what is left, in every layer", **ticks)
    y = axis("R² against the network", range=[lowest - margin, 1 + margin])
    description = (
        "The next larger family: every layer is cut to the ω and traces of its own weights and the "
        "leading singular directions of what is left, each of them a head of rank one; nothing is refitted. If few "
        "directions restore the behaviour, what is left is of low rank where it matters. On "
        f"{analysis.evidence.replaced} prompts; bars are 95 % intervals."
    )
    columns = {"directions": "directions", "R² against the network [95 %]": "fidelity"}
    panels = [plot("absorption", [curve(series, drawn, floor=lowest)], x, y, 280)]
    title, table = "Directions of the rest", tabulate(analysis.evidence.absorption, columns)
    return charted("absorption", title, absorption_finding(analysis.evidence.absorption), description, panels, table)
