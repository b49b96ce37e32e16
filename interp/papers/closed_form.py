"""What was claimed of closed-form simple regression (arXiv 2607.15819) beside what is measured here.

The paper's text beyond its section 2.5 was not available to us, so its column holds its claims, not its numbers.
Results are one JSON document, which ships.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from interp.checkpoints.opening import Checkpoint
from interp.models.specification import Keys
from interp.models.transformer import LinearTransformer
from interp.papers.closed_form_law import construction_errors, fit_law, law_points
from interp.simple_analysis import analyse_simple_regression

__all__ = ["FORMS", "measured_construction", "seed_rows", "shipped_results", "summary_rows"]

FORMS: tuple[Keys, ...] = ("context", "all")
SEED_PROMPTS = 1024


def shipped_results() -> dict[str, Any]:
    text = resources.files("interp.papers").joinpath("results/closed-form.json").read_text(encoding="utf-8")
    return json.loads(text)


def measured_construction() -> dict[str, Any]:
    """The constructions' errors, the points of the law and the law, for both forms."""
    points = {keys: law_points(keys) for keys in FORMS}
    return {
        "errors": [dataclasses.asdict(row) for row in construction_errors()],
        "points": {keys: [dataclasses.asdict(p) for p in found] for keys, found in points.items()},
        "laws": [dataclasses.asdict(fit_law(found, keys)) for keys, found in points.items()],
    }


def seed_rows(models: Sequence[LinearTransformer], start: str) -> list[dict[str, Any]]:
    """The verdict on every trained seed; ``start``: "random", or "construction" for seeds that began near it."""
    rows = []
    for model in models:
        seed = model.spec.provenance.get("seed")
        read = Checkpoint(model=model, name=f"seed {seed}", sha256="", layout="canonical", dtype="float64", notes=())
        result = analyse_simple_regression(read, SEED_PROMPTS, 0)
        found = result.closed_form
        rows.append(
            {
                "seed": seed,
                "start": start,
                "verdict": result.verdict.algorithm,
                "fidelity": result.verdict.fidelity,
                "fidelity_ci": list(result.verdict.fidelity_ci),
                "form": None if found is None else found.forms[0].name,
                "relative_error": None if found is None else found.forms[0].error,
                "failed": [] if found is None else [c.name for c in found.checks if not c.passed],
            }
        )
    return rows


def summary_rows(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """The table: a claim of the paper, and what is found here."""
    rows = []
    errors = [row for row in results["construction"]["errors"] if row["context"] == 20]
    for row in errors:
        truth = "least squares" if row["against"] == "least-squares" else "(1 − h)(N + 1)/N times least squares"
        claim = "solves it, approximately" if row["name"] in FORMS and row["against"] != "least-squares" else ""
        rows.append(
            {
                "what": f"construction, keys {row['name']}, N = 20: relative error to {truth}",
                "paper": claim or ("solves it, approximately" if row["name"] == "context" else "—"),
                "ours": f"{row['error']:.2g} ± {row['stderr']:.1g}",
            }
        )
    for law in results["construction"]["laws"]:
        values = [f"{v:.2g} ± {e:.1g}" for v, e in zip(law["coefficients"], law["stderr"], strict=True)]
        rows.append(
            {
                "what": f"its error, keys {law['keys']}: root of the sum of squares of a/K, b/r², c/G, d r/(K G)",
                "paper": "not available",
                "ours": f"a {values[0]}, b {values[1]}, c {values[2]}, d {values[3]}; off by "
                f"{100 * law['spread']:.0f} % (root mean square) and "
                f"{law['worst']:.2g} times (worst) on {law['points']} points left out",
            }
        )
    for form, entry in results["seeds"].items():
        random = [row for row in entry["rows"] if row["start"] == "random"]
        named = sum(row["verdict"] == "closed-form" for row in random)
        others = sorted({row["verdict"] for row in random} - {"closed-form"})
        rows.append(
            {
                "what": f"l1-regularised training, keys {form}: seeds from random weights that find the closed form",
                "paper": "mainly this",
                "ours": f"{named} of {len(random)}" + (f" (the others: {', '.join(others)})" if others else ""),
            }
        )
    return rows
