"""Sparse solutions of embedded networks, one seed at a time: polished by Levenberg-Marquardt, then pruned.

    1/2 E (f - yhat)^2 / E yhat^2  +  l1 * sum sqrt(w^2 + smooth^2)

over a fixed sample of prompts. The numbers that a mask holds at 0 stay there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.specification import ModelSpec
from interp.models.tasks import SimplePrompts, SimpleRegression
from interp.models.token_pass import run
from interp.models.training.method import Weights
from interp.models.training.recipe import Recipe
from interp.stats.levenberg_marquardt import Evaluated, Progress, Quadratic, Stopping, minimise

__all__ = ["Shapes", "polish", "prune", "relative_error", "tokens_of"]

CHUNK = 1024  # prompts whose derivatives are held at a time
PRUNED = 0.06  # share of the weights left that one round takes out …
GROWTH = 1.25  # … while the error stays within this factor of that of the full network

Watch = Callable[[Progress], None]


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


def tokens_of(prompts: SimplePrompts, spec: ModelSpec) -> Float[Tensor, "prompt token 3"]:
    return torch.cat(prompts.inputs(spec), 1)


def polish(
    shapes: Shapes,
    prompts: SimplePrompts,
    start: Progress,
    watch: Watch = lambda now: None,
    *,
    l1: float,
    iterations: int,
    smooth: float = 1e-3,
    mask: Float[Tensor, " parameter"] | None = None,
) -> Progress:
    """Lower the objective on ``prompts`` from ``start``, whose masked numbers are 0."""
    mask = torch.ones_like(start.theta) if mask is None else mask
    penalty = l1 * shapes.penalised * mask
    tokens, target = tokens_of(prompts, shapes.spec), prompts.least_squares().prediction
    scale = 1.0 / (len(target) * float(target.square().mean()))

    def objective(theta: Tensor) -> Evaluated:
        error = (shapes.predict(theta, tokens) - target).square().sum()
        sizes = (theta.square() + smooth**2).sqrt()

        def quadratic() -> Quadratic:
            g, H = penalty * theta / sizes, torch.diag(penalty / sizes + 1.0 - mask)
            for rows, wanted in zip(tokens.split(CHUNK), target.split(CHUNK), strict=True):
                J, prediction = _derivatives(shapes, theta, rows)
                J = J * mask
                H = H + scale * (J.mT @ J)
                g = g + scale * (J.mT @ (prediction - wanted))
            return Quadratic(g, H)

        return Evaluated(float(0.5 * scale * error + (penalty * sizes).sum()), quadratic)

    return minimise(objective, start, Stopping(iterations=iterations), watch=watch)


def _derivatives(
    shapes: Shapes, theta: Tensor, tokens: Float[Tensor, "prompt token 3"]
) -> tuple[Float[Tensor, "prompt parameter"], Float[Tensor, " prompt"]]:
    """d f / d theta of every prompt, and f."""
    one = torch.func.grad_and_value(lambda theta, row: shapes.predict(theta, row[None])[0])
    return torch.func.vmap(one, (None, 0))(theta, tokens)


def prune(
    shapes: Shapes,
    theta: Float[Tensor, " parameter"],
    prompts: SimplePrompts,
    checked: SimplePrompts,
    start: Progress,
    watch: Watch = lambda now: None,
    *,
    iterations: int,
) -> Progress:
    """Take out the smallest weights of ``theta``, in units of what they change, for as long as the error on ``checked``
    prompts stays within ``GROWTH`` of that before; the others are refitted without a penalty. ``watch`` sees what every
    round leaves, with its error; ``start`` is one of these, or ``theta`` itself."""
    bar, now = GROWTH * relative_error(shapes, theta, checked), start
    if not now.iteration:
        now = Progress(theta=polish(shapes, prompts, Progress(theta=theta), l1=0.0, iterations=iterations).theta)
    while len(left := torch.nonzero(now.theta)[:, 0]):
        # what the prediction loses when the weight alone is set to 0, to first order
        J, _ = _derivatives(shapes, now.theta, tokens_of(prompts[:CHUNK], shapes.spec))
        saliency = (now.theta.abs() * J.square().mean(0).sqrt())[left]
        mask = (now.theta != 0).to(theta.dtype)
        mask[left[saliency.argsort()][: max(1, int(PRUNED * len(left)))]] = 0.0
        masked = Progress(theta=now.theta * mask)
        refitted = polish(shapes, prompts, masked, l1=0.0, iterations=iterations, mask=mask).theta
        error = relative_error(shapes, refitted, checked)
        if not error <= bar:
            break
        now = Progress(theta=refitted, loss=error, iteration=now.iteration + 1)
        watch(now)
    return now


def relative_error(shapes: Shapes, theta: Float[Tensor, " parameter"], prompts: SimplePrompts) -> float:
    """E (f - yhat)^2 / E yhat^2."""
    target = prompts.least_squares().prediction
    error = (shapes.predict(theta, tokens_of(prompts, shapes.spec)) - target).square().sum()
    return float(error / target.square().sum())
