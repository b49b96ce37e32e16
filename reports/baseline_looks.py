"""How baselines look in every figure that has them, and which curves of a plot cannot be told apart.

What a baseline is decides its hue, which of its kind it is the shade, the dash and the symbol: gradient descent goes
from pale to strong with its steps. No two lines differ by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interp.reports.numbers import is_finite, listed
from interp.reports.plots import SYMBOLS, Point, label
from interp.results import Series

__all__ = ["DASHES", "as_drawn", "baseline_series", "coinciding", "names_explained", "quoted"]

DASHES = ("dot", "dashdot", "dash", "longdash")
_KINDS = {"gd": ("gd-1", "gd-2", "gd-4", "gd-8"), "ridge": ("constrr", "adarr", "tunedrr")}
_LOOKS = {name: (f"var(--{hue}-{k})", k) for hue, names in _KINDS.items() for k, name in enumerate(names)} | {
    "oracle": ("var(--series-1)", 0), "network": ("var(--series-1)", 1), "ols": ("var(--series-6)", 2),
    "null": ("var(--series-4)", 3),
}  # fmt: skip
_APART = 0.005  # of the height of the plot: curves nearer than this everywhere are drawn on each other


def baseline_series(name: str, text: str, names: Sequence[str]) -> Series:
    """The series of one baseline among those of a figure."""
    others = [n for n in names if n not in _LOOKS]
    colour, k = _LOOKS.get(name) or ("var(--muted)", others.index(name) if name in others else 0)
    symbol, dash = SYMBOLS[k % len(SYMBOLS)], DASHES[k % len(DASHES)]
    return Series(key=label(name), label=text, colour=colour, symbol=symbol, dash=dash)


_NAMES = {
    "constrr": "ridge, one penalty: the penalty in brackets for every prompt, the best on average",
    "adarr": "adaptive ridge: the penalty follows the noise that the residuals of the prompt's least squares suggest",
    "tunedrr": "tuned adaptive ridge: that noise variance times the factor in brackets, up to the cap if there is one",
}


def names_explained(names: Iterable[str]) -> str:
    """What the kinds of ridge among these baselines are, in a sentence; empty when there are none."""
    known = list(names)
    said = [text for name, text in _NAMES.items() if name in known]
    return f" {'; '.join(said)[0].upper()}{'; '.join(said)[1:]}." if said else ""


def quoted(text: str) -> str:
    """A label, in quotes where it could be read as two."""
    return f"“{text}”" if "," in text else text


def as_drawn(trace: Mapping[str, Any]) -> list[Point]:
    """The points of a trace, those beyond an edge at that edge."""
    return [Point(x, y, None, "") for x, y in zip(trace["x"], trace["y"], strict=True)]


def coinciding(curves: Mapping[str, Sequence[Point]], *, log: bool) -> str:
    """A sentence on the curves that lie on each other, by what the legend calls them; empty when none do."""
    heights = {
        name: {p.x: math.log(p.y) if log else float(p.y) for p in points if is_finite(p.y) and (p.y > 0 or not log)}
        for name, points in curves.items()
    }
    known = [v for curve in heights.values() for v in curve.values()]
    near = _APART * (max(known, default=0.0) - min(known, default=0.0))
    groups: list[list[str]] = []
    for name, curve in heights.items():
        for group in groups:
            other = heights[group[0]]
            if curve and curve.keys() == other.keys() and all(abs(curve[x] - other[x]) <= near for x in curve):
                group.append(name)
                break
        else:
            groups.append([name])
    said = [listed([quoted(name) for name in group], most=8) for group in groups if len(group) > 1]
    return f" Curves that lie on each other: {'; '.join(said)}." if said else ""
