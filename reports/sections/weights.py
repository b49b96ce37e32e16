"""The weight matrices, which a page lets its reader look through."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports.heatmaps import heatmaps
from interp.reports.registry import section
from interp.results import Analysis, Section, Skipped

__all__ = []


@section("weights", title="weight matrices", where="weights")
def weights(analysis: Analysis) -> Iterator[Section | Skipped]:
    maps = heatmaps(analysis)
    if maps.why is not None:
        yield Skipped(maps.why)
    else:
        yield Section(name="matrices", title="Q and P of every layer and head", finding=maps.finding)
