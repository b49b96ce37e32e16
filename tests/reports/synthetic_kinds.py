"""Every kind of analysis that a report can be made of, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import synthetic_analyses as made
import synthetic_closed_form
from synthetic_behaviour import behaviour
from synthetic_completion import completion

from interp.results import Analysis


def everything() -> Analysis:
    """With every part that a page of a regression network can have at once."""
    base = made.full()
    return dataclasses.replace(
        base,
        behaviour=behaviour(layers=len(base.layers)),
        completion=completion(),
        probes=made.with_probes().probes,
        preconditioners=made.preconditioned().preconditioners,
    )


def many() -> Mapping[str, Analysis]:
    """Every kind of analysis, by name."""
    return {
        "diag": made.analysis(),
        "single": made.analysis(layers=1),
        "deep": made.deep(),
        "noisy": made.noisy(),
        "full": made.full(),
        "unrecognized-noisy": made.unrecognized_and_noisy(),
        "preconditioned": made.preconditioned(),
        "disagreeing": made.disagreeing(),
        "unrecognized": made.unrecognized(),
        "refused": made.refused(),
        "empty": made.empty(),
        "all-none": made.all_none(),
        "hostile": made.hostile(),
        "everything": everything(),
        "bad-weights": made.with_bad_weights(),
        "probes": made.with_probes(),
        "closed-form": synthetic_closed_form.analysed(made.analysis(layers=2)),
        "not-closed-form": synthetic_closed_form.analysed(made.analysis(layers=2), passed=False),
    }
