"""Losses on fresh prompts: beside the baselines, and after every layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from interp.reports.baseline_looks import names_explained
from interp.reports.numbers import DASH, estimate, is_finite, listed, number, rounded, several
from interp.reports.plots import (
    Point,
    axis,
    charted,
    column_height,
    curve,
    label,
    layer_axis,
    layout,
    level,
    log_axis,
    marks,
    name_axis,
    note,
    spans_decades,
    wrapped,
)
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Loss, Panel, Section, Series, Skipped

__all__ = ["ROUNDING", "depth_finding", "loss", "loss_finding", "loss_number", "stand_in"]

UNSURE = 0.1  # standard error relative to the value from which it is said beside it
ROUNDING = 1e-12  # a loss this many times smaller than another is 0 as far as float64 can tell
_MSE = "mean squared error"
_NETWORK = Series(key="network", label="the network", colour="var(--series-1)", symbol="circle")
_RECOVERED = Series(key="recovered", label="the algorithm", colour="var(--series-3)", symbol="circle")
_BASELINE = Series(key="baseline", label="baselines", colour="var(--muted)", symbol="circle")


def loss(losses: Iterable[Loss], name: str) -> Loss | None:
    return next((entry for entry in losses if entry.name == name and entry.mse is not None), None)


def loss_number(entry: Loss, other: Loss) -> str:
    """A loss, or that it is zero as far as float64 can tell beside another."""
    if entry.mse is not None and other.mse is not None and entry.mse < ROUNDING * other.mse:
        return "0 to rounding"
    return number(entry.mse)


def stand_in(analysis: Analysis) -> str:
    """What stands for the network."""
    return "recovered algorithm" if analysis.verdict.recognized else "closest family"


def loss_finding(analysis: Analysis) -> str:
    losses = analysis.evidence.losses
    network, recovered, oracle, null = (loss(losses, name) for name in ("network", "recovered", "oracle", "null"))
    if network is None:
        return "The network's loss was not measured"
    best = f"; the best possible is {loss_number(oracle, null or network)}" if oracle else ""
    if recovered is None:
        zero = f", predicting zero {number(null.mse)}" if null else ""
        return f"The network errs by {number(network.mse)}{zero}{best}"
    what = stand_in(analysis)
    if recovered.excess is not None and network.excess is not None:
        scale = network.excess if null is None or null.mse is None else min(network.excess, null.mse)
        if abs(recovered.excess) < ROUNDING * scale:
            return f"The {what} is the best possible prediction; the network stays {_above(network)} above its error"
        above, its = (_above(entry) for entry in (recovered, network))
        text = f"The {what} stays {above} above the best possible error, the network {its}"
        return text + _few_prompts(recovered, network)
    return f"The {what} errs by {number(recovered.mse)}, the network by {number(network.mse)}{best}"


def _above(entry: Loss) -> str:
    """With its standard error where that is not small beside it."""
    unsure = entry.excess_stderr is not None and entry.excess_stderr > UNSURE * abs(entry.excess or 0.0)
    return (estimate if unsure else rounded)(entry.excess, entry.excess_stderr)


def _few_prompts(*entries: Loss) -> str:
    """That a mean hangs on a few prompts, with the means without those; empty when none does."""
    if not any(_hangs_on_few(entry) for entry in entries):
        return ""
    numbers_ = listed([number(entry.trimmed, 3) for entry in entries])
    left = entries[0].left_out
    return (
        f". Here a few prompts decide: without the {left} prompt{'s' * (left != 1)} on which each errs most it is "
        f"{numbers_}"
    )


def _hangs_on_few(entry: Loss) -> bool:
    """Whether the mean is unsure, and moves by half its standard error or more when the worst prompts are left out."""
    if entry.trimmed is None or entry.excess is None or entry.excess_stderr is None:
        return False
    unsure = entry.excess_stderr > UNSURE * abs(entry.excess)
    return unsure and abs(entry.excess - entry.trimmed) > entry.excess_stderr / 2


def depth_finding(analysis: Analysis) -> str:
    values = [entry.mse for entry in analysis.evidence.depth_losses]
    if len(values) < 2 or any(v is None for v in values):
        return "Error of the prediction read out after each layer"
    mses = [v for v in values if v is not None]
    rises = [str(i) for i, (before, after) in enumerate(itertools.pairwise(mses)) if after > before]
    ends = f"from {number(mses[0])} to {number(mses[-1])}"
    if not rises:
        return f"Every layer lowers the error, {ends}"
    who = f"layer {rises[0]} does" if len(rises) == 1 else f"layers {listed(rises)} do"
    return f"The error goes {ends}; {who} not lower it"


@section("losses", title="losses", where="evidence")
def losses(analysis: Analysis) -> Iterator[Section | Skipped]:
    entries = analysis.evidence.losses
    if not entries:
        yield Skipped("this analysis has none")
        return
    paired = any(is_finite(entry.excess) for entry in entries)
    title = "above the optimum" if paired else _MSE
    drawn = [
        (entry, value, entry.excess_stderr if paired else entry.stderr)
        for entry in entries
        if is_finite(value := entry.excess if paired else entry.mse) and not (paired and entry.name == "oracle")
    ]
    what = "The mean squared error above that of the best possible prediction on the same prompts" if paired else _MSE
    table = tabulate(
        entries,
        {
            "predictor": "label",
            "mean squared error ± stderr": "mse:stderr",
            "above the optimum ± stderr": lambda e: DASH if e.name == "oracle" else estimate(e.excess, e.excess_stderr),
        },
        marked=lambda e: e.name in ("network", "recovered"),
    )
    description = (
        f"{what}, on {analysis.evidence.prompts} fresh prompts and in squared units of the label."
        f"{_halves(analysis)} Bars are 95 % intervals. A triangle at the edge is a value that is not above 0, or too "
        f"small for the axis.{names_explained(entry.name for entry in entries)}"
    )
    panels = (_ladder(drawn, title),) if drawn else ()
    title = "Losses on fresh prompts"
    yield charted("losses", title, loss_finding(analysis), description, panels, table, short=table, half=True)


def _halves(analysis: Analysis) -> str:
    if analysis.sequences is None:
        return ""
    return (
        " The losses of the sequences above are half of it. The optimum is the prediction by the true W of the "
        "sequence, which no network is told."
    )


def _ladder(drawn: Sequence[tuple[Loss, float, float | None]], title: str) -> Panel:
    """Losses as points in one column, on a log axis when they span decades."""
    largest = max(value for _, value, _ in drawn)
    above = [value for _, value, _ in drawn if value > max(ROUNDING * largest, 0.0)]
    log = spans_decades(above)
    edge = min(above, default=1.0) / 2
    names = [wrapped(entry.label) for entry, _, _ in drawn]
    data: list[dict[str, Any]] = []
    for series in (_BASELINE, _NETWORK, _RECOVERED):
        points = [
            Point(k, value, stderr, f"{label(entry.label)}: {estimate(value, stderr)}")
            for k, (entry, value, stderr) in enumerate(drawn)
            if (entry.name if entry.name in ("network", "recovered") else "baseline") == series.key
        ]
        data.append(marks(series, points, log=log, floor=edge if log else None, size=11, sideways=True))
    x = log_axis(title, above, dense=False, most=3) if log else axis(title, rangemode="tozero")
    if log:
        ends = max(v + b for t in data for v, b in zip(t["x"], t.get("error_x", {}).get("array", t["x"]), strict=True))
        room = math.log10(ends / edge)
        x["range"] = [math.log10(edge) - 0.03 * room, math.log10(ends) + 0.05 * room]
    plot = layout(x, name_axis(names))
    return Panel(name="losses", title="", data=data, layout=plot, height=column_height(names))


@section("depth", title="error after every layer", where="evidence")
def depth(analysis: Analysis) -> Iterator[Section]:
    read_outs = list(enumerate(analysis.evidence.depth_losses))
    points = [
        Point(i, entry.mse, entry.stderr, f"after {several(i, 'layer')}: {estimate(entry.mse, entry.stderr)}")
        for i, entry in read_outs
        if is_finite(entry.mse)
    ]
    if not points:
        return
    errors = [entry.mse for _, entry in read_outs if is_finite(entry.mse)]
    log = spans_decades(errors)
    lines, names = [], []
    lowest = ROUNDING * max(errors)  # what is less is 0, and has no place on a log axis
    # The curve falls from the upper line on the left to the lower one on the right: the labels keep clear of it.
    for name, title, x, anchor in (("null", "predict zero", 1, "right"), ("oracle", "optimum", 0, "left")):
        reference = loss(analysis.evidence.losses, name)
        if reference is None or not is_finite(reference.mse) or (log and reference.mse < lowest):
            continue
        lines.append(level(reference.mse))
        height = math.log10(reference.mse) if log else reference.mse  # annotations on a log axis are placed by exponent
        names.append(note(title, xref="paper", y=height, x=x, xanchor=anchor, yanchor="bottom"))
    y = log_axis(_MSE, errors, dense=True) if log else axis(_MSE, rangemode="tozero")
    x_axis = layer_axis([int(point.x) for point in points], "layers run before reading out")
    plot = layout(x_axis, y, shapes=lines, annotations=names)
    description = (
        "The prediction is read out after every layer as if it were the last; in squared units of the "
        f"label.{_halves(analysis)} Bars are 95 % intervals."
    )
    columns = {
        "layers run": "0", "mean squared error ± stderr": "1.mse:stderr", "above the optimum ± stderr": "1.excess",
    }  # fmt: skip
    panel = Panel(name="depth", title="", data=[curve(_NETWORK, points, log=log)], layout=plot, height=340)
    table = tabulate(read_outs, columns)
    yield charted("depth", "Error after every layer", depth_finding(analysis), description, [panel], table, half=True)
