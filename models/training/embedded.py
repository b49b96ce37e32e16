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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import SimplePrompts, SimpleRegression
from interp.models.tasks.simple_regression import CHANNELS
from interp.models.token_pass import run
from interp.models.training.adam import Moving, adam, half_cosine, warm_up
from interp.models.training.fields import AMOUNT, COUNT, Model, Optimiser, ruled
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Method, Outcome, Step, Weights, register_method
from interp.models.training.recipe import Recipe
from interp.stats.levenberg_marquardt import Progress, Quadratic, Stopping, minimise

__all__ = ["Embedded", "Shapes", "initial", "moved", "polish", "prune", "relative_error"]

WARM_UP = 200  # steps in which Adam's rate rises from 0
LAST = 0.01  # share of the rate that is left at the end
GRADIENT = 1.0  # largest norm of a seed's gradient
CHUNK = 1024  # prompts whose derivatives are held at a time
CHECKED = 8192  # prompts that seeds are compared on
SMOOTH = (1e-3, 1e-4)  # of |w|, in the two halves of a polish
PRUNED = 0.06  # share of the weights left that one round takes out …
GROWTH = 1.25  # … while the error stays within this factor of that of the full network


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
        seeds = journal.run("adam", Moving(values=(start,)), lambda now, note: moved(shapes, plan, now, note)).values[0]
        fixed, checked = task.sample(plan.polish_prompts, plan.seed * 7 + 1), task.sample(CHECKED, plan.seed * 7 + 2)
        polished = [_polished(shapes, plan, fixed, journal, f"polish {k}", theta) for k, theta in enumerate(seeds)]
        errors = [relative_error(shapes, theta, checked) for theta in polished]
        order = sorted(range(len(errors)), key=lambda k: errors[k] if math.isfinite(errors[k]) else math.inf)
        if not math.isfinite(errors[order[0]]):
            raise UsageError(f"no seed of recipe {recipe.name!r} has a finite error; {self.remedy}")

        def pruned(now: Settled, note: Callable[[Settled], None]) -> Settled:
            def watch(left: int, error: float) -> None:
                journal.watch(Step(name="prune", iteration=left, loss=error))

            return Settled(prune(shapes, now.theta, fixed, checked, iterations=plan.prune_iterations, watch=watch))

        best = journal.run("prune", Settled(polished[order[0]]), pruned).theta
        others = tuple(
            Outcome(weights=shapes.weights(polished[k]), facts={"start": "random", "seed": k}) for k in order
        )
        return Outcome(
            weights=shapes.weights(best),
            effort={"seeds": len(order)},
            facts={"start": "random", "seed": order[0], "weights_left": int((best != 0).sum())},
            others=others,
        )

    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        shapes, prompts = Shapes.of(recipe), recipe.task.sample(recipe.optimiser.evaluation_prompts, seed)
        target = prompts.least_squares().prediction
        error = shapes.run(weights, _tokens(prompts, shapes.spec)) - target
        return error.square() / target.square().mean(), {}


register_method(SimpleRegression.name, Embedded())


@dataclass(frozen=True, eq=False)
class Settled:
    """One seed where a part of the run has left it."""

    theta: Float[Tensor, " parameter"]
    iteration: int = 0
    loss: float = math.inf


