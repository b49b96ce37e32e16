"""What the weights hold beside the four ω: how much, where, and what it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from interp.reports.numbers import (
    DASH,
    at_least,
    at_most,
    interval,
    is_finite,
    layers_named,
    number,
    percent,
    spanned,
)
from interp.reports.plots import HOVER, Point, axis, bounded, charted, heat_map, layer_axis, marks, plot
from interp.reports.registry import section
from interp.reports.sections.families import chosen_family
from interp.reports.sections.losses import stand_in
from interp.reports.tabulate import points, tabulate
from interp.results import Analysis, Layer, Panel, Regression, Remainder, Section, Series, Skipped

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
    live = _live(analysis)
    if not live:
        return "No layer has weights that reach the output"
    least = min(live, key=lambda layer: layer.split.block_scalar or 0.0)
    what = "block-scalar maps account" if analysis.sequences is not None else "the four ω account"
    subject, share = what[0].upper() + what[1:], percent(least.split.block_scalar)
    broken = f"{percent(least.split.residual)} breaks the rotation symmetry"
    if len(live) == 1:
        return f"{subject} for {share} of the weights of the layer; {broken}"
    if (least.split.block_scalar or 0.0) < REGULAR:
        return f"Layer {least.index} is the least regular: {what} for {share} of its weights, and {broken}"
    most = at_most(max(layer.split.residual or 0.0 for layer in live))
    return (
        f"{subject} for {at_least(least.split.block_scalar)} of the weights of every layer; "
        f"{most} breaks the rotation symmetry"
    )


def _live(analysis: Analysis) -> list[Layer]:
    return [layer for layer in analysis.layers if is_finite(layer.split.block_scalar)]


def unexplained_sentence(analysis: Analysis) -> str:
    """What the algorithm does not predict; empty when it was not measured."""
    verdict, who = analysis.verdict, f"The {stand_in(analysis)} leaves"
    if verdict.fidelity is None:
        return ""
    if "rounding" in interval(verdict.fidelity, verdict.fidelity_ci):
        return f"{who} nothing of the network's predictions unexplained, to rounding"
    left = percent(1 - verdict.fidelity).replace("<", "less than")
    return f"{who} {left} of the variance of the network's predictions unexplained"


@dataclass(frozen=True)
class Place:
    """The largest block of a remainder."""

    where: str
    share: float


def block_share(entry: Remainder) -> Mapping[tuple[str, str], float]:
    """Share of the remainder's energy by (update, block of the Gram matrix)."""
    return {} if entry.blocks is None else {(ae, bc): entry.blocks.get(ae, {}).get(bc, 0.0) for ae, bc in BLOCKS}


def where_it_lies(entry: Remainder) -> Place | None:
    share, key = max(((v, k) for k, v in block_share(entry).items()), key=lambda pair: pair[0], default=(0.0, None))
    return None if key is None else Place(BLOCKS[key], share)


def remainder_finding(analysis: Analysis) -> str:
    """What share of the weights and of the behaviour the four omegas carry, where they do not carry nearly all."""
    shares = {layer.index: layer.split.block_scalar or 0.0 for layer in _live(analysis)}
    if not shares:
        return "No layer has weights that reach the output"
    behaviour = _behaviour(analysis)
    irregular = [i for i, share in shares.items() if share < REGULAR]
    if not irregular:
        least = min(shares.values())
        held = f"{at_least(least)} of the weights of every layer"
        held = held if len(shares) > 1 else f"{percent(least)} of the weights"
        return f"The four ω carry {held}{behaviour and ', and ' + behaviour}"
    held = spanned([percent(f(shares[i] for i in irregular)) for f in (min, max)])
    surprising = chosen_family(analysis) is not None and analysis.verdict.algorithm in _OMEGA_FAMILIES
    only, link = ("only ", ", and yet ") if surprising else ("", ", and ")
    return f"The four ω carry {only}{held} of the weights of {layers_named(irregular)}{behaviour and link + behaviour}"


