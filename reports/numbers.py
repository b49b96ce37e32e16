"""Numbers as text: as many digits as the uncertainty allows, and never fewer than it needs.

The minus sign is the ASCII hyphen throughout, so that a number copied from a report is a number in any language.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from interp.errors import visible

__all__ = [
    "DASH", "Z95", "Interval", "at_least", "at_most", "estimate", "interval", "is_finite", "layers_named", "listed",
    "number", "percent", "plain", "rounded", "several", "spanned",
]  # fmt: skip

Interval = tuple[float | None, float | None]
DASH = "—"  # stands for "there is no such number"
Z95 = 1.959964  # a 95 % interval is the estimate +- Z95 standard errors

LONGEST_TEXT = 4000  # characters of a text that a file may have a part in

_EXACT = 1e-12  # an R² this close to 1 is 1 as far as float64 can tell
_MOST_DIGITS = 7  # a planted network has standard errors of 1e-12; nobody reads twelve digits


def is_finite(value: float | int | None) -> TypeGuard[float]:
    """Is there such a number?"""
    return value is not None and math.isfinite(value)


def _exponent(value: float | int) -> int:
    """k with 10^k <= |value| < 10^(k+1); 0 for 0."""
    return math.floor(math.log10(abs(value))) if value else 0


def _places(stderr: float | int) -> int:
    """Decimal places that show one digit of ``stderr``, or two when the first is a 1 (0.02, but 0.018)."""
    k = _exponent(stderr)
    return (1 if stderr / 10.0**k < 1.95 else 0) - k


def _needs_power(scale: float | int) -> bool:
    return scale != 0 and not 1e-3 <= scale < 1e6


def number(value: float | int | None, digits: int = 4) -> str:
    """``digits`` significant digits, with a power of ten only below 1e-3 and from 1e6."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    if _needs_power(abs(value)):
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(power)}"
    return f"{value:.{max(digits - 1 - _exponent(value), 0)}f}"


def rounded(value: float | int | None, stderr: float | int | None) -> str:
    """The value to the last digit that its standard error leaves meaningful, without the error."""
    if value is None or not math.isfinite(value):
        return DASH
    if not stderr or not 0 < stderr < math.inf:
        return number(value)
    if value and _exponent(value) + _places(stderr) + 1 > _MOST_DIGITS:
        return number(value, _MOST_DIGITS)
    scale = max(abs(value), stderr)
    if _needs_power(scale):
        k = _exponent(scale)
        return f"{value / 10.0**k:z.{max(_places(stderr / 10.0**k), 0)}f}e{k}"
    return f"{value:z.{max(_places(stderr), 0)}f}"


def estimate(value: float | int | None, stderr: float | int | None) -> str:
    """``-0.0153 ± 0.0002``: the value to the last digit that its standard error leaves meaningful."""
    text = rounded(value, stderr)
    if value is None or stderr is None or not (math.isfinite(value) and 0 <= stderr < math.inf):
        return text
    if stderr == 0:
        return f"{text} to rounding"
    if value and _exponent(value) + _places(stderr) + 1 > _MOST_DIGITS:
        mantissa, power = f"{stderr:.0e}".split("e")
        return f"{text} ± {mantissa}e{int(power)}"
    if "e" in text:
        mantissa, power = text.split("e")
        places = len(mantissa.partition(".")[2])
        return f"({mantissa} ± {stderr / 10.0 ** int(power):.{places}f})e{power}"
    return f"{text} ± {stderr:.{max(_places(stderr), 0)}f}"


def interval(value: float | None, bounds: tuple[float | None, float | None]) -> str:
    """An R² or a coefficient with its interval, ``0.99987 [0.99981, 0.99992]``: to the last digit that its width
    allows."""
    if not is_finite(value):
        return DASH
    lo, hi = bounds
    if not (is_finite(lo) and is_finite(hi)):
        return _short_of_one(value)
    if all(abs(1 - v) <= _EXACT for v in (value, lo, hi)):
        return "1 to rounding"
    if max(abs(value), abs(lo), abs(hi)) >= 1e4:  # an R² of a model that explodes
        return f"{number(value, 2)} [{number(lo, 2)}, {number(hi, 2)}]"
    half = (hi - lo) / 2
    if half <= 0:
        return f"{_short_of_one(value)} [{_short_of_one(lo)}, {_short_of_one(hi)}]"
    places = min(max(_places(half), 0), 12)
    return f"{value:z.{places}f} [{lo:z.{places}f}, {hi:z.{places}f}]"


def _short_of_one(value: float) -> str:
    """A share of variance; 0.9999996 is not printed as 1."""
    if _EXACT < 1 - value < 1e-3:
        return f"{value:.{min(1 - _exponent(1 - value), 12)}f}"
    return number(value)


def percent(share: float | None) -> str:
    """``99.97 %``: two digits of the smaller of the share and its complement."""
    if share is None or not math.isfinite(share):
        return DASH
    value = 100 * share
    if abs(value) >= 1e4:
        return f"{number(value, 2)} %"
    rest = min(abs(value), abs(100 - value))
    if rest < 5e-5:
        return f"{value:.0f} %" if rest == 0 else f"{'<' if value < 50 else '>'} {0.0001 if value < 50 else 99.9999} %"
    return f"{value:.{min(max(1 - _exponent(rest), 0), 4)}f} %"


def at_least(share: float | None) -> str:
    text = percent(share)
    if text == "100 %":
        return "all"
    return f"more than {text[2:]}" if text.startswith("> ") else f"at least {text}"


def at_most(share: float | None) -> str:
    text = percent(share)
    if text == "0 %":
        return "nothing"
    return f"less than {text[2:]}" if text.startswith("< ") else f"at most {text}"


def plain(text: str) -> str:
    """Text from a file, safe for a terminal: escape codes and marks of text direction are spelled out."""
    return visible(text.replace("\n", " ").replace("\t", " "), LONGEST_TEXT)


def listed(items: Sequence[str], most: int = 3) -> str:
    """``a, b and c``; beyond ``most`` items the rest are counted."""
    shown = list(items[:most]) + ([f"{len(items) - most} more"] if len(items) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def spanned(texts: Sequence[str], to: str = " to ") -> str:
    """The first and the last of sorted numbers, or the one that both are."""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}{to}{texts[-1]}"


def several(count: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def layers_named(layers: Sequence[int]) -> str:
    """``layer 2``, ``layers 0 and 1``, or ``no layer``."""
    if not layers:
        return "no layer"
    return f"layer{'s' if len(layers) > 1 else ''} {listed([str(layer) for layer in layers], most=8)}"
