"""The one canonical model: a specification, the two weight tensors Q and P, and what else it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jaxtyping import Float

from interp.errors import LayoutError, UnreadableFile, did_you_mean
from interp.models.specification import ModelSpec
from interp.models.tensors import Tensor

if TYPE_CHECKING:
    import torch

__all__ = ["LinearTransformer", "check_shapes"]

MOST_NUMBERS = 2**24  # of a tensor, in all passes of a looped network
VANISHING = -230.0  # logarithm of a size: 1e-100, far below what trained weights of any precision have


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearTransformer:
    """A linear transformer. ``Q[l, h]`` is [destination channel, source channel], ``P[l, h]`` is [output channel,
    source channel], both D x D, so that a layer updates e_i by s * sum_h sum_j (e_i^T Q_h e_j) P_h e_j.

    Only the products matter to the network: Q = W_Q^T W_K and P = W_O W_V. ``tensors`` are those that the
    specification asks for beside them, by name (see ``ModelSpec.tensors``); most models have none.

    In a looped network (``spec.loops`` above 1) every pass has its own entry in ``Q``, ``P`` and the tensors of the
    blocks: ``unrolled`` makes them of those that are stored, and ``stored`` gives these back.
    """

    spec: ModelSpec
    Q: Float[Tensor, "layer head channel channel"]
    P: Float[Tensor, "layer head channel channel"]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_shapes(self.spec, {name: tuple(value.shape) for name, value in self.named()})
        for name, value in self.named():
            if not value.is_floating_point():
                raise LayoutError(f"{name} has dtype {value.dtype}, expected floating point")
        if self.layers % self.spec.loops:
            raise LayoutError(
                f"Q has {self.layers} layers, but loops is {self.spec.loops}; expected every layer of every pass, as "
                "LinearTransformer.unrolled makes them"
            )

    @classmethod
    def unrolled(cls, spec: ModelSpec, weights: Mapping[str, Tensor]) -> LinearTransformer:
        """The model of stored tensors, Q and P among them: its layers, as a sequence, ``spec.loops`` times."""
        tensors = dict(weights)
        for name in spec.block_tensors if spec.loops > 1 else ():
            if spec.loops * weights[name].numel() > MOST_NUMBERS:
                raise LayoutError(f"loops is {spec.loops}, which makes more than {MOST_NUMBERS} numbers of {name}")
            tensors[name] = weights[name].repeat(spec.loops, *[1] * (weights[name].ndim - 1))
        return cls(spec=spec, Q=tensors.pop("Q"), P=tensors.pop("P"), tensors=tensors)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor as a canonical checkpoint holds it, the blocks of one pass. Raises LayoutError when the passes
        differ."""
        for name, value in self.named():
            if self.spec.loops > 1 and name in self.spec.block_tensors:
                first, *others = value.chunk(self.spec.loops)
                if not all(first.equal(other) for other in others):
                    raise LayoutError(
                        f"loops is {self.spec.loops}, but {name} differs between passes; expected loops 1"
                    )
                value = first
            yield name, value

    @property
    def layers(self) -> int:
        return self.Q.shape[0]

    @property
    def heads(self) -> int:
        return self.Q.shape[1]

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return sum(value.numel() for _, value in self.stored())

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by its name in the canonical checkpoint, Q and P first."""
        yield from (("Q", self.Q), ("P", self.P), *self.tensors.items())

    def to(self, dtype: torch.dtype) -> LinearTransformer:
        """The same model in another precision; analysis is done in float64."""
        tensors = {name: value.to(dtype) for name, value in self.tensors.items()}
        return replace(self, Q=self.Q.to(dtype), P=self.P.to(dtype), tensors=tensors)

    def require_maps(self, wanted: str) -> None:
        """Raise LayoutError unless every layer is a linear map of a token, given the keys, as ``wanted`` needs it."""
        if self.spec.no_map is not None:
            raise LayoutError(
                f"{self.spec.no_map.reason}; expected attention layers alone, which {wanted} describes in full. "
                "interp-probe CHECKPOINT and interp-probe inspect read such a model"
            )

    def require_finite(self) -> LinearTransformer:
        """Raise UnreadableFile naming the first tensor and place that hold NaN or Inf."""
        for name, value in self.named():
            bad = ~value.isfinite()
            if bool(bad.any()):
                place = bad.nonzero()[0].tolist()
                where = f"layer {place[0]}, head {place[1]}" if name in ("Q", "P") else f"at {place}"
                raise UnreadableFile(
                    f"{int(bad.sum())} of {value.numel()} values of {name} are NaN or infinite (first in {where}); "
                    "expected finite weights, so the training run that wrote them has diverged"
                )
        return self

    def without_vanishing_heads(self) -> LinearTransformer:
        """The same function to rounding, with heads so small that squares of what they do are no numbers set to 0."""
        size = self.Q.abs().amax((-2, -1)).log() + self.P.abs().amax((-2, -1)).log()
        gone = (size.isfinite() & (size < VANISHING))[..., None, None]
        return self if not bool(gone.any()) else replace(self, P=self.P.masked_fill(gone, 0.0))


def check_shapes(spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise LayoutError unless tensors of these names and shapes, Q and P among them, make a model of ``spec``."""
    D = spec.stream
    for name in ("Q", "P"):
        shape = shapes[name]
        if len(shape) != 4 or min(shape) < 1:
            raise LayoutError(f"{name} has shape {shape}, expected (layers, heads, D, D), none of them 0")
        if shape[2:] != (D, D):
            origin = f"channels {dict(spec.tokens)} add up" if spec.has_channels else "embedding leads"
            raise LayoutError(
                f"{name} has shape {shape}, but the {origin} to D = {D}; expected (layers, heads, {D}, {D})"
            )
    if shapes["Q"] != shapes["P"]:
        raise LayoutError(f"Q has shape {shapes['Q']} and P {shapes['P']}, expected the same")
    wanted = spec.tensors(shapes["Q"][0])
    for name in shapes.keys() - wanted.keys() - {"Q", "P"}:
        hint = did_you_mean(name, wanted) if wanted else "expected Q and P alone"
        raise LayoutError(f"the model has a tensor {name!r} that its fields do not ask for; {hint}")
    for name, want in wanted.items():
        if name not in shapes:
            raise LayoutError(f"the model has no tensor {name!r}, which its fields ask for, of shape {_words(want)}")
        fits = [size == most or (most is None and size > 0) for size, most in zip(shapes[name], want, strict=False)]
        if len(shapes[name]) != len(want) or not all(fits):
            raise LayoutError(f"{name} has shape {shapes[name]}, expected {_words(want)}")


def _words(shape: tuple[int | None, ...]) -> str:
    sizes = ["any" if size is None else str(size) for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
