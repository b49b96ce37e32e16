"""Training on matrix completion, from random weights, by Adam on fresh prompts.

The forward pass runs on Gram matrices in float32. Rare prompts with a large |A| make a network explode, so every batch
holds the largest of ``pool`` times as many prompts, weighted so that the mean over the batch stays unbiased.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

import interp
from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError
from interp.models.gram import HeadLayers, forward
from interp.models.training.completion_recipe import CompletionRecipe
from interp.models.training.trained import EVALUATION_SEED, Step, Trained
from interp.models.training.warm_start import eagle_factors, eagle_steps
from interp.models.transformer import LinearTransformer

__all__ = ["fit"]

LARGEST = 0.25  # share of a batch that is the largest prompts of its pool
SAVE_EVERY = 100  # steps, some seconds of work
SHOW_EVERY = 50
CHUNK = 8192  # prompts in memory at a time, when scoring


@dataclass(frozen=True, eq=False)
class _Batch:
    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt query D"]
    target: Float[Tensor, "prompt query output"]
    weight: Float[Tensor, " prompt"]  # mean 1 in expectation


def _batch(recipe: CompletionRecipe, step: int) -> _Batch:
    """The batch of a step. Of a pool of prompts it holds the largest, each for itself, and some of the others, each for
    as many as were passed over."""
    own = int(np.random.SeedSequence((recipe.optimiser.seed, step)).generate_state(1)[0])
    plan, spec = recipe.optimiser, recipe.spec
    drawn = recipe.task.sample(plan.batch * plan.pool, own)
    large = int(LARGEST * plan.batch) if plan.pool > 1 else 0
    order = drawn.A.square().sum((1, 2)).argsort(descending=True)
    others = order[large:][torch.randperm(drawn.count - large, generator=torch.Generator().manual_seed(own))]
    chosen = torch.cat([order[:large], others[: plan.batch - large]])
    weight = torch.full((plan.batch,), (drawn.count - large) / (plan.batch - large))
    weight[:large] = 1.0
    kept = drawn[chosen]
    grams = kept.grams(spec)
    return _Batch(grams.gram.float(), grams.query.float(), kept.D.float(), weight / weight.mean())


def _prediction(recipe: CompletionRecipe, factors: Mapping[str, Tensor], gram: Tensor, query: Tensor) -> Tensor:
    P, Q = recipe.products(factors)
    layers = HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)
    return -forward(layers, gram, query).queries[-1][..., recipe.spec.channel("y").indices]


def fit(
    recipe: CompletionRecipe,
    record: Path | None = None,
    keep_record: bool = False,
    watch: Callable[[Step], None] = lambda step: None,
) -> Trained:
    """Train by the recipe. With ``record`` the state is kept in that file, so that an interrupted run goes on from
    there, with the steps since it was last saved taken again, and ends with the same weights.

    Raises UsageError when the record belongs to another recipe, or the training diverged.
    """
    plan = recipe.optimiser
    factors = {name: value.requires_grad_() for name, value in _start(recipe, record).items()}
    optimiser = torch.optim.Adam(factors.values(), lr=plan.rate)
    first, spent = _resume(record, recipe, factors, optimiser)
    started, running = time.monotonic(), math.nan
    for step in range(first, plan.steps):
        value = _descend(recipe, factors, optimiser, step)
        # from the first batch that does not overflow
        running = 0.98 * running + 0.02 * min(value, 10 * running) if math.isfinite(running) else value
        if record is not None and (step + 1) % SAVE_EVERY == 0:
            _save(record, recipe, factors, optimiser, step + 1, spent + time.monotonic() - started)
        if (step + 1) % SHOW_EVERY == 0:
            watch(Step(name="adam", iteration=step + 1, loss=running))
    seconds = spent + time.monotonic() - started
    with torch.no_grad():
        P, Q = (value.clone() for value in recipe.products(factors))
        P[-1][:, recipe.spec.channel("x").indices] = 0.0  # never read, and so never trained
    trained = _evaluated(recipe, P, Q, seconds)
    if not math.isfinite(trained.adjusted_loss):
        raise UsageError(
            f"the network trained by recipe {recipe.name!r} has a loss of {trained.adjusted_loss} on fresh prompts, "
            "expected a finite one; raise optimiser.pool or optimiser.steps"
        )
    if record is not None and not keep_record:
        record.unlink(missing_ok=True)
    return trained


def _start(recipe: CompletionRecipe, record: Path | None) -> dict[str, Tensor]:
    """The factors before the first step (those of a record will replace them)."""
    factors = recipe.initial()
    if recipe.optimiser.start == "random" or (record is not None and record.exists()):
        return factors
    exact = eagle_factors(recipe, *eagle_steps(recipe))
    return {name: value + exact[name].float() for name, value in factors.items()}


def _descend(recipe: CompletionRecipe, factors: Mapping[str, Tensor], optimiser: torch.optim.Adam, step: int) -> float:
    """One step; returns half the mean squared entry of the error on its batch, before it."""
    batch = _batch(recipe, step)
    error = _prediction(recipe, factors, batch.gram, batch.query) - batch.target
    loss = (batch.weight * error.square().mean((1, 2))).mean()
    optimiser.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(factors.values(), recipe.optimiser.clip)
    for group in optimiser.param_groups:
        group["lr"] = recipe.optimiser.rate_at(step)
    if not bool(torch.isfinite(norm)):  # a prompt that overflows float32 says nothing about the direction
        return math.inf
    optimiser.step()
    return 0.5 * float(loss.detach())


def _evaluated(recipe: CompletionRecipe, P: Tensor, Q: Tensor, seconds: float) -> Trained:
    """The network as it will be kept, in float32, on fresh prompts in float64."""
    layers = HeadLayers(P=P.double(), Q=Q.double(), scale=1.0, residual=1.0)
    label, rows, left = recipe.spec.channel("y").indices, [], recipe.optimiser.evaluation_prompts
    for number, start in enumerate(range(0, left, CHUNK)):
        seed = int(np.random.SeedSequence((EVALUATION_SEED + recipe.optimiser.seed, number)).generate_state(1)[0])
        drawn = recipe.task.sample(min(CHUNK, left - start), seed)
        grams = drawn.grams(recipe.spec)
        read = -forward(layers, grams.gram, grams.query).queries[-1][..., label]
        guesses = (read, torch.zeros_like(read), recipe.task.oracle(drawn))
        rows.append(torch.stack([(guess - drawn.D).square().mean((1, 2)) for guess in guesses], 1))
    errors = torch.cat(rows)
    mse, null, optimum = errors.mean(0).tolist()
    excess = 0.5 * (errors[:, 0] - errors[:, 2])
    mean, stderr = float(excess.mean()), float(excess.std()) / len(excess) ** 0.5
    provenance = {
        "recipe": recipe.to_dict(),
        "adjusted_loss": {
            "mean": mean, "stderr": stderr, "prompts": len(excess), "unit": "half the mean squared entry of the error"
        },
        "mse": {"network": mse, "predicting zero": null, "optimum": optimum},
        "iterations": recipe.optimiser.steps,
        "wall_seconds": round(seconds, 1),
        "versions": {
            "interp-probe": interp.__version__, "torch": torch.__version__, "python": platform.python_version()
        },
    }  # fmt: skip
    spec = dataclasses.replace(recipe.spec, provenance=provenance)
    return Trained(
        model=LinearTransformer(spec=spec, P=P.contiguous(), Q=Q.contiguous()),
        adjusted_loss=mean,
        stderr=stderr,
        prompts=len(excess),
        iterations=recipe.optimiser.steps,
        seconds=seconds,
    )


def _save(
    record: Path,
    recipe: CompletionRecipe,
    factors: Mapping[str, Tensor],
    optimiser: torch.optim.Adam,
    step: int,
    seconds: float,
) -> None:
    tensors = {}
    for name, value in factors.items():
        state = optimiser.state[value]
        tensors |= {name: value.detach(), f"{name}.first": state["exp_avg"], f"{name}.second": state["exp_avg_sq"]}
    fields = {"recipe": repr(recipe.to_dict()), "step": str(step), "seconds": repr(seconds)}
    write_atomically(record, safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()}, metadata=fields))


def _resume(
    record: Path | None, recipe: CompletionRecipe, factors: Mapping[str, Tensor], optimiser: torch.optim.Adam
) -> tuple[int, float]:
    """The step to go on with and the seconds spent so far; weights and moments are filled in."""
    if record is None or not record.exists():
        return 0, 0.0
    try:
        file = safetensors.safe_open(record, framework="pt")
    except (safetensors.SafetensorError, OSError) as error:
        raise UnreadableFile(f"{record} is no record of a training run ({error}); remove it to start anew") from error
    with file:
        fields = file.metadata() or {}
        if fields.get("recipe") != repr(recipe.to_dict()):
            raise UsageError(f"{record} is the record of another recipe; remove it or choose another --out")
        step = int(fields["step"])
        for name, value in factors.items():
            with torch.no_grad():
                value.copy_(file.get_tensor(name))
            optimiser.state[value] = {
                "step": torch.tensor(float(step)),
                "exp_avg": file.get_tensor(f"{name}.first"),
                "exp_avg_sq": file.get_tensor(f"{name}.second"),
            }
    return step, float(fields["seconds"])
