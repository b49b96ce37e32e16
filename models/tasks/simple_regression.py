"""Simple linear regression in context: one input, an intercept, and the least-squares prediction as the target.

    x_i = m + s z_i,   y_i = theta_0 + theta_1 x_i + eps_i,   i = 1 .. N,   eps_i ~ N(0, sigma^2),   u = m + s z

with z standard normal, and m ~ N(0, shift^2), s = exp(spread * N(0, 1)), theta ~ N(0, weight_std^2 I) and sigma ~ noise
law drawn once per prompt. Tokens are (1, x_i, y_i), and (1, u, 0) for the query. The target is what least squares on
the prompt's own examples predicts at u, so no error is unavoidable:

    yhat(u) = ybar + (C / V) (u - xbar),   V = mean (x_i - xbar)^2,   C = mean (x_i - xbar)(y_i - ybar)             (1)

Source: Hagiwara, arXiv 2607.15819, sections 1 to 2 (tokens, target). The paper's laws of x, theta and N are not known
to us; the ones here are ours, with a variance of x that differs between prompts by more than an order of magnitude, so
that dividing by it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.rules import COUNT, FACTOR, SCALE, SIZE, ruled
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks.batch import Batch
from interp.models.tasks.fields import TaskFields, variations_of
from interp.models.tasks.memory import MEMORY, require_affordable
from interp.models.tasks.noise import NOISE, NoiseLaw, normal
from interp.models.tasks.protocol import References, Variation, Words
from interp.models.tasks.registry import register_task
from interp.models.transformer import LinearTransformer
from interp.solvers.line_descent import fit_descent

__all__ = ["CHANNELS", "LeastSquares", "SimplePrompts", "SimpleRegression"]

CHANNELS = (("1", 1), ("x", 1), ("y", 1))
FACTORS = {"x": (0.125, 0.25, 0.5, 2.0, 4.0, 8.0), "y": (-1.0, 0.25, 4.0)}  # far outside of the task
TUNING_SEED = 0


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Least squares on the examples of every prompt, in the terms of (1)."""

    mean_x: Float[Tensor, " prompt"]
    mean_y: Float[Tensor, " prompt"]
    V: Float[Tensor, " prompt"]
    C: Float[Tensor, " prompt"]
    prediction: Float[Tensor, " prompt"]
    leverage: Float[Tensor, " prompt"]  # h of the query among all N + 1 points
    shrunken: Float[Tensor, " prompt"]  # (1 - h) (N + 1) / N yhat: (1) by sums over all N + 1 rows, y = 0 in the last


@dataclass(frozen=True, eq=False)
class SimplePrompts(Batch):
    """A batch of prompts, with what generated them."""

    x: Float[Tensor, "prompt context"]
    y: Float[Tensor, "prompt context"]
    x_query: Float[Tensor, " prompt"]
    theta: Float[Tensor, "prompt 2"]

    given = ("x", "y", "x_query")

    @property
    def context(self) -> int:
        return self.x.shape[1]

    @property
    def target(self) -> Float[Tensor, "prompt query output"]:
        """The least-squares prediction, one query and one output channel."""
        return self.least_squares().prediction[:, None, None]

    def least_squares(self) -> LeastSquares:
        n = self.context
        mean_x, mean_y = self.x.mean(1), self.y.mean(1)
        x, y = self.x - mean_x[:, None], self.y - mean_y[:, None]
        V, C = x.square().mean(1), (x * y).mean(1)
        distance = self.x_query - mean_x
        # With the query among them the mean moves by d / (n + 1) and the sum of squares grows by d^2 n / (n + 1).
        spread = n * V + distance.square() * n / (n + 1)
        leverage = 1 / (n + 1) + (distance * n / (n + 1)).square() / spread
        prediction = mean_y + C / V * distance
        shrunken = (1 - leverage) * (n + 1) / n * prediction
        return LeastSquares(mean_x, mean_y, V, C, prediction, leverage, shrunken)

    def inputs(self, spec: ModelSpec) -> tuple[Float[Tensor, "prompt context 3"], Float[Tensor, "prompt 1 3"]]:
        """The arguments of the forward pass: context tokens (1, x_i, y_i) and the query token (1, u, 0)."""
        _require_channels(spec)
        context = torch.stack([torch.ones_like(self.x), self.x, self.y], -1)
        query = torch.stack([torch.ones_like(self.x_query), self.x_query, torch.zeros_like(self.x_query)], -1)
        return context, query[:, None]

    def rows(self) -> Float[Tensor, "prompt token channel"]:
        """(x, y) of every token, the query last."""
        query = torch.stack([self.x_query, torch.zeros_like(self.x_query)], -1)
        return torch.cat([torch.stack([self.x, self.y], -1), query[:, None]], 1)


def _require_channels(spec: ModelSpec) -> None:
    if spec.tokens != CHANNELS:
        raise LayoutError(
            f"the model's channels are {dict(spec.tokens)}, but simple_regression makes tokens of "
            f"{', '.join(f'{name}: {size}' for name, size in CHANNELS)}, in this order"
        )