@dataclass(frozen=True, eq=False)
class Shapes:
    """The tensors of a network as one vector."""

    spec: ModelSpec
    task: SimpleRegression
    layers: int
    heads: int

    @classmethod
    def of(cls, recipe: Recipe) -> Shapes:
        return cls(recipe.spec, recipe.task, recipe.layers, recipe.model.heads)

    @property
    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        D = self.spec.stream
        named = {
            name: tuple(self.task.context + 1 if size is None else size for size in shape)
            for name, shape in self.spec.tensors(self.layers).items()
        }
        return {"Q": (self.layers, self.heads, D, D), "P": (self.layers, self.heads, D, D), **named}

    @property
    def count(self) -> int:
        return sum(math.prod(shape) for shape in self.sizes.values())

    def weights(self, theta: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        parts = torch.split(theta, [math.prod(shape) for shape in self.sizes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.sizes.items(), strict=True)}

    @property
    def penalised(self) -> Float[Tensor, " parameter"]:
        """1 for every number that the l1 penalty is on: all but the bias of the read-out."""
        parts = [torch.full(shape, float(name != "readout.bias")) for name, shape in self.sizes.items()]
        return torch.cat([part.flatten() for part in parts]).double()

    def predict(self, theta: Tensor, tokens: Float[Tensor, "batch token 3"]) -> Float[Tensor, " batch"]:
        return self.run(self.weights(theta), tokens)

    def run(self, weights: Weights, tokens: Float[Tensor, "batch token 3"]) -> Float[Tensor, " batch"]:
        return run(self.spec, weights, tokens, self.task.context)[:, 0, 0]


def _tokens(prompts: SimplePrompts, spec: ModelSpec) -> Float[Tensor, "prompt token 3"]:
    return torch.cat(prompts.inputs(spec), 1)


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
        tokens, target = _tokens(drawn, shapes.spec).float(), drawn.least_squares().prediction.float()
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


def _polished(
    shapes: Shapes, plan: ManySeeds, prompts: SimplePrompts, journal: Journal, name: str, theta: Tensor
) -> Float[Tensor, " parameter"]:
    def work(now: Settled, note: Callable[[Settled], None]) -> Settled:
        theta = now.theta
        for smooth in SMOOTH:
            theta = polish(
                shapes, theta, prompts, l1=plan.l1, iterations=plan.polish_iterations // 2, smooth=smooth,
                watch=lambda k, loss: journal.watch(Step(name=name, iteration=k, loss=loss)),
            )  # fmt: skip
        return Settled(theta)

    return journal.run(name, Settled(theta.double()), work).theta


# --- Levenberg-Marquardt, one seed at a time -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Objective:
    """The smoothed objective on a sample of prompts, in the numbers that ``mask`` does not hold at 0."""

    shapes: Shapes
    tokens: Float[Tensor, "prompt token 3"]
    target: Float[Tensor, " prompt"]
    penalty: Float[Tensor, " parameter"]
    mask: Float[Tensor, " parameter"]
    smooth: float

    @cached_property
    def scale(self) -> float:
        return 1.0 / (len(self.target) * float(self.target.square().mean()))

    def __call__(self, theta: Tensor) -> _Point:
        error = (self.shapes.predict(theta, self.tokens) - self.target).square().sum()
        sizes = (theta.square() + self.smooth**2).sqrt()
        return _Point(self, theta, sizes, float(0.5 * self.scale * error + (self.penalty * sizes).sum()))


@dataclass(frozen=True, eq=False)
class _Point:
    objective: _Objective
    theta: Float[Tensor, " parameter"]
    sizes: Float[Tensor, " parameter"]  # |w|, smoothed
    value: float

    def quadratic(self) -> Quadratic:
        o, theta = self.objective, self.theta
        one = torch.func.grad_and_value(lambda theta, row: o.shapes.predict(theta, row[None])[0])
        derivative = torch.func.vmap(one, (None, 0))
        g, H = o.penalty * theta / self.sizes, torch.diag(o.penalty / self.sizes + 1.0 - o.mask)
        for rows, wanted in zip(o.tokens.split(CHUNK), o.target.split(CHUNK), strict=True):
            J, prediction = derivative(theta, rows)
            J = J * o.mask
            H = H + o.scale * (J.mT @ J)
            g = g + o.scale * (J.mT @ (prediction - wanted))
        return Quadratic(g, H)


def polish(
    shapes: Shapes,
    theta: Float[Tensor, " parameter"],
    prompts: SimplePrompts,
    *,
    l1: float,
    iterations: int,
    smooth: float = 1e-3,
    mask: Float[Tensor, " parameter"] | None = None,
    watch: Callable[[int, float], None] = lambda iteration, loss: None,
) -> Float[Tensor, " parameter"]:
    """Lower the objective on ``prompts``; ``mask`` is 0 for numbers that stay 0."""
    mask = torch.ones_like(theta) if mask is None else mask
    target, penalty = prompts.least_squares().prediction, l1 * shapes.penalised * mask
    objective = _Objective(shapes, _tokens(prompts, shapes.spec), target, penalty, mask, smooth)
    return minimise(
        objective,
        Progress(theta=theta * mask),
        Stopping(iterations=iterations),
        watch=lambda now: watch(now.iteration - 1, now.loss),
    ).theta


def prune(
    shapes: Shapes,
    theta: Float[Tensor, " parameter"],
    prompts: SimplePrompts,
    checked: SimplePrompts,
    *,
    iterations: int,
    watch: Callable[[int, float], None] = lambda left, error: None,
) -> Float[Tensor, " parameter"]:
    """Take out the smallest weights, in units of what they change, for as long as the error on ``checked`` prompts
    stays within ``GROWTH`` of that before; the others are refitted without a penalty."""
    best = polish(shapes, theta, prompts, l1=0.0, iterations=iterations)
    bar = GROWTH * relative_error(shapes, theta, checked)
    while len(left := torch.nonzero(best)[:, 0]):
        # what the prediction loses when the weight alone is set to 0, to first order
        tokens = _tokens(prompts[:CHUNK], shapes.spec)
        one = torch.func.grad(lambda theta, row: shapes.predict(theta, row[None])[0])
        J = torch.func.vmap(one, (None, 0))(best, tokens)
        saliency = (best.abs() * J.square().mean(0).sqrt())[left]
        order = left[saliency.argsort()]
        mask = (best != 0).to(best.dtype)
        mask[order[: max(1, int(PRUNED * len(left)))]] = 0.0
        tried = polish(shapes, best, prompts, l1=0.0, iterations=iterations, mask=mask)
        error = relative_error(shapes, tried, checked)
        watch(int(mask.sum()), error)
        if not error <= bar:
            break
        best = tried
    return best


def relative_error(shapes: Shapes, theta: Float[Tensor, " parameter"], prompts: SimplePrompts) -> float:
    """E (f - yhat)^2 / E yhat^2."""
    target = prompts.least_squares().prediction
    error = (shapes.predict(theta, _tokens(prompts, shapes.spec)) - target).square().sum()
    return float(error / target.square().sum())
