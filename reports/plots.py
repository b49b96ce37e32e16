"""What a figure is, and the parts that all plots share: axes, error bars, layout.

Colours are names of custom properties ("var(--series-1)") that the page's style sheet defines for light and dark, and
the page's script puts in. Text that comes from a file goes through ``label``: plotly reads a small HTML of its own in
every string.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.reports.numbers import Z95, number, plain

__all__ = [
    "Figure",
    "Panel",
    "Series",
    "Table",
    "axis",
    "error_bars",
    "label",
    "layer_axis",
    "layout",
    "lengths",
    "log_axis",
    "spans_decades",
]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A figure's numbers as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One entry of a legend: ``key`` is the legend group of its traces."""

    key: str
    label: str
    colour: str
    symbol: str
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot. ``name`` is unique in the page; ``title`` is empty when the figure has one panel."""

    name: str
    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    finding: str
    description: str  # what is drawn: axes, bars, what is left out
    panels: tuple[Panel, ...]
    legend: tuple[Series, ...]
    table: Table


def label(text: str) -> str:
    """Text from a file, as plotly must be given it to show it and nothing else."""
    return html.escape(plain(text))


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "automargin": True,
        "gridcolor": "var(--grid)",
        "linecolor": "var(--axis)",
        "zerolinecolor": "var(--axis)",
        "ticks": "outside",
        "tickcolor": "var(--axis)",
        "exponentformat": "power",
    } | more


def layout(xaxis: dict[str, Any], yaxis: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "xaxis": xaxis,
        "yaxis": yaxis,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--ink)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--axis)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
    } | more


def error_bars(lows: Sequence[float], highs: Sequence[float], colour: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": list(highs),
        "arrayminus": list(lows),
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }


def layer_axis(indices: Sequence[int], title: str) -> dict[str, Any]:
    step = max(1, math.ceil(len(indices) / 12))  # no more tick labels than a narrow screen has room for
    ends = [min(indices) - 0.5, max(indices) + 0.5]
    return axis(title, tickvals=list(indices)[::step], range=ends, showgrid=False, zeroline=False)


def log_axis(title: str, values: Sequence[float], *, dense: bool) -> dict[str, Any]:
    """A logarithmic axis with labels at the powers of ten; also at 2 and 5 times them within one decade, or three if
    ``dense``."""
    known = [value for value in values if value > 0]
    low, high = (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 0.0)
    marks = (1, 2, 5) if high - low < (3 if dense else 1) else (1,)
    step = max(1, math.ceil((high - low) / 8))
    powers = range(math.floor(low) - 1, math.ceil(high) + 2, step)
    ticks = [mark * 10.0**power for power in powers for mark in marks]
    return axis(title, type="log", tickvals=ticks, ticktext=[number(tick, 1) for tick in ticks])


def spans_decades(values: Sequence[float]) -> bool:
    return min(values, default=0.0) > 0 and max(values) > 30 * min(values)


def lengths(pairs: Sequence[tuple[float, float | None]], *, log: bool) -> tuple[list[float], list[float]]:
    """Lengths of the 95 % bars below and above. On a log axis the interval is that of log v, v exp(+-1.96 se / v),
    which cannot cross 0."""
    low, high = [], []
    for value, stderr in pairs:
        spread = Z95 * (stderr or 0.0)
        if log and value > 0:
            factor = math.exp(min(spread / value, 20.0))
            low.append(value - value / factor)
            high.append(value * factor - value)
        else:
            low.append(spread)
            high.append(spread)
    return low, high
