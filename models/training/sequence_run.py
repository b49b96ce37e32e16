"""One training run of a causal model, stage by stage, with a record that an interrupted run goes on from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import interp
from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError
from interp.models.training.sequence_recipe import SequenceRecipe
from interp.models.training.sequences import Moving, fresh_loss, products, start, steps_of
from interp.models.training.trained import EVALUATION_SEED
from interp.models.transformer import LinearTransformer

__all__ = ["TrainedOnSequences", "train_on_sequences"]

SAVE_EVERY = 10.0  # seconds


@dataclass(frozen=True, kw_only=True)
class TrainedOnSequences:
    """A trained model. ``loss`` is 1/2 E |f_t - s_{t+1}|^2 on ``prompts`` fresh sequences, the mean over positions."""

    model: LinearTransformer
    loss: float
    stderr: float
    prompts: int
    steps: int
    seconds: float


@dataclass(eq=False)
class _Record:
    """How far a run has come: the stage it is in, what moves there, and the time it took."""

    recipe: str
    path: Path | None
    stage: int = 0
    now: Moving | None = None
    seconds: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self._load(self.path)
        self._saved = time.monotonic()
        self._mark = (time.monotonic(), time.process_time())

    def keep(self, stage: int, now: Moving | None, always: bool = False) -> None:
        self.stage, self.now = stage, now
        clock = (time.monotonic(), time.process_time())
        self.seconds = (self.seconds[0] + clock[0] - self._mark[0], self.seconds[1] + clock[1] - self._mark[1])
        self._mark = clock
        if always or time.monotonic() - self._saved > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        if self.path is None or self.now is None:
            return
        parts = {"values": self.now.values, "first": self.now.first, "second": self.now.second}
        tensors = {f"{part}/{k}": v.clone().contiguous() for part, vs in parts.items() for k, v in enumerate(vs)}
        header = {
            "recipe": self.recipe, "stage": self.stage, "step": self.now.step, "count": len(self.now.values),
            "seconds": self.seconds,
        }  # fmt: skip
        write_atomically(self.path, save(tensors, metadata={"training": json.dumps(header)}))
        self._saved = time.monotonic()

    def _load(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                values, first, second = (
                    tuple(file.get_tensor(f"{part}/{k}") for k in range(header["count"]))
                    for part in ("values", "first", "second")
                )
                stage, step, seconds = header["stage"], header["step"], header["seconds"]
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header["recipe"] != self.recipe:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
        self.stage, self.now, self.seconds = stage, Moving(values, first, second, step), (seconds[0], seconds[1])


def train_on_sequences(
    recipe: SequenceRecipe,
    *,
    record: Path | None = None,
    watch: Callable[[int, int, float], None] = lambda stage, step, loss: None,
    snapshot: Callable[[int, int, Tensor, Tensor], None] = lambda stage, step, Q, P: None,
    every: int = 100,
) -> TrainedOnSequences:
    """Train by the recipe. With ``record`` the state is kept in that file, the next call goes on from it and removes it
    at the end. ``watch`` sees every step's stage, number and loss; ``snapshot`` also Q and P, before the first step and
    after every ``every`` steps.

    Raises UsageError when the record belongs to another recipe, or the training diverged.
    """
    plan, spec = recipe.optimiser, recipe.spec
    kept = _Record(hashlib.sha256(json.dumps(recipe.to_dict(), sort_keys=True).encode()).hexdigest(), record)
    weights: tuple[Tensor, Tensor] | None = None
    for index, stage in enumerate(plan.stages):
        if index < kept.stage:
            continue
        seed = plan.seed * 1009 + index
        now = kept.now if index == kept.stage and kept.now is not None else None
        if now is None:
            layers = stage.layers or recipe.layers
            now = start(stage, spec, layers, recipe.heads, recipe.key, plan.initial_std, weights, seed)
            snapshot(index, 0, *products(stage.weights, spec, now.values))

        def seen(state: Moving, loss: float, index: int = index, weights: str = stage.weights) -> None:
            kept.keep(index, state)
            watch(index, state.step, loss)
            if state.step % every == 0:
                snapshot(index, state.step, *products(weights, spec, state.values))

        try:
            now = steps_of(stage, spec, recipe.task, now, seed, seen)
        except BaseException:
            kept.save()
            raise
        Q, P = (value.contiguous() for value in products(stage.weights, spec, now.values))
        weights = (Q, P)
        if index + 1 < len(plan.stages):  # the record goes on with the next stage
            after = plan.stages[index + 1]
            layers = after.layers or recipe.layers
            following = start(
                after, spec, layers, recipe.heads, recipe.key, plan.initial_std, weights, plan.seed * 1009 + index + 1
            )
            kept.keep(index + 1, following, always=True)
    assert weights is not None  # there is at least one stage
    Q, P = weights
    mean, stderr = fresh_loss(spec, recipe.task, Q, P, plan.evaluation_prompts, EVALUATION_SEED + plan.seed)
    if not math.isfinite(mean):
        raise UsageError(
            f"the network trained by recipe {recipe.name!r} has a loss of {mean} on fresh sequences, expected a finite "
            "one; lower the rates of optimiser.stages"
        )
    kept.keep(len(plan.stages), None)
    provenance = {
        "recipe": recipe.to_dict(),
        "loss": {
            "mean": mean,
            "stderr": stderr,
            "prompts": plan.evaluation_prompts,
            "unit": "half the squared error, summed over coordinates, mean over positions",
        },
        "steps": sum(stage.steps for stage in plan.stages),
        "wall_seconds": round(kept.seconds[0], 1),
        "cpu_seconds": round(kept.seconds[1], 1),
        "versions": {
            "interp-probe": interp.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    model = LinearTransformer(spec=dataclasses.replace(spec, provenance=provenance), Q=Q, P=P)
    if record is not None:
        record.unlink(missing_ok=True)
    return TrainedOnSequences(
        model=model,
        loss=mean,
        stderr=stderr,
        prompts=plan.evaluation_prompts,
        steps=provenance["steps"],
        seconds=kept.seconds[0],
    )
