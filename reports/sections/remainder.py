"""What the weights hold beside the four ω: how much, where, and what it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from interp.reports.numbers import (
    DASH,
    Interval,
    at_least,
    at_most,
    interval,
    is_finite,
    layers_named,
    number,
    percent,
)
from interp.reports.plots import HOVER, Point, axis, bounded, charted, heat_map, layer_axis, layout, marks
from interp.reports.registry import section
from interp.reports.sections.families import chosen_family
from interp.reports.sections.losses import stand_in
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Panel, Remainder, Section, Series, Skipped

__all__ = ["remainder_finding", "remainder_sentences", "split_finding", "unexplained_sentence", "where_it_lies"]

REGULAR = 0.9  # share of the weights from which the omegas are said to describe a layer
_LOWEST = -0.1  # R^2 below it is drawn at the edge
_WORTH_A_ROW = 0.01  # share of a remainder from which a block has a row of its own
_OMEGA_FAMILIES = ("gd", "gd++", "diag", "tied gd", "tied gd++", "tied diag")
NAMES = {"xx": "x ← x", "xy": "x ← y", "yx": "y ← x", "yy": "y ← y"}  # update: destination, source
READ = {"xx": "Σ", "xy": "α", "yy": "λ"}  # block of the Gram matrix
BLOCKS = {(ae, bc): f"{name}, read from {gram}" for ae, name in NAMES.items() for bc, gram in READ.items()}
_PARTS = (
    Series(key="block_scalar", label="block-scalar (the four ω)", colour="var(--series-1)", symbol="square"),
    Series(key="trace", label="trace terms", colour="var(--series-2)", symbol="square"),
    Series(key="residual", label="residual (breaks the symmetry)", colour="var(--series-4)", symbol="square"),
)
_WEIGHTS = Series(key="weights", label="share of the weights in the four ω", colour="var(--series-2)", symbol="square")
_OMEGAS = Series(key="omegas", label="behaviour with four ω in its place", colour="var(--series-1)", symbol="circle")
_PROJECTED = Series(
    key="projected", label="behaviour with the rest taken out", colour="var(--series-3)", symbol="diamond"
)
_SECOND = (
    " Second: where the rest lies, by the update it makes (destination ← source) and the part of the Gram matrix that "
    "it reads; the rank is the number of equal directions it amounts to, of 'Gram matrix to update'."
)


def split_finding(analysis: Analysis) -> str:
    live = [layer for layer in analysis.layers if is_finite(layer.split.block_scalar)]
    if not live:
        return "No layer has weights that reach the output"
    least = min(live, key=lambda layer: layer.split.block_scalar or 0.0)
    what = "block-scalar maps account" if analysis.sequences is not None else "the four ω account"
    broken = percent(least.split.residual)
    if len(live) == 1:
        share = percent(least.split.block_scalar)
        subject = f"{what[0].upper()}{what[1:]}"
        return f"{subject} for {share} of the weights of the layer; {broken} breaks the rotation symmetry"
    if (least.split.block_scalar or 0.0) < 0.9:
        return (
            f"Layer {least.index} is the least regular: {what} for {percent(least.split.block_scalar)} of "
            f"its weights, and {broken} breaks the rotation symmetry"
        )
    most = at_most(max(layer.split.residual or 0.0 for layer in live))
    return (
        f"{what[0].upper()}{what[1:]} for {at_least(least.split.block_scalar)} of the weights of every layer; "
        f"{most} breaks the rotation symmetry"
    )


def unexplained_sentence(analysis: Analysis) -> str:
    """What the algorithm does not predict; empty when it was not measured."""
    verdict = analysis.verdict
    if verdict.fidelity is None:
        return ""
    left = percent(1 - verdict.fidelity)
    who = f"The {stand_in(analysis)} leaves"
    if "rounding" in interval(verdict.fidelity, verdict.fidelity_ci):
        return f"{who} nothing of the network's predictions unexplained, to rounding"
    return f"{who} {left.replace('<', 'less than')} of the variance of the network's predictions unexplained"


@dataclass(frozen=True)
class Place:
    """The largest block of a remainder."""

    where: str
    share: float


def block_share(entry: Remainder) -> Mapping[tuple[str, str], float]:
    """Share of the remainder's energy by (update, block of the Gram matrix)."""
    return {} if entry.blocks is None else {(ae, bc): entry.blocks.get(ae, {}).get(bc, 0.0) for ae, bc in BLOCKS}


def where_it_lies(entry: Remainder) -> Place | None:
    shares = block_share(entry)
    if not shares:
        return None
    key = max(shares, key=lambda k: shares[k])
    return Place(BLOCKS[key], shares[key])


