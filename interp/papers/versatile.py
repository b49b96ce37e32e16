"""The cells of Table 1 of Vladymyrov et al., "Linear Transformers are Versatile In-Context Learners", one recipe each.

A cell is a family (GD++, DIAG, FULL), a depth and a noise law. The table prints half the mean squared error above the
oracle's. ``run_cells`` trains the cells asked for and keeps the results in one JSON file, so that it can be stopped at
any time and called again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError, did_you_mean
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.training import Recipe, Step, Trained, train

__all__ = ["PAPER", "Cell", "cells", "run_cells", "shipped_results"]

FAMILIES = {"gdpp": "gd++", "diag": "diag", "full": "full"}
NOISES: Mapping[str, NoiseLaw] = {
    "u0": NoiseLaw(kind="fixed", values=(0.0,)),
    **{f"u{top}": NoiseLaw(kind="uniform", values=(0.0, float(top))) for top in range(1, 8)},
    "c13": NoiseLaw(kind="choice", values=(1.0, 3.0)),
    "c135": NoiseLaw(kind="choice", values=(1.0, 3.0, 5.0)),
}

# Table 1, columns in the order of NOISES.
PAPER: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("gdpp", 1): (1.768, 1.639, 1.396, 1.175, 1.015, 0.907, 0.841, 0.806, 1.007, 0.819),
    ("diag", 1): (1.767, 1.639, 1.396, 1.175, 1.015, 0.906, 0.841, 0.806, 1.007, 0.819),
    ("full", 1): (1.768, 1.640, 1.397, 1.176, 1.016, 0.907, 0.842, 0.806, 1.008, 0.820),
    ("gdpp", 2): (0.341, 0.295, 0.243, 0.265, 0.347, 0.366, 0.440, 0.530, 0.305, 0.427),
    ("diag", 2): (0.265, 0.214, 0.173, 0.188, 0.219, 0.242, 0.254, 0.259, 0.201, 0.246),
    ("full", 2): (0.264, 0.215, 0.173, 0.188, 0.220, 0.245, 0.259, 0.263, 0.202, 0.276),
    ("gdpp", 3): (0.019, 0.021, 0.071, 0.161, 0.259, 0.344, 0.454, 0.530, 0.222, 0.422),
    ("diag", 3): (0.013, 0.015, 0.048, 0.087, 0.109, 0.118, 0.121, 0.123, 0.098, 0.119),
    ("full", 3): (0.012, 0.015, 0.049, 0.075, 0.101, 0.117, 0.124, 0.127, 0.076, 0.113),
    ("gdpp", 4): (9.91e-5, 0.014, 0.066, 0.160, 0.258, 0.344, 0.454, 0.530, 0.222, 0.422),
    ("diag", 4): (1.19e-4, 0.006, 0.024, 0.041, 0.050, 0.059, 0.065, 0.073, 0.043, 0.062),
    ("full", 4): (1.63e-4, 0.005, 0.021, 0.038, 0.052, 0.065, 0.068, 0.076, 0.032, 0.061),
    ("gdpp", 5): (1.14e-7, 0.014, 0.066, 0.161, 0.265, 0.344, 0.454, 0.530, 0.222, 0.422),
    ("diag", 5): (1.81e-7, 0.004, 0.016, 0.029, 0.041, 0.051, 0.058, 0.062, 0.026, 0.051),
    ("full", 5): (1.79e-7, 0.002, 0.015, 0.026, 0.038, 0.048, 0.059, 0.065, 0.016, 0.048),
    ("gdpp", 6): (2.37e-10, 0.009, 0.066, 0.161, 0.265, 0.344, 0.454, 0.530, 0.222, 0.422),
    ("diag", 6): (2.57e-10, 0.003, 0.014, 0.028, 0.040, 0.048, 0.054, 0.059, 0.020, 0.047),
    ("full", 6): (2.71e-10, 0.002, 0.014, 0.025, 0.036, 0.044, 0.052, 0.059, 0.011, 0.043),
    ("gdpp", 7): (2.65e-12, 0.009, 0.066, 0.161, 0.265, 0.344, 0.454, 0.530, 0.222, 0.422),
    ("diag", 7): (2.50e-12, 0.002, 0.014, 0.027, 0.040, 0.047, 0.052, 0.059, 0.018, 0.046),
    ("full", 7): (2.50e-12, 0.002, 0.010, 0.025, 0.035, 0.047, 0.050, 0.057, 0.010, 0.035),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of the table; its name is for example "diag-l4-u5"."""

    family: str  # "gdpp" | "diag" | "full"
    layers: int
    noise: str  # a key of NOISES

    @property
    def name(self) -> str:
        return f"{self.family}-l{self.layers}-{self.noise}"

    @property
    def paper(self) -> float:
        return PAPER[self.family, self.layers][list(NOISES).index(self.noise)]

    @property
    def bar(self) -> float:
        """The largest loss that counts as reproduced: the paper's plus 5 % plus 0.002 (u0: three times it)."""
        return 3.0 * self.paper if self.noise == "u0" else 1.05 * self.paper + 0.002

    def recipe(self) -> Recipe:
        task = NoisyRegression(dim=10, context=20, noise=NOISES[self.noise])
        effort: dict[str, Any] = {}
        if self.family == "full":
            effort = {"search_prompts": 8192}
        elif self.noise == "u0":
            # the deep ones reach rounding on half of the prompts, and the search takes most of their time
            search, polish = (4096, 32768) if self.layers < 6 else (1024, 16384)
            effort = {"search_prompts": search, "attempts": 1, "keep": 4, "search_iterations": 100}
            effort |= {"prompts": [polish], "iterations": [60]}
        model = {"parametrisation": FAMILIES[self.family], "layers": self.layers}
        return Recipe.from_dict({"name": self.name, "task": task.to_dict(), "model": model, "optimiser": effort})