def _behaviour(analysis: Analysis) -> str:
    """Fidelity of the best algorithm that has omegas only: the chosen one, or diag."""
    chosen = chosen_family(analysis)
    name = chosen.name if chosen is not None and chosen.name in _OMEGA_FAMILIES else "diag"
    family = next((f for f in analysis.families if f.name == name), None)
    if family is None or not is_finite(family.fidelity):
        return ""
    return f"refitted they predict what the network predicts to R² = {interval(family.fidelity, family.fidelity_ci)}"


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
def unexplained(analysis: Analysis) -> Section | None:
    finding = unexplained_sentence(analysis)
    return (
        Section(name="unexplained", title="What the algorithm does not predict", finding=finding) if finding else None
    )


@section("remainder", title="what the layers hold beside the ω", where="left", part="regression")
def remainder(analysis: Analysis, regression: Regression) -> Section | Skipped:
    """Layer by layer: what share of the weights and of the behaviour the omegas carry, and where the rest lies."""
    entries = regression.remainder
    if not any(is_finite(entry.energy) for entry in entries):
        return Skipped("the layers have no say in the prediction, or their weights overflow")
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    blocks = list(_blocks(entries))
    description = (
        f"{'First: t' if blocks else 'T'}he share of a layer's weight energy in the four ω, and R² of the predictions "
        "against the network's when this one layer is replaced by four ω with their output-weighted values, or by its "
        "weights without what is neither ω nor trace. Bars are 95 % intervals; a triangle at the lower edge is an R² "
        f"below {_LOWEST}.{_SECOND if blocks else ''}"
    )
    columns = {
        "layer": "layer", "weights in ω": lambda e: percent(shares.get(e.layer)),
        "R², four ω in its place [95 %]": "omega_fidelity:omega_ci", "weights left": "energy:%",
        "R², rest taken out [95 %]": "projected_fidelity:projected_ci", "rank": "rank:2",
        "first five directions": lambda e: ", ".join(map(percent, e.leading or ())) or DASH,
        "where it lies": lambda e: _largest(e) or e.why or DASH,
    }  # fmt: skip
    panels, table = (_shares(entries, shares), *blocks), tabulate(entries, columns)
    title, finding = "What the layers hold beside the ω", remainder_finding(analysis)
    legend, remarks = (_WEIGHTS, _OMEGAS, _PROJECTED), tuple(remainder_sentences(analysis))
    return charted("remainder", title, finding, description, panels, table, legend=legend, remarks=remarks)


def _largest(entry: Remainder) -> str:
    shares = sorted(block_share(entry).items(), key=lambda pair: -pair[1])
    return "; ".join(f"{BLOCKS[key]} {percent(share)}" for key, share in shares if share >= _WORTH_A_ROW)


def _shares(entries: Sequence[Remainder], shares: Mapping[int, float | None]) -> Panel:
    weights = [
        Point(e.layer, share, None, f"layer {e.layer}, weights in the four ω: {percent(share)}")
        for e in entries
        for share in [shares.get(e.layer)]
    ]
    omegas, projected = (
        points(entries, "layer", field, lambda e, r2, what=what: f"layer {e.layer}, {what}: R² = {r2}")
        for field, what in (
            ("omega_fidelity:omega_ci", "four ω in its place"), ("projected_fidelity:projected_ci", "rest taken out"),
        )
    )  # fmt: skip
    series = ((_WEIGHTS, weights, -0.16), (_OMEGAS, omegas, 0.0), (_PROJECTED, projected, 0.16))
    data = [marks(look, drawn, floor=_LOWEST, aside=aside, size=9) for look, drawn, aside in series]
    x, y = layer_axis([entry.layer for entry in entries], "layer"), bounded("share, or R²", _LOWEST)
    return plot("remainder-shares", data, x, y, 340, "what the four ω carry")


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
def split(analysis: Analysis) -> Section | None:
    layers = [layer for layer in analysis.layers if layer.split.residual is not None]
    if not layers:
        return None
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
    x, y = layer_axis([layer.index for layer in analysis.layers], "layer"), axis("share of ‖K‖² (%)", range=[0, 101])
    panels = [plot("split", data, x, y, 250, barmode="stack", bargap=0.6)]
    table = tabulate(analysis.layers, {"layer": "index"} | {part.label: f"split.{part.key}:%" for part in parts})
    description = (
        "Energy is the squared size ‖K‖² of K, what the heads of a layer add up to; only its entries that "
        "can reach the output count."
    )
    title, finding = "Where the weight energy is", split_finding(analysis)
    return charted("split", title, finding, description, panels, table, legend=parts, short=table)
