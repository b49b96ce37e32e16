"""A task in one file: linear regression with inputs x = z / sqrt(chi^2_nu / (nu - 2)), of covariance I."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interp.errors import LayoutError
from interp.models.skipped import Skipped
from interp.models.tasks import References, RegressionPrompts, Target, Variation, Words, register_task
from interp.models.transformer import LinearTransformer


@register_task
@dataclass(frozen=True, kw_only=True)
class HeavyTails:
    """w ~ N(0, I), y_i = <w, x_i> + sigma N(0, 1), x_i Student-t of ``freedom`` degrees of freedom."""

    dim: int
    context: int
    freedom: int = 8
    sigma: float = 0.1

    name = "heavy_tails"
    most_prompts = 100_000

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> HeavyTails:
        return cls(**{name: value for name, value in fields.items() if name != "name"})

    def to_dict(self) -> dict[str, Any]:
        fields = {"dim": self.dim, "context": self.context, "freedom": self.freedom, "sigma": self.sigma}
        return {"name": self.name, **fields}

    @property
    def words(self) -> Words:
        return Words(asked=f"To predict ⟨w, x⟩ from {self.context} examples whose inputs are heavy-tailed.")

    def fits(self, model: LinearTransformer) -> None:
        if model.spec.tokens != (("x", self.dim), ("y", 1)):
            raise LayoutError(f"the tokens are {model.spec.tokens}, expected x of size {self.dim} and y")

    def sample(self, count: int, seed: int) -> RegressionPrompts:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        z, chi = normal(count, self.context + 1, self.dim), normal(count, self.context + 1, self.freedom, 1)
        x = z / (chi.square().sum(2) / (self.freedom - 2)).sqrt()
        w, sigma = normal(count, self.dim), torch.full((count,), self.sigma, dtype=torch.float64)
        y = (x[:, :-1] @ w[..., None]).squeeze(-1) + self.sigma * normal(count, self.context)
        return RegressionPrompts(x=x[:, :-1], y=y, x_query=x[:, -1], w=w, sigma=sigma)

    def weights(self, prompts: RegressionPrompts) -> Tensor:
        """Ridge, the posterior mean of w whatever the law of the inputs."""
        x, y = prompts.x, prompts.y[..., None]
        damped = x.mT @ x + prompts.sigma[:, None, None].square() * torch.eye(self.dim, dtype=torch.float64)
        return torch.linalg.solve(damped, x.mT @ y)

    def oracle(self, prompts: RegressionPrompts) -> Tensor:
        return prompts.x_query[:, None] @ self.weights(prompts)

    def references(self, tuning: RegressionPrompts, depth: int, keys: str) -> References:
        def predict(prompts: RegressionPrompts) -> Mapping[str, Tensor]:
            oracle = self.oracle(prompts).flatten(1)
            return {"null": torch.zeros_like(oracle), "oracle": oracle}

        return References(labels={"null": "predicting zero", "oracle": "ridge (optimal)"}, predict=predict)

    def variations(self, fixed_context: bool = False) -> Mapping[str, Variation]:
        fewer = replace(self, context=self.context // 2) if self.context > 1 else Skipped("there is a single example")
        lighter = Variation(label="lighter tails", task=replace(self, freedom=4 * self.freedom))
        out = {
            "task": Variation(label="as trained", task=self),
            "half": Variation(label="half the examples", task=fewer),
            "light": lighter,
        }
        tails = (self.freedom, 2 * self.freedom, 8 * self.freedom)
        return out | {
            f"tails = {f}": Variation(
                label="degrees of freedom",
                task=replace(self, freedom=f),
                axis="tails",
                value=float(f),
                trained=f == self.freedom,
            )
            for f in tails
        }

    def targets(self) -> tuple[Target, ...]:
        return (
            Target(
                name="label", formula="<w, x>", source="the toy", expectation="in the query token", usual=("token",),
                value=lambda p, at: (p.w * (p.x_query if at is None else p.x[:, at])).sum(-1, keepdim=True),
            ),
        )  # fmt: skip

    def telling(self) -> HeavyTails:
        return self

    def errors(self, prediction: Tensor, prompts: RegressionPrompts) -> Tensor:
        return (prediction - prompts.target.flatten(1)).square()
