"""Where the network stands after every layer, and which family stands there too."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports.numbers import DASH, interval
from interp.reports.registry import section
from interp.reports.sections.families import chosen_family
from interp.results import Analysis, Section, Table

__all__ = ["course"]


@section("course", title="the course", where="evidence")
def course(analysis: Analysis) -> Iterator[Section]:
    rows = analysis.evidence.course
    if not rows:
        return
    families = list(dict.fromkeys(row.family for row in rows))
    known = {(row.family, row.layer): interval(row.r2, row.r2_ci) for row in rows}
    layers = sorted({row.layer for row in rows})
    worst = {name: min(row.r2 for row in rows if row.family == name) for name in families}
    chosen = chosen_family(analysis)
    closest = max(worst, key=lambda name: worst[name])
    shown = chosen.name if chosen is not None and chosen.name in worst else closest
    yield Section(
        name="course",
        title="Where it stands after every layer",
        finding=f"{shown} follows the read-out after every layer to R² {worst[shown]:.3g} at the worst",
        table=Table(
            header=("family", *(f"after layer {layer}" for layer in layers)),
            rows=tuple((name, *(known.get((name, layer), DASH) for layer in layers)) for name in families),
        ),
        notes=(
            "R² [95 %] of a family's read-outs for the network's, on prompts that were not fitted. Families of tokens "
            "(x, y) are fitted to the implicit weights after all layers at once, starting at the weights' own numbers; "
            "revalg has the numbers of its fit to the predictions. A larger family is left out where a smaller one is "
            "exact.",
        ),
    )
