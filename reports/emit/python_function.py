"""The function of an emitted Python file: one layer after another, on one prompt. Tokens are rows here: M z of a column
is z @ M.T of rows. What differs between libraries is a ``Dialect``."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from interp.reports.emit.certificate import scale_text
from interp.reports.emit.text import WIDTH, ascii_text
from interp.results import Channel, Factor, Recovered, Term, Update
from interp.results.notation import MOMENTS
from interp.results.update import shape

__all__ = ["MATRICES", "PROMPTS", "Dialect", "function_lines", "has_data", "indented", "variable"]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """``array``, ``decode`` and ``eye``: nested lists, the bytes "data" and the identity of some size as arrays of
    double precision. ``contents``: what a channel holds, by kind of prompt and content; {0} is its value."""

    alias: str
    imports: str
    array: str
    decode: str
    eye: str
    note: str
    contents: Mapping[tuple[str, str], str]
    setup: Mapping[str, str]  # the first line of the function, by kind of prompt


@dataclass(frozen=True, kw_only=True)
class _Prompt:
    """The function of one kind of prompt: how it is called on one ``prompt`` of the ``examples``, and what it says of
    itself. ``answer``: the prediction as part of the channel that is read."""

    signature: str
    about: str
    recovered: str
    count: str
    answer: str
    examples: str
    call: str


_REGRESSION = _Prompt(
    signature="predict(X, y, x_query)",
    about="The prediction for ``x_query`` (d,) from the examples ``X`` (n, d) and their labels ``y`` (n,).",
    recovered="d = {dim} and n = {context}",
    count="len(y)",
    answer="{0}[n, 0]",
    examples="rows (x, y), the query last",
    call="predict(prompt[:-1, :-1], prompt[:-1, -1], prompt[-1, :-1])",
)
PROMPTS: Mapping[str, _Prompt] = {
    "regression": _REGRESSION,
    "points": replace(
        _REGRESSION,
        signature="predict(x, y, x_query)",
        about="The prediction at ``x_query``, a number, from the examples ``x`` (n,) and their labels ``y`` (n,).",
        recovered="n = {context}",
        call="predict(prompt[:-1, 0], prompt[:-1, 1], prompt[-1, 0])",
    ),
    "completion": _Prompt(
        signature="complete(A, B, C)",
        about="The hidden block D (d', n') of [[A, C], [B, D]] from A (d, n), B (d', n) and C (d, n').",
        recovered="d = {context}, n = {dim}, n' = {outputs}",
        count="len(A)",
        answer="{0}[n:]",
        examples="rows (x, y), the {queries} incomplete ones last",
        call="complete(prompt[:-{queries}, :{dim}], prompt[-{queries}:, :{dim}], prompt[:-{queries}, {dim}:])",
    ),
    "states": _Prompt(
        signature="predict(states)",
        about="The predictions of the next states from ``states`` (T, d): row t, of states[t + 1], made from states[0] "
        "to states[t].",
        recovered="d = {dim} and T = {context}",
        count="len(states)",
        answer="{0}",
        examples="states s_0, s_1, ..",
        call="predict(prompt)",
    ),
}


def indented(lines: Iterable[str], depth: int = 1) -> list[str]:
    return [" " * 4 * depth + line if line else "" for line in lines]


MATRICES = {"projection": "S", "written": "S_written"}


def has_data(terms: Iterable[Term]) -> bool:
    return any(t.coefficient is not None or any(f.name in MATRICES for f in t.factors) for t in terms)


_TAKEN = {"n", "scale", "w", "e", "h", "np", "torch", "away", "scores", "mixed", "S", "Pi", "Sigma", "alpha", "lam"}


def variable(name: str) -> str:
    made = re.sub(r"\W", "_", ascii_text(name)) or "_"
    return f"{made}_" if made in _TAKEN or keyword.iskeyword(made) or made[0].isdigit() else made


@dataclass
class _Layer:
    """One layer as code. ``lines`` define what the products are made of, in the order of need."""

    recovered: Recovered
    dialect: Dialect
    lines: dict[str, list[str]] = field(default_factory=dict)

    def define(self, name: str, *lines: str) -> str:
        self.lines.setdefault(name, list(lines))
        return name

    def keys(self, channel: str) -> str:
        return f"{variable(channel)}[:n]" if self.recovered.keys == "context" else variable(channel)

    def moment(self, of: tuple[str, ...]) -> str:
        """M_gb of a factor M_bg, which stands to the right of rows."""
        b, g = of
        pair, turned = ((b, g), ".T") if (b, g) in MOMENTS or (g, b) not in MOMENTS else ((g, b), "")
        name = MOMENTS.get(pair, f"M_{variable(pair[0])}_{variable(pair[1])}").replace("lambda", "lam")
        self.define(name, f"{name} = scale * {self.keys(pair[0])}.T @ {self.keys(pair[1])}")
        return name if b == g else f"{name}{turned}"

    def mean(self, channel: str) -> str:
        name = f"mean_{variable(channel)}"
        return self.define(name, f"{name} = {self.keys(channel)}.mean(0)")

    def variance(self, channel: str) -> str:
        return self.define("V", f"V = (({self.keys(channel)} - {self.mean(channel)}) ** 2).mean(0)")

    def times(self, factor: Factor, z: str, name: str) -> str:
        """``z``, some rows, after the factor; ``name`` is that of the coefficient."""
        np, of = self.dialect.alias, factor.of
        causal = self.recovered.keys == "causal"
        match factor.name:
            case "token":
                return variable(of[0])
            case "coefficient":
                return f'{z} @ w["{ascii_text(name)}"].T'
            case "moment" if causal:
                return f"scale * {np}.tril({z} @ {variable(of[1])}.T) @ {variable(of[0])}"
            case "moment":
                return f"{z} @ {self.moment(of)}"
            case "blocks":
                return f"{z} @ (SAME * {self.moment(of)})"
            case "trace" if causal:
                b, g = map(variable, of)
                return f"scale * {np}.cumsum(({b} * {g}).sum(1), 0)[:, None] * {z}"
            case "trace":
                return f"{np}.trace({self.moment(of)}) * {z}"
            case "projection" | "written":
                key, made = MATRICES[factor.name], "Pi" if factor.name == "projection" else "Pi_written"
                eye = self.dialect.eye.format(variable(of[0]))
                self.define(made, f'S = w["{key}"]', f"{made} = {eye} if S is None else S @ S.T")
                return f"{z} @ {made}"
            case "mean":
                return self.mean(of[0])
            case "deviation":
                return f"({variable(of[0])} - {self.mean(of[0])})"
            case "slope":
                (b, g), variance = of, self.variance(of[1])
                apart = f"({self.keys(b)} - {self.mean(b)}) * ({self.keys(g)} - {self.mean(g)})"
                self.define("C", f"C = ({apart}).mean(0)")
                return f"C / {variance} * {z}"
            case "fitted":
                x, variance = of[0], self.variance(of[0])
                h = f"h = 1 / (n + 1) + (away * n / (n + 1)) ** 2 / (n * {variance} + away**2 * n / (n + 1))"
                self.define("h", f"away = {variable(x)} - {self.mean(x)}", h)
                return f"(1 - h) * (n + 1) / n * {z}"
            case "products":
                scores = f'scores = {np}.einsum("gjd,etd->getj", e, e)  # <e_j[g], e_t[e]>'
                hidden = {"causal": [f"scores = {np}.tril(scores)"], "context": ["scores = scores[..., :n]"]}
                keys = "e[:, :n]" if self.recovered.keys == "context" else "e"
                mixed = f'mixed = {np}.tensordot(w["{ascii_text(name)}"], scores, 2)'
                self.define("mixed", scores, *hidden.get(self.recovered.keys, []), mixed)
                return f'scale * {np}.einsum("abtj,bjd->atd", mixed, {keys})'

    def side(self, update: Update) -> str:
        """The right side of an assignment, on one line or a line for every term where they are many."""
        channel = "e" if update.channel is None else variable(update.channel)
        text = [channel] if update.kept else []
        for term in update.terms:
            z = ""
            for factor in reversed(term.factors):
                z = self.times(factor, z, term.name)
            product = z if term.number is None else f'w["{ascii_text(term.name)}"] * {z}'
            sign = "- " if term.sign < 0 else "+ " if text else ""
            text.append(f"{sign}{product}")
        return (" " if len(text) < 4 else "\n            ").join(text) or f"{self.dialect.alias}.zeros_like({channel})"


def _alike(layers: tuple[tuple[Update, ...], ...]) -> bool:
    """Do the layers differ in their numbers alone, so that they are one loop?"""
    left = {frozenset(update.channel for update in layer if not update.kept) for layer in layers}
    plain = {frozenset(t.name for u in layer for t in u.terms if t.coefficient is None) for layer in layers}
    return len(left) == len(plain) == 1


def _layer_lines(recovered: Recovered, dialect: Dialect, updates: tuple[Update, ...]) -> list[str]:
    layer = _Layer(recovered, dialect)
    sides = {"e" if u.channel is None else variable(u.channel): layer.side(u) for u in updates}
    body = [*(line for lines in layer.lines.values() for line in lines), *_assigned(sides)]
    if recovered.clip is not None:
        stacked = any(update.channel is None for update in updates)
        variables = ["e"] if stacked else [variable(channel.name) for channel in recovered.tokens]
        body += [f"{v} = {dialect.alias}.clip({v}, {-recovered.clip!r}, {recovered.clip!r})" for v in variables]
    return body


def _layers(recovered: Recovered, dialect: Dialect) -> list[str]:
    layers = recovered.updates
    data = has_data(term for _, term in recovered.terms())
    if not _alike(layers):
        made = [[f"w = LAYERS[{k}]"] * data + _layer_lines(recovered, dialect, u) for k, u in enumerate(layers)]
        return [line for lines in made for line in lines]
    body = _layer_lines(recovered, dialect, shape(layers))
    if len(layers) == 1 and not data:
        return body
    return ["for w in LAYERS:" if data else f"for _ in range({len(layers)}):", *indented(body)]


def function_lines(recovered: Recovered, dialect: Dialect) -> Iterator[str]:
    prompt, body = PROMPTS[recovered.prompt], _layers(recovered, dialect)
    stacked = any(update.channel is None for layer in recovered.updates for update in layer)
    names = [channel.name for channel in recovered.tokens]
    read = f"e[{names.index(recovered.reads)}]" if stacked else variable(recovered.reads)
    outputs = recovered.sizes[recovered.reads]
    yield f"def {prompt.signature}:"
    sizes = prompt.recovered.format(dim=recovered.dim, context=recovered.context, outputs=outputs)
    about = textwrap.wrap(f'"""{prompt.about}', WIDTH)
    yield from indented([*about, "", dialect.note, f"Recovered with {sizes}.", '"""'])
    yield from indented(_tokens(recovered, dialect, stacked))
    if any("scale" in line for line in body):
        yield f"    scale = {scale_text(recovered.scale)}"
    yield from indented(body)
    unit = recovered.sign * recovered.unit
    factor = f"{unit!r} * " if abs(unit) != 1.0 else "-" if unit < 0 else ""
    yield f"    return {factor}{prompt.answer.format(read)}"


