"""What each layer does, by three estimates: every coefficient of the four ω and of the trace terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from interp.reports.emit.html import coefficient_note
from interp.reports.numbers import DASH, Z95, estimate, listed, number
from interp.reports.plots import Point, axis, charted, label, layer_axis, marks, note, plot
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Coefficient, Layer, Panel, Section, Series, Skipped

__all__ = ["CoefficientRow", "Remark", "coefficient_finding", "coefficient_rows", "remark_lines", "remarks"]

DEAD = "never reaches the output, so nothing is claimed about it"
ZERO = "the output estimate is not distinguishable from 0 at 95 %"
DETAILS = "the JSON document has against what each trades off"
MOST_DETAILS = 4  # more remarks of one kind are too many to read
FAR = 10  # the largest estimate of a coefficient beside the smallest, from which its value is open


_ESTIMATES = (
    Series(key="output", label="output-weighted", colour="var(--series-1)", symbol="circle"),
    Series(key="weight", label="weight", colour="var(--series-2)", symbol="square-open"),
    Series(key="refit", label="refit", colour="var(--series-3)", symbol="diamond"),
)


_KINDS = tuple(series.key for series in _ESTIMATES)
_TRACES = "A trace term τ_a:bb multiplies the part a of a token by the sum of squares of b over the keys."


@dataclass(frozen=True)
class Remark:
    """What a reader must know before believing the numbers of a row, in a word or two and in full."""

    short: str
    full: str


@dataclass(frozen=True, kw_only=True)
class CoefficientRow:
    """One row of the coefficients table, as text."""

    layer: int
    symbol: str
    output: str
    weight: str
    refit: str
    remarks: tuple[Remark, ...]
    live: bool


def coefficients(layer: Layer, *, traces: bool) -> tuple[tuple[str, Coefficient], ...]:
    """(symbol, coefficient) pairs of a layer; the first index of a symbol is the destination."""
    kinds = (("ω", layer.omega), ("τ", layer.trace if traces else {}))
    return tuple((f"{letter}_{name}", c) for letter, of_kind in kinds for name, c in of_kind.items())


def _clear(value: float | None, stderr: float | None) -> bool:
    """Is the value distinguishable from zero at 95 %?"""
    return value is not None and value != 0 and (stderr is None or abs(value) > Z95 * stderr)


def remarks(c: Coefficient) -> tuple[Remark, ...]:
    if not c.live:
        return (Remark("dead", DEAD),)
    out = []
    if c.undetermined:
        out.append(Remark("undetermined", c.undetermined))
    if c.output is not None and c.stderr is not None and not _clear(c.output, c.stderr):
        out.append(Remark("0 within error", ZERO))
    estimates = [("weight", c.weight, c.stderr), ("output", c.output, c.stderr)]
    if not c.undetermined:
        estimates.append(("refit", c.refit, c.refit_stderr))
    sure = {name: value for name, value, stderr in estimates if value is not None and _clear(value, stderr)}
    positive, negative = [n for n, v in sure.items() if v > 0], [n for n, v in sure.items() if v < 0]
    if positive and negative:
        out.append(Remark("signs disagree", f"{listed(positive)} above 0, {listed(negative)} below"))
    elif len(sure) > 1 and (ratio := max(map(abs, sure.values())) / min(map(abs, sure.values()))) > 2:
        apart = "estimates far apart" if ratio > FAR else "estimates differ"
        out.append(Remark(apart, f"the largest estimate is {number(ratio, 2)} times the smallest"))
    return tuple(out)


def shows_traces(analysis: Analysis) -> bool:
    """Trace terms are part of the answer when the family has them, and part of the question when no family fits."""
    return analysis.verdict.algorithm in ("equivariant", "unrecognized")


def coefficient_rows(analysis: Analysis) -> tuple[CoefficientRow, ...]:
    traces = shows_traces(analysis)
    return tuple(
        CoefficientRow(
            layer=layer.index, symbol=symbol, **_texts(c) if c.live else dict.fromkeys(_KINDS, DASH),
            remarks=remarks(c), live=c.live,
        )
        for layer in analysis.layers for symbol, c in coefficients(layer, traces=traces)
    )  # fmt: skip


def _texts(c: Coefficient) -> dict[str, str]:
    """The estimates, by kind."""
    return {
        "output": "undetermined" if c.undetermined and c.stderr is None else estimate(c.output, c.stderr),
        "weight": number(c.weight),
        "refit": "undetermined" if c.undetermined else estimate(c.refit, c.refit_stderr),
    }


def remark_lines(rows: Iterable[CoefficientRow]) -> tuple[str, ...]:
    """Every remark once, with the coefficients that it is about; where many differ only in what comes after the first
    semicolon, as one."""
    where: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for remark in row.remarks:
            said, _, details = remark.full.partition("; ")
            where.setdefault((remark.short, said), []).append((details, f"{row.symbol} of layer {row.layer}"))
    out = []
    for (short, said), places in where.items():
        if len({details for details, _ in places}) > MOST_DETAILS:
            places = [(DETAILS, place) for _, place in places]
        for details in dict.fromkeys(details for details, _ in places):
            full = f"{said}; {details}" if details else said
            named = listed([place for kind, place in places if kind == details])
            out.append(f"{short}: {full}" if full == DEAD else f"{named}, {short}: {full}")
    return tuple(out)


def coefficient_finding(analysis: Analysis) -> str:
    pairs = [(layer.index, *pair) for layer in analysis.layers for pair in coefficients(layer, traces=False)]
    live = [(index, symbol, c) for index, symbol, c in pairs if c.live]
    measured = [c for _, _, c in live if c.output is not None and c.stderr is not None]
    if not measured:
        return f"No coefficient was measured ({len(live)} reach the output)"
    clear = [c for c in measured if _clear(c.output, c.stderr)]
    disagree = [entry for entry in live if any(r.short == "signs disagree" for r in remarks(entry[2]))]
    opposed = [f"{symbol} of layer {index}" for index, symbol, _ in disagree]
    text = f"{len(clear)} of {len(measured)} coefficients that reach the output differ from 0 at 95 %"
    return text + (f"; the estimates disagree in sign for {listed(opposed)}" if opposed else "")


@section("coefficients", title="coefficients", where="coefficients")
def coefficients_by_layer(analysis: Analysis) -> Section | Skipped | None:
    rows = coefficient_rows(analysis)
    if not rows:
        return None if any(layer.maps for layer in analysis.layers) else Skipped("this analysis has none")
    columns = {
        "layer": "layer", "term": "symbol", "output ± stderr": "output", "weight": "weight",
        "refit ± stderr": "refit",
    }  # fmt: skip
    note = coefficient_note(analysis)
    table = tabulate(rows, columns | {"remark": lambda r: "; ".join(f"{m.short}: {m.full}" for m in r.remarks)})
    short = tabulate(rows, columns | {"": lambda r: ", ".join(m.short for m in r.remarks if m.short != r.refit)})
    description = (
        "Bars are 95 % intervals. A dead coefficient never reaches the output, so it has no point; a refit "
        f"that the data do not determine is left out here and named in the table.{f' {note}.' if note else ''}"
    )
    made = charted(
        "coefficients", "Coefficients per layer (layers count from 0)", coefficient_finding(analysis), description,
        _panels(analysis), table, legend=_ESTIMATES, short=short, remarks=remark_lines(rows),
        notes=(_TRACES,) if any(row.symbol.startswith("τ") for row in rows) else (),
    )  # fmt: skip
    return replace(made, name="coefficients-by-layer")


def _panels(analysis: Analysis) -> Iterator[Panel]:
    by_symbol: dict[str, list[tuple[int, Coefficient]]] = {}
    for layer in analysis.layers:
        for symbol, coefficient in coefficients(layer, traces=shows_traces(analysis)):
            by_symbol.setdefault(symbol, []).append((layer.index, coefficient))
    for symbol, entries in by_symbol.items():
        data = []
        for aside, series in zip((-0.16, 0.0, 0.16), _ESTIMATES, strict=True):
            drawn = [(index, *_estimate(c, series.key)) for index, c in entries if c.live]
            points = [Point(i, v, se, f"layer {i}, {series.key}: {estimate(v, se)}") for i, v, se in drawn]
            data.append(marks(series, points, aside=aside, size=9))
        if not any(trace["y"] for trace in data):
            continue
        dead = [note("dead", x=i, y=0.02, yref="paper", yanchor="bottom") for i, c in entries if not c.live]
        name = {"ω": "omega", "τ": "tau"}[symbol[0]] + "-" + "".join(c if c.isalnum() else "-" for c in symbol[2:])
        x = layer_axis([i for i, _ in entries], "layer")
        y = axis(f"coefficient {symbol[0]}<sub>{label(symbol[2:])}</sub>", zeroline=True)
        yield plot(f"coefficient-{name}", data, x, y, 260, symbol, annotations=dead)


def _estimate(c: Coefficient, key: str) -> tuple[float | None, float | None]:
    """Value and standard error of one estimate; no value where there is nothing to draw."""
    if key == "refit":
        return (None if c.undetermined else c.refit), c.refit_stderr
    return (c.output, c.stderr) if key == "output" else (c.weight, None)
