"""Causal checks in the terminal: what was measured in tables, what was not in notes."""

from __future__ import annotations

import dataclasses
import io

import synthetic_probes
from rich.console import Console

from interp.reports.terminal import print_probes
from interp.results import Erasure, ProbeReport, Transplant

MOVED = Transplant(
    layer=1, kind="weights", effect=0.987, effect_ci=(0.97, 0.99), error=2e-29, own=0.0, random=0.31,
    random_ci=(0.2, 0.4), random_error=0.8, fired=511, prompts=512,
)  # fmt: skip
ERASED = Erasure(
    layer=2, target="label", position=None, rank=1, r2=0.61, r2_erased=-0.002, loss=3.7, null=9.9, effect=0.46,
    effect_ci=(0.39, 0.53), random=0.03, random_ci=(0.0, 0.05), fired=512, prompts=512,
)  # fmt: skip


def shown(*rows: Transplant | Erasure) -> str:
    base = synthetic_probes.report(synthetic_probes.at_the_query())
    report = ProbeReport(
        **{
            **vars(base),
            "transplants": tuple(row for row in rows if isinstance(row, Transplant)),
            "erasures": tuple(row for row in rows if isinstance(row, Erasure)),
        }
    )
    written = io.StringIO()
    print_probes(report, Console(width=160, file=written))
    return written.getvalue()


def test_figures_stand_beside_their_intervals_and_controls() -> None:
    text = shown(MOVED, ERASED)
    for part in ("0.987 [0.970, 0.990]", "2e-29", "511/512", "0.61", "0.00", "0.46 [0.39, 0.53]", "the query"):
        assert part in text, part


def test_what_was_skipped_is_in_the_notes_once() -> None:
    nothing = {"effect": None, "effect_ci": (None, None), "random": None, "random_ci": (None, None), "reason": "so"}
    text = shown(*(dataclasses.replace(ERASED, layer=layer, **nothing) for layer in (0, 2, 3)))
    assert "erasure of label after 0, 2, 3 layers: so" in text and "Targets erased" not in text


def test_without_interventions_nothing_is_said() -> None:
    assert "Targets erased" not in shown() and "put in place" not in shown()
