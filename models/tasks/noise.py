"""The law of the noise level sigma, one level per prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError, did_you_mean
from interp.models.numbers import is_size
from interp.models.rules import Rule

__all__ = ["NOISE", "NOISE_OR_LEVEL", "NoiseLaw", "normal"]


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

    def scaled(self, factor: float) -> NoiseLaw:
        """The same law with every level times ``factor``."""
        return NoiseLaw(kind=self.kind, values=tuple(factor * value for value in self.values))

    @property
    def words(self) -> str:
        """What is said of sigma, or nothing where there is no noise."""
        levels = [f"{value:g}" for value in self.values]
        if self.kind == "uniform":
            return f"differs from prompt to prompt, between {levels[0]} and {levels[1]}"
        if self.kind == "choice":
            return f"is one of {', '.join(levels)}"
        return f"is {levels[0]}" if self.values[0] else ""

    def sample(self, count: int, generator: torch.Generator) -> Float[Tensor, " prompt"]:
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        if self.kind == "uniform":
            lo, hi = self.values
            return lo + (hi - lo) * uniform
        levels = torch.tensor(self.values, dtype=torch.float64)
        return levels[(uniform * len(levels)).long().clamp(max=len(levels) - 1)]


def normal(generator: torch.Generator) -> Callable[..., Tensor]:
    """Standard normal numbers of any shape."""
    return partial(torch.randn, generator=generator, dtype=torch.float64)


def _law(value: Any) -> NoiseLaw:
    return value if isinstance(value, NoiseLaw) else NoiseLaw.from_dict(value)


def _law_or_level(value: Any) -> NoiseLaw:
    return _law({"fixed": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value)


NOISE = Rule("a law", lambda v: isinstance(v, NoiseLaw), _law)
NOISE_OR_LEVEL = Rule("a law", lambda v: isinstance(v, NoiseLaw), _law_or_level)  # a number s is short for {"fixed": s}
