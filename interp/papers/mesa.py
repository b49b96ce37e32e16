"""The figures of "Uncovering mesa-optimization algorithms in Transformers" (von Oswald et al. 2023), linear dynamics,
beside those of the models that ship. Cells are the groups losses, compression and probes, and training, half an hour.

    losses        of the trained networks and of the comparators, on sequences of their own
    compression   the networks replaced by their heads' block means, by fewer numbers, and by networks in between
    probes        the next-state and preconditioned-state probes by layer and position, as published and held out
    training      the six-layer network with keys of size 40 along its training, as it was published

The paper's figures are those of the authors' stored results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.papers.mesa_compression import COMPARED, compression_rows
from interp.papers.mesa_figures import mesa_sections
from interp.papers.mesa_losses import loss_rows
from interp.papers.mesa_probes import PROMPTS, probe_rows
from interp.papers.mesa_training import training_rows
from interp.papers.paper import Paper, Progress
from interp.provenance import provenance
from interp.results import Section

__all__ = ["PAPER", "Mesa"]

UNIT = (
    "losses, training: half the squared error of the next state, mean over positions; compression: ratios to the "
    "network's own; probes: half the squared error in sample"
)


class Mesa(Paper):
    """``sequences`` are those that the losses are measured on."""

    name = "mesa"
    title = "Mesa-optimisation: losses, probes and compressed networks"
    source = "von Oswald et al., arXiv 2309.05858"
    cells = ("losses", "compression", "probes", "training")

    def __init__(self, sequences: int = 4096, seed: int = 20_230_911) -> None:
        self.sequences, self.seed = sequences, seed

    def measure(self, cell: str, out: Path, progress: Progress) -> dict[str, Any]:
        seed = self.seed
        measures = {
            "losses": (self.sequences, lambda: loss_rows(self.sequences, seed, progress)),
            "compression": (COMPARED, lambda: compression_rows(seed, progress)),
            "probes": (PROMPTS, lambda: probe_rows(seed, progress)),
            "training": (COMPARED, lambda: training_rows(out, seed, progress)),
        }
        count, rows = measures[cell]
        recorded = {key: value for key, value in provenance(count, seed, None).items() if key != "command"}
        return {"rows": rows(), "sequences": count, "provenance": recorded}

    def document(self, results: Mapping[str, Any]) -> dict[str, Any]:
        cells = [{"group": group, **row} for group, entry in results.items() for row in entry["rows"]]
        return {"unit": UNIT, "cells": cells}

    def sections(self, results: Mapping[str, Any]) -> list[Section]:
        return mesa_sections({group: entry["rows"] for group, entry in results.items()})


PAPER = Mesa()
