"""Where the network stands after every layer, and which family stands there too."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports.numbers import DASH, interval
from interp.reports.registry import section
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
    best = max(worst, key=lambda name: worst[name])
    yield Section(
        name="course",
        title="Where it stands after every layer",
        finding=f"{best} follows the read-out after every layer closest, to R² {worst[best]:.3g} at the worst",
        table=Table(
            header=("after layer", *families),
            rows=tuple((str(layer), *(known.get((name, layer), DASH) for name in families)) for layer in layers),
        ),
        notes=(
            "Each family is fitted to the implicit weights after all layers at once, starting at the weights' own "
            "numbers, and scored on prompts that were not fitted: R² [95 %] of its read-outs for the network's. A "
            "larger family is left out where a smaller one is exact.",
        ),
    )
