"""What each layer does, by three estimates: every coefficient of the four ω and of the trace terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from interp.reports.emit.html import coefficient_note
from interp.reports.numbers import DASH, Z95, estimate, listed, number
from interp.reports.plots import Point, axis, label, layer_axis, layout, marks, note
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Coefficient, Figure, Layer, Panel, Section, Series, Skipped

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
    pairs = [(f"ω_{name}", c) for name, c in layer.omega.items()]
    if traces:
        pairs += [(f"τ_{name}", c) for name, c in layer.trace.items()]
    return tuple(pairs)


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
    traces, rows = shows_traces(analysis), []
    for layer in analysis.layers:
        for symbol, c in coefficients(layer, traces=traces):
            refit = "undetermined" if c.undetermined else estimate(c.refit, c.refit_stderr)
            output = "undetermined" if c.undetermined and c.stderr is None else estimate(c.output, c.stderr)
            rows.append(
                CoefficientRow(
                    layer=layer.index,
                    symbol=symbol,
                    output=output if c.live else DASH,
                    weight=number(c.weight) if c.live else DASH,
                    refit=refit if c.live else DASH,
                    remarks=remarks(c),
                    live=c.live,
                )
            )
    return tuple(rows)


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
        kinds = list(dict.fromkeys(details for details, _ in places))
        if len(kinds) > MOST_DETAILS:
            places = [(DETAILS, place) for _, place in places]
            kinds = [DETAILS]
        for details in kinds:
            full = f"{said}; {details}" if details else said
            named = listed([place for kind, place in places if kind == details])
            out.append(f"{short}: {full}" if full == DEAD else f"{named}, {short}: {full}")
    return tuple(out)


def coefficient_finding(analysis: Analysis) -> str:
    live = [
        (layer.index, symbol, c)
        for layer in analysis.layers
        for symbol, c in coefficients(layer, traces=False)
        if c.live
    ]
    measured = [entry for entry in live if entry[2].output is not None and entry[2].stderr is not None]
    if not measured:
        return f"No coefficient was measured ({len(live)} reach the output)"
    clear = [entry for entry in measured if _clear(entry[2].output, entry[2].stderr)]
    opposed = [
        f"{symbol} of layer {index}"
        for index, symbol, c in live
        if any(r.short == "signs disagree" for r in remarks(c))
    ]
    text = f"{len(clear)} of {len(measured)} coefficients that reach the output differ from 0 at 95 %"
    return text + (f"; the estimates disagree in sign for {listed(opposed)}" if opposed else "")


@section("coefficients", title="coefficients", where="coefficients")
def coefficients_by_layer(analysis: Analysis) -> Iterator[Section | Skipped]:
    rows = coefficient_rows(analysis)
    if not rows:
        if not any(layer.maps for layer in analysis.layers):
            yield Skipped("this analysis has none")
        return
    traces = any(row.symbol.startswith("τ") for row in rows)
    columns = {
        "layer": "layer", "term": "symbol", "output ± stderr": "output", "weight": "weight",
        "refit ± stderr": "refit",
    }  # fmt: skip
    note = coefficient_note(analysis)
    figure = Figure(
        name="coefficients",
        finding=coefficient_finding(analysis),
        description="Bars are 95 % intervals. A dead coefficient never reaches the output, so it has no point; a refit "
        f"that the data do not determine is left out here and named in the table.{f' {note}.' if note else ''}",
        panels=tuple(_panels(analysis)),
        legend=_ESTIMATES,
        table=tabulate(rows, columns | {"remark": lambda r: "; ".join(f"{m.short}: {m.full}" for m in r.remarks)}),
    )
    short = tabulate(rows, columns | {"": lambda r: ", ".join(m.short for m in r.remarks if m.short != r.refit)})
    title = "Coefficients per layer (layers count from 0)"
    yield Section(
        name="coefficients-by-layer",
        title=title,
        figure=figure,
        table=short,
        notes=(_TRACES,) if traces else (),
        remarks=remark_lines(rows),
    )


def _panels(analysis: Analysis) -> Iterator[Panel]:
    traces = shows_traces(analysis)
    by_symbol: dict[str, list[tuple[int, Coefficient]]] = {}
    for layer in analysis.layers:
        for symbol, coefficient in coefficients(layer, traces=traces):
            by_symbol.setdefault(symbol, []).append((layer.index, coefficient))
    for symbol, entries in by_symbol.items():
        data = []
        for aside, series in zip((-0.16, 0.0, 0.16), _ESTIMATES, strict=True):
            points = [
                Point(index, value, stderr, f"layer {index}, {series.key}: {estimate(value, stderr)}")
                for index, c in entries
                for value, stderr in [_estimate(c, series.key)]
                if value is not None and c.live
            ]
            data.append(marks(series, points, aside=aside, size=9))
        if not any(trace["y"] for trace in data):
            continue
        dead = [note("dead", x=i, y=0.02, yref="paper", yanchor="bottom") for i, c in entries if not c.live]
        name = {"ω": "omega", "τ": "tau"}[symbol[0]] + "-" + "".join(c if c.isalnum() else "-" for c in symbol[2:])
        y = axis(f"coefficient {symbol[0]}<sub>{label(symbol[2:])}</sub>", zeroline=True)
        plot = layout(layer_axis([i for i, _ in entries], "layer"), y, annotations=dead)
        yield Panel(name=f"coefficient-{name}", title=symbol, data=data, layout=plot, height=260)


def _estimate(c: Coefficient, key: str) -> tuple[float | None, float | None]:
    """Value and standard error of one estimate; no value where there is nothing to draw."""
    if key == "refit":
        return (None if c.undetermined else c.refit), c.refit_stderr
    return (c.output, c.stderr) if key == "output" else (c.weight, None)
