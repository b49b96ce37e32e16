"""Symbols in text, set for a page: subscripts, powers and inner products of the markup that ``interp.results.section``
describes."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from interp.reports.numbers import plain

__all__ = ["typeset"]

_SYMBOLS = re.compile(  # in text that is escaped already
    r"(?P<greek>[ωτ])_(?P<channels>[a-z]+(?::[a-z]+)?)"
    r"|(?<![A-Za-z0-9_])(?P<symbol>[A-Za-zΣΩ∑]|state|previous|query)_(?:\{(?P<index>[\w+-]{1,8})\}|(?P<letter>[jktil]|\d|μ+)(?![A-Za-z0-9_]))"
    r"|(?<=[\w)>}\]])\^(?P<exponent>-?\d+|T|\?)(?!\w)"
    r"|&lt;(?P<left>\w+), (?P<right>\w+)&gt;"
    r"|(?<![\w.&;#/-])(?P<mantissa>-?\d+(?:\.\d+)?|\([^()]*\))e(?P<power>[+-]?\d+)(?![\w.]*\w)"
)


def typeset(text: str, *, powers: bool = True) -> Markup:
    """Escaped, with its symbols set. Without ``powers`` 3e-18 stays as it is: text that is copied rather than read."""

    def one(match: re.Match[str]) -> str:
        if match["greek"]:
            return f"<i>{match['greek']}</i><sub>{match['channels']}</sub>"
        if match["symbol"]:
            return f"{match['symbol']}<sub>{_minus(match['index'] or match['letter'])}</sub>"
        if match["exponent"]:
            return f"<sup>{_minus(match['exponent'])}</sup>"
        if match["left"]:
            return f"⟨{match['left']}, {match['right']}⟩"
        if not powers:
            return match[0]
        times = "" if match["mantissa"] == "1" else f"{match['mantissa']}·"
        return f"{times}10<sup>{_minus(str(int(match['power'])))}</sup>"

    return Markup(_SYMBOLS.sub(one, str(escape(plain(text)))))


def _minus(text: str) -> str:
    return text.replace("-", "−")
