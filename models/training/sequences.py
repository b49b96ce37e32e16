"""Training of causal models of linear dynamics, by stochastic gradients on fresh sequences.

A run is a list of stages, each a set of weights that may move:

    "block"     p_h, q_h (c x c): P_h = p_h (x) I, Q_h = q_h (x) I for c channels of equal size
    "products"  P_h, Q_h (D x D)
    "factors"   W_Q, W_K, W_V (key x D), W_O (D x key): Q_h = W_Q^T W_K, P_h = W_O W_V, as published

The first starts from small normal numbers, the next from the Q and P that the one before has reached. The loss is the
paper's, half the squared error of the next state, summed over coordinates, averaged over positions and sequences.

Source: von Oswald et al., arXiv 2309.05858, appendix and code (AdamW; every entry of the gradient clipped to +-1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.rules import AMOUNT, COUNT, EVALUATED, POSITIVE, Rule, Table, one_of, ruled
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics
from interp.models.token_pass import run
from interp.models.training.adam import Moving, adam, half_cosine, warm_up
from interp.models.training.fields import Model, Optimiser
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Method, Outcome, Weights, register_method
from interp.models.training.recipe import Recipe

__all__ = ["Causal", "OnSequences", "Stage", "Staged", "products", "start"]

WEIGHTS = ("block", "products", "factors")
SCHEDULES = ("constant", "cosine")
CHANNELS = {3: ("out", "state", "previous"), 4: ("out", "query", "state", "previous")}
POOL = 16  # batches drawn at a time
WARM_UP = 50  # steps in which the rate rises from 0, where it falls again later
LAST = 0.01  # share of the rate that is left at the end of a cosine
GRADIENT = 1.0  # largest entry of a gradient
CHUNK = 512  # sequences in memory at a time, when scoring


@dataclass(frozen=True, kw_only=True)
class Stage(Table):
    """``rate`` is the largest learning rate: constant, or after a warm-up falling like a cosine. ``layers``: fewer than
    the network's in the end, for a network that is grown (None: all of them)."""

    title: ClassVar[str] = "a stage"
    weights: str = ruled(one_of(WEIGHTS))
    steps: int = ruled(COUNT)
    rate: float = ruled(POSITIVE)
    batch: int = ruled(COUNT, 64)
    schedule: str = ruled(one_of(SCHEDULES), "cosine")
    weight_decay: float = ruled(AMOUNT, 0.0)
    layers: int | None = ruled(COUNT, optional=True)


def _stages(given: Any) -> Any:
    if not isinstance(given, (list, tuple)):
        return given
    return tuple(s if isinstance(s, Stage) else Stage.read(s, f"optimiser.stages[{k}]") for k, s in enumerate(given))


STAGES = Rule("a list of one stage or more, a table each", lambda v: isinstance(v, tuple) and len(v) > 0, _stages)


@dataclass(frozen=True, kw_only=True)
class Causal(Model):
    """``key``: the size of keys in a stage that moves "factors"."""

    heads: int = ruled(COUNT, 1)
    key: int = ruled(COUNT, 20)


@dataclass(frozen=True, kw_only=True)
class Staged(Optimiser):
    """How the weights are found."""

    stages: tuple[Stage, ...] = ruled(STAGES)
    initial_std: float = ruled(POSITIVE, 0.02)
    evaluation_prompts: int = ruled(EVALUATED, 10_000)


class OnSequences(Method):
    """Stage by stage, by AdamW on fresh sequences."""

    model = Causal
    described = ("tokens", "attention", "residual", "clip", "readout")
    optimiser = Staged
    measure = Measure(
        key="loss",
        unit="half the squared error, summed over coordinates, mean over positions",
        words="half the squared error of the next state",
    )
    remedy = "lower the rates of optimiser.stages"

    def defaults(self, task: LinearDynamics, model: Causal) -> dict[str, Any]:
        names = CHANNELS.get(len(task.tokens or ()), CHANNELS[4])
        return {
            "tokens": [[name, task.dim] for name in names],
            "attention": {"keys": "causal"},
            "readout": {"channel": "out", "sign": 1},
        }

    def fits(self, recipe: Recipe) -> None:
        if recipe.spec.attention.keys != "causal":
            raise LayoutError(f"model.attention.keys is {recipe.spec.attention.keys!r}, expected 'causal'")
        stages, layers = recipe.optimiser.stages, recipe.model.layers
        depths = [stage.layers or layers for stage in stages]
        if depths != sorted(depths) or depths[-1] != layers:
            raise LayoutError(
                f"the stages have {depths} layers, expected never fewer than before and model.layers = {layers} "
                f"in the last"
            )
        for index, stage in enumerate(stages[1:], 1):
            if stage.weights == "factors":
                raise LayoutError(
                    f'optimiser.stages[{index}].weights is "factors", expected "products" or "block": what an earlier '
                    f"stage has reached is Q and P"
                )
        recipe.task.sample(1, 0).inputs(recipe.spec)  # raises where the channels do not fit the task

    def search(self, recipe: Recipe, journal: Journal) -> Outcome:
        before: tuple[Tensor, Tensor] | None = None
        for index in range(len(recipe.optimiser.stages)):
            before = _trained(recipe, index, start(recipe, index, before), journal)
        assert before is not None  # there is at least one stage
        weights = dict(zip("QP", before, strict=True))
        return Outcome(weights=weights, effort={"steps": journal.iterations})

    @torch.no_grad()
    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        """In double precision."""
        spec, count, parts = recipe.spec, recipe.optimiser.evaluation_prompts, []
        Q, P = weights["Q"].double(), weights["P"].double()
        for first in range(0, count, CHUNK):
            drawn = recipe.task.sample(min(CHUNK, count - first), seed + first)
            read = run(spec, {"Q": Q, "P": P}, drawn.inputs(spec)[0])
            parts.append(0.5 * (read - drawn.target).square().sum(-1).mean(-1))
        return torch.cat(parts), {}


