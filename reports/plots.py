"""What a figure is, and the parts that all plots share: axes, error bars, layout.

Colours are names of custom properties ("var(--series-1)") that the page's style sheet defines for light and dark, and
the page's script puts in. Text that comes from a file goes through ``label``: plotly reads a small HTML of its own in
every string.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from interp.reports.numbers import Z95, Interval, is_finite, plain
from interp.results import Figure, Panel, Section, Series, Table

__all__ = [
    "DIVERGING", "HOVER", "ORDERED", "SYMBOLS", "Bar", "Point", "axis", "bounded", "charted", "column_height",
    "count_axis", "curve", "heat_map", "label", "layer_axis", "layout", "level", "log_axis", "marks", "note",
    "ordered_series", "plot", "shaded", "spans_decades", "thinned", "tick_text", "wrapped",
]  # fmt: skip

_Item = TypeVar("_Item")
Bar = float | Interval | None  # a standard error, or the ends of a 95 % interval
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

DIVERGING = [[k / 8, f"var(--diverging-{k})"] for k in range(9)]  # about 0: blue is negative, brown is positive
ORDERED = tuple(f"var(--ordered-{k})" for k in range(6))  # from little to much
HOVER = "%{customdata}<extra></extra>"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


@dataclass(frozen=True)
class Point:
    """One point of a curve: where, its standard error or the ends of its 95 % interval, and what the page says when the
    pointer rests on it. One whose ``y`` is not known or not finite is not drawn."""

    x: float | int
    y: float | int | None
    bar: Bar
    text: str


def label(text: str) -> str:
    """Text from a file, as plotly must be given it to show it and nothing else."""
    return html.escape(plain(text))


def wrapped(text: str) -> str:
    """A tick label in lines of at most 24 characters, which leave a narrow screen room for the plot. No line breaks in
    a pair of brackets that fits on one."""
    whole = re.sub(r"\([^()]{1,22}\)", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), plain(text))
    lines = textwrap.wrap(whole, 24, break_on_hyphens=False, max_lines=4, placeholder="…")
    return "<br>".join(html.escape(line) for line in lines)


def column_height(names: Sequence[str], marks: int = 1) -> int:
    """Of a plot that has these tick labels below each other, each with so many marks beside it."""
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    return 80 + max(len(names), 2) * (10 + max(17 * lines, 9 * marks))


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}}, "automargin": True, "gridcolor": "var(--grid)",
        "linecolor": "var(--axis)", "zerolinecolor": "var(--axis)", "ticks": "outside", "tickcolor": "var(--axis)",
        "exponentformat": "power",
    } | more  # fmt: skip


def layout(xaxis: dict[str, Any], yaxis: dict[str, Any], **more: Any) -> dict[str, Any]:
    ink = {"color": "var(--ink)"}
    return {
        "xaxis": xaxis, "yaxis": yaxis, "font": {"family": "system-ui, sans-serif", "size": 13} | ink,
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8}, "showlegend": False, "hovermode": "closest",
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--axis)", "font": ink, "align": "left"},
    } | more  # fmt: skip


def plot(
    name: str, data: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], height: int, title: str = "",
    subtitle: str = "", **more: Any,
) -> Panel:  # fmt: skip
    """Traces on two axes; ``more``: of the layout."""
    made = layout(x, y, **more)
    return Panel(name=name, title=title, subtitle=subtitle, data=data, layout=made, height=height)


def charted(
    name: str, title: str, finding: str, description: str, panels: Iterable[Panel], table: Table, *,
    legend: Iterable[Series] = (), compact: bool = False, scale: tuple[str, str] | None = None,
    short: Table | None = None, **more: Any,
) -> Section:  # fmt: skip
    """A section that is a figure. ``short``: what a terminal shows of its table; ``more``: of the section."""
    figure = Figure(
        name=name, finding=finding, description=description, panels=tuple(panels), legend=tuple(legend), table=table,
        compact=compact, scale=scale,
    )  # fmt: skip
    return Section(name=name, title=title, figure=figure, table=short, **more)


def curve(
    series: Series, points: Sequence[Point], *, log: bool = False, floor: float | None = None,
    ceiling: float | None = None, lines: bool = True, dash: str = "solid", marked: bool = True, width: float = 2,
    size: int = 8, aside: float = 0.0, sideways: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The trace of one series with 95 % bars. Points below ``floor`` or above ``ceiling`` are triangles at that edge,
    without bars. ``aside``: how far all are moved, so that equal ones do not cover each other; ``sideways``: values to
    the right."""
    lowest, highest = -math.inf if floor is None else floor, math.inf if ceiling is None else ceiling
    drawn = [(p, p.y, min(max(p.y, lowest), highest)) for p in points if is_finite(p.y)]
    edges = ("triangle-left", "triangle-right") if sideways else ("triangle-down", "triangle-up")
    shapes = [edges[0] if y < at else edges[1] if y > at else series.symbol for _, y, at in drawn]
    bars = [_bar(y, p.bar, log, lowest, highest) if y == at else (0.0, 0.0) for p, y, at in drawn]
    colour, places = series.colour, [p.x + aside if aside else p.x for p, _, _ in drawn]
    values, said = [at for _, _, at in drawn], [p.text for p, _, _ in drawn]
    mode = "+".join(name for name, present in (("lines", lines), ("markers", marked)) if present)
    trace: dict[str, Any] = {
        "type": "scatter", "mode": mode, "legendgroup": series.key, "name": label(series.label),
        **dict(zip("yx" if sideways else "xy", (places, values), strict=True)),
        "customdata": said, "hovertemplate": HOVER,
    }  # fmt: skip
    if any(low or high for low, high in bars):
        lows, highs = zip(*bars, strict=True)
        bar = {"array": list(highs), "arrayminus": list(lows), "color": colour, "thickness": 1.5, "width": 4}
        trace["error_x" if sideways else "error_y"] = {"type": "data", "symmetric": False} | bar
    if lines:
        trace["line"] = {"color": colour, "width": width, "dash": dash}
    if marked:
        off = any(shape != series.symbol for shape in shapes)
        trace["marker"] = {"color": colour, "size": size, "symbol": shapes if off else series.symbol}
        if series.symbol.endswith("-open"):
            trace["marker"]["line"] = {"width": 2, "color": colour}
    return trace


