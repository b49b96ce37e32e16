"""In-context linear regression with label noise whose level changes from prompt to prompt.

    w ~ N(0, tau^2 I),  x_i ~ N(0, C),  y_i = <w, x_i> + xi_i,  xi_i ~ N(0, sigma^2),  sigma ~ noise law (one per
    prompt)

The query x_t ~ N(0, C) has a noise-free target y_t = <w, x_t>. Source: Vladymyrov et al., "Linear Transformers are
Versatile In-Context Learners", section 3 (there tau = 1, C = I). Losses here are mean squared errors; the paper prints
half of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import LayoutError, did_you_mean
from interp.models.numbers import as_float, is_count, is_size
from interp.models.specification import ModelSpec
from interp.models.tasks.memory import MEMORY, require_affordable

__all__ = ["GramPrompts", "NoiseLaw", "NoisyRegression", "RegressionPrompts", "require_counts"]


@dataclass(frozen=True, kw_only=True)
class NoiseLaw:
    """The law of sigma: "uniform" on [lo, hi], "choice" with equal weights, or "fixed"."""

    kind: str
    values: tuple[float, ...]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NoiseLaw:
        kinds = ("uniform", "choice", "fixed")
        if not isinstance(fields, Mapping) or len(fields) != 1:
            raise LayoutError(
                f'task.noise is {fields!r}, expected one of {{"uniform": [lo, hi]}}, {{"choice": [..]}}, {{"fixed": s}}'
            )
        kind, raw = next(iter(fields.items()))
        if kind not in kinds:
            raise LayoutError(f"task.noise has kind {kind!r}; {did_you_mean(str(kind), kinds)}")
        values = [raw] if kind == "fixed" else raw
        if not isinstance(values, (list, tuple)) or not values or not all(is_size(v) for v in values):
            raise LayoutError(f"task.noise.{kind} is {raw!r}, expected finite numbers of 0 or more, up to 1e150")
        if kind == "uniform" and (len(values) != 2 or values[0] > values[1]):
            raise LayoutError(f"task.noise.uniform is {raw!r}, expected [lo, hi] with lo <= hi")
        return cls(kind=kind, values=tuple(float(v) for v in values))

    def to_dict(self) -> dict[str, Any]:
        return {self.kind: self.values[0] if self.kind == "fixed" else list(self.values)}

    @property
    def largest(self) -> float:
        return max(self.values)

    def sample(self, count: int, generator: torch.Generator) -> Float[Tensor, " prompt"]:
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        if self.kind == "uniform":
            lo, hi = self.values
            return lo + (hi - lo) * uniform
        levels = torch.tensor(self.values, dtype=torch.float64)
        return levels[(uniform * len(levels)).long().clamp(max=len(levels) - 1)]


def require_counts(fields: Mapping[str, Any]) -> None:
    """Raises LayoutError for a field of a task that is no whole number of 1 or more."""
    for key, value in fields.items():
        if not is_count(value):
            raise LayoutError(f"task.{key} is {value!r}, expected a whole number of 1 or more")


@dataclass(frozen=True, eq=False)
class GramPrompts:
    """Prompts as the Gram path reads them: the Gram matrix of the keys, and the query tokens."""

    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt query D"]
    context: int


@dataclass(frozen=True, eq=False)
class RegressionPrompts:
    """A batch of prompts, with what generated them."""

    x: Float[Tensor, "prompt context dim"]
    y: Float[Tensor, "prompt context"]
    x_query: Float[Tensor, "prompt dim"]
    w: Float[Tensor, "prompt dim"]
    sigma: Float[Tensor, " prompt"]

    @property
    def count(self) -> int:
        return self.x.shape[0]

    @property
    def context(self) -> int:
        return self.x.shape[1]

    @property
    def target(self) -> Float[Tensor, "prompt query output"]:
        """<w, x_t>, one query and one output channel."""
        return (self.w * self.x_query).sum(-1)[:, None, None]

    def tokens(self, spec: ModelSpec) -> tuple[Float[Tensor, "prompt context D"], Float[Tensor, "prompt query D"]]:
        """Context tokens (x_i, y_i) and the query token (x_t, 0), laid out as ``spec`` names its channels."""
        _require_channels(spec, self.x.shape[2])
        context = self.x.new_zeros(self.count, self.context, spec.width)
        context[..., spec.channel("x").indices] = self.x
        context[..., spec.channel("y").start] = self.y
        query = self.x.new_zeros(self.count, 1, spec.width)
        query[..., spec.channel("x").indices] = self.x_query[:, None]
        return context, query

    def grams(self, spec: ModelSpec) -> GramPrompts:
        """Gram matrices of the keys; with keys = "all" the query token is one of them."""
        context, query = self.tokens(spec)
        gram = context.mT @ context
        if spec.attention.keys == "all":
            gram = gram + query.mT @ query
        return GramPrompts(gram=gram, query=query, context=self.context)

    def __getitem__(self, index: slice | Tensor) -> RegressionPrompts:
        return RegressionPrompts(self.x[index], self.y[index], self.x_query[index], self.w[index], self.sigma[index])


def _require_channels(spec: ModelSpec, dim: int) -> None:
    sizes = dict(spec.tokens)
    if sizes != {"x": dim, "y": 1}:
        raise LayoutError(
            f"the model's channels are {sizes}, but noisy_regression of dimension {dim} needs x: {dim} and y: 1"
        )


@dataclass(frozen=True, kw_only=True)
class NoisyRegression:
    """The task. ``covariance`` holds the eigenvalues of C (None: C = I); ``weight_std`` is tau."""

    dim: int
    context: int
    noise: NoiseLaw
    covariance: tuple[float, ...] | None = None
    weight_std: float = 1.0

    name = "noisy_regression"

    def __post_init__(self) -> None:
        require_counts({"dim": self.dim, "context": self.context})
        if self.covariance is not None and (
            len(self.covariance) != self.dim or not all(is_size(v) and v > 0 for v in self.covariance)
        ):
            raise LayoutError(f"task.covariance is {self.covariance!r}, expected {self.dim} positive eigenvalues")
        if not is_size(self.weight_std) or self.weight_std == 0:
            raise LayoutError(f"task.weight_std is {self.weight_std!r}, expected a positive number up to 1e150")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NoisyRegression:
        known = {"name", "dim", "context", "noise", "covariance", "weight_std"}
        for key in fields:
            if key not in known:
                raise LayoutError(f"unknown field task.{key}; {did_you_mean(str(key), known)}")
        for key in ("dim", "context", "noise"):
            if key not in fields:
                raise LayoutError(f"the task has no {key!r}, expected dim, context and noise for noisy_regression")
        covariance = fields.get("covariance")
        if covariance is not None and not isinstance(covariance, (list, tuple)):
            raise LayoutError(f"task.covariance is {covariance!r}, expected a list of eigenvalues")
        return cls(
            dim=fields["dim"],
            context=fields["context"],
            noise=NoiseLaw.from_dict(fields["noise"]),
            covariance=None if covariance is None else tuple(as_float(v) for v in covariance),
            weight_std=as_float(fields.get("weight_std", 1.0)),
        )

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": self.name,
            "dim": self.dim,
            "context": self.context,
            "noise": self.noise.to_dict(),
        }
        if self.covariance is not None:
            out["covariance"] = list(self.covariance)
        if self.weight_std != 1.0:
            out["weight_std"] = self.weight_std
        return out

    def with_noise(self, noise: NoiseLaw) -> NoisyRegression:
        return replace(self, noise=noise)

    def require_channels(self, spec: ModelSpec) -> None:
        """Raise LayoutError when the tokens of a model are not those of this task."""
        _require_channels(spec, self.dim)

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in ``MEMORY``: inputs, noise and tokens in float64, and temporaries. 0: not one."""
        return MEMORY // (4 * 8 * (self.context + 1) * (self.dim + 1))

    def sample(self, count: int, seed: int) -> RegressionPrompts:
        """``count`` fresh prompts in float64; the same seed gives the same. Raises as ``require_affordable`` does."""
        require_affordable(self, count)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        sigma = self.noise.sample(count, generator)
        w = self.weight_std * normal(count, self.dim)
        x, x_query = normal(count, self.context, self.dim), normal(count, self.dim)
        if self.covariance is not None:
            root = torch.tensor(self.covariance, dtype=torch.float64).sqrt()
            x, x_query = x * root, x_query * root
        y = (x @ w[..., None]).squeeze(-1) + sigma[:, None] * normal(count, self.context)
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
