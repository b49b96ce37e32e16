"""The files of ``pytest -m quick``: a minute's look at every room, for between two edits."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent

# One after the other they take a minute of one processor, start included.
QUICK = (
    "test_quick",
    "test_rooms",
    "checkpoints/test_canonical_format",
    "checkpoints/test_weight_expressions",
    "cli/test_inspect_command",
    "interp/test_algorithms_gdpp",
    "interp/test_algorithms_ridge",
    "interp/test_alignment",
    "interp/test_gauge",
    "interp/test_weight_maps",
    "models/test_atomic_write",
    "models/test_document_numbers",
    "models/test_hooked_forward",
    "ordinary/test_suite",
    "papers/test_eagle_sections",
    "probes/test_intervals",
    "probes/test_moments",
    "probes/test_ridge",
    "registering/test_undone",
    "reports/test_findings",
    "reports/test_printed_numbers",
    "stats/test_bootstrap",
    "stats/test_least_squares",
)


def is_quick(path: Path) -> bool:
    return path.is_relative_to(TESTS) and path.relative_to(TESTS).with_suffix("").as_posix() in QUICK
