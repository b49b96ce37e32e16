"""A recovered algorithm in sentences and formulas, for any notation.

Sentences hold formulas between backticks; the notation says how both are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from interp.reports.emit.certificate import scale_text
from interp.reports.numbers import interval
from interp.results import Channel, Recovered
from interp.results.notation import MOMENTS, Notation
from interp.results.update import shape

__all__ = ["describe"]


INTRO: Mapping[str, str] = {
    "regression": "The examples `(x_j, y_j)`, j = 1..n, and the query `(x, 0)` are the tokens.",
    "points": "The points `(x_j, y_j)`, j = 1..n, and the query `(x, 0)` are the tokens; x is a number.",
    "completion": "It completes `[[A, C], [B, D]]`, where `D` is hidden. The rows `(A_i, C_i)` and `(B_i, 0)` are the "
    "tokens `(x, y)`, as columns here.",
    "states": "It predicts the next state of a linear system at every time t, from the states `s_0, .., s_t`. There is "
    "one token for each; `s_{-1} = 0`.",
}
HELD: Mapping[str, str] = {
    "zero": "{name} = 0", "current": "{name} = s_t", "previous": "{name} = s_{{t-1}}", "start": "{name} = {start} s_t",
    "line": "{name} = (1, x / {value})", "label": "{name} = y / {value}", "input": "{name} = x",
}  # fmt: skip
KEYS: Mapping[str, str] = {
    "context": "the examples", "all": "the examples and the query", "causal": "the tokens up to its own",
    "completion context": "the complete rows", "completion all": "all rows",
}  # fmt: skip
READ: Mapping[str, str] = {
    "regression": "the query", "points": "the query", "completion": "the rows of B", "states": "every token",
}  # fmt: skip
FACTORS: Mapping[str, str] = {  # what is to be said where a factor occurs
    "blocks": "`M` is 1 for two coordinates of x in one group (one machine), and 0 otherwise: {blocks}.",
    "projection": "`{projection} = S S^T` is what a layer sees of x, S with orthonormal columns; the identity where "
    "it sees all.",
    "written": "`{written} = S' S'^T` is what it writes of x.",
    "products": "a, b, g and e run over the channels ({channels}), and of heads P, Q it is `k[a, b, g, e] = sum_h "
    "P_h[a, b] Q_h[e, g]`.",
    "mean": "Means and variances are those of the examples.",
    "slope": "`V` is the variance of x and `C` its covariance with y.",
    "fitted": "`h` is the leverage of the query among all n + 1 points.",
}


def describe(recovered: Recovered, notation: Notation) -> tuple[str, tuple[str, ...], str]:
    """What it starts from, its formulas, and what is to be said of them."""
    intro, rest = (_set(" ".join(said(recovered, notation)), notation) for said in (_intro, _rest))
    return intro, tuple(notation.equations(recovered.updates, recovered.sizes)), rest


def _set(text: str, notation: Notation) -> str:
    """Formulas are between backticks."""
    pieces = text.split("`")
    return "".join(notation.typeset(piece) if k % 2 else notation.prose(piece) for k, piece in enumerate(pieces))


def _intro(recovered: Recovered, notation: Notation) -> Iterator[str]:
    yield INTRO[recovered.prompt]
    plain = all(c.content in ("input", "label") and c.value == 1.0 for c in recovered.tokens)
    if not plain:
        yield f"A token holds {', '.join(f'`{_held(channel, notation)}`' for channel in recovered.tokens)}."
    yield "Layer by layer, all tokens are moved at once:" if len(recovered.updates) > 1 else "They are moved once:"


def _held(channel: Channel, notation: Notation) -> str:
    start = "W_0" if isinstance(channel.value, list) else f"{channel.value:g}"
    return HELD[channel.content].format(name=notation.letter(channel.name), start=start, value=start)


def _rest(recovered: Recovered, notation: Notation) -> Iterator[str]:
    used = [factor for u in shape(recovered.updates) for t in u.terms for factor in t.factors]
    factors = {factor.name: factor for factor in used}
    of = [factor.of for factor in used if factor.name in ("moment", "blocks", "trace")]
    pairs = dict.fromkeys(pair if pair in MOMENTS or pair[::-1] not in MOMENTS else pair[::-1] for pair in of)
    total = notation.words["sum"]
    sums = [f"`{notation.moment(*pair)} = {total.format(*map(notation.letter, pair))}`" for pair in pairs]
    over = KEYS.get(f"{recovered.prompt} {recovered.keys}", KEYS[recovered.keys])
    scale = f"`s = {scale_text(recovered.scale)}`"
    if sums or "products" in factors:
        yield f"with {', '.join([*sums, scale])}, summed over {over} as they enter the layer."
    words = {name: notation.words[name].format("", "").strip() for name in ("projection", "written")}
    for name, factor in factors.items():
        groups = "; ".join(", ".join(str(position + 1) for position in group) for group in factor.blocks)
        channels = ", ".join(factor.of)
        if name in FACTORS:
            yield _filled(FACTORS[name], words | {"blocks": groups, "channels": channels})
    if recovered.clip is not None:
        yield f"Tokens are clipped to +-{recovered.clip:g} after every layer."
    times = f", times {recovered.unit:g}" if recovered.unit != 1.0 else ""
    sign = notation.words["minus"] if recovered.sign < 0 else "+"
    what = f"`{sign}{notation.letter(recovered.reads)}` of {READ[recovered.prompt]}"
    yield f"The prediction is {what} after the last layer{times}."
    for law in recovered.laws:
        symbol, constant = notation.symbol(law.coefficient), notation.letter(law.constant)
        over = f"{'-' if law.sign < 0 else ''}{constant} / |A|^2"
        held = interval(law.value, law.interval)
        yield f"Through the layers `{symbol} = {over}` (times s), with `{constant}` = {held}."


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: values[m[1]] if m[1] in values else m[0], text)
