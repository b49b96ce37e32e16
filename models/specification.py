"""What a linear transformer is, apart from its weights: tokens, attention, read-out and task.

A model is a stack of attention layers on tokens e_i in R^D. A token is a list of named channels, e.g. x (size d) and
y (size 1). With key set J(i) and scale s, head h of a layer contributes

    s * sum_{j in J(i)} (e_i^T Q_h e_j) P_h e_j ,     Q_h = W_Q^T W_K ,  P_h = W_O W_V                              (1)

to the update of e_i. The dictionaries read and written here are the fields of the canonical checkpoint, version 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from interp.models.errors import LayoutError, did_you_mean

__all__ = ["SCALES", "AttentionSpec", "Channel", "Keys", "ModelSpec", "Readout"]

Keys = Literal["context", "causal", "all"]
SCALES = ("1", "1/n", "1/(n+1)")


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
class AttentionSpec:
    """Which tokens are attended to, and the factor s in front of the sum."""

    keys: Keys = "context"
    scale: str | float | int = "1"

    def __post_init__(self) -> None:
        if self.keys not in get_args(Keys):
            raise LayoutError(
                f"attention.keys is {self.keys!r}, expected one of {', '.join(get_args(Keys))}; "
                f"{did_you_mean(str(self.keys), get_args(Keys))}"
            )
        named = isinstance(self.scale, str) and self.scale in SCALES
        number = isinstance(self.scale, (int, float)) and not isinstance(self.scale, bool)
        if not named and not (number and math.isfinite(self.scale)):  # type: ignore[arg-type]
            raise LayoutError(
                f"attention.scale is {self.scale!r}, expected {', '.join(map(repr, SCALES))} or a finite number"
            )

    def factor(self, context: int) -> float:
        """The scale s for a prompt of ``context`` context tokens."""
        if isinstance(self.scale, str):
            return {"1": 1.0, "1/n": 1.0 / context, "1/(n+1)": 1.0 / (context + 1)}[self.scale]
        return float(self.scale)


@dataclass(frozen=True, kw_only=True)
class Readout:
    """The prediction is ``sign`` times ``channel`` of the query token(s); for causal models, of every token."""

    channel: str = "y"
    sign: int = -1

    def __post_init__(self) -> None:
        if self.sign not in (-1, 1) or isinstance(self.sign, bool):
            raise LayoutError(f"readout.sign is {self.sign!r}, expected 1 or -1")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Everything about a model but its weights. ``task`` and ``provenance`` are kept as the file states them."""

    tokens: tuple[tuple[str, int], ...]
    attention: AttentionSpec = field(default_factory=AttentionSpec)
    residual: bool = True
    clip: float | None = None
    readout: Readout = field(default_factory=Readout)
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
        if self.clip is not None and not (
            isinstance(self.clip, (int, float)) and not isinstance(self.clip, bool) and self.clip > 0
        ):
            raise LayoutError(f"clip is {self.clip!r}, expected null or a positive number")
        if self.readout.channel not in names:
            raise LayoutError(
                f"readout.channel is {self.readout.channel!r}; {did_you_mean(self.readout.channel, names)}"
            )

    @property
    def width(self) -> int:
        """D, the size of a token."""
        return sum(size for _, size in self.tokens)

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

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ModelSpec:
        """Read the fields of the canonical checkpoint; an unknown or ill-typed field is a LayoutError."""
        known = {"tokens", "attention", "residual", "clip", "readout", "task", "provenance"}
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
        return cls(
            tokens=tuple((str(name), size) for name, size in raw),
            attention=AttentionSpec(**_table(fields, "attention", {"keys", "scale"})),
            residual=fields.get("residual", True),
            clip=fields.get("clip"),
            readout=Readout(**_table(fields, "readout", {"channel", "sign"})),
            task=_table(fields, "task", None) if fields.get("task") is not None else None,
            provenance=_table(fields, "provenance", None),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "tokens": [[name, size] for name, size in self.tokens],
            "attention": {"keys": self.attention.keys, "scale": self.attention.scale},
            "residual": self.residual,
            "clip": self.clip,
            "readout": {"channel": self.readout.channel, "sign": self.readout.sign},
            "task": None if self.task is None else dict(self.task),
            "provenance": dict(self.provenance),
        }


def _table(fields: Mapping[str, Any], name: str, known: set[str] | None) -> dict[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise LayoutError(f"{name} is {value!r}, expected a table")
    for key in value:
        if known is not None and key not in known:
            raise LayoutError(f"unknown field {name}.{key}; {did_you_mean(str(key), known)}")
    return dict(cast(Mapping[str, Any], value))