register_method(LinearDynamics.name, OnSequences())


def start(recipe: Recipe, index: int, before: tuple[Tensor, Tensor] | None) -> Moving:
    """Where a stage starts: at ``before`` = (Q, P), or at small normal numbers. Layers that ``before`` lacks are of
    such numbers, and come before its last."""
    spec, model, stage, std = recipe.spec, recipe.model, recipe.optimiser.stages[index], recipe.optimiser.initial_std
    layers = stage.layers or recipe.layers
    D, c = spec.width, len(spec.tokens)
    generator = torch.Generator().manual_seed(_seed(recipe, index))
    if before is not None:
        values = tuple(value.float().clone() for value in before)
        if stage.weights == "block":  # what is not block-scalar is dropped
            blocks = (value.unflatten(-1, (c, -1)).unflatten(-3, (c, -1)) for value in values)
            values = tuple(block.diagonal(dim1=-3, dim2=-1).mean(-1) for block in blocks)
        missing = layers - values[0].shape[0]
        if missing > 0:
            new = [std * torch.randn(missing, *value.shape[1:], generator=generator) for value in values]
            values = tuple(torch.cat([v[:-1], n, v[-1:]]) for v, n in zip(values, new, strict=True))
        return Moving(values=values)
    shapes = {
        "block": [(c, c)] * 2, "products": [(D, D)] * 2, "factors": [(model.key, D)] * 3 + [(D, model.key)]
    }[stage.weights]  # fmt: skip
    return Moving(values=tuple(std * torch.randn(layers, model.heads, *shape, generator=generator) for shape in shapes))


def products(weights: str, spec: ModelSpec, values: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Q and P, (layer, head, D, D), of the numbers that a stage moves."""
    if weights == "factors":
        W_Q, W_K, W_V, W_O = values
        return W_Q.mT @ W_K, W_O @ W_V
    Q, P = values
    if weights == "block":
        identity = torch.eye(spec.tokens[0][1], dtype=Q.dtype)
        Q, P = (torch.einsum("lhab,ij->lhaibj", value, identity).flatten(4).flatten(2, 3) for value in (Q, P))
    return Q, P


def _trained(recipe: Recipe, index: int, moving: Moving, journal: Journal) -> tuple[Tensor, Tensor]:
    """Q and P at the end of a stage. A step that is shown has the loss of its batch before it."""
    spec, stage = recipe.spec, recipe.optimiser.stages[index]
    batch_of = _batches(recipe.task, spec, stage, _seed(recipe, index))

    def objective(step: int, values: Sequence[Tensor]) -> Tensor:
        tokens, target = batch_of(step)
        Q, P = products(stage.weights, spec, tuple(values))
        error = run(spec, {"Q": Q, "P": P}, tokens) - target
        return 0.5 * error.square().sum(-1).mean()

    def rate(step: int) -> float:
        if stage.schedule == "constant":
            return stage.rate
        return stage.rate * warm_up(step, WARM_UP) * (LAST + (1.0 - LAST) * half_cosine(step / stage.steps))

    def limit(values: Sequence[Tensor]) -> bool:
        for value in values:
            assert value.grad is not None
            value.grad.clamp_(-GRADIENT, GRADIENT)
        return True

    def work(now: Moving, note: Callable[[Moving], None]) -> Moving:
        if now.iteration == 0:
            note(now)
        return adam(
            now, objective, steps=stage.steps, rate=rate, limit=limit, watch=note, weight_decay=stage.weight_decay
        )

    end = journal.run(f"stage {index}", moving, work)
    return products(stage.weights, spec, end.values)


def _seed(recipe: Recipe, index: int) -> int:
    return recipe.optimiser.seed * 1009 + index


def _batches(
    task: LinearDynamics, spec: ModelSpec, stage: Stage, seed: int
) -> Callable[[int], tuple[Float[Tensor, "batch pos D"], Float[Tensor, "batch pos dim"]]]:
    """Batches by number; every pool of them has a seed of its own, so a resumed run sees the same."""

    @lru_cache(maxsize=1)
    def pool(number: int) -> tuple[Tensor, Tensor]:
        prompts = task.sample(POOL * stage.batch, seed * 1_000_003 + number)
        return prompts.inputs(spec)[0].float(), prompts.target.float()

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        tokens, target = pool(step // POOL)
        part = slice((step % POOL) * stage.batch, (step % POOL + 1) * stage.batch)
        return tokens[part], target[part]

    return batch_of
