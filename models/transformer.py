"""The one canonical model: a specification and the two weight tensors Q and P."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import LayoutError, UnreadableFile
from interp.models.specification import ModelSpec

__all__ = ["LinearTransformer"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearTransformer:
    """A linear transformer. ``Q[l, h]`` is [destination channel, source channel], ``P[l, h]`` is [output channel,
    source channel], both D x D, so that a layer updates e_i by s * sum_h sum_j (e_i^T Q_h e_j) P_h e_j.

    Only the products matter to the network: Q = W_Q^T W_K and P = W_O W_V.
    """

    spec: ModelSpec
    Q: Float[Tensor, "layer head channel channel"]
    P: Float[Tensor, "layer head channel channel"]

    def __post_init__(self) -> None:
        for name, value in (("Q", self.Q), ("P", self.P)):
            if value.ndim != 4 or min(value.shape) < 1:
                raise LayoutError(
                    f"{name} has shape {tuple(value.shape)}, expected (layers, heads, D, D), none of them 0"
                )
            if value.shape[2:] != (self.spec.width, self.spec.width):
                raise LayoutError(
                    f"{name} has shape {tuple(value.shape)}, but the channels {dict(self.spec.tokens)} add up to "
                    f"D = {self.spec.width}; expected (layers, heads, {self.spec.width}, {self.spec.width})"
                )
            if not value.is_floating_point():
                raise LayoutError(f"{name} has dtype {value.dtype}, expected floating point")
        if self.Q.shape != self.P.shape:
            raise LayoutError(f"Q has shape {tuple(self.Q.shape)} and P {tuple(self.P.shape)}, expected the same")

    @property
    def layers(self) -> int:
        return self.Q.shape[0]

    @property
    def heads(self) -> int:
        return self.Q.shape[1]

    def to(self, dtype: torch.dtype) -> LinearTransformer:
        """The same model in another precision; analysis is done in float64."""
        return LinearTransformer(spec=self.spec, Q=self.Q.to(dtype), P=self.P.to(dtype))

    def require_finite(self) -> LinearTransformer:
        """Raise UnreadableFile naming the first tensor and layer that hold NaN or Inf."""
        for name, value in (("Q", self.Q), ("P", self.P)):
            bad = ~torch.isfinite(value)
            if bool(bad.any()):
                layer, head = torch.nonzero(bad)[0, :2].tolist()
                raise UnreadableFile(
                    f"{int(bad.sum())} of {value.numel()} values of {name} are NaN or infinite (first in layer "
                    f"{layer}, head {head}); expected finite weights, so the training run that wrote them has diverged"
                )
        return self