@register_task
@dataclass(frozen=True, kw_only=True)
class SimpleRegression(TaskFields):
    """The task. ``context`` is N; ``shift`` and ``spread`` are the laws of the inputs' mean and scale. All x are then
    multiplied by ``x_scale``, all y by ``y_scale``."""

    context: int = ruled(COUNT)
    noise: NoiseLaw = ruled(NOISE, NoiseLaw(kind="fixed", values=(0.3,)))  # noqa: RUF009 - a field
    shift: float = ruled(SIZE, 0.5)
    spread: float = ruled(SIZE, 0.5)
    weight_std: float = ruled(SCALE, 1.0)
    x_scale: float = ruled(FACTOR, 1.0)
    y_scale: float = ruled(FACTOR, 1.0)

    name = "simple_regression"
    always = ("noise", "shift", "spread", "weight_std")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context < 2:
            raise LayoutError(f"task.context is {self.context}, expected 2 or more: one point determines no line")

    @property
    def words(self) -> Words:
        noise = f" The size σ of the noise on y {self.noise.words}." if self.noise.words else ""
        return Words(
            asked=f"To predict what the least-squares line through {self.context} examples (x, y) in the prompt says "
            "at a new x; x and y are single numbers. The line, and where and how wide the x lie, are drawn anew for "
            f"every prompt.{noise}"
        )

    def fits(self, model: LinearTransformer) -> None:
        spec = model.spec
        _require_channels(spec)
        if spec.attention.keys == "causal":
            raise LayoutError(f"attention.keys is 'causal', expected 'context' or 'all' for {self.name}")
        if spec.readout.channel != "y":
            raise LayoutError(f"readout.channel is {spec.readout.channel!r}, expected 'y', the label of {self.name}")
        if spec.readout.flat and (tokens := len(model.tensors["readout.weight"])) != self.context + 1:
            raise LayoutError(
                f"readout.weight has {tokens} rows, expected {self.context + 1}: task.context is {self.context}, and "
                "the query is one more token"
            )

    def oracle(self, prompts: SimplePrompts) -> Float[Tensor, "prompt query output"]:
        """Least squares, which is the target itself."""
        return prompts.target

    def references(self, tuning: SimplePrompts, depth: int, keys: str) -> References:
        """The mean label, two preconditioned gradient steps, and least squares itself."""
        tuned = fit_descent(tuning, keys, tuning.least_squares().prediction, 2, TUNING_SEED, "preconditioned-gd")
        assert tuned is not None  # only the polynomial may be

        labels = {
            "null": "predicting zero",
            "mean": "the mean label of the prompt",
            "preconditioned-gd-2": "two preconditioned gradient steps, tuned to the task",
            "oracle": "least squares, the target",
        }

        def predict(prompts: SimplePrompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
            line = prompts.least_squares()
            values = (torch.zeros_like(line.prediction), line.mean_y, tuned.predict(prompts), line.prediction)
            return {name: value[:, None] for name, value in zip(labels, values, strict=True)}

        return References(labels=labels, predict=predict)

    def variations(self, fixed_context: bool = False) -> dict[str, Variation]:
        fixed = Skipped("the read-out has weights for just so many")
        fewer = replace(self, context=self.context // 2) if self.context > 3 else Skipped("two points make a line")
        louder = replace(self, noise=self.noise.scaled(2.0)) if self.noise.largest > 0 else Skipped("it has no noise")
        shifted = replace(self, shift=2 * self.shift) if self.shift > 0 else Skipped("the means of x are 0")
        uneven = replace(self, spread=2 * self.spread) if self.spread > 0 else Skipped("x has one scale")
        more = replace(self, context=2 * self.context)
        out = variations_of(self, {
            "noise x2": ("twice the noise", louder),
            "context x1/2": ("half the examples", fixed if fixed_context else fewer),
            "context x2": ("twice the examples", fixed if fixed_context else more),
            "shift x2": ("means of x twice as far from 0", shifted),
            "spread x2": ("scales of x twice as uneven", uneven),
            "weights x2": ("lines twice as steep", replace(self, weight_std=2 * self.weight_std)),
        })  # fmt: skip
        for axis, factors in FACTORS.items():
            for factor in factors:
                task = replace(self, **{f"{axis}_scale": factor * getattr(self, f"{axis}_scale")})
                label = f"all {axis} times a factor"
                out[f"{axis} = {factor:g}"] = Variation(label=label, task=task, axis=axis, value=factor)
        return out

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in ``MEMORY``: inputs, labels and tokens in float64, and temporaries. 0: not one."""
        return MEMORY // (16 * 8 * (self.context + 1))

    def sample(self, count: int, seed: int) -> SimplePrompts:
        """``count`` fresh prompts in float64; the same seed gives the same. Raises as ``require_affordable`` does."""
        require_affordable(self, count)
        generator = torch.Generator().manual_seed(seed)
        drawn, sigma = normal(generator), self.noise.sample(count, generator)
        theta = self.weight_std * drawn(count, 2)
        mean, scale = self.shift * drawn(count, 1), torch.exp(self.spread * drawn(count, 1))
        x = mean + scale * drawn(count, self.context + 1)
        x, x_query = x[:, :-1], x[:, -1]
        y = theta[:, :1] + theta[:, 1:] * x + sigma[:, None] * drawn(count, self.context)
        theta = torch.stack([theta[:, 0] * self.y_scale, theta[:, 1] * self.y_scale / self.x_scale], -1)
        x, x_query, y = x * self.x_scale, x_query * self.x_scale, y * self.y_scale
        return SimplePrompts(x=x, y=y, x_query=x_query, theta=theta, sigma=sigma * abs(self.y_scale))
