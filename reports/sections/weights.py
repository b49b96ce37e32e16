"""The weight matrices, which a page lets its reader look through."""

from __future__ import annotations

from interp.reports.heatmaps import heatmaps
from interp.reports.registry import section
from interp.results import Analysis, Section, Skipped

__all__ = []


@section("weights", title="weight matrices", where="weights")
def weights(analysis: Analysis) -> Section | Skipped:
    maps = heatmaps(analysis)
    if maps.why is not None:
        return Skipped(maps.why)
    return Section(name="matrices", title="Q and P of every layer and head", finding=maps.finding)
