"""A probe's score in words, and scores as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.plots import label
from interp.reports.probe_findings import (
    CONTROLS,
    ProbeGroup,
    beside_controls,
    depth_text,
    gap_text,
    paired_prompts,
    where_text,
)
from interp.results import ProbeScore, Table

__all__ = ["in_order", "said", "score_table"]

_HEADER = (
    *("target", "layers run", "token", "R² [95 %]", "untrained", "above it [95 %]", "inputs", "above them [95 %]"),
    *("shuffled", "above them [95 %]", "mean squared error"),
)
_R2 = _HEADER.index("R² [95 %]")


def said(score: ProbeScore) -> str:
    """Everything of one score, for the pointer."""
    where = f"{label(score.target)}, {depth_text(score.layer)}, {where_text(score.position, score.kind)}"
    if not is_finite(score.r2):
        return f"{where}: {label(score.reason or 'not scored')}"
    lines = [f"{where}: R² = {interval(score.r2, score.r2_ci)}"]
    if score.paired_prompts is not None:
        lines.append(f"on the {score.paired_prompts} prompts of the controls {interval(*beside_controls(score))}")
    lines += [
        f"{name} {value:z.2f}, above: {gap_text(score, name)}"
        for name in CONTROLS
        if is_finite(value := score.control.get(name))
    ]
    return "<br>".join(lines)


def in_order(group: ProbeGroup, target: str) -> list[ProbeScore]:
    keys = [(target, layer, p) for p in group.positions for layer in group.layers]
    return [group.scores[key] for key in keys if key in group.scores]


def score_table(scores: Sequence[ProbeScore]) -> Table:
    """With the R^2 that differences belong to in a column of its own, where it is another."""
    few = paired_prompts(scores)
    if few is None:
        return Table(header=_HEADER, rows=tuple(_row(score) for score in scores))
    rows = []
    for score, row in ((score, _row(score)) for score in scores):
        own = interval(*beside_controls(score)) if is_finite(score.r2) else ""
        rows.append((*row[: _R2 + 1], own, *row[_R2 + 1 :]))
    return Table(header=(*_HEADER[: _R2 + 1], f"on {few} prompts", *_HEADER[_R2 + 1 :]), rows=tuple(rows))


def _row(score: ProbeScore) -> tuple[str, ...]:
    if score.reason is not None and not is_finite(score.r2):
        blank = ("",) * (len(_HEADER) - 4)
        return (score.target, str(score.layer), _place(score), score.reason, *blank)
    gaps = [
        text
        for key in ("untrained", "inputs", "shuffled")
        for text in (number(score.control.get(key), 3), gap_text(score, key) if key in score.control else DASH)
    ]
    r2 = interval(score.r2, score.r2_ci)
    return (score.target, str(score.layer), _place(score), r2, *gaps, number(score.mse))


def _place(score: ProbeScore) -> str:
    return DASH if score.position is None else str(score.position)