def _bar(y: float, bar: Bar, log: bool, lowest: float, highest: float) -> tuple[float, float]:
    """Lengths of the bar below and above. On a log axis the interval of a standard error is that of log v, v exp(+-1.96
    se / v), which cannot cross 0."""
    if isinstance(bar, tuple):
        low, high = (end if is_finite(end) else y for end in bar)
        return max(y - max(low, lowest), 0.0), max(min(high, highest) - y, 0.0)
    spread = Z95 * (bar or 0.0)
    if log and y > 0:
        factor = math.exp(min(spread / y, 20.0))
        return y - y / factor, y * factor - y
    return spread, spread


def marks(series: Series, points: Sequence[Point], **more: Any) -> dict[str, Any]:
    """A ``curve`` without a line."""
    return curve(series, points, lines=False, **more)


def bounded(title: str, lowest: float, highest: float = 1.0, margin: float = 0.06) -> dict[str, Any]:
    """An axis of shares or of R², from 0 or from the lowest value."""
    return axis(title, range=[min(lowest, 0.0) - margin, highest + margin])


def heat_map(
    name: str, values: Sequence[Sequence[float | None]], hover: Sequence[Sequence[str]],
    columns: tuple[str, Sequence[str]], rows: tuple[str, Sequence[str]], *, height: int, title: str = "",
    cells: Sequence[Sequence[str]] | None = None, cell_size: int = 12, downwards: bool = True,
) -> Panel:  # fmt: skip
    """A map of shares from 0 to 1; ``columns`` and ``rows`` are an axis title and tick labels."""
    trace = {
        "type": "heatmap", "z": values, "x": list(range(len(columns[1]))), "y": list(range(len(rows[1]))),
        "zmin": 0, "zmax": 1, "colorscale": [[0, "var(--shade)"], [1, "var(--heat)"]], "showscale": False,
        "xgap": 2, "ygap": 2, "customdata": hover, "hovertemplate": HOVER, "hoverongaps": True,
    }  # fmt: skip
    if cells is not None:
        font = {"color": "var(--ink)", "size": cell_size}
        trace |= {"text": cells, "texttemplate": "%{text}", "textfont": font}
    x, y = axis(columns[0], tickangle=0, **_ticks(columns[1])), axis(rows[0], **_ticks(rows[1], downwards))
    return plot(name, [trace], x, y, height, title)


def _ticks(names: Sequence[str], downwards: bool = False) -> dict[str, Any]:
    ends = [-0.5, len(names) - 0.5]
    places = {"tickvals": list(range(len(names))), "ticktext": list(names), "range": ends[::-1] if downwards else ends}
    return places | {"showgrid": False, "zeroline": False, "ticks": ""}


