"""One training run of embedded networks: many seeds at once, each polished, the best one pruned.

An interrupted run loses nothing: its record holds all seeds with Adam's moments, and every polished one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import interp
from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError
from interp.models.tasks import SimplePrompts
from interp.models.training.embedded import Shapes, Stochastic, adam, initial, polish, prune, relative_error
from interp.models.training.embedded_recipe import EmbeddedRecipe
from interp.models.training.trained import EVALUATION_SEED
from interp.models.transformer import LinearTransformer

__all__ = ["TrainedEmbedded", "train_embedded"]

SAVE_EVERY = 10.0  # seconds
SMOOTH = (1e-3, 1e-4)  # of |w|, in the two halves of a polish


@dataclass(frozen=True, kw_only=True)
class TrainedEmbedded:
    """The best seed, pruned, and what became of all of them before pruning, the best first as judged on other prompts.
    Errors are E (f - yhat)^2 / E yhat^2 with their standard errors, on ``prompts`` prompts that nothing was fitted to
    or chosen on; NaN or infinite where a seed diverged."""

    model: LinearTransformer
    error: float
    stderr: float
    prompts: int
    seeds: tuple[LinearTransformer, ...]
    errors: tuple[float, ...]
    stderrs: tuple[float, ...]
    seconds: float


class _Record:
    def __init__(self, recipe: EmbeddedRecipe, path: Path | None, start: Stochastic) -> None:
        self.path, self.state, self.polished, self.spent = path, start, dict[int, Tensor](), 0.0
        self._recipe = hashlib.sha256(json.dumps(recipe.to_dict(), sort_keys=True).encode()).hexdigest()
        if path is not None and path.exists():
            self._load(path)
        self._saved = self._mark = time.monotonic()

    def keep(self, state: Stochastic) -> None:
        self.state = state
        if time.monotonic() - self._saved > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        now = time.monotonic()
        self.spent, self._mark, self._saved = self.spent + now - self._mark, now, now
        if self.path is None:
            return
        parts = {"theta": self.state.theta, "first": self.state.first, "second": self.state.second}
        parts |= {f"polished/{k}": v for k, v in self.polished.items()}
        header = {"recipe": self._recipe, "step": self.state.step, "done": sorted(self.polished), "spent": self.spent}
        tensors = {name: value.detach().clone().contiguous() for name, value in parts.items()}
        write_atomically(self.path, save(tensors, metadata={"training": json.dumps(header)}))

    def _load(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                theta, first, second = (file.get_tensor(name) for name in ("theta", "first", "second"))
                self.polished = {int(k): file.get_tensor(f"polished/{k}") for k in header["done"]}
                step, self.spent = int(header["step"]), float(header["spent"])
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header["recipe"] != self._recipe:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
        self.state = Stochastic(theta, first, second, step)


def train_embedded(
    recipe: EmbeddedRecipe,
    *,
    record: Path | None = None,
    watch: Callable[[str, int, float], None] = lambda stage, step, error: None,
) -> TrainedEmbedded:
    """Train by the recipe. With ``record`` the state is kept in that file; the next call goes on from it and removes it
    at the end. ``watch`` sees the stage ("adam", "polish 3", "prune"), a step and an error or loss.

    Raises UsageError when the record belongs to another recipe, or no seed has a finite error.
    """
    plan, task = recipe.optimiser, recipe.task
    shapes = Shapes(recipe.spec, task, recipe.layers, recipe.heads)
    theta = initial(shapes, plan.initial_std, plan.seeds, plan.seed)
    kept = _Record(recipe, record, Stochastic(theta, torch.zeros_like(theta), torch.zeros_like(theta)))

    def seen(now: Stochastic, loss: Tensor) -> None:
        kept.keep(now)
        watch("adam", now.step, float(loss.min()))

    fixed, checked = task.sample(plan.polish_prompts, plan.seed * 7 + 1), task.sample(8192, plan.seed * 7 + 2)
    try:
        state = adam(
            shapes, kept.state, steps=plan.steps, rate=plan.rate, batch=plan.batch, l1=plan.l1, seed=plan.seed,
            watch=seen,
        )  # fmt: skip
        kept.state = state
        for k in range(plan.seeds):
            if k in kept.polished:
                continue
            found = state.theta[k].double()
            for smooth in SMOOTH:
                found = polish(
                    shapes, found, fixed, l1=plan.l1, iterations=plan.polish_iterations // 2, smooth=smooth,
                    watch=lambda i, loss, k=k: watch(f"polish {k}", i, loss),
                )  # fmt: skip
            kept.polished[k] = found
            kept.save()
    except BaseException:
        kept.save()
        raise
    judged = {k: relative_error(shapes, kept.polished[k], checked) for k in range(plan.seeds)}
    order = sorted(judged, key=lambda k: judged[k] if math.isfinite(judged[k]) else math.inf)
    if not math.isfinite(judged[order[0]]):
        raise UsageError(f"no seed of recipe {recipe.name!r} has a finite error; lower optimiser.rate")
    best = prune(
        shapes, kept.polished[order[0]], fixed, checked, iterations=plan.prune_iterations,
        watch=lambda left, error: watch("prune", left, error),
    )  # fmt: skip
    kept.save()
    fresh = task.sample(plan.evaluation_prompts, EVALUATION_SEED + plan.seed)
    error, stderr = error_on(shapes, best, fresh)
    errors = {k: error_on(shapes, kept.polished[k], fresh) for k in order}
    common = {
        "recipe": recipe.to_dict(),
        "start": "random",
        "wall_seconds": round(kept.spent, 1),
        "versions": {
            "interp-probe": interp.__version__, "torch": torch.__version__, "python": platform.python_version(),
        },
    }  # fmt: skip
    provenance = common | {
        "relative_error": {
            "mean": error,
            "stderr": stderr,
            "prompts": fresh.count,
            "unit": "E (f - yhat)^2 / E yhat^2",
        },
        "seed": order[0],
        "seeds": [
            {"seed": k, "relative_error": _known(errors[k][0]), "stderr": _known(errors[k][1])}
            for k in range(plan.seeds)
        ],
        "weights_left": int((best != 0).sum()),
    }
    if record is not None:
        record.unlink(missing_ok=True)
    return TrainedEmbedded(
        model=_model(shapes, best, provenance),
        error=error,
        stderr=stderr,
        prompts=fresh.count,
        seeds=tuple(_model(shapes, kept.polished[k], common | {"seed": k}) for k in order),
        errors=tuple(errors[k][0] for k in order),
        stderrs=tuple(errors[k][1] for k in order),
        seconds=kept.spent,
    )


def error_on(shapes: Shapes, theta: Tensor, prompts: SimplePrompts) -> tuple[float, float]:
    """E (f - yhat)^2 / E yhat^2 and the standard error of its numerator, in the same unit."""
    target, tokens = prompts.least_squares().prediction, torch.cat(prompts.inputs(shapes.spec), 1)
    losses = (shapes.predict(theta, tokens) - target).square() / target.square().mean()
    return float(losses.mean()), float(losses.std()) / math.sqrt(len(losses))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _model(shapes: Shapes, theta: Tensor, provenance: Mapping[str, Any]) -> LinearTransformer:
    weights = {name: value.clone().contiguous() for name, value in shapes.weights(theta).items()}
    spec = dataclasses.replace(shapes.spec, provenance=provenance)
    return LinearTransformer(spec=spec, Q=weights.pop("Q"), P=weights.pop("P"), tensors=weights)
