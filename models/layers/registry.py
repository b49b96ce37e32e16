"""Layer kinds by name. A kind is one class in one file that registers itself; nothing else has to know it.

A network is a stack of blocks on tokens e_i in R^D, between what makes the tokens and what reads them out:

    "start"   once, before the blocks: the embedding
    "block"   in every block: attention first, then the other kinds by their ``order``
    "end"     once, after the blocks: the read-out

The fields of a layer object are its settings in one network. The canonical checkpoint names them by the kind's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, cast

from jaxtyping import Float

from interp.errors import LayoutError, UsageError, did_you_mean
from interp.models.skipped import Skipped
from interp.models.tensors import Tensor

__all__ = ["LAYERS", "At", "Layer", "Shape", "Site", "Stage", "read_table", "register_layer"]

# The name of a hook point and the value there -> the value that the pass goes on with.
At = Callable[[str, Tensor], Tensor]
Shape = tuple[int | None, ...]  # None: any size of 1 or more
Stage = Literal["start", "block", "end"]
Own = TypeVar("Own", bound="Layer")


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """Where a layer is run: its ``weights`` (those of the block it is run in), the tokens ``before`` the block.

    ``context`` is n in the scales "1/n" and "1/(n+1)": the context tokens, or all tokens of a causal sequence.
    """

    weights: Mapping[str, Tensor]
    at: At
    before: Float[Tensor, "batch pos D"]
    context: int
    residual: bool
    channels: Mapping[str, slice]
    scored: slice  # the tokens that are read out


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What a kind of layer is asked for. A new kind is a frozen dataclass that overrides what is not as here.

    ``points`` are its hook points in order of execution, within the block where it stands in one. ``path`` is where the
    hooked model keeps its tensors. Kinds that are linear in the tokens of a prompt override ``no_map``.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    path: ClassVar[str] = ""
    stage: ClassVar[Stage] = "block"
    order: ClassVar[int] = 0
    points: ClassVar[tuple[str, ...]] = ()
    keeps_channels: ClassVar[bool] = True  # the tokens it hands on still have the channels that the task names

    @classmethod
    def from_dict(cls: type[Own], value: Any) -> Own:
        """Read the kind's field of a checkpoint; what is unknown or of another type is a LayoutError."""
        return cls(**read_table(value, cls.name, [entry.name for entry in dataclasses.fields(cls)]))

    def to_dict(self) -> Any:
        """The kind's field of a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def key(cls, tensor: str) -> str:
        """The name of one of its tensors in the canonical checkpoint."""
        return f"{cls.name}.{tensor}"

    def fits(self, channels: Collection[str], layers: Mapping[str, Layer]) -> None:
        """Raise LayoutError when it cannot stand in a network with these channels and these layers by name."""

    def stream(self, width: int) -> int:
        """The size of the tokens that it hands on, for tokens of ``width`` numbers."""
        return width

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        """Its tensors and their shapes (of one block): ``width`` numbers a token at first, ``stream`` in the blocks."""
        return {}

    def run(self, tokens: Float[Tensor, "batch pos D"], site: Site) -> Float[Tensor, "batch pos_out D_out"]:
        """The tokens after it. Every value at a hook point goes through ``site.at(name, value)``."""
        raise NotImplementedError(f"{type(self).__name__} has no run")

    @property
    def no_map(self) -> Skipped | None:
        """Why a block with it is not one linear map of a token, given the keys; None where it is."""
        return Skipped(f"there is no linear map of a prompt for {self.words}")


LAYERS: dict[str, type[Layer]] = {}
AnyLayer = TypeVar("AnyLayer", bound=type[Layer])


def register_layer(kind: AnyLayer) -> AnyLayer:
    """Make a layer kind known by its ``name``: the decorator of its class, which is a ``Layer``. ``run`` maps tokens
    (batch, pos, D) to tokens. Raises UsageError when the name is taken.

    >>> from dataclasses import dataclass
    >>> from interp import register_layer
    >>> from interp.models.layers import Layer
    >>> @register_layer
    ... @dataclass(frozen=True, kw_only=True)
    ... class Squash(Layer):
    ...     name = "squash"
    ...     words = "a tanh"
    ...     points = ("squash.hook_out",)
    ...     def run(self, tokens, site):
    ...         return site.at("squash.hook_out", tokens.tanh())
    >>> from interp.models.layers import LAYERS
    >>> LAYERS["squash"] is Squash
    True
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or LAYERS.get(name, kind).__qualname__ != kind.__qualname__:
        raise UsageError(f"a layer of the name {name!r} is registered already, or it has none; give it another")
    LAYERS[name] = kind
    return kind


def read_table(value: Any, name: str, known: Collection[str] | None) -> dict[str, Any]:
    """A table of a checkpoint with no other fields than the ``known`` ones (None: with any)."""
    if not isinstance(value, Mapping):
        raise LayoutError(f"{name} is {value!r}, expected a table")
    for key in value:
        if known is not None and key not in known:
            raise LayoutError(f"unknown field {name}.{key}; {did_you_mean(str(key), known)}")
    return dict(cast(Mapping[str, Any], value))