def remainder_finding(analysis: Analysis) -> str:
    """What share of the weights and of the behaviour the four omegas carry, where they do not carry nearly all."""
    live = [layer for layer in analysis.layers if is_finite(layer.split.block_scalar)]
    if not live:
        return "No layer has weights that reach the output"
    shares = {layer.index: layer.split.block_scalar or 0.0 for layer in live}
    behaviour = _behaviour(analysis)
    irregular = [i for i, share in shares.items() if share < REGULAR]
    if not irregular:
        least = min(shares.values())
        held = (
            f"{at_least(least)} of the weights of every layer" if len(live) > 1 else f"{percent(least)} of the weights"
        )
        return f"The four ω carry {held}{behaviour and ', and ' + behaviour}"
    low, high = (percent(f(shares[i] for i in irregular)) for f in (min, max))
    held = low if low == high else f"{low} to {high}"
    surprising = chosen_family(analysis) is not None and analysis.verdict.algorithm in _OMEGA_FAMILIES
    only, link = ("only ", ", and yet ") if surprising else ("", ", and ")
    return f"The four ω carry {only}{held} of the weights of {layers_named(irregular)}{behaviour and link + behaviour}"


def _diag(analysis: Analysis) -> tuple[float, tuple[float | None, float | None]] | None:
    """Fidelity of the best algorithm that has omegas only: the chosen one, or diag."""
    chosen = chosen_family(analysis)
    names = (chosen.name,) if chosen is not None and chosen.name in _OMEGA_FAMILIES else ("diag",)
    family = next((f for f in analysis.families if f.name in names), None)
    return None if family is None or not is_finite(family.fidelity) else (family.fidelity, family.fidelity_ci)


def _behaviour(analysis: Analysis) -> str:
    live = _diag(analysis)
    return "" if live is None else f"refitted they predict what the network predicts to R² = {interval(*live)}"


def remainder_sentences(analysis: Analysis) -> Iterator[str]:
    """One for every layer of which something is left."""
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    for entry in () if analysis.regression is None else analysis.regression.remainder:
        place = where_it_lies(entry)
        if place is None or entry.rank is None:
            continue
        yield (
            f"Layer {entry.layer}: the four ω carry {percent(shares.get(entry.layer))} of the weights and, put in its "
            f"place, R² = {interval(entry.omega_fidelity, entry.omega_ci)} of the behaviour. Of what is left, "
            f"{percent(place.share)} is in {place.where}, and its rank is about {number(entry.rank, 2)}."
        )


@section("unexplained", title="what the algorithm does not predict", where="left")
def unexplained(analysis: Analysis) -> Iterator[Section]:
    if sentence := unexplained_sentence(analysis):
        yield Section(name="unexplained", title="What the algorithm does not predict", finding=sentence)


@section("remainder", title="what the layers hold beside the ω", where="left")
def remainder(analysis: Analysis) -> Iterator[Section | Skipped]:
    """Layer by layer: what share of the weights and of the behaviour the omegas carry, and where the rest lies."""
    if analysis.regression is None:
        return
    entries = analysis.regression.remainder
    if not any(is_finite(entry.energy) for entry in entries):
        yield Skipped("the layers have no say in the prediction, or their weights overflow")
        return
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    blocks = list(_blocks(entries))
    sentences = tuple(remainder_sentences(analysis))
    description = (
        f"{'First: t' if blocks else 'T'}"
        "he share of a layer's weight energy in the four ω, and R² of the predictions against the network's when this "
        "one layer is replaced by four ω with their output-weighted values, or by its weights without what is neither "
        "ω nor trace. Bars are 95 % intervals; a triangle at the lower edge is an R² below "
        f"{_LOWEST}.{_SECOND if blocks else ''}"
    )
    columns = {
        "layer": "layer", "weights in ω": lambda e: percent(shares.get(e.layer)),
        "R², four ω in its place [95 %]": "omega_fidelity:omega_ci", "weights left": "energy:%",
        "R², rest taken out [95 %]": "projected_fidelity:projected_ci", "rank": "rank:2",
        "first five directions": lambda e: ", ".join(map(percent, e.leading or ())) or DASH,
        "where it lies": lambda e: _largest(e) or e.why or DASH,
    }  # fmt: skip
    panels = (_shares(entries, shares), *blocks)
    table = tabulate(entries, columns)
    legend = (_WEIGHTS, _OMEGAS, _PROJECTED)
    title = "What the layers hold beside the ω"
    finding = remainder_finding(analysis)
    yield charted("remainder", title, finding, description, panels, table, legend=legend, remarks=sentences)


def _largest(entry: Remainder) -> str:
    shares = sorted(block_share(entry).items(), key=lambda pair: -pair[1])
    return "; ".join(f"{BLOCKS[key]} {percent(share)}" for key, share in shares if share >= _WORTH_A_ROW)