def cells(names: Iterable[str] = ()) -> tuple[Cell, ...]:
    """The cells of these names, in the order given; without names all cells of the table.

    Raises UsageError for a name that is not in the table.
    """
    table = {cell.name: cell for cell in (Cell(family=f, layers=n, noise=noise) for f, n in PAPER for noise in NOISES)}
    names = list(names) or list(table)
    for name in names:
        if name not in table:
            raise UsageError(f"there is no cell {name!r}; {did_you_mean(name, table)}")
    return tuple(table[name] for name in names)


def run_cells(
    wanted: Iterable[Cell],
    results: Path,
    *,
    keep: Callable[[Cell, Trained], None] = lambda cell, trained: None,
    watch: Callable[[Cell, Step], None] = lambda cell, step: None,
) -> dict[str, dict[str, Any]]:
    """Train those of the cells that ``results`` (a JSON file, made when absent) does not hold yet with the same recipe.

    ``keep`` receives every model as it is finished. Records lie beside ``results``, one for all depths of a column of
    the table: a cell takes from it what shallower cells have already searched, and counts the time that took. Returns
    all rows of the file, by name.
    """
    rows = _read(results)
    for cell in wanted:
        recipe = cell.recipe()
        if cell.name in rows and rows[cell.name]["recipe"] == recipe.to_dict():
            continue
        record = results.with_name(f"{cell.family}-{cell.noise}.training")
        trained = train(recipe, record=record, keep_record=True, watch=lambda step, cell=cell: watch(cell, step))
        keep(cell, trained)
        rows = _read(results)  # another process may have added rows meanwhile
        rows[cell.name] = {
            "family": cell.family,
            "layers": cell.layers,
            "noise": cell.noise,
            "paper": cell.paper,
            "bar": cell.bar,
            **dict(trained.model.spec.provenance),
        }
        write_atomically(results, json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
    return rows


def shipped_results() -> dict[str, dict[str, Any]]:
    """The results that ship with the package, by name of the cell."""
    return json.loads((resources.files("interp.papers") / "results" / "versatile.json").read_text("utf-8"))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is not a table of results ({error}); delete it to start a new one") from None
