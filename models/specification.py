"""What a linear transformer is, apart from its weights: tokens, layers and task.

A model is a stack of blocks on tokens e_i in R^D. A token is a list of named channels, e.g. x (size d) and y (size 1).
What the blocks hold is said by the layer kinds (``interp.models.layers``); every block has linear attention. The
dictionaries read and written here are the fields of the canonical checkpoint, version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jaxtyping import Float

from interp.errors import LayoutError, did_you_mean
from interp.models.layers import (
    LAYERS,
    SCALES,
    AttentionSpec,
    Embedding,
    Keys,
    Layer,
    LayerNorm,
    Placement,
    Readout,
    Shape,
    Stage,
)
from interp.models.layers.registry import read_table
from interp.models.numbers import is_number
from interp.models.skipped import Skipped
from interp.models.tensors import Tensor

__all__ = [
    "SCALES",
    "AttentionSpec",
    "Channel",
    "Embedding",
    "Keys",
    "LayerNorm",
    "ModelSpec",
    "Placement",
    "Readout",
]

AnyLayer = TypeVar("AnyLayer", bound=Layer)
MOST_LOOPS = 1000


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A named slice of the token."""

    name: str
    start: int
    size: int

    @property
    def indices(self) -> slice:
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Everything about a model but its weights. ``task`` and ``provenance`` are kept as the file states them.

    ``added``: the layers beside attention and read-out, at most one of a kind, in the order in which they run.
    ``loops``: how often the blocks that a file stores are run, one after the other, as a sequence.
    """

    tokens: tuple[tuple[str, int], ...]
    attention: AttentionSpec = field(default_factory=AttentionSpec)
    residual: bool = True
    clip: float | None = None
    loops: int = 1
    readout: Readout = field(default_factory=Readout)
    added: tuple[Layer, ...] = ()
    task: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tokens:
            raise LayoutError('tokens is empty, expected channels such as [["x", 10], ["y", 1]]')
        names = [name for name, _ in self.tokens]
        if len(set(names)) != len(names):
            raise LayoutError(f"tokens repeats a channel name: {names}; every channel needs its own")
        for name, size in self.tokens:
            if not name or not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise LayoutError(
                    f"tokens has channel {name!r} of size {size!r}, expected a name and a size of 1 or more"
                )
        if not isinstance(self.residual, bool):
            raise LayoutError(f"residual is {self.residual!r}, expected true or false")
        if self.clip is not None and (not is_number(self.clip) or self.clip <= 0):
            raise LayoutError(f"clip is {self.clip!r}, expected null or a positive number")
        if not isinstance(self.loops, int) or isinstance(self.loops, bool) or not 1 <= self.loops <= MOST_LOOPS:
            raise LayoutError(f"loops is {self.loops!r}, expected a whole number from 1 to {MOST_LOOPS}")
        object.__setattr__(self, "added", tuple(sorted(self.added, key=lambda layer: (layer.order, layer.name))))
        layers = {layer.name: layer for layer in self._layers}
        if len(layers) < len(self._layers):
            raise LayoutError(f"the model has two layers of a kind: {[layer.name for layer in self._layers]}")
        for layer in self._layers:
            layer.fits(names, layers)

    @property
    def _layers(self) -> tuple[Layer, ...]:
        return (self.attention, *self.added, self.readout)

    def kinds(self, stage: Stage | None = None) -> list[Layer]:
        """The layers of a stage (None: of all), in the order in which they run."""
        return [layer for layer in self._layers if stage in (None, layer.stage)]

    def find(self, kind: type[AnyLayer]) -> AnyLayer | None:
        """The layer of a kind, if the model has one."""
        return next((layer for layer in self._layers if isinstance(layer, kind)), None)

    @property
    def width(self) -> int:
        """The size of a token as the task makes it, before any embedding."""
        return sum(size for _, size in self.tokens)

    @property
    def stream(self) -> int:
        """D, the size of a token in the blocks."""
        width = self.width
        for layer in self.kinds("start"):
            width = layer.stream(width)
        return width

    @property
    def has_channels(self) -> bool:
        """Whether the tokens in the blocks have the channels that the task names."""
        return all(layer.keeps_channels for layer in self._layers)

    @property
    def no_map(self) -> Skipped | None:
        """Why the model is not one linear map of a token, given the keys of every block; None where it is."""
        reasons = [str(layer.no_map.reason) for layer in self._layers if layer.no_map is not None]
        return Skipped("; ".join(reasons)) if reasons else None

    def tensors(self, layers: int) -> Mapping[str, Shape]:
        """Names and shapes of the tensors beside Q and P; None stands for any size of 1 or more."""
        out: dict[str, Shape] = {}
        for layer in (*self.added, self.readout):
            blocks = (layers,) if layer.stage == "block" else ()
            for short, shape in layer.tensors(self.width, self.stream).items():
                out[layer.key(short)] = (*blocks, *shape)
        return out

    @property
    def block_tensors(self) -> frozenset[str]:
        """The names of the tensors, Q and P among them, that have an entry for every block."""
        sizes = (self.width, self.stream)
        return frozenset(layer.key(short) for layer in self.kinds("block") for short in layer.tensors(*sizes))

    @property
    def channels(self) -> tuple[Channel, ...]:
        out, start = [], 0
        for name, size in self.tokens:
            out.append(Channel(name=name, start=start, size=size))
            start += size
        return tuple(out)

    def channel(self, name: str) -> Channel:
        for candidate in self.channels:
            if candidate.name == name:
                return candidate
        raise LayoutError(f"the tokens have no channel {name!r}; {did_you_mean(name, [c.name for c in self.channels])}")

    def read(self, tokens: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch output"]:
        """What a read-out of a channel makes of tokens: sign * channel, at every position."""
        return self.readout.sign * tokens[..., self.channel(self.readout.channel).indices]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ModelSpec:
        """Read the fields of the canonical checkpoint; an unknown or ill-typed field is a LayoutError."""
        known = {"tokens", "residual", "clip", "loops", "task", "provenance", *LAYERS}
        for key in fields:
            if key not in known:
                raise LayoutError(f"unknown field {key!r} in the model description; {did_you_mean(key, known)}")
        if "tokens" not in fields:
            raise LayoutError('the model description has no "tokens", expected e.g. [["x", 10], ["y", 1]]')
        raw = fields["tokens"]
        if not isinstance(raw, (list, tuple)) or not all(
            isinstance(entry, (list, tuple)) and len(entry) == 2 and isinstance(entry[0], str) for entry in raw
        ):
            raise LayoutError(f'tokens is {raw!r}, expected pairs such as [["x", 10], ["y", 1]]')
        added = [name for name in LAYERS if name not in (AttentionSpec.name, Readout.name)]
        return cls(
            tokens=tuple((str(name), size) for name, size in raw),
            attention=AttentionSpec.from_dict(fields.get("attention", {})),
            residual=fields.get("residual", True),
            clip=fields.get("clip"),
            loops=fields.get("loops", 1),
            readout=Readout.from_dict(fields.get("readout", {})),
            added=tuple(LAYERS[name].from_dict(fields[name]) for name in added if fields.get(name) is not None),
            task=read_table(fields["task"], "task", None) if fields.get("task") is not None else None,
            provenance=read_table(fields.get("provenance", {}), "provenance", None),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields of the canonical checkpoint; ``loops`` and ``added`` layers only where the model has them."""
        return {
            "tokens": [[name, size] for name, size in self.tokens],
            "residual": self.residual,
            "clip": self.clip,
            **({"loops": self.loops} if self.loops > 1 else {}),
            "task": None if self.task is None else dict(self.task),
            "provenance": dict(self.provenance),
            **{layer.name: layer.to_dict() for layer in self._layers},
        }
