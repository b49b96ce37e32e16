"""Recipes for matrix completion: the three regimes of EAGLE, trained from random weights.

name = "eagle-full"
[task]                       the fields of a matrix_completion task
[model]
regime = "full"              full | sketch (queries and keys of ``rank`` columns) | machines (one head per machine)
layers = 4
rank = 5                     of the sketch regime
shared = true                of the sketch regime: one sketch per layer for all that is read and written of x
[optimiser]                  every field optional, see ``Adam``

Weights are factored as in the paper, Q = W_Q W_K^T and P = W_P W_V^T. Regimes (Lutz et al., section 3 and B.4):

- full: one head, k = D columns;
- sketch: one head, W_Q and W_K of r columns, W_P and W_V of r + n' columns;
- sketch, shared: W_Q = W_K = S and, up to the gains g, W_V = (S, I) and W_P = (g_x S, g_y I), as in Algorithm 1, where
  one S_l of r columns serves for everything. S need not be orthonormal here;
- machines: head mu reads x_mu, the columns of x that machine mu holds, and y, and writes anywhere. The paper keeps a
  copy of y on every machine; here there is one, which is what equal copies amount to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import LayoutError
from interp.models.numbers import as_float, is_count
from interp.models.specification import ModelSpec
from interp.models.tasks import MatrixCompletion
from interp.models.training.fields import (
    model_field,
    parts,
    require_counts,
    require_known,
    require_name,
    require_positive,
    require_seed,
    table,
)

__all__ = ["REGIMES", "Adam", "CompletionRecipe"]

REGIMES = ("full", "sketch", "machines")
GAIN = -0.3  # what the gains of a shared sketch start from: a step of gradient descent is negative


@dataclass(frozen=True, kw_only=True)
class Adam:
    """How hard to look: Adam at a constant rate that falls to 2 % by a half cosine over the last 60 % of the steps."""

    seed: int = 0
    steps: int = 8_000
    batch: int = 512  # half of them plain, half with a larger |A| (see ``completion_sample``)
    rate: float = 2e-3
    clip: float = 0.1  # of the gradient's 2-norm
    cap: float = 1.0  # times the mean square of the target: a loss far above it counts by its logarithm
    initial: float = 0.1  # standard deviation of the random factors
    evaluation_prompts: int = 65_536

    def __post_init__(self) -> None:
        require_counts("optimiser", {"steps": self.steps, "batch": self.batch})
        require_counts("optimiser", {"evaluation_prompts": self.evaluation_prompts}, least=2)  # for a standard error
        require_seed(self.seed)
        for name in ("rate", "clip", "cap", "initial"):
            require_positive(f"optimiser.{name}", getattr(self, name))

    @classmethod
    def from_dict(cls, fields: Any) -> Adam:
        given = table(fields, "optimiser", [f.name for f in dataclasses.fields(cls)])
        return cls(
            **{
                key: as_float(value) if key in ("rate", "clip", "cap", "initial") else value
                for key, value in given.items()
            }
        )

    def rate_at(self, step: int) -> float:
        late = max(0.0, (step / self.steps - 0.4) / 0.6)
        return self.rate * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * late)))


@dataclass(frozen=True, kw_only=True)
class CompletionRecipe:
    """One training run."""

    name: str
    task: MatrixCompletion
    regime: str
    layers: int
    rank: int | None = None
    shared: bool = False
    optimiser: Adam = field(default_factory=Adam)

    def __post_init__(self) -> None:
        require_name(self.name, "eagle-full")
        require_counts("model", {"layers": self.layers})
        require_known(self.regime, REGIMES, f"model.regime is {self.regime!r}")
        if (self.regime == "sketch") != (self.rank is not None):
            raise LayoutError(
                f"model.rank is {self.rank!r} in regime {self.regime!r}; the sketch regime alone needs one"
            )
        if self.rank is not None and (not is_count(self.rank) or self.rank > self.task.dim):
            raise LayoutError(f"model.rank is {self.rank!r}, expected 1 to {self.task.dim}")
        if self.shared and self.regime != "sketch":
            raise LayoutError(f"model.shared is True in regime {self.regime!r}; only sketch has one to share")
        if (self.regime == "machines") != (self.task.machines > 1):
            raise LayoutError(
                f"task.machines is {self.task.machines} in regime {self.regime!r}; only machines needs them"
            )

    def with_seed(self, seed: int) -> CompletionRecipe:
        return dataclasses.replace(self, optimiser=dataclasses.replace(self.optimiser, seed=seed))

    @property
    def spec(self) -> ModelSpec:
        tokens = (("x", self.task.dim), ("y", self.task.outputs))
        return ModelSpec(tokens=tokens, task=self.task.to_dict())

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CompletionRecipe:
        """Read a parsed recipe; what is unknown, missing or contradicts itself is a LayoutError."""
        given = parts(fields)
        model = table(given["model"], "model", ["regime", "layers", "rank", "shared"])
        model_field(model, "regime", "layers")
        if not isinstance(model.get("shared", False), bool):
            raise LayoutError(f"model.shared is {model['shared']!r}, expected true or false")
        task = MatrixCompletion.from_dict(given["task"])
        return cls(name=given["name"], task=task, optimiser=Adam.from_dict(given.get("optimiser", {})), **model)

    def to_dict(self) -> dict[str, Any]:
        model: dict[str, Any] = {"regime": self.regime, "layers": self.layers}
        if self.rank is not None:
            model["rank"] = self.rank
        if self.shared:
            model["shared"] = True
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "model": model,
            "optimiser": dataclasses.asdict(self.optimiser),
        }

    def initial(self) -> dict[str, Tensor]:
        """What is trained, from the recipe's seed: the factors W_Q, W_K, W_P, W_V of the first head, each (layer, 1, D,
        columns), or those of a shared sketch: S (layer, 1, d, r) and the two gains (layer, 1, 2, 1)."""
        plan, width = self.optimiser, self.spec.width
        generator = torch.Generator().manual_seed(plan.seed)
        if self.shared:
            S = torch.randn(self.layers, 1, self.task.dim, self.rank or 0, generator=generator)
            return {"S": plan.initial * S, "gain": torch.full((self.layers, 1, 2, 1), GAIN)}
        columns = (width, width) if self.rank is None else (self.rank, self.rank + self.task.outputs)
        sizes = {"W_Q": columns[0], "W_K": columns[0], "W_P": columns[1], "W_V": columns[1]}
        return {
            name: plan.initial * torch.randn(self.layers, 1, width, size, generator=generator)
            for name, size in sizes.items()
        }

    def heads(self, trained: Mapping[str, Float[Tensor, "layer 1 ..."]]) -> dict[str, Float[Tensor, "layer head D _"]]:
        """W_Q, W_K, W_P and W_V of all heads."""
        if self.shared:
            return self._of_sketch(trained["S"], trained["gain"])
        return {name: self._of_all_machines(value) for name, value in trained.items()}

    def _of_sketch(
        self, S: Float[Tensor, "layer 1 d r"], gain: Float[Tensor, "layer 1 2 1"]
    ) -> dict[str, Float[Tensor, "layer 1 D _"]]:
        outputs = self.task.outputs
        label = torch.eye(outputs).expand(self.layers, 1, outputs, outputs)
        read = torch.nn.functional.pad(S, (0, 0, 0, outputs))
        return {
            "W_Q": read,
            "W_K": read,
            "W_V": _block_diagonal(S, label),
            "W_P": _block_diagonal(gain[:, :, :1] * S, gain[:, :, 1:] * label),
        }

    def _of_all_machines(self, first: Float[Tensor, "layer 1 D column"]) -> Float[Tensor, "layer head D column"]:
        """The factors of every machine's head from those of the first: one set of transformations is shared, up to the
        names of the machines (appendix B.4). Machine mu + k is to head mu what machine k is to head 0."""
        dim, machines = self.task.dim, self.task.machines
        x, y = first[:, :, :dim], first[:, :, dim:]
        heads = [torch.cat([x.roll(mu * (dim // machines), 2), y], 2) for mu in range(machines)]
        return torch.cat(heads, 1)

    def read_masks(self) -> Float[Tensor, "head D 1"]:
        """1 where a head can read a token's coordinate, by any of W_Q, W_K and W_V, else 0."""
        return torch.nn.functional.pad(self.task.machine_masks, (0, self.task.outputs), value=1.0).float()[..., None]


def _block_diagonal(x: Float[Tensor, "layer 1 d r"], y: Float[Tensor, "layer 1 k k"]) -> Float[Tensor, "layer 1 D _"]:
    above = torch.nn.functional.pad(x, (0, y.shape[-1], 0, 0))
    return torch.cat([above, torch.nn.functional.pad(y, (x.shape[-1], 0, 0, 0))], 2)
