"""Tables of reproduced papers, the paper's figures beside ours, with what they come to in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interp.reports.findings import listed
from interp.reports.numbers import DASH, estimate, interval, number
from interp.results import Table

__all__ = ["claims_table", "judged_table", "measured_table", "mesa_sentences", "seeds_table", "skipped_rows"]

Rows = Sequence[Mapping[str, Any]]


def measured_table(rows: Rows) -> Table:
    """Rows of one part of EAGLE; standard errors and intervals stand beside their values."""
    measured = [row for row in rows if "skipped" not in row]
    names = dict.fromkeys(key for row in measured for key in row)
    beside = {name for key in names for name in (f"± {key}", f"{key} interval")}
    header = tuple(name for name in names if name not in beside)
    return Table(header=header, rows=tuple(tuple(_cell(row, name) for name in header) for row in measured))


def _cell(row: Mapping[str, Any], name: str) -> str:
    value, error = row.get(name), row.get(f"± {name}")
    if value is None:
        return DASH
    if error is not None:
        return estimate(value, error)
    if (bounds := row.get(f"{name} interval")) is not None:
        return interval(value, tuple(bounds))
    return number(value, 3) if isinstance(value, float) else str(value)


def skipped_rows(rows: Rows) -> tuple[str, ...]:
    """What was not measured, and why; those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "skipped" in row:
            reasons.setdefault(row["skipped"], []).append(str(next(iter(row.values()))))
    return tuple(f"{listed(names, most=20)}: {why}" for why, names in reasons.items())


def seeds_table(forms: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every seed of the trainings of closed-form, with its verdict."""
    return Table(
        header=("keys", "seed", "began", "verdict", "fidelity", "conditions that fail"),
        rows=tuple(
            (
                form,
                str(row["seed"]),
                "at random" if row["start"] == "random" else "near the construction",
                row["verdict"],
                interval(row["fidelity"], (None, None)),
                ", ".join(row["failed"]) or "none",
            )
            for form, entry in forms.items()
            for row in entry["rows"]
        ),
    )


def judged_table(rows: Rows) -> Table:
    """Figures that a paper has, or that there is a bar for."""
    return Table(
        header=("what", "the paper's", "ours ± stderr", "ratio ± stderr", "within the bar"),
        rows=tuple(
            (
                row["cell"],
                number(row["paper"], 3),
                row["why"] if "why" in row else estimate(row["ours"], row["stderr"]),
                estimate(row["ratio"], row["ratio_stderr"]),
                {True: "yes", False: "no", None: DASH}[row["within_bar"]],
            )
            for row in rows
        ),
    )


def claims_table(rows: Rows) -> Table:
    return Table(
        header=("network", "claim", "figure", "holds"),
        rows=tuple(
            (
                row["network"],
                row["cell"].partition(": ")[2],
                number(row["ours"], 3),
                {True: "yes", False: "no", None: DASH}[row["within_bar"]],
            )
            for row in rows
        ),
    )


def mesa_sentences(rows: Rows) -> Iterator[str]:
    """How many figures are within their bar, and how many claims hold; those that do not are named."""
    known = [row for row in rows if row["within_bar"] is not None]
    claims = [row for row in known if row.get("claim")]
    judged = [row for row in known if not row.get("claim")]
    missing = sum("why" in row for row in rows)
    if judged:
        yield (
            f"{_count(judged)} figures are within the bar: losses at most 3 % above the paper's, compressed and "
            f"interpolated networks at most 5 % above their own.{f' {missing} more are missing.' if missing else ''}"
            f"{_but(judged)}"
        )
    if claims:
        yield f"{_count(claims)} claims about probes hold.{_but(claims)}"


def _count(rows: Rows) -> str:
    return f"{sum(row['within_bar'] for row in rows)} of {len(rows)}"


def _but(rows: Rows) -> str:
    failed = [f"{row['cell']}, {number(row['ours'], 3)}" for row in rows if not row["within_bar"]]
    return f" Not: {'; '.join(failed)}." if failed else ""
