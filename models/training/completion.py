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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import HeadLayers, forward
from interp.models.rules import COUNT, POSITIVE, ruled
from interp.models.tasks import MatrixCompletion
from interp.models.training.adam import Moving, adam, clip_norm, half_cosine
from interp.models.training.completion_sample import spread_prompts
from interp.models.training.factored import Factored, Factors, Regime
from interp.models.training.fields import Optimiser
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Method, Outcome, Weights, register_method
from interp.models.training.polishing import usual_mean
from interp.models.training.recipe import Recipe

__all__ = ["Completing", "OnFreshPrompts"]

KEEP_EVERY = 200  # steps, some seconds of work: then the network is judged
JUDGE, JUDGE_SEED = 16_384, 314_159  # prompts that a network is judged on
UNUSUAL = 1e-6  # what is rarer has no say in it: a network of four layers explodes there, whatever it has learned
CHUNK = 8192  # prompts in memory at a time, when scoring
EXPLODED = 1e6  # a prompt with a token entry above it stays as it is, and has a gradient, where float32 would overflow


@dataclass(frozen=True, kw_only=True)
class OnFreshPrompts(Optimiser):
    """How hard to look: Adam at a constant rate that falls to 2 % by a half cosine over the last 60 % of the steps."""

    steps: int = ruled(COUNT, 8_000)
    batch: int = ruled(COUNT, 512)  # half of them plain, half with a larger |A| (see ``completion_sample``)
    rate: float = ruled(POSITIVE, 2e-3)
    clip: float = ruled(POSITIVE, 0.1)  # of the gradient's 2-norm
    # of losses, over the target's mean square: above it they count by their logarithm
    cap: float = ruled(POSITIVE, 1.0)
    initial: float = ruled(POSITIVE, 0.1)  # standard deviation of the random factors

    def rate_at(self, step: int) -> float:
        late = max(0.0, (step / self.steps - 0.4) / 0.6)
        return self.rate * (0.02 + 0.98 * half_cosine(late))


class Completing(Method):
    """From random factors, by Adam on fresh prompts."""

    model = Regime
    optimiser = OnFreshPrompts
    measure = Measure(
        key="adjusted_loss",
        unit="half the mean squared entry of the error",
        words="half mean squared error above the optimum",
    )
    remedy = "lower optimiser.rate or raise optimiser.steps"

    def defaults(self, task: MatrixCompletion, model: Regime) -> dict[str, Any]:
        return {"tokens": [["x", task.dim], ["y", task.outputs]]}

    def fits(self, recipe: Recipe) -> None:
        recipe.model.fits(recipe.task)

    def search(self, recipe: Recipe, journal: Journal) -> Outcome:
        plan, training = recipe.optimiser, Training(recipe)
        start = training.factored.initial(plan.initial, plan.seed)
        end = journal.run("adam", Kept(values=start, best=start, loss=math.nan), training.work)
        P, Q = training.factored.weights(end.best)
        return Outcome(weights={"Q": Q, "P": P}, effort={"iterations": journal.iterations})

    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        """The network as it is kept, in float32, on prompts in float64."""
        layers = HeadLayers(P=weights["P"].double(), Q=weights["Q"].double(), scale=1.0, residual=1.0)
        label, rows, count = recipe.spec.channel("y").indices, [], recipe.optimiser.evaluation_prompts
        for number, first in enumerate(range(0, count, CHUNK)):
            drawn = recipe.task.sample(min(CHUNK, count - first), _seed(seed, number))
            grams = drawn.grams(recipe.spec)
            read = -forward(layers, grams.gram, grams.query).queries[-1][..., label]
            guesses = (read, torch.zeros_like(read), recipe.task.oracle(drawn))
            rows.append(torch.stack([(guess - drawn.D).square().mean((1, 2)) for guess in guesses], 1))
        errors = torch.cat(rows)
        mse, null, optimum = errors.mean(0).tolist()
        mses = {"network": mse, "predicting zero": null, "optimum": optimum}
        return 0.5 * (errors[:, 0] - errors[:, 2]), {"mse": mses}


register_method(MatrixCompletion.name, Completing())


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept(Moving):
    """With the ``best`` factors so far, of a mean error of ``least``; ``loss`` is a running mean."""

    best: tuple[Tensor, ...]
    least: float = math.inf


