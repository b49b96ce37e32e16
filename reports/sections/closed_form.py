"""The evidence for a closed form: its conditions, where the network divides, what slots hold and heads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interp.reports.baseline_looks import DASHES
from interp.reports.numbers import DASH, estimate, interval, is_finite, number, percent, several
from interp.reports.plots import SYMBOLS, Point, axis, charted, curve, label, log_axis, ordered_series, plot
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, ClosedForm, Rescaled, Section, Series, Slot

__all__ = ["checks_finding", "division_finding", "factor_text", "rescaled_finding", "slots_finding"]

_FLOOR = -0.2  # of the fidelities drawn; what lies below is marked at this edge


def checks_finding(form: ClosedForm) -> str:
    held = sum(check.passed for check in form.checks)
    if held == len(form.checks):
        return f"All {held} conditions of the closed form hold"
    failed = [check.name for check in form.checks if not check.passed]
    return f"{held} of {len(form.checks)} conditions of the closed form hold; not: {', '.join(failed)}"


def form_lines(form: ClosedForm) -> tuple[str, ...]:
    """The closed forms beside the network, and how much of it is left."""
    lines = [
        f"{one.formula}: fidelity {interval(one.fidelity, one.fidelity_ci)}, relative error {number(one.error, 2)}; "
        f"the network's predictions are {estimate(one.slope, one.slope_stderr)} times as large"
        for one in form.forms
    ]
    keys = "the examples" if form.keys == "context" else "the examples and the query, whose y is 0"
    named = "; h is the query's leverage" * any("h" in one.formula for one in form.forms)
    named += ", N the number of examples" * any("N" in one.formula for one in form.forms)
    lines.append(f"sums and means are over {keys}{named}")
    if form.query_share is not None:
        share = percent(form.query_share).replace("> ", "more than ")
        lines.append(f"{share} of the prediction's variance is read from the query's row")
    return (*lines, f"{form.weights_left} of the network's {form.weights} numbers are not 0")


def slots_finding(form: ClosedForm) -> str:
    last = max((slot.layer for slot in form.slots), default=None)
    if last is None:
        return "No slots were looked at"
    named = [f"slot {s.index}: {_held(s)}" for s in form.slots if s.layer == last and s.holds != "mixture"]
    mixed = sum(s.layer == last and s.holds == "mixture" for s in form.slots)
    where = f"Before the last layer, {', '.join(named) or 'no slot holds one thing'}"
    return where + (f"; {mixed} of the slots hold mixtures" if mixed else "")


def _held(slot: Slot) -> str:
    if slot.holds == "constant":
        return "a constant"
    return f"-({slot.holds})" if slot.sign < 0 else slot.holds


def division_finding(form: ClosedForm) -> str:
    if not form.divisions:
        return "There is no LayerNorm, so nothing divides"
    where = form.divides
    shown = form.divisions[where if where is not None else -1]
    power = f"to the power {estimate(shown.exponent, shown.exponent_stderr)}, R² {number(shown.r2, 3)}"
    top = f"; its numerator is C(u − x̄) + Vȳ to R² {number(shown.numerator_r2, 3)}" if shown.numerator_r2 else ""
    if where is None:
        return f"No LayerNorm divides by V: the standard deviation of the last goes with V {power}"
    return f"The LayerNorm of layer {where} divides by V: its standard deviation goes with V {power}{top}"


def rescaled_finding(form: ClosedForm) -> str:
    tried = [r for r in form.rescaled if r.quantity == "x" and r.fidelity is not None]
    kept = [r.factor for r in tried if (r.fidelity or 0.0) >= 0.9]
    if not tried:
        return "Other scales of x were not tried"
    if not kept:
        return "At no other scale of x does the network follow the closed form (R² 0.9 or more)"
    low, high = factor_text(min(kept)), factor_text(max(kept))
    return f"The network follows the closed form (R² 0.9 or more) with x times {low} to {high}"


def factor_text(factor: float) -> str:
    return f"1/{1 / factor:g}" if 0 < factor < 1 else f"{factor:g}"


@section("closed-form", title="the closed form", where="closed-form", part="closed_form")
def closed_form(analysis: Analysis, form: ClosedForm) -> Iterator[Section]:
    columns = {
        "condition": "name", "holds": lambda c: "yes" if c.passed else "no", "measured": "found", "asked for": "bar",
    }  # fmt: skip
    yield Section(
        name="conditions", title="Conditions of the closed form", finding=checks_finding(form),
        table=tabulate(form.checks, columns, marked=lambda c: not c.passed), remarks=form_lines(form),
        notes=("The verdict closed-form takes all of them.",),
    )  # fmt: skip
    yield _division(form)
    yield from _rescaled(analysis, form)
    columns = {
        "after layers": "layer", "slot": "index", "holds": "holds",
        "times": lambda s: DASH if s.scale is None else f"{'-' * (s.sign < 0)}{number(s.scale, 3)}", "R²": "r2:3",
        "R² in the query's row": "query_r2:3",
    }  # fmt: skip
    remarks = tuple(
        f"after {several(d.layer, 'layer')} {d.holds} is read from the tokens along "
        f"({', '.join(number(v, 2) for v in d.vector)}) to R² {number(d.r2, 3)}, in the query's row "
        f"{number(d.query_r2, 3)}"
        for d in form.directions
    )
    title, table = "What the slots of the tokens hold", tabulate(form.slots, columns)
    yield Section(name="slots", title=title, finding=slots_finding(form), table=table, remarks=remarks)
    finding = "Shares of numerator and denominator in the query's row"
    columns = {
        "layer": "layer", "head": lambda h: "all" if h.head is None else str(h.head), "role": "role",
        "centring R²": "centring:3", "numerator": lambda h: _share(h.numerator), "its R²": "numerator_r2:3",
        "denominator": lambda h: _share(h.denominator), "R² of it": "denominator_r2:3",
    }  # fmt: skip
    notes = (
        "What is divided, and what it is divided by, are sums over the heads and the old token; the shares say how "
        "much of each a head brings. How a layer's work is split between its heads is a matter of gauge, so of a "
        "trained network the row of all heads says more than theirs.",
    )
    table = tabulate(form.heads, columns)
    yield Section(name="heads", title="What the heads do", finding=finding, table=table, notes=notes)


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.3g} %"


def _division(form: ClosedForm) -> Section:
    """LayerNorm's standard deviation in the query's row against V, layer by layer."""
    finding, title = division_finding(form), "Where it divides"
    remarks = tuple(
        f"with the LayerNorm of layer {r.layer} replaced by the best fixed affine map, fidelity is "
        f"{interval(r.fidelity, r.fidelity_ci)}"
        for r in form.replacements
    )
    divisions = [d for d in form.divisions if d.bins]
    if not divisions:
        return Section(name="division", title=title, finding=finding, remarks=remarks)
    legend = ordered_series([f"LayerNorm of layer {d.layer}" for d in divisions], "division-")
    data = []
    for series, d in zip(legend, divisions, strict=True):
        first = d.bins[-1].scale or 1.0  # both axes are logarithmic: a common factor only shifts a curve
        bins = [(b.V, b.scale / first, b.stderr and b.stderr / first) for b in d.bins if b.V > 0 and b.scale > 0]
        points = [
            Point(V, scale, stderr, f"{label(series.label)}, V = {number(V, 3)}: {number(scale, 3)} of the largest")
            for V, scale, stderr in bins
        ]
        data.append(curve(series, points, log=True))
    x = log_axis("V", [b.V for d in divisions for b in d.bins], dense=True)
    y = log_axis("standard deviation", [y for trace in data for y in trace["y"]], dense=True)
    description = (
        "The standard deviation that LayerNorm divides the query's row by (times that of an earlier "
        "LayerNorm, a factor that numerator and denominator share), relative to its largest bin, against the "
        "variance V of x in the prompt; means over tenths of the prompts, bars are 95 % intervals. A line of slope 1 "
        "is a division by V, a flat one divides by nothing that depends on the prompt."
    )
    columns = {
        "layer": "layer", "power of V ± stderr": "exponent", "R²": "r2", "its logarithm varies by": "variation:3",
    }  # fmt: skip
    panels, table = [plot("division", data, x, y, 380)], tabulate(form.divisions, columns)
    return charted("division", title, finding, description, panels, table, legend=legend, remarks=remarks, half=True)


def _rescaled(analysis: Analysis, form: ClosedForm) -> Iterator[Section]:
    """Fidelity of the closed form and of the fitted gradient methods where all x are multiplied by a factor."""
    tried = [r for r in form.rescaled if r.quantity == "x" and r.factor > 0]
    if not tried:
        return
    rows = sorted([*tried, *_unscaled(analysis)], key=lambda r: r.factor)
    names = list(dict.fromkeys(name for r in rows for name in r.rivals))
    legend = [Series(key="form", label="the closed form", colour="var(--series-1)", symbol=SYMBOLS[0])]
    for i, name in enumerate(names):
        looks = {"colour": f"var(--gd-{i % 4})", "symbol": SYMBOLS[(i + 1) % len(SYMBOLS)], "dash": DASHES[i % 4]}
        legend.append(Series(key=f"rival-{i}", label=name, **looks))
    data = []
    for name, series in zip([None, *names], legend, strict=True):
        values = [(r.factor, r.fidelity if name is None else r.rivals.get(name)) for r in rows]
        points = [
            Point(at, v, None, f"{label(series.label)}, x times {factor_text(at)}: R² {number(v, 3)}")
            for at, v in values
        ]
        data.append(curve(series, points, floor=_FLOOR, dash=series.dash))
    ticks = [r.factor for r in rows]
    x = axis("all x multiplied by", type="log", tickvals=ticks, ticktext=[factor_text(t) for t in ticks])
    panels = [plot("rescaled", data, x, axis("fidelity R²", range=[_FLOOR - 0.05, 1.05]), 380)]
    columns = {
        "all of": "quantity", "times": lambda r: factor_text(r.factor), "closed form [95 %]": "fidelity",
        "outside the task's range": "outside:%",
    }  # fmt: skip
    rivals = {name: lambda r, name=name: number(r.rivals.get(name), 3) for name in names}
    description = (
        "R² against the network's predictions, on prompts of the task with all x, the query too, "
        "multiplied by a factor. The closed form does not change with the scale of x; gradient methods fitted at "
        f"factor 1 are polynomials in x.{_tails(rows)} A triangle at the edge lies below {number(_FLOOR, 1)}."
    )
    table, short = tabulate(form.rescaled, columns | rivals), tabulate(form.rescaled, columns)
    title, finding = "At other scales", rescaled_finding(form)
    yield charted("rescaled", title, finding, description, panels, table, legend=legend, short=short, half=True)


def _tails(rescaled: Sequence[Rescaled]) -> str:
    """Why a gradient method may be nearer to the network at smaller x than where it was fitted."""
    unscaled = next((r.rivals for r in rescaled if r.factor == 1), {})
    pairs = [(r.rivals.get(name), at) for r in rescaled if r.factor < 1 for name, at in unscaled.items()]
    why = (
        " Their R² at factor 1 is decided by the few prompts with the widest x, on which polynomials explode where "
        "they were not fitted; with smaller x they do not, so that some are nearer there than on the task itself."
    )
    return why if any(is_finite(v) and is_finite(at) and v > at for v, at in pairs) else ""


def _unscaled(analysis: Analysis) -> Iterator[Rescaled]:
    """The task itself, factor 1, from the table of families."""
    form = next((row for row in analysis.families if row.name.startswith("closed-form")), None)
    if form is not None:
        rivals = {f.name: f.fidelity for f in analysis.families if not f.name.startswith("closed-form")}
        known = {"fidelity": form.fidelity, "fidelity_ci": form.fidelity_ci, "rivals": rivals}
        yield Rescaled(quantity="x", factor=1.0, outside=0.05, **known)
