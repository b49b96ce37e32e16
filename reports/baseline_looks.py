"""How baselines look in every figure that has them, and which curves of a plot cannot be told apart.

What a baseline is decides its hue, which of its kind it is the shade, the dash and the symbol: gradient descent goes
from pale to strong with its steps. No two lines differ by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from interp.reports.numbers import listed
from interp.reports.plots import SYMBOLS, Point, label
from interp.results import Series

__all__ = ["DASHES", "baseline_series", "coinciding", "names_explained", "quoted"]

DASHES = ("dot", "dashdot", "dash", "longdash")
_GD = ("gd-1", "gd-2", "gd-4", "gd-8")
_RIDGES = ("constrr", "adarr", "tunedrr")
_APART = 0.005  # of the height of the plot: curves nearer than this everywhere are drawn on each other


def baseline_series(name: str, text: str, names: Sequence[str]) -> Series:
    """The series of one baseline among those of a figure."""
    single = {"oracle": "var(--series-1)", "network": "var(--series-1)", "ols": "var(--series-6)"}
    single |= {"null": "var(--series-4)"}
    for kind, hue in ((_GD, "gd"), (_RIDGES, "ridge")):
        if name in kind:
            k = kind.index(name)
            return _series(name, text, f"var(--{hue}-{k})", k)
    others = [n for n in names if n not in (*_GD, *_RIDGES, *single)]
    k = others.index(name) if name in others else list(single).index(name) if name in single else 0
    return _series(name, text, single.get(name, "var(--muted)"), k)


def _series(name: str, text: str, colour: str, k: int) -> Series:
    return Series(
        key=label(name), label=text, colour=colour, symbol=SYMBOLS[k % len(SYMBOLS)], dash=DASHES[k % len(DASHES)]
    )


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


def coinciding(curves: Mapping[str, Sequence[Point]], *, log: bool) -> str:
    """A sentence on the curves that lie on each other, by what the legend calls them; empty when none do."""
    heights = {
        name: {p.x: math.log(p.y) if log else float(p.y) for p in points if p.y > 0 or not log}
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
