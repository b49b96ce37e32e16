"""The mesa paper's curves as sections: losses along training, probes by layer, compressed networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from interp.papers.comparison import Row, Rows, drawn, holds, judged_table, plotted, table_of, within_bar
from interp.reports.numbers import estimate, listed, number, percent
from interp.reports.plots import Point, axis, curve, layer_axis, log_axis, ordered_series
from interp.results import Section, Table

__all__ = ["mesa_sections"]

TARGETS = {
    "next": "the next state",
    "preconditioned-published": "the preconditioned state, six steps",
    "preconditioned": "the preconditioned state, exact inverse",
}
ALONG = {
    "ours": "the network",
    "interpolated": "halfway to its block means",
    "compressed": "its block means",
    "published": "halfway to the last block means, as published",
}
KINDS = {"published": "block means, those that cost most kept", "refit": "fitted again"}
LEAST = -0.05  # of R^2 that is drawn
QUANTITIES = {
    "r2": "R²",
    "untrained": "R², untrained",
    "shuffled": "R², shuffled",
    "ours": "error in sample",
    "paper": "the paper's error",
}


def mesa_sections(groups: Mapping[str, Rows]) -> list[Section]:
    """Those that there are numbers for, figures first."""
    training, compression = groups.get("training", ()), groups.get("compression", ())
    few = [row for row in compression if "per_head" in row]
    between = [row for row in compression if row["kind"] == "interpolated"]
    layers = [row for row in training if "layer" in row]
    probed = [row for row in groups.get("probes", ()) if "target" in row]
    networks = dict.fromkeys(row["network"] for row in probed)
    claims = [row for row in groups.get("probes", ()) if row.get("claim")]
    others = [row for group, entries in groups.items() if group != "losses" for row in entries]
    judged = [row for row in others if not row.get("claim") and (row["within_bar"] is not None or "why" in row)]
    judged = [*groups.get("losses", ()), *judged]
    probes = [(partial(_probes, name), [row for row in probed if row["network"] == name]) for name in networks]
    figures = ((_training, training), *probes, (_compression, few))
    tables = ((_between, between), (_layers, layers), (_bars, judged), (_claims, claims))
    return [section(rows) for section, rows in (*figures, *tables) if rows]


def _bars(rows: Rows) -> Section:
    bars = "losses at most 3 % above the paper's, compressed and interpolated networks at most 5 % above their own"
    missing = sum("why" in row for row in rows)
    finding = within_bar(rows, f"figures are within the bar: {bars}")
    finding += f" {missing} more are missing." if missing else ""
    return Section(name="bars", title="The paper's figures", finding=finding, table=judged_table(rows))


def _claims(rows: Rows) -> Section:
    shown = {"network": "network", "claim": lambda row: row["cell"].partition(": ")[2], "figure": "ours"}
    finding = within_bar(rows, "claims about probes hold")
    table = table_of(rows, {**shown, "holds": holds})
    return Section(name="claims", title="Claims about probes", finding=finding, table=table)


def _between(rows: Rows) -> Section:
    names = ("network", *(f"{alpha:g}" for alpha in sorted({row["alpha"] for row in rows})))
    ratios: dict[str, dict[str, Any]] = {}
    for row in rows:
        ratios.setdefault(row["network"], {"network": row["network"]})[f"{row['alpha']:g}"] = row["ours"]
    note = "Multiples of the network's loss, for products between its own (0) and their block means (1)."
    table = table_of(ratios.values(), {name: name for name in names})
    return Section(name="between", title="Between the network and its block means", table=table, notes=(note,))


def _layers(rows: Rows) -> Section:
    table = table_of(rows, {
        "layer": lambda row: str(row["layer"] + 1),
        "multiple of its loss": lambda row: estimate(row["ours"], row["stderr"]),
        "share of Q outside them": lambda row: percent(row["outside_Q"]),
        "share of P outside them": lambda row: percent(row["outside_P"]),
    })  # fmt: skip
    return Section(name="layers", title="One layer alone as block means", table=table)


def _training(rows: Rows) -> Section:
    steps = [row for row in rows if "step" in row]
    legend, data = ordered_series(list(ALONG.values()), "along-"), []
    for series, key in zip(legend, ALONG, strict=True):
        points = [
            Point(row["step"], row[key], row["stderr"] if key == "ours" else None, f"{row['step']}: {row[key]:.4g}")
            for row in steps
            if row[key] is not None
        ]
        data.append(curve(series, points, log=True, size=6))
    values = [y for trace in data for y in trace["y"]]
    losses = log_axis("half the squared error of the next state, log", values, dense=True)
    if values and max(values) < 10 * min(values):  # within a decade 1, 2, 5 leave too few labels
        marks = [k * 10.0**p for p in range(-6, 7) for k in (1, 1.5, 2, 3, 5, 7)]
        losses |= {"tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}
    ratios = [row for row in rows if row["within_bar"] is not None]
    ends = ", ".join(f"{row['cell'].rpartition(', ')[2]} {number(row['ours'], 3)}" for row in ratios)
    finding = f"At the end of the training, multiples of the network's loss: {ends}"
    description = (
        "Six layers with keys of size 40, trained as published, on the same fresh sequences at every step; block means "
        "are 32 numbers per head, nothing fitted. Bars are 95 % intervals."
    )
    panel = plotted("training", data, axis("training step", zeroline=False), losses, 440)
    columns = {words: lambda row, key=key: number(row[key], 4) for key, words in ALONG.items()}
    table = table_of(steps, {"step": "step", **columns})
    return drawn("training", "Along training", finding, description, [panel], legend, table)


def _probes(name: str, rows: Rows) -> Section:
    places, layers = (sorted({row[key] for row in rows}) for key in ("position", "layer"))
    scores = {(row["target"], row["position"], row["layer"]): row for row in rows}
    legend = ordered_series([f"t = {place}" for place in places], f"{name}-t-")
    targets = [target for target in TARGETS if any(row["target"] == target for row in rows)]
    panels, cells = [], []
    for target in targets:
        data = []
        for series, place in zip(legend, places, strict=True):
            along = [scores.get((target, place, layer)) for layer in layers]
            found = [row for row in along if row is not None]
            data.append(curve(series, [_point(row, series.label) for row in found if row["r2"] is not None]))
            for key, words in QUANTITIES.items():
                if any(row[key] is not None for row in found):
                    numbers = (number(row[key], 3) if row else "" for row in along)
                    cells.append((TARGETS[target], str(place), words, *numbers))
        across, up = layer_axis(layers, "layers run"), axis("R²", range=[LEAST, 1.05])
        panels.append(plotted(f"{name}-{target}", data, across, up, 320, TARGETS[target]))
    ends = {place: scores.get(("next", place, layers[-1])) for place in places}
    reached = ", ".join(f"{number(row['r2'], 2)} at t = {place}" for place, row in ends.items() if row is not None)
    finding = f"{name}: R² of the next state after all layers is {reached}"
    description = (
        "R² of a linear probe of one token, on sequences it was not fitted to, by layers run (0: the inputs) and "
        "position t. Bars are 95 % intervals. The table has beside it the same probe on untrained networks and on the "
        "targets of other sequences, and the error by the published protocol, in sample."
    )
    table = Table(header=("target", "t", "", *(f"{layer} layers" for layer in layers)), rows=tuple(cells))
    return drawn(f"probes-{name}", f"Probes of {name}", finding, description, panels, legend, table)


def _point(row: Row, where: str) -> Point:
    low, high = row["r2_ci"]
    stderr = None if low is None or high is None else (high - low) / (2 * 1.96)
    return Point(row["layer"], row["r2"], stderr, f"{where}, {row['layer']} layers run: {row['r2']:.3f}")


def _compression_finding(rows: Rows) -> str:
    """What the smallest and the whole block means cost, over the networks."""
    costs = []
    for kind, words in KINDS.items():
        by_size: dict[int, list[float]] = {}
        for row in rows:
            if row["kind"] == kind and row["ours"] is not None:
                by_size.setdefault(row["per_head"], []).append(row["ours"])
        for size in dict.fromkeys((max(by_size), min(by_size))) if by_size else ():
            ends = dict.fromkeys((min(by_size[size]), max(by_size[size])))
            costs.append(f"{' to '.join(number(end, 3) for end in ends)} with {size} per head ({words})")
    if not costs:
        return "No network of fewer numbers was measured"
    return f"Times the network's loss with fewer numbers in its place: {listed(costs, most=4)}"


def _compression(rows: Rows) -> Section:
    sizes = sorted({row["per_head"] for row in rows})
    legend = ordered_series(list(KINDS.values()), "compression-")
    costs = [row["ours"] for row in rows if row["ours"] is not None]
    ends = [math.log10(0.8 * min(costs)), math.log10(1.25 * max(costs))] if costs else None  # the same in all panels
    across = axis("numbers per head", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    ratios = log_axis("multiple of its loss", costs, dense=True) | {"range": ends}
    panels = []
    for name in dict.fromkeys(row["network"] for row in rows):
        data = []
        for series, kind in zip(legend, KINDS, strict=True):
            points = [
                Point(row["per_head"], row["ours"], row["stderr"], f"{row['per_head']} per head: {row['ours']:.4g}")
                for row in rows
                if row["network"] == name and row["kind"] == kind and row["ours"] is not None
            ]
            data.append(curve(series, points, log=True))
        panels.append(plotted(f"compression-{name}", data, dict(across), dict(ratios), 300, name))
    description = (
        "The loss as a multiple of the network's own on the same fresh sequences, on logarithmic axes: its heads' "
        "block means, of which those that cost most are kept, and the same numbers fitted again to what the network "
        "predicts. Bars are 95 % intervals."
    )
    table = table_of(rows, {
        "network": "network",
        "": lambda row: KINDS[row["kind"]],
        "per head": "per_head",
        "numbers": "numbers",
        "multiple of its loss": lambda row: estimate(row["ours"], row["stderr"]),
    })  # fmt: skip
    return drawn("compression", "Fewer numbers", _compression_finding(rows), description, panels, legend, table)
