"""Closed-form simple regression by LayerNorm (Hagiwara 2026): its claims beside what is measured here. Cells are
construction (measured, not trained), context and all (keys of the examples alone, or of all tokens; twelve seeds each).

The paper's text beyond its section 2.5 was not available to us, so its column holds its claims, not its numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import Checkpoint
from interp.models.specification import Keys
from interp.models.training import Step, load_recipe, train
from interp.models.transformer import LinearTransformer
from interp.papers.closed_form_law import LawPoint, construction_errors, fit_law, law_errors, law_points
from interp.papers.comparison import drawn, plotted, table_of
from interp.papers.paper import Paper, Progress
from interp.reports.numbers import interval, listed, number
from interp.reports.plots import Point, curve, log_axis, marks, ordered_series
from interp.results import Section, Table

__all__ = ["PAPER", "measured_construction", "seed_rows", "summary_rows"]

FORMS: tuple[Keys, ...] = ("context", "all")
SEED_PROMPTS = 1024
_KEYS = {"context": "keys: the examples", "all": "keys: the examples and the query"}


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
        result = analyse(read, SEED_PROMPTS, 0)
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


class ClosedForm(Paper):
    name = "closed-form"
    title = "Closed-form simple regression: the construction and trained networks"
    source = "Hagiwara, arXiv 2607.15819"
    cells = ("construction", *FORMS)

    def measure(self, cell: str, out: Path, progress: Progress) -> dict[str, Any]:
        if cell == "construction":
            return measured_construction()
        recipe = load_recipe(f"closed-form-{cell}")

        def watch(step: Step) -> None:
            progress(f"{cell}, {step.name}: {step.iteration}, error {step.loss:.4g}")

        trained = train(recipe, record=out.with_name(f"{recipe.name}.training"), watch=watch)
        write_checkpoint(trained.model, out.with_name(f"{recipe.name}.safetensors"))
        progress(f"{cell}: the verdict on every seed")
        provenance = {key: trained.model.spec.provenance[key] for key in ("recipe", "versions", "wall_seconds")}
        return {"rows": seed_rows(trained.others, "random"), "provenance": provenance}

    def document(self, results: Mapping[str, Any]) -> dict[str, Any]:
        construction = results.get("construction", {})
        return {"table": summary_rows(results), "construction": construction, "seeds": _seeds(results)}

    def sections(self, results: Mapping[str, Any]) -> list[Section]:
        construction, seeds = results.get("construction", {}), _seeds(results)
        claims = table_of(summary_rows(results), {"what": "what", "the paper's": "paper", "ours": "ours"})
        laws = (_law(law, construction["points"][law["keys"]]) for law in construction.get("laws", ()))
        sections = [dataclasses.replace(section, table=None) for section in laws]  # long, and not to be read
        sections.append(Section(name="claims", title="Claims", table=claims))
        if seeds:
            finding = f"From random weights training finds the closed form in {listed(_shares(seeds))}"
            sections.append(Section(name="seeds", title="Seeds", finding=finding, table=_seeds_table(seeds)))
        return sections


def summary_rows(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """The table: a claim of the paper, and what is measured here."""
    construction = results.get("construction", {"errors": (), "laws": ()})
    rows = []
    for row in construction["errors"]:
        if row["context"] != 20:
            continue
        exact = row["against"] == "least-squares"
        truth = "least squares" if exact else "(1 − h)(N + 1)/N times least squares"
        claimed = row["name"] == "context" or (row["name"] in FORMS and not exact)
        rows.append((
            f"construction, keys {row['name']}, N = 20: relative error to {truth}",
            "solves it, approximately" if claimed else "—",
            f"{row['error']:.2g} ± {row['stderr']:.1g}",
        ))  # fmt: skip
    for law in construction["laws"]:
        rows.append((
            f"its error, keys {law['keys']}: root of the sum of squares of a/K, b/r², c/G, d r/(K G)",
            "not available",
            f"{_coefficients(law)}; off by {100 * law['spread']:.0f} % (root mean square) and {law['worst']:.2g} times "
            f"(worst) on {law['points']} points left out",
        ))  # fmt: skip
    for form, entry in _seeds(results).items():
        verdicts = _random_verdicts(entry)
        others = sorted(set(verdicts) - {"closed-form"})
        rows.append((
            f"l1-regularised training, keys {form}: seeds from random weights that find the closed form",
            "mainly this",
            _share(verdicts) + (f" (the others: {', '.join(others)})" if others else ""),
        ))  # fmt: skip
    return [dict(zip(("what", "paper", "ours"), row, strict=True)) for row in rows]


def _seeds(results: Mapping[str, Any]) -> dict[str, Any]:
    return {form: results[form] for form in FORMS if form in results}


def _coefficients(law: Mapping[str, Any]) -> str:
    triples = zip("abcd", law["coefficients"], law["stderr"], strict=True)
    return ", ".join(f"{name} = {value:.2g} ± {error:.1g}" for name, value, error in triples)


def _random_verdicts(entry: Mapping[str, Any]) -> list[str]:
    return [row["verdict"] for row in entry["rows"] if row["start"] == "random"]


def _share(verdicts: Sequence[str]) -> str:
    return f"{verdicts.count('closed-form')} of {len(verdicts)}"


def _shares(seeds: Mapping[str, Any]) -> list[str]:
    return [f"{_share(_random_verdicts(entry))} seeds with {_KEYS[keys]}" for keys, entry in seeds.items()]


def _seeds_table(seeds: Mapping[str, Any]) -> Table:
    began = {"random": "at random", "construction": "near the construction"}
    return table_of([{"keys": form, **row} for form, entry in seeds.items() for row in entry["rows"]], {
        "keys": "keys",
        "seed": "seed",
        "began": lambda row: began[row["start"]],
        "verdict": "verdict",
        "fidelity": lambda row: interval(row["fidelity"], (None, None)),
        "conditions that fail": lambda row: ", ".join(row["failed"]) or "none",
    })  # fmt: skip


def _law(law: Mapping[str, Any], rows: Sequence[Mapping[str, float]]) -> Section:
    """Curves over K, one for every r, at the largest G / r: measured, and the law."""
    keys, points = law["keys"], [LawPoint(**row) for row in rows]
    predicted = dict(zip(points, law_errors(law["coefficients"], points), strict=True))
    ratio = max(p.G / p.r for p in points)
    scales = sorted({p.r for p in points})
    legend, data = ordered_series([f"r = {number(r, 1)}" for r in scales], f"{keys}-r-"), []
    for series, r in zip(legend, scales, strict=True):
        along = sorted((p for p in points if p.r == r and abs(p.G / r - ratio) < 1e-6 * ratio), key=lambda p: p.K)
        measured = [Point(p.K, p.error, None, f"K = {number(p.K, 1)}: {number(p.error, 2)}") for p in along]
        fitted = [Point(p.K, predicted[p], None, "the law") for p in along]
        data += [marks(series, measured, log=True), curve(series, fitted, log=True, marked=False, dash="dot")]
    across = log_axis("K", sorted({p.K for p in points}), dense=False)
    description = (
        "K is the scale of a token beside its x and y (large: the first LayerNorm is linear), r what V is multiplied "
        "by in the second (large: V dominates what it divides by), G how far the update outweighs the old token. Root "
        "mean square error relative to the closed form's own size, on 2000 prompts of 20 examples, with G / r = "
        f"{number(ratio, 1)}; marks are measured, dotted lines the law. On points left out of the fit the law is off "
        f"by {100 * law['spread']:.0f} % (root mean square of the logarithm), at worst {law['worst']:.2g} times."
    )
    scales_of = {name: lambda row, name=name: number(row[name], 2) for name in "KrG"}
    return drawn(
        f"law-{keys}", f"Law, {_KEYS[keys]}",
        f"With {_KEYS[keys]}, error² = (a/K)² + (b/r²)² + (c/G)² + (d r/(K G))² with {_coefficients(law)}",
        description, [plotted(f"law-{keys}", data, across, "relative error", 420)], legend,
        table_of(
            [{**row, "law": predicted[p]} for row, p in zip(rows, points, strict=True)],
            scales_of | {"error": "error", "law": "law"},
        ),
    )  # fmt: skip


PAPER = ClosedForm()
