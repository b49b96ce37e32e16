"""One training run: search, then an honest evaluation on fresh prompts."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable
from pathlib import Path

import torch

import interp
from interp.models.errors import UsageError
from interp.models.training.completion import fit
from interp.models.training.completion_recipe import CompletionRecipe
from interp.models.training.journal import Journal
from interp.models.training.objective import adjusted_losses, one_core_a_chunk
from interp.models.training.recipe import Recipe
from interp.models.training.sample import fresh_sample
from interp.models.training.search import balanced, search
from interp.models.training.trained import EVALUATION_SEED, Step, Trained
from interp.models.transformer import LinearTransformer

__all__ = ["train"]


def train(
    recipe: Recipe | CompletionRecipe,
    *,
    record: Path | None = None,
    keep_record: bool = False,
    watch: Callable[[Step], None] = lambda step: None,
) -> Trained:
    """Train by the recipe. With ``record`` the state is kept in that file, and saved when the run is interrupted; the
    next call goes on from it and, unless ``keep_record``, removes it at the end. A record that is kept speeds up
    recipes that differ in their number of layers alone, and changes none of their results.

    Raises UsageError when the record belongs to another recipe, or the training diverged.
    """
    if isinstance(recipe, CompletionRecipe):
        return fit(recipe, record, keep_record, watch)
    journal = Journal(recipe, record)
    family, optimiser = recipe.family(), recipe.optimiser
    with one_core_a_chunk():
        try:
            theta = search(recipe, journal, watch)
        except BaseException:
            journal.save()
            raise
        fresh = fresh_sample(recipe.task, recipe.spec, optimiser.evaluation_prompts, EVALUATION_SEED + optimiser.seed)
        losses = adjusted_losses(family, theta, fresh)
    mean, stderr = float(losses.mean()), float(losses.std()) / math.sqrt(fresh.count)
    if not math.isfinite(mean):
        raise UsageError(
            f"the network trained by recipe {recipe.name!r} has a loss of {mean} on fresh prompts, expected a finite "
            "one; raise optimiser.prompts or optimiser.attempts"
        )
    P, Q = family.weights(theta)
    if recipe.parametrisation in ("diag", "full"):
        P, Q = balanced(P, Q)
    provenance = {
        "recipe": recipe.to_dict(),
        "adjusted_loss": {
            "mean": mean,
            "stderr": stderr,
            "prompts": fresh.count,
            "unit": "half the mean squared error",
        },
        "iterations": journal.iterations,
        "wall_seconds": round(journal.seconds[0], 1),
        "cpu_seconds": round(journal.seconds[1], 1),
        "versions": {
            "interp-probe": interp.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    spec = dataclasses.replace(recipe.spec, provenance=provenance)
    model = LinearTransformer(spec=spec, P=P.contiguous(), Q=Q.contiguous())
    if keep_record:
        journal.save()
    else:
        journal.remove()
    return Trained(
        model=model,
        adjusted_loss=mean,
        stderr=stderr,
        prompts=fresh.count,
        iterations=journal.iterations,
        seconds=journal.seconds[0],
    )