def _shares(entries: Sequence[Remainder], shares: Mapping[int, float | None]) -> Panel:
    values: dict[str, list[tuple[int, float | None, Interval]]] = {
        "weights": [(e.layer, shares.get(e.layer), (None, None)) for e in entries],
        "omegas": [(e.layer, e.omega_fidelity, e.omega_ci) for e in entries],
        "projected": [(e.layer, e.projected_fidelity, e.projected_ci) for e in entries],
    }
    said = {
        "weights": "weights in the four ω:",
        "omegas": "four ω in its place: R² =",
        "projected": "rest taken out: R² =",
    }
    data = []
    for aside, series in zip((-0.16, 0.0, 0.16), (_WEIGHTS, _OMEGAS, _PROJECTED), strict=True):
        text = percent if series is _WEIGHTS else None
        points = [
            Point(i, v, ends, f"layer {i}, {said[series.key]} {text(v) if text else interval(v, ends)}")
            for i, v, ends in values[series.key]
            if is_finite(v)
        ]
        data.append(marks(series, points, floor=_LOWEST, aside=aside, size=9))
    plot = layout(layer_axis([entry.layer for entry in entries], "layer"), bounded("share, or R²", _LOWEST))
    return Panel(name="remainder-shares", title="what the four ω carry", data=data, layout=plot, height=340)


def _blocks(entries: Sequence[Remainder]) -> Iterator[Panel]:
    """A heat map: rows are blocks with at least a hundredth of some layer's remainder, columns are layers."""
    shares = {entry.layer: block_share(entry) for entry in entries}
    rows = [key for key in BLOCKS if any(part.get(key, 0.0) >= _WORTH_A_ROW for part in shares.values())]
    if not rows:
        return
    values = [[shares[e.layer].get(key) for e in entries] for key in rows]
    wide = len(entries) > 5  # no room for more than the number of the layer, on a narrow screen
    ticks = [
        str(e.layer) if wide else f"{e.layer}<br>{_short(e.energy)}<br>{'' if e.rank is None else number(e.rank, 2)}"
        for e in entries
    ]
    yield heat_map(
        "remainder-blocks",
        values,
        [[_hover(e, key, shares[e.layer].get(key)) for e in entries] for key in rows],
        ("layer" if wide else "layer; share left; rank", ticks),
        ("update · read from", [BLOCKS[key].replace(", read from ", " · ") for key in rows]),
        title="where the rest lies",
        height=150 + 30 * max(len(rows), 3),
        cells=[["" if v is None or v < 0.005 or wide else f"{100 * v:.0f} %" for v in line] for line in values],
    )


def _hover(entry: Remainder, key: tuple[str, str], share: float | None) -> str:
    rank = "" if entry.rank is None else f"; rank {number(entry.rank, 2)}"
    return f"layer {entry.layer}, {BLOCKS[key]}: {percent(share)} of what is left ({_short(entry.energy)}{rank})"


def _short(share: float | None) -> str:
    """A percentage that fits under a column."""
    if not is_finite(share):
        return DASH
    return "0" if share < 5e-6 else percent(share)


@section("split", title="where the weight energy is", where="left")
def split(analysis: Analysis) -> Iterator[Section]:
    layers = [layer for layer in analysis.layers if layer.split.residual is not None]
    if not layers:
        return
    parts = _PARTS if any(layer.omega for layer in layers) else (replace(_PARTS[0], label="block-scalar"), *_PARTS[1:])
    data = [
        {
            "type": "bar", "legendgroup": part.key, "name": part.label, "x": [layer.index for layer in layers],
            "y": [100 * (getattr(layer.split, part.key) or 0.0) for layer in layers], "marker": {"color": part.colour},
            "customdata": [f"layer {x.index}: {percent(getattr(x.split, part.key))} {part.label}" for x in layers],
            "hovertemplate": HOVER,
        }
        for part in parts
    ]  # fmt: skip
    x = layer_axis([layer.index for layer in analysis.layers], "layer")
    plot = layout(x, axis("share of ‖K‖² (%)", range=[0, 101]), barmode="stack", bargap=0.6)
    columns = {part.label: lambda layer, key=part.key: percent(getattr(layer.split, key)) for part in parts}
    table = tabulate(analysis.layers, {"layer": "index", **columns})
    description = (
        "Energy is the squared size ‖K‖² of K, what the heads of a layer add up to; only its entries that "
        "can reach the output count."
    )
    panel = Panel(name="split", title="", data=data, layout=plot, height=250)
    title = "Where the weight energy is"
    yield charted("split", title, split_finding(analysis), description, [panel], table, legend=parts, short=table)