def level(height: float, dash: str = "dash", colour: str = "var(--muted)", width: float | int = 1.5) -> dict[str, Any]:
    """A horizontal line across the plot."""
    line = {"color": colour, "dash": dash, "width": width}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": height, "y1": height, "line": line}


def shaded(low: float, high: float) -> dict[str, Any]:
    """A range of the horizontal axis."""
    place = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": low, "x1": high, "layer": "below"}
    return place | {"fillcolor": "var(--shade)", "line": {"width": 0}}


def ordered_series(labels: Sequence[str], prefix: str) -> list[Series]:
    """Series whose order the colours show; two neighbours have different symbols."""
    last, most = max(len(labels) - 1, 1), len(ORDERED) - 1
    looks = [(ORDERED[round(most * i / last)], SYMBOLS[i % len(SYMBOLS)]) for i in range(len(labels))]
    return [
        Series(key=f"{prefix}{i}", label=text, colour=colour, symbol=symbol)
        for i, (text, (colour, symbol)) in enumerate(zip(labels, looks, strict=True))
    ]


def note(text: str, **place: Any) -> dict[str, Any]:
    """A word inside a plot."""
    return {"text": text, "showarrow": False, "font": {"color": "var(--muted)", "size": 12}} | place


def thinned(items: Sequence[_Item], most: int) -> list[_Item]:
    """At most ``most`` of the items, evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def layer_axis(indices: Sequence[int], title: str) -> dict[str, Any]:
    step = max(1, math.ceil(len(indices) / 12))  # no more tick labels than a narrow screen has room for
    ends = [min(indices) - 0.5, max(indices) + 0.5]
    return axis(title, tickvals=list(indices)[::step], range=ends, showgrid=False, zeroline=False)


def name_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Names below each other."""
    ends = [len(names) - 0.5, -0.5]
    return axis("", **more, zeroline=False, tickvals=list(range(len(names))), ticktext=names, range=ends)


def count_axis(title: str, most: float | int) -> dict[str, Any]:
    """An axis of whole numbers from 0."""
    step = max(1, math.ceil(most / 6))
    ends = [-0.06 * most - 0.3, 1.06 * most + 0.3]
    return axis(title, tickvals=list(range(0, math.ceil(most) + 1, step)), range=ends)


def log_axis(title: str, values: Sequence[float], *, dense: bool, most: int = 6) -> dict[str, Any]:
    """A logarithmic axis with labels at the powers of ten; also at 2 and 5 times them within two decades, or three if
    ``dense``, but one if there is room for few (``most``). Two labels at least are among the values."""
    known = [value for value in values if value > 0]
    low, high = (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 0.0)
    step = max(1, math.ceil((high - low) / most))  # no more labels than a narrow screen has room for
    powers = range(math.floor(low) - 1, math.ceil(high) + 2, step)
    fine = high - low < (3 if dense else 2 if most > 4 else 1)
    ticks: list[float] = []
    for marks in ((1, 2, 5),) if fine else ((1,), (1, 3), (1, 2, 5)):
        ticks = [mark * 10.0**power for power in powers for mark in marks]
        if sum(low <= math.log10(tick) <= high for tick in ticks) > 1:
            break
    else:
        ticks = _even(10.0**low, 10.0**high)
    return axis(title, type="log", tickvals=ticks, ticktext=[tick_text(tick) for tick in ticks])


def _even(low: float, high: float) -> list[float]:
    """Round numbers at even steps, two or more of them from ``low`` to ``high``, and beyond both."""
    if high - low < 1e-9 * high:
        low, high = 0.5 * low, 2 * high
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(step for part in (5, 2, 1, 0.5, 0.2) if _between(low, high, step := part * size) > 1)
    first, last = math.floor(low / step) - 2, math.ceil(high / step) + 2
    return [k * step for k in range(max(first, 1), last + 1)]


def _between(low: float, high: float, step: float) -> int:
    return math.floor(high / step) - math.ceil(low / step) + 1


def tick_text(value: float) -> str:
    """A round number as a label: 0.5, 20, 2·10⁻⁵."""
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.6g}"
    mantissa, power = f"{value:.5e}".split("e")
    times = "" if float(mantissa) == 1 else f"{float(mantissa):g}·"
    return f"{times}10{str(int(power)).translate(_RAISED)}"


def spans_decades(values: Sequence[float]) -> bool:
    return min(values, default=0.0) > 0 and max(values) > 30 * min(values)
