"""One training run: a search that can be interrupted, then an honest evaluation on fresh prompts."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import interp
from interp.errors import UsageError
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Outcome, Watch
from interp.models.training.recipe import Recipe
from interp.models.transformer import LinearTransformer

__all__ = ["EVALUATION_SEED", "Trained", "train"]

EVALUATION_SEED = 902_417  # apart from every training seed


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model. ``loss``, with its standard error, is what ``measure`` says, on ``prompts`` prompts that nothing
    was fitted to or chosen on. ``others``: the networks that it was chosen from, the best first."""

    model: LinearTransformer
    measure: Measure
    loss: float
    stderr: float
    prompts: int
    effort: Mapping[str, int]
    seconds: float
    others: tuple[LinearTransformer, ...] = ()


def train(
    recipe: Recipe, *, record: Path | None = None, keep_record: bool = False, watch: Watch = lambda step: None
) -> Trained:
    """Train by the recipe. With ``record`` the state is kept in that file, and saved when the run is interrupted; the
    next call goes on from it and, unless ``keep_record``, removes it at the end. A record that is kept speeds up
    recipes that share it (see ``Method.recorded``), and changes none of their results.

    Raises UsageError when the record belongs to another recipe, or the training diverged.
    """
    method = recipe.method
    journal = Journal(method.recorded(recipe), record, watch)
    try:
        outcome = method.search(recipe, journal)
    finally:
        journal.save()
    made, losses = _evaluated(recipe, outcome), [_evaluated(recipe, other) for other in outcome.others]
    score = made[method.measure.key]
    if score["mean"] is None:
        raise UsageError(
            f"the network trained by recipe {recipe.name!r} has no finite {method.measure.key.replace('_', ' ')} on "
            f"fresh prompts; {method.remedy}"
        )
    if losses:
        key = method.measure.key
        made["seeds"] = [{"seed": m["seed"], key: m[key]["mean"], "stderr": m[key]["stderr"]} for m in losses]
        made["seeds"].sort(key=lambda entry: entry["seed"])
    versions = {"interp-probe": interp.__version__, "torch": torch.__version__, "python": platform.python_version()}
    wall, cpu = journal.seconds
    run = {"recipe": recipe.to_dict(), "wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}
    run["versions"] = versions
    trained = Trained(
        model=_model(recipe, outcome, run | made),
        measure=method.measure,
        loss=score["mean"],
        stderr=score["stderr"],
        prompts=score["prompts"],
        effort=outcome.effort,
        seconds=wall,
        others=tuple(_model(recipe, *other) for other in zip(outcome.others, [run | m for m in losses], strict=True)),
    )
    if not keep_record:
        journal.remove()
    return trained


def _evaluated(recipe: Recipe, outcome: Outcome) -> dict[str, Any]:
    """The part of the provenance that belongs to one network; numbers that are not finite are None."""
    seed = EVALUATION_SEED + recipe.optimiser.seed
    losses, facts = recipe.method.losses(recipe, outcome.weights, seed)
    mean, stderr = float(losses.mean()), float(losses.std()) / math.sqrt(len(losses))
    score = {
        "mean": mean if math.isfinite(mean) else None,
        "stderr": stderr if math.isfinite(stderr) else None,
        "prompts": len(losses),
        "unit": recipe.method.measure.unit,
    }
    return {**outcome.effort, **outcome.facts, **facts, recipe.method.measure.key: score}


def _model(recipe: Recipe, outcome: Outcome, provenance: Mapping[str, Any]) -> LinearTransformer:
    weights = {name: value.detach().clone().contiguous() for name, value in outcome.weights.items()}
    spec = dataclasses.replace(recipe.spec, provenance=provenance)
    return LinearTransformer(spec=spec, Q=weights.pop("Q"), P=weights.pop("P"), tensors=weights)
