"""In-context linear regression with label noise whose level changes from prompt to prompt.

    w ~ N(0, tau^2 I),  x_i ~ N(0, C),  y_i = <w, x_i> + xi_i,  xi_i ~ N(0, sigma^2),  sigma ~ noise law (one per
    prompt)

The query x_t ~ N(0, C) has a noise-free target y_t = <w, x_t>. Source: Vladymyrov et al., "Linear Transformers are
Versatile In-Context Learners", section 3 (there tau = 1, C = I). Losses here are mean squared errors; the paper prints
half of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.numbers import as_float, is_size
from interp.models.rules import COUNT, SCALE, Rule, ruled
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks.batch import Batch
from interp.models.tasks.fields import TaskFields, variations_of
from interp.models.tasks.memory import MEMORY, require_affordable
from interp.models.tasks.noise import NOISE, NoiseLaw, normal
from interp.models.tasks.protocol import GramPrompts, References, Variation, Words
from interp.models.tasks.registry import register_task
from interp.models.tasks.regression_targets import regression_targets
from interp.models.tasks.shared_keys import example_tokens, grams_of, require_example_model
from interp.models.tasks.target import Target
from interp.models.transformer import LinearTransformer
from interp.solvers.baselines import regression_baselines
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet

__all__ = ["NoisyRegression", "RegressionPrompts"]

# Grids of what leaves the task, as factors.
CONTEXTS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)  # of the task's number of examples
NOISES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0)  # of the task's largest noise level, or of the labels' spread if it is 0
SCALES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # of the inputs
CONDITIONS = (1.0, 3.0, 10.0, 30.0, 100.0)  # largest over smallest factor on the inputs' variances


EIGENVALUES = Rule(
    "a list of eigenvalues",
    lambda v: isinstance(v, tuple),
    lambda v: tuple(map(as_float, v)) if isinstance(v, (list, tuple)) else v,
)


@dataclass(frozen=True, eq=False)
class RegressionPrompts(Batch):
    """A batch of prompts, with what generated them."""

    x: Float[Tensor, "prompt context dim"]
    y: Float[Tensor, "prompt context"]
    x_query: Float[Tensor, "prompt dim"]
    w: Float[Tensor, "prompt dim"]

    given = ("x", "y", "x_query")

    @property
    def context(self) -> int:
        return self.x.shape[1]

    @property
    def target(self) -> Float[Tensor, "prompt query output"]:
        """<w, x_t>, one query and one output channel."""
        return (self.w * self.x_query).sum(-1)[:, None, None]

    @cached_property
    def statistics(self) -> RegressionStatistics:
        """Sigma, alpha and lambda of the examples; kept, since all that is asked of them shares one decomposition."""
        return RegressionStatistics.from_data(self.x, self.y)

    @property
    def solution(self) -> tuple[str, Float[Tensor, "prompt dim output"]]:
        return "true w", self.w[..., None]

    def inputs(self, spec: ModelSpec) -> tuple[Float[Tensor, "prompt position D"], ...]:
        """Context tokens (x_i, y_i) and the query token (x_t, 0), laid out as ``spec`` names its channels; one sequence
        for causal keys."""
        tokens = example_tokens(spec, self.x, self.y[..., None], self.x_query[:, None])
        return (torch.cat(tokens, dim=1),) if spec.attention.keys == "causal" else tokens

    def before(self, position: int) -> RegressionPrompts:
        """The first ``position`` examples, with the input of the next one as the query."""
        return replace(self, x=self.x[:, :position], y=self.y[:, :position], x_query=self.x[:, position])

    def asking(self, x_query: Float[Tensor, "prompt dim"]) -> RegressionPrompts:
        """The same examples with another query."""
        return replace(self, x_query=x_query)

    def grams(self, spec: ModelSpec) -> GramPrompts:
        """Gram matrices of the keys; with keys = "all" the query token is one of them."""
        return grams_of(spec, *self.inputs(spec))

    def rows(self) -> Float[Tensor, "prompt token channel"]:
        """(x, y) of every token, the query last."""
        query = torch.cat([self.x_query, torch.zeros_like(self.x_query[:, :1])], -1)
        return torch.cat([torch.cat([self.x, self.y[..., None]], -1), query[:, None]], 1)


@register_task
@dataclass(frozen=True, kw_only=True)
class NoisyRegression(TaskFields):
    """The task. ``covariance`` holds the eigenvalues of C (None: C = I); ``weight_std`` is tau."""

    dim: int = ruled(COUNT)
    context: int = ruled(COUNT)
    noise: NoiseLaw = ruled(NOISE)  # noqa: RUF009 - a field
    covariance: tuple[float, ...] | None = ruled(EIGENVALUES, optional=True)
    weight_std: float = ruled(SCALE, 1.0)

    name = "noisy_regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.covariance is not None and (
            len(self.covariance) != self.dim or not all(is_size(v) and v > 0 for v in self.covariance)
        ):
            raise LayoutError(f"task.covariance is {self.covariance!r}, expected {self.dim} positive eigenvalues")

    def with_noise(self, noise: NoiseLaw) -> NoisyRegression:
        return replace(self, noise=noise)

    @property
    def words(self) -> Words:
        labels = "y = ⟨w, x⟩ + noise" if self.noise.largest > 0 else "y = ⟨w, x⟩"
        noise = f" The size σ of the noise {self.noise.words}." if self.noise.words else ""
        return Words(
            asked=f"To predict ⟨w, x⟩ for a new x from {self.context} examples (x, y) in the prompt, {labels}. x has "
            f"{self.dim} numbers; w is drawn anew for every prompt and never shown.{noise}"
        )

    def fits(self, model: LinearTransformer) -> None:
        require_example_model(model.spec, self.name, self.dim, 1)

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in ``MEMORY``: inputs, noise and tokens in float64, and temporaries. 0: not one."""
        return MEMORY // (4 * 8 * (self.context + 1) * (self.dim + 1))

    def sample(self, count: int, seed: int) -> RegressionPrompts:
        """``count`` fresh prompts in float64; the same seed gives the same. Raises as ``require_affordable`` does."""
        require_affordable(self, count)
        generator = torch.Generator().manual_seed(seed)
        drawn, sigma = normal(generator), self.noise.sample(count, generator)
        w = self.weight_std * drawn(count, self.dim)
        x, x_query = drawn(count, self.context, self.dim), drawn(count, self.dim)
        if self.covariance is not None:
            root = torch.tensor(self.covariance, dtype=torch.float64).sqrt()
            x, x_query = x * root, x_query * root
        y = (x @ w[..., None]).squeeze(-1) + sigma[:, None] * drawn(count, self.context)
        return RegressionPrompts(x=x, y=y, x_query=x_query, w=w, sigma=sigma)

    def oracle_weights(self, prompts: RegressionPrompts) -> Float[Tensor, "prompt dim"]:
        """The posterior mean of w given the context and the true sigma: (Sigma + sigma^2/tau^2 I)^-1 alpha, with
        Sigma = X^T X and alpha = X^T y (for sigma = 0 its limit, the least-norm interpolator)."""
        values, vectors = torch.linalg.eigh(prompts.x.mT @ prompts.x)
        alpha = (prompts.x.mT @ prompts.y[..., None]).squeeze(-1)
        damped = values + (prompts.sigma[:, None] / self.weight_std) ** 2
        determined = damped > 1e-12 * values.amax(-1, keepdim=True)
        inverse = torch.where(determined, 1.0 / damped.clamp_min(1e-300), 0.0)
        return (vectors @ (inverse[..., None] * (vectors.mT @ alpha[..., None]))).squeeze(-1)

    def oracle(self, prompts: RegressionPrompts) -> Float[Tensor, "prompt query output"]:
        """The best possible prediction: ridge regression with the true noise level."""
        return (self.oracle_weights(prompts) * prompts.x_query).sum(-1)[:, None, None]

    @property
    def spectrum(self) -> tuple[float, ...]:
        """Eigenvalues of C."""
        return self.covariance or (1.0,) * self.dim

    def tuning(self, prompts: RegressionPrompts, target: Float[Tensor, "prompt dim"] | None = None) -> TuningSet:
        """What solvers are tuned on: to come close to ``target`` (None: the posterior mean of w)."""
        covariance = None if self.covariance is None else torch.tensor(self.covariance, dtype=torch.float64)
        return TuningSet(prompts.statistics, self.oracle_weights(prompts) if target is None else target, covariance)

    def references(self, tuning: RegressionPrompts, depth: int, keys: str) -> References:
        """Gradient descent, least squares and ridge of several kinds; ``tuned`` are the ``Baseline``s."""
        baselines = regression_baselines(self.tuning(tuning), self.weight_std)

        def predict(prompts: RegressionPrompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
            weights = {b.name: b.weights(prompts.statistics) for b in baselines}
            weights["oracle"] = self.oracle_weights(prompts)
            return {name: (w * prompts.x_query).sum(-1, keepdim=True) for name, w in weights.items()}

        def weights(prompts: RegressionPrompts) -> Mapping[str, Float[Tensor, "prompt dim output"]]:
            found = {b.name: b.weights(prompts.statistics) for b in baselines if b.name != "null"}
            found |= {"oracle": self.oracle_weights(prompts), "true": prompts.w}
            return {name: w[..., None] for name, w in found.items()}

        labels = {b.name: b.label for b in baselines} | {"oracle": "ridge, true noise (optimal)"}
        return References(labels=labels, predict=predict, tuned=baselines, weights=weights)

    def targets(self) -> tuple[Target, ...]:
        return regression_targets(self.weight_std)

    def variations(self, fixed_context: bool = False) -> dict[str, Variation]:
        quiet, single = Skipped("the task has no noise"), Skipped("the task has a single example")

        def stretched(factors: Sequence[float]) -> NoisyRegression:
            return replace(self, covariance=tuple(v * f for v, f in zip(self.spectrum, factors, strict=True)))

        louder = replace(self, noise=self.noise.scaled(2.0)) if self.noise.largest > 0 else quiet
        fewer = replace(self, context=self.context // 2) if self.context > 1 else single
        out = variations_of(self, {
            "noise x2": ("twice the noise", louder),
            "context x1/2": ("half the examples", fewer),
            "context x2": ("twice the examples", replace(self, context=2 * self.context)),
            "inputs x1/2": ("inputs half as large", stretched((0.25,) * self.dim)),
            "inputs x2": ("inputs twice as large", stretched((4.0,) * self.dim)),
            "one input x2": ("inputs twice as large in one direction", stretched((4.0, *(1.0,) * (self.dim - 1)))),
            "weights x3": ("true weights three times as large", replace(self, weight_std=3 * self.weight_std)),
        })  # fmt: skip
        return out | {f"{v.axis} = {v.value:g}": v for v in self._grid()}

    def _grid(self) -> Iterator[Variation]:
        """Values of one property at a time, in order, from well below to well above those of the task."""

        def entry(axis: str, label: str, value: float, trained: bool, **changes: Any) -> Variation:
            return Variation(label=label, task=replace(self, **changes), axis=axis, value=value, trained=trained)

        for n in sorted({max(1, round(self.context * factor)) for factor in CONTEXTS}):
            yield entry("context", "number of examples", float(n), n == self.context, context=n)
        low, high = min(self.noise.values), self.noise.largest
        base = high or self.weight_std * math.sqrt(sum(self.spectrum))
        for level in sorted({base * factor for factor in NOISES} | set(self.noise.values)):
            inside = low <= level <= high if self.noise.kind == "uniform" else level in self.noise.values
            yield entry("noise", "noise σ", level, inside, noise=NoiseLaw(kind="fixed", values=(level,)))
        for f in SCALES:
            yield entry("scale", "size of the inputs", f, f == 1.0, covariance=tuple(f**2 * v for v in self.spectrum))
        label = "unevenness of the inputs"
        if self.dim == 1:
            yield Variation(label=label, task=Skipped("there is a single input"), axis="covariance", value=1.0)
            return
        for k in CONDITIONS:
            yield entry("covariance", label, k, k == 1.0, covariance=_uneven(self.spectrum, k))


def _uneven(spectrum: Sequence[float], condition: float) -> tuple[float, ...]:
    """The eigenvalues times factors from 1 to ``condition`` in geometric steps, rescaled to the same sum."""
    factors = [condition ** (k / (len(spectrum) - 1)) for k in range(len(spectrum))]
    moved = [v * f for v, f in zip(spectrum, factors, strict=True)]
    return tuple(v * sum(spectrum) / sum(moved) for v in moved)
