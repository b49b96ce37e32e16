"""Training of embedded LayerNorm networks on simple regression, with an l1 penalty on every weight.

    minimise  1/2 E (f - yhat)^2 / E yhat^2  +  l1 * sum |w|,       yhat the least-squares prediction of the prompt

A batch of seeds is first moved by Adam, on fresh prompts, which leads into better basins than second-order steps do
from random weights; each is then polished by Levenberg-Marquardt on a fixed sample, where |w| is sqrt(w^2 + e^2); and
pruned: the smallest weights are taken out a few at a time, the others refitted, for as long as the error stays near
that of the full network.

Sources: Hagiwara, arXiv 2607.15819, section 2 (architecture, l1-regularised training towards the least-squares
prediction, two layers, two heads, width 4). The paper's optimiser and weight of the penalty are not known to us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.rules import AMOUNT, COUNT, ruled
from interp.models.tasks import SimpleRegression
from interp.models.tasks.simple_regression import CHANNELS
from interp.models.training.adam import Moving, adam, half_cosine, warm_up
from interp.models.training.fields import Model, Optimiser
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Method, Outcome, Weights, register_method
from interp.models.training.recipe import Recipe
from interp.models.training.sparse import Shapes, polish, prune, relative_error, tokens_of
from interp.stats.levenberg_marquardt import Progress

__all__ = ["Embedded", "ManySeeds", "initial", "moved"]

WARM_UP = 200  # steps in which Adam's rate rises from 0
LAST = 0.01  # share of the rate that is left at the end
GRADIENT = 1.0  # largest norm of a seed's gradient
CHECKED = 8192  # prompts that seeds are compared on
SMOOTH = (1e-3, 1e-4)  # of |w|, in the two halves of a polish


@dataclass(frozen=True, kw_only=True)
class Layers(Model):
    """``width``: of the embedded tokens."""

    layers: int = ruled(COUNT, 2)
    heads: int = ruled(COUNT, 2)
    width: int = ruled(COUNT, 4)


@dataclass(frozen=True, kw_only=True)
class ManySeeds(Optimiser):
    """How the weights are found."""

    seeds: int = ruled(COUNT, 12)  # networks trained from random weights, of which the best is kept
    initial_std: float = ruled(AMOUNT, 0.5)
    steps: int = ruled(COUNT, 4000)  # of Adam
    rate: float = ruled(AMOUNT, 0.01)
    batch: int = ruled(COUNT, 128)
    l1: float = ruled(AMOUNT, 1e-5)
    polish_prompts: int = ruled(COUNT, 3072)
    polish_iterations: int = ruled(COUNT, 150)
    prune_iterations: int = ruled(COUNT, 12)  # after every round of pruning


class Embedded(Method):
    """Many seeds at once by Adam, each polished, the best one pruned."""

    model = Layers
    described = ("attention", "layernorm")
    optimiser = ManySeeds
    measure = Measure(
        key="relative_error",
        unit="E (f - yhat)^2 / E yhat^2",
        words="mean squared error relative to the target's mean square",
    )
    remedy = "lower optimiser.rate"

    def defaults(self, task: SimpleRegression, model: Layers) -> dict[str, Any]:
        return {
            "tokens": CHANNELS,
            "attention": {"keys": "context", "scale": "1/n"},
            "readout": {"channel": "y", "sign": 1, "flat": True},
            "embedding": model.width,
            "layernorm": {},
        }

    def search(self, recipe: Recipe, journal: Journal) -> Outcome:
        plan, task, shapes = recipe.optimiser, recipe.task, Shapes.of(recipe)
        start = initial(shapes, plan.initial_std, plan.seeds, plan.seed).float()
        seeds = journal.run("adam", Moving(values=(start,)), partial(moved, shapes, plan)).values[0].double()
        fixed, checked = task.sample(plan.polish_prompts, plan.seed * 7 + 1), task.sample(CHECKED, plan.seed * 7 + 2)
        polished = list(seeds)
        for k, (half, smooth) in product(range(len(seeds)), enumerate(SMOOTH)):
            work = partial(polish, shapes, fixed, l1=plan.l1, iterations=plan.polish_iterations // 2, smooth=smooth)
            polished[k] = journal.run(f"polish {k}.{half}", Progress(theta=polished[k]), work).theta
        errors = [relative_error(shapes, theta, checked) for theta in polished]
        order = sorted(range(len(errors)), key=lambda k: errors[k] if math.isfinite(errors[k]) else math.inf)
        if not math.isfinite(errors[order[0]]):
            raise UsageError(f"no seed of recipe {recipe.name!r} has a finite error; {self.remedy}")

        first = polished[order[0]]
        work = partial(prune, shapes, first, fixed, checked, iterations=plan.prune_iterations)
        best = journal.run("prune", Progress(theta=first), work).theta
        others = [Outcome(weights=shapes.weights(polished[k]), facts={"start": "random", "seed": k}) for k in order]
        facts = {"start": "random", "seed": order[0], "weights_left": int((best != 0).sum())}
        return Outcome(weights=shapes.weights(best), effort={"seeds": len(order)}, facts=facts, others=tuple(others))

    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        shapes, prompts = Shapes.of(recipe), recipe.task.sample(recipe.optimiser.evaluation_prompts, seed)
        target = prompts.least_squares().prediction
        error = shapes.run(weights, tokens_of(prompts, shapes.spec)) - target
        return error.square() / target.square().mean(), {}


register_method(SimpleRegression.name, Embedded())


def initial(shapes: Shapes, std: float, seeds: int, seed: int) -> Float[Tensor, "seed parameter"]:
    """Normal numbers; those of the read-out are five times smaller, biases and LayerNorm are as if they were not."""
    rows = []
    for index in range(seeds):
        generator = torch.Generator().manual_seed(seed * 1009 + index)
        parts = []
        for name, shape in shapes.sizes.items():
            size = {"embedding.bias": 0.0, "readout.bias": 0.0, "layernorm.bias": 0.0, "readout.weight": std / 5}
            drawn = size.get(name, std) * torch.randn(shape, generator=generator, dtype=torch.float64)
            parts.append((torch.ones(shape, dtype=torch.float64) if name == "layernorm.gain" else drawn).flatten())
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def moved(shapes: Shapes, plan: ManySeeds, start: Moving, watch: Callable[[Moving], None]) -> Moving:
    """All seeds by Adam, on fresh prompts, the same for all. A seed that overflows stands still."""
    mean_square = float(shapes.task.sample(4096, plan.seed).least_squares().prediction.square().mean())
    penalty = plan.l1 * shapes.penalised.float()

    def one(theta: Tensor, tokens: Tensor, target: Tensor) -> Tensor:
        error = (shapes.predict(theta, tokens) - target).square().mean()
        return 0.5 * error / mean_square + (penalty * theta.abs()).sum()

    def objective(step: int, values: Sequence[Tensor]) -> Tensor:
        drawn = shapes.task.sample(plan.batch, (plan.seed * 1_000_003 + step) % 2**63)
        tokens, target = tokens_of(drawn, shapes.spec).float(), drawn.least_squares().prediction.float()
        return torch.func.vmap(one, (0, None, None))(values[0], tokens, target)

    def limit(values: Sequence[Tensor]) -> bool:
        (gradient,) = (value.grad for value in values)
        assert gradient is not None
        gradient.nan_to_num_()
        gradient *= GRADIENT / gradient.norm(dim=1, keepdim=True).clamp_min(GRADIENT)
        return True

    def rate(step: int) -> float:
        return plan.rate * warm_up(step, WARM_UP) * (half_cosine(step / plan.steps) + LAST)

    return adam(start, objective, steps=plan.steps, rate=rate, limit=limit, watch=watch)
