"""A sweep in a terminal: one line a checkpoint, and the errors in full below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from interp.reports.numbers import DASH, interval, plain
from interp.results import SweepRow

__all__ = ["print_sweep"]


def print_sweep(rows: Sequence[SweepRow], console: Console) -> None:
    """Print the table of the verdicts, then what went wrong."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("checkpoint", "algorithm", "solves the task", "held-out fidelity R²"):
        table.add_column(header, overflow="fold")
    for row in rows:
        if row.error is not None:
            table.add_row(plain(row.checkpoint), DASH, DASH, f"failed, exit code {row.exit_code}")
            continue
        fidelity = DASH if row.fidelity is None else interval(row.fidelity, row.fidelity_ci or (None, None))
        table.add_row(plain(row.checkpoint), row.algorithm, "yes" if row.solves_task else "no", fidelity)
    console.print(table)
    for row in rows:
        if row.error is not None:
            console.print(f"\n{plain(row.checkpoint)}: {plain(row.error)}", markup=False)