@dataclass(frozen=True, eq=False)
class Batch:
    tokens: Float[Tensor, "prompt token D"]  # context first
    context: int
    target: Float[Tensor, "prompt query output"]
    weight: Float[Tensor, " prompt"]

    def __getitem__(self, index: slice | Tensor) -> Batch:
        return Batch(self.tokens[index], self.context, self.target[index], self.weight[index])


class Training:
    """The objective of one run."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.plan = recipe, recipe.optimiser
        self.factored = Factored(recipe.model, recipe.task)
        self.judge = self.batch(JUDGE, JUDGE_SEED, 0)
        self.cap = self.plan.cap * float((self.judge.weight * self.judge.target.square().mean((1, 2))).mean())

    def batch(self, count: int, seed: int, step: int) -> Batch:
        drawn, weight = spread_prompts(self.recipe.task, count, _seed(seed, step))
        tokens = torch.cat(drawn.inputs(self.recipe.spec), 1)
        return Batch(tokens.float(), drawn.context, drawn.D.float(), weight.float())

    def errors(self, trained: Factors, batch: Batch) -> Float[Tensor, " prompt"]:
        """The mean squared entry of the error of every prompt. The weights stay in factors: that is cheaper than on
        Gram matrices, for there are no more tokens than coordinates."""
        tokens, seen = batch.tokens, self.factored.read_masks()
        W_Q, W_K, W_P, W_V = self.factored.heads(trained)
        W_Q, W_K, W_V = W_Q * seen, W_K * seen, W_V * seen
        for layer in range(len(W_Q)):
            # Zeros get no update, and no gradient that is not finite.
            moving = torch.where(tokens.detach().abs().amax((1, 2), keepdim=True) < EXPLODED, tokens, 0.0)
            keys = moving[:, : batch.context]
            for head in range(W_Q.shape[1]):
                scores = (moving @ W_Q[layer, head]) @ (keys @ W_K[layer, head]).mT
                tokens = tokens + scores @ ((keys @ W_V[layer, head]) @ W_P[layer, head].mT)
        read = -tokens[:, batch.context :, self.recipe.spec.channel("y").indices]
        return (read - batch.target).square().mean((1, 2))

    def objective(self, step: int, trained: Factors) -> Tensor | None:
        """The cautious, tamed mean error on the batch of that number; None when it overflows on every prompt."""
        batch = self.batch(self.plan.batch, self.plan.seed, step)
        errors = self.errors(trained, batch)
        finite = torch.isfinite(errors.detach())
        if not bool(finite.any()):
            return None
        if not bool(finite.all()):  # what overflows float32 has no gradient
            batch = batch[finite]
            errors = self.errors(trained, batch)
        weight = batch.weight.sqrt()
        return (weight * self.cap * (errors / self.cap).log1p()).sum() / weight.sum()

    def work(self, start: Kept, note: Callable[[Kept], None]) -> Kept:
        now = start

        def seen(moving: Moving) -> None:
            nonlocal now
            now = self.judged(Kept(**vars(moving) | {"best": now.best, "least": now.least, "loss": _mean(now, moving)}))
            note(now)

        adam(
            start, self.objective, steps=self.plan.steps, rate=self.plan.rate_at, limit=clip_norm(self.plan.clip),
            watch=seen,
        )  # fmt: skip
        return now

    @torch.no_grad()
    def judged(self, state: Kept) -> Kept:
        """With these factors as the best, if they are: asked now and then, and at the end."""
        if state.iteration % KEEP_EVERY and state.iteration != self.plan.steps:
            return state
        count = len(self.judge.weight)
        parts = [self.errors(state.values, self.judge[i : i + 1024]) for i in range(0, count, 1024)]
        value = usual_mean(torch.cat(parts).double(), self.judge.weight.double(), UNUSUAL)
        return replace(state, best=state.values, least=value) if value < state.least else state


def _mean(now: Kept, moving: Moving) -> float:
    """Half the loss, as a running mean that begins with the first batch that does not overflow."""
    loss = 0.5 * moving.loss
    return 0.98 * now.loss + 0.02 * min(loss, 10 * now.loss) if math.isfinite(now.loss) else loss


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
