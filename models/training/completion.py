"""Training on matrix completion, from random weights, by Adam on fresh prompts, in float32.

As in the paper (Lutz et al., arXiv 2509.19702, appendix B.2) but for the prompts on which a network explodes. Those are
rare, and in a plain mean one of them outweighs all others: it then leads the way, until the gradient overflows. So

- in half of every batch |A| is larger than usual (see ``interp.models.training.completion_sample``), and a prompt
  counts by the root of the weight that would make up for it: training is cautious, as a network that explodes on one
  prompt in a million looks perfect on all that a plain sample holds;
- the loss of a prompt counts as cap log(1 + loss / cap), so that an explosion pulls no harder than a handful of misses
  (the larger the cap, the more cautious), and a prompt that has exploded goes through no further layer;
- what is kept is not the last network but the one with the least mean error on a fixed sample with true weights, the
  rarest prompts aside (``interp.models.training.polishing.usual_mean``; in full, the mean is that of a polynomial of
  degree 3^L, and hangs on prompts that nobody will ever draw).
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
from interp.models.training.completion_sample import spread_prompts
from interp.models.training.polishing import usual_mean
from interp.models.training.search import balanced
from interp.models.training.trained import EVALUATION_SEED, Step, Trained
from interp.models.transformer import LinearTransformer

__all__ = ["fit"]

KEEP_EVERY = 200  # steps, some seconds of work: then the network is judged and the state is saved
SHOW_EVERY = 50
JUDGE, JUDGE_SEED = 16_384, 314_159  # prompts that a network is judged on
UNUSUAL = 1e-6  # what is rarer has no say in it: a network of four layers explodes there, whatever it has learned
CHUNK = 8192  # prompts in memory at a time, when scoring
EXPLODED = 1e6  # a prompt with a token entry above it stays as it is, and has a gradient, where float32 would overflow

Factors = Mapping[str, Float[Tensor, "layer 1 ..."]]  # what is trained, see ``CompletionRecipe.heads``


@dataclass(frozen=True, eq=False)
class _Batch:
    tokens: Float[Tensor, "prompt token D"]  # context first
    context: int
    target: Float[Tensor, "prompt query output"]
    weight: Float[Tensor, " prompt"]

    def __getitem__(self, index: slice | Tensor) -> _Batch:
        return _Batch(self.tokens[index], self.context, self.target[index], self.weight[index])


@dataclass(eq=False)
class _Kept:
    """The best network so far."""

    value: float
    factors: dict[str, Tensor]


def _batch(recipe: CompletionRecipe, count: int, seed: int, step: int) -> _Batch:
    own = int(np.random.SeedSequence((seed, step)).generate_state(1)[0])
    drawn, weight = spread_prompts(recipe.task, count, own)
    tokens = torch.cat(drawn.inputs(recipe.spec), 1)
    return _Batch(tokens.float(), drawn.context, drawn.D.float(), weight.float())


def _errors(recipe: CompletionRecipe, factors: Factors, batch: _Batch) -> Float[Tensor, " prompt"]:
    """The mean squared entry of the error of every prompt. The weights stay in factors: that is cheaper than on Gram
    matrices, for there are no more tokens than coordinates."""
    tokens, seen, heads = batch.tokens, recipe.read_masks(), recipe.heads(factors)
    (W_Q, W_K, W_V), W_P = (heads[name] * seen for name in ("W_Q", "W_K", "W_V")), heads["W_P"]
    for layer in range(recipe.layers):
        # Zeros get no update, and no gradient that is not finite.
        moving = torch.where(tokens.detach().abs().amax((1, 2), keepdim=True) < EXPLODED, tokens, 0.0)
        keys = moving[:, : batch.context]
        for head in range(W_Q.shape[1]):
            scores = (moving @ W_Q[layer, head]) @ (keys @ W_K[layer, head]).mT
            tokens = tokens + scores @ ((keys @ W_V[layer, head]) @ W_P[layer, head].mT)
    read = -tokens[:, batch.context :, recipe.spec.channel("y").indices]
    return (read - batch.target).square().mean((1, 2))


def _weights(recipe: CompletionRecipe, factors: Factors) -> tuple[Tensor, Tensor]:
    """(P, Q), of equal size in every head and with a positive trace of Q; what is never read, and so never trained, is
    0."""
    seen, heads = recipe.read_masks(), recipe.heads(factors)
    P = heads["W_P"] @ (heads["W_V"] * seen).mT
    Q = (heads["W_Q"] * seen) @ (heads["W_K"] * seen).mT
    P[-1][:, recipe.spec.channel("x").indices] = 0.0
    sign = torch.where(Q.diagonal(dim1=-2, dim2=-1).sum(-1) < 0, -1.0, 1.0)[..., None, None]
    return balanced(sign * P, sign * Q)


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
    factors = {name: value.requires_grad_() for name, value in recipe.initial().items()}
    optimiser = torch.optim.Adam(factors.values(), lr=plan.rate)
    judge = _batch(recipe, JUDGE, JUDGE_SEED, 0)
    cap = plan.cap * float((judge.weight * judge.target.square().mean((1, 2))).mean())
    kept = _Kept(math.inf, {name: value.detach().clone() for name, value in factors.items()})
    first, spent = _resume(record, recipe, factors, optimiser, kept)
    started, running = time.monotonic(), math.nan
    for step in range(first, plan.steps):
        value = _descend(recipe, factors, optimiser, step, cap)
        # from the first batch that does not overflow
        running = 0.98 * running + 0.02 * min(value, 10 * running) if math.isfinite(running) else value
        if (step + 1) % KEEP_EVERY == 0 or step + 1 == plan.steps:
            _judge(recipe, factors, judge, kept)
            if record is not None:
                _save(record, recipe, factors, optimiser, kept, step + 1, spent + time.monotonic() - started)
        if (step + 1) % SHOW_EVERY == 0:
            watch(Step(name="adam", iteration=step + 1, loss=running))
    seconds = spent + time.monotonic() - started
    trained = _evaluated(recipe, *_weights(recipe, kept.factors), seconds)
    if not math.isfinite(trained.adjusted_loss):
        raise UsageError(
            f"the network trained by recipe {recipe.name!r} has a loss of {trained.adjusted_loss} on fresh prompts, "
            "expected a finite one; lower optimiser.rate or raise optimiser.steps"
        )
    if record is not None and not keep_record:
        record.unlink(missing_ok=True)
    return trained


def _descend(recipe: CompletionRecipe, factors: Factors, optimiser: torch.optim.Adam, step: int, cap: float) -> float:
    """One step; returns half the (cautious, tamed) mean error on its batch, before it."""
    batch = _batch(recipe, recipe.optimiser.batch, recipe.optimiser.seed, step)
    errors = _errors(recipe, factors, batch)
    finite = torch.isfinite(errors.detach())
    if not bool(finite.all()):  # what overflows float32 has no gradient
        if not bool(finite.any()):
            return math.inf
        batch = batch[finite]
        errors = _errors(recipe, factors, batch)
    weight = batch.weight.sqrt()
    loss = (weight * cap * (errors / cap).log1p()).sum() / weight.sum()
    optimiser.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(list(factors.values()), recipe.optimiser.clip)
    for group in optimiser.param_groups:
        group["lr"] = recipe.optimiser.rate_at(step)
    if bool(torch.isfinite(norm)):
        optimiser.step()
    return 0.5 * float(loss.detach())


def _judge(recipe: CompletionRecipe, factors: Factors, sample: _Batch, kept: _Kept) -> None:
    """Keep the network if it is the best so far."""
    with torch.no_grad():
        parts = [_errors(recipe, factors, sample[i : i + 1024]) for i in range(0, len(sample.weight), 1024)]
    value = usual_mean(torch.cat(parts).double(), sample.weight.double(), UNUSUAL)
    if value < kept.value:
        kept.value = value
        kept.factors = {name: weights.detach().clone() for name, weights in factors.items()}


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
    factors: Factors,
    optimiser: torch.optim.Adam,
    kept: _Kept,
    step: int,
    seconds: float,
) -> None:
    tensors = {f"{name}.kept": value for name, value in kept.factors.items()}
    for name, value in factors.items():
        state = optimiser.state[value]
        tensors |= {name: value.detach()}
        if state:  # not before the first step that does not overflow
            tensors |= {f"{name}.first": state["exp_avg"], f"{name}.second": state["exp_avg_sq"]}
    taken = max((int(state["step"]) for state in optimiser.state.values()), default=0)
    fields = {"recipe": repr(recipe.to_dict()), "step": str(step), "taken": str(taken), "seconds": repr(seconds)}
    fields["kept"] = repr(kept.value)
    write_atomically(record, safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()}, metadata=fields))


def _resume(
    record: Path | None, recipe: CompletionRecipe, factors: Factors, optimiser: torch.optim.Adam, kept: _Kept
) -> tuple[int, float]:
    """The step to go on with and the seconds spent so far; weights, moments and the best network are filled in."""
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
        step, taken = int(fields["step"]), float(fields["taken"])
        for name, value in factors.items():
            with torch.no_grad():
                value.copy_(file.get_tensor(name))
            kept.factors[name] = file.get_tensor(f"{name}.kept")
            if taken:
                optimiser.state[value] = {
                    "step": torch.tensor(taken),
                    "exp_avg": file.get_tensor(f"{name}.first"),
                    "exp_avg_sq": file.get_tensor(f"{name}.second"),
                }
        kept.value = float(fields["kept"])
    return step, float(fields["seconds"])
