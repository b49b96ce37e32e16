"""The figures of "Uncovering mesa-optimization algorithms in Transformers" beside those of the models that ship.

Von Oswald et al., arXiv 2309.05858; the paper's figures are those of the authors' stored results. Four groups:

    losses        of the trained networks and of the comparators, on sequences of their own
    compression   the networks replaced by their heads' block means, by fewer numbers, and by networks in between
    probes        the next-state and preconditioned-state probes by layer and position, as published and held out
    training      the six-layer network with keys of size 40 along its training, as it was published
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError, did_you_mean
from interp.papers.mesa_compression import COMPARED, compression_rows
from interp.papers.mesa_losses import loss_rows
from interp.papers.mesa_probes import PROMPTS, probe_rows
from interp.papers.mesa_training import training_rows
from interp.provenance import provenance

__all__ = ["GROUPS", "measure", "shipped_results"]

NEEDED = {"losses": (), "compression": ("network", "kind"), "probes": (), "training": ()}  # fields of rows, by group
GROUPS = tuple(NEEDED)


def measure(
    groups: Iterable[str], out: Path, sequences: int, seed: int, progress: Callable[[str], None] = lambda step: None
) -> dict[str, Any]:
    """The groups asked for, kept in ``out`` with those it already has. Raises UsageError for an unknown group."""
    groups = list(groups)
    for name in groups:
        if name not in GROUPS:
            raise UsageError(f"there is no group {name!r}; {did_you_mean(name, GROUPS)}")
    document = _read(out)
    for name in groups:
        count = {"losses": sequences, "probes": PROMPTS}.get(name, COMPARED)
        document[name] = {
            "rows": _rows(name, out, sequences, seed, progress),
            "sequences": count,
            "provenance": {k: v for k, v in provenance(count, seed, None).items() if k != "command"},
        }
        write_atomically(out, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return document


def _rows(name: str, out: Path, sequences: int, seed: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    if name == "losses":
        return loss_rows(sequences, seed, progress)
    if name == "compression":
        return compression_rows(seed, progress)
    if name == "probes":
        return probe_rows(seed, progress)
    return training_rows(out, seed, progress)


def shipped_results() -> dict[str, Any]:
    """The results that ship with the package, by group."""
    return json.loads((resources.files("interp.papers") / "results" / "mesa.json").read_text("utf-8"))


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for group, part in found.items():
            for row in part["rows"]:
                missing = {"cell", "ours", "within_bar", *NEEDED[group]} - row.keys()
                if missing:
                    raise ValueError(f"a row of {group} has no {', '.join(sorted(missing))}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is not a table of results of this version ({error}); delete it, or give another --out"
        ) from None
    return found
