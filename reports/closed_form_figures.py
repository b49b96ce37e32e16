"""Figures of the evidence for a closed form: what LayerNorm divides by, and agreement at other scales."""

from __future__ import annotations

from collections.abc import Sequence

from interp.reports.baseline_looks import DASHES
from interp.reports.closed_form_findings import division_finding, factor_text, rescaled_finding
from interp.reports.numbers import estimate, interval, is_finite, number, percent
from interp.reports.plots import SYMBOLS, Point, axis, curve, label, layout, log_axis, ordered_series
from interp.results import Analysis, Figure, Panel, Rescaled, Series, Table

__all__ = ["division_figure", "rescaled_figure"]

_FLOOR = -0.2  # of the fidelities drawn; what lies below is marked at this edge


def division_figure(analysis: Analysis) -> Figure | None:
    """LayerNorm's standard deviation in the query's row against V, layer by layer."""
    found = analysis.closed_form
    known = [] if found is None else [d for d in found.divisions if d.bins]
    if found is None or not known:
        return None
    legend = ordered_series([f"LayerNorm of layer {d.layer}" for d in known], "division-")
    data = []
    for series, d in zip(legend, known, strict=True):
        first = d.bins[-1].scale or 1.0  # both axes are logarithmic: a common factor only shifts a curve
        points = [
            Point(
                b.V,
                b.scale / first,
                None if b.stderr is None else b.stderr / first,
                f"{label(series.label)}, V = {number(b.V, 3)}: {number(b.scale / first, 3)} of the largest",
            )
            for b in d.bins
            if b.V > 0 and b.scale > 0
        ]
        data.append(curve(series, points, log=True))
    volumes = [b.V for d in known for b in d.bins]
    drawn = [y for trace in data for y in trace["y"]]
    return Figure(
        name="division",
        finding=division_finding(found),
        description="The standard deviation that LayerNorm divides the query's row by (times that of an earlier "
        "LayerNorm, a factor that numerator and denominator share), relative to its largest bin, against the "
        "variance V of x in the prompt; means over tenths of the prompts, bars are 95 % intervals. A line of slope 1 "
        "is a division by V, a flat one divides by nothing that depends on the prompt.",
        panels=(
            Panel(
                name="division",
                title="",
                data=data,
                layout=layout(log_axis("V", volumes, dense=True), log_axis("standard deviation", drawn, dense=True)),
                height=380,
            ),
        ),
        legend=tuple(legend),
        table=Table(
            header=("layer", "power of V ± stderr", "R²", "its logarithm varies by"),
            rows=tuple(
                (
                    str(d.layer),
                    estimate(d.exponent, d.exponent_stderr),
                    number(d.r2, 4),
                    number(d.variation, 3),
                )
                for d in found.divisions
            ),
        ),
    )


def rescaled_figure(analysis: Analysis) -> Figure | None:
    """Fidelity of the closed form and of the fitted gradient methods where all x are multiplied by a factor."""
    found = analysis.closed_form
    drawn = [] if found is None else [r for r in found.rescaled if r.quantity == "x" and r.factor > 0]
    if found is None or not drawn:
        return None
    known = sorted([*drawn, *_unscaled(analysis)], key=lambda r: r.factor)
    names = list(dict.fromkeys(name for r in known for name in r.rivals))
    legend = [Series(key="form", label="the closed form", colour="var(--series-1)", symbol=SYMBOLS[0])]
    legend += [
        Series(
            key=f"rival-{i}",
            label=name,
            colour=f"var(--gd-{i % 4})",
            symbol=SYMBOLS[(i + 1) % len(SYMBOLS)],
            dash=DASHES[i % 4],
        )
        for i, name in enumerate(names)
    ]
    data = []
    for series, values in zip(
        legend, [[r.fidelity for r in known], *([r.rivals.get(n) for r in known] for n in names)], strict=True
    ):
        points = [
            Point(
                r.factor, value, None, f"{label(series.label)}, x times {factor_text(r.factor)}: R² {number(value, 3)}"
            )
            for r, value in zip(known, values, strict=True)
            if is_finite(value)
        ]
        data.append(curve(series, points, floor=_FLOOR, dash=series.dash))
    ticks = [r.factor for r in known]
    x = axis("all x multiplied by", type="log", tickvals=ticks, ticktext=[factor_text(t) for t in ticks])
    return Figure(
        name="rescaled",
        finding=rescaled_finding(found),
        description="R² against the network's predictions, on prompts of the task with all x, the query too, "
        "multiplied by a factor. The closed form does not change with the scale of x; gradient methods fitted at "
        f"factor 1 are polynomials in x.{_tails(known)} A triangle at the edge lies below {number(_FLOOR, 1)}.",
        panels=(
            Panel(
                name="rescaled",
                title="",
                data=data,
                layout=layout(x, axis("fidelity R²", range=[_FLOOR - 0.05, 1.05])),
                height=380,
            ),
        ),
        legend=tuple(legend),
        table=Table(
            header=("all of", "times", "closed form [95 %]", "outside the task's range", *names),
            rows=tuple(
                (
                    r.quantity,
                    factor_text(r.factor),
                    interval(r.fidelity, r.fidelity_ci),
                    percent(r.outside),
                    *(number(r.rivals.get(name), 3) for name in names),
                )
                for r in found.rescaled
            ),
        ),
    )


def _tails(known: Sequence[Rescaled]) -> str:
    """Why a gradient method may be nearer to the network at smaller x than where it was fitted."""
    own = next((r for r in known if r.factor == 1), None)
    if own is None:
        return ""
    smaller = [r for r in known if r.factor < 1]
    better = any(
        is_finite(value := r.rivals.get(name)) and is_finite(at) and value > at
        for r in smaller
        for name, at in own.rivals.items()
    )
    return (
        " Their R² at factor 1 is decided by the few prompts with the widest x, on which polynomials explode where "
        "they were not fitted; with smaller x they do not, so that some are nearer there than on the task itself."
        if better
        else ""
    )


def _unscaled(analysis: Analysis) -> tuple[Rescaled, ...]:
    """The task itself, factor 1, from the table of families."""
    rows = {row.name: row for row in analysis.families}
    form = next((row for name, row in rows.items() if name.startswith("closed-form")), None)
    if form is None:
        return ()
    rivals = {name: row.fidelity for name, row in rows.items() if not name.startswith("closed-form")}
    return (
        Rescaled(
            quantity="x", factor=1.0, outside=0.05, fidelity=form.fidelity, fidelity_ci=form.fidelity_ci, rivals=rivals
        ),
    )