def _tokens(recovered: Recovered, dialect: Dialect, stacked: bool) -> Iterator[str]:
    if recovered.prompt in dialect.setup:
        yield dialect.setup[recovered.prompt]
    yield f"n = {PROMPTS[recovered.prompt].count}"
    values = {variable(channel.name): _content(recovered.prompt, channel, dialect) for channel in recovered.tokens}
    if stacked:
        yield f"e = {dialect.alias}.stack([{', '.join(values.values())}])"
    else:
        yield from _assigned(values)


def _content(prompt: str, channel: Channel, dialect: Dialect) -> str:
    if isinstance(channel.value, list):
        return f"states @ START_{variable(channel.name)}.T"
    if channel.content == "start":
        return f"{float(channel.value)!r} * states"
    text = dialect.contents[prompt, channel.content].format(repr(channel.value))
    return f"{text} / {channel.value!r}" if channel.content == "label" and channel.value != 1.0 else text


def _assigned(sides: Mapping[str, str]) -> list[str]:
    """All at once: the sides read the tokens as they are before."""
    if len(sides) < 2:
        return [f"{name} = ({side})" if "\n" in side else f"{name} = {side}" for name, side in sides.items()]
    return [f"{', '.join(sides)} = (", *(f"    {side}," for side in sides.values()), ")"]
