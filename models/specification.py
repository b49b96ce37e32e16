"""What a linear transformer is, apart from its weights: tokens, attention, read-out and task.

A model is a stack of attention layers on tokens e_i in R^D. A token is a list of named channels, e.g. x (size d) and
y (size 1). With key set J(i) and scale s, head h of a layer contributes

    s * sum_{j in J(i)} (e_i^T Q_h e_j) P_h e_j ,     Q_h = W_Q^T W_K ,  P_h = W_O W_V                              (1)

to the update of e_i. The dictionaries read and written here are the fields of the canonical checkpoint, version 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from interp.models.errors import LayoutError, did_you_mean
from interp.models.numbers import is_number

__all__ = ["SCALES", "AttentionSpec", "Channel", "Keys", "LayerNorm", "ModelSpec", "Placement", "Readout"]

Keys = Literal["context", "causal", "all"]
SCALES = ("1", "1/n", "1/(n+1)")
Placement = Literal["after-skip", "before-skip"]


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
        if not named and not is_number(self.scale):
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
    """The prediction is ``sign`` times ``channel`` of the query token(s); for causal models, of every token.

    ``flat``: it is ``sign`` times a linear function of all tokens, sum_i <w_i, e_i> + b with the tensors
    "readout.weight" (n + 1, D) and "readout.bias" (1); ``channel`` then says what is predicted.
    """

    channel: str = "y"
    sign: int = -1
    flat: bool = False

    def __post_init__(self) -> None:
        if self.sign not in (-1, 1) or isinstance(self.sign, bool):
            raise LayoutError(f"readout.sign is {self.sign!r}, expected 1 or -1")


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """LN(e) = gain * (e - mean(e)) / sqrt(mean((e - mean(e))^2) + eps) + bias over the D entries of a token.

    ``placement`` "after-skip": e <- LN(e + update); "before-skip": e <- e + LN(e + update). With ``affine`` there are
    tensors "layernorm.gain" and "layernorm.bias", (L, D) each; without, gain is 1 and bias 0.
    """

    placement: Placement = "after-skip"
    eps: float = 1e-5
    affine: bool = False

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> LayerNorm:
        """Read the table of a checkpoint; what is of another kind is a LayoutError."""
        placement, eps, affine = (fields.get(key, getattr(cls, key)) for key in ("placement", "eps", "affine"))
        if placement not in get_args(Placement):
            raise LayoutError(
                f"layernorm.placement is {placement!r}, expected {' or '.join(map(repr, get_args(Placement)))}"
            )
        if not is_number(eps) or eps < 0:
            raise LayoutError(f"layernorm.eps is {eps!r}, expected a finite number of 0 or more")
        if not isinstance(affine, bool):
            raise LayoutError(f"layernorm.affine is {affine!r}, expected true or false")
        return cls(placement=placement, eps=float(eps), affine=affine)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Everything about a model but its weights. ``task`` and ``provenance`` are kept as the file states them."""

    tokens: tuple[tuple[str, int], ...]
    attention: AttentionSpec = field(default_factory=AttentionSpec)
    residual: bool = True
    clip: float | None = None
    readout: Readout = field(default_factory=Readout)
    embedding: int | None = None  # D, where tokens are first mapped to another size by an affine map
    layernorm: LayerNorm | None = None
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
        if self.readout.channel not in names:
            raise LayoutError(
                f"readout.channel is {self.readout.channel!r}; {did_you_mean(self.readout.channel, names)}"
            )
        if self.embedding is not None and not self.readout.flat:
            raise LayoutError(
                "the tokens are embedded but readout.flat is false, expected true: embedded tokens have no channel "
                f"{self.readout.channel!r} to read out"
            )
        if self.readout.flat and self.attention.keys == "causal":
            raise LayoutError("readout.flat is true and attention.keys 'causal', expected keys 'context' or 'all'")

    @property
    def width(self) -> int:
        """The size of a token as the task makes it, before any embedding."""
        return sum(size for _, size in self.tokens)

    @property
    def stream(self) -> int:
        """D, the size of a token in the attention layers."""
        return self.width if self.embedding is None else self.embedding

    @property
    def additions(self) -> tuple[str, ...]:
        """What the model has beside attention layers, in words; empty for the models of section 2 of the design."""
        parts = {
            "an embedding": self.embedding is not None,
            "LayerNorm": self.layernorm is not None,
            "a flat read-out": self.readout.flat,
        }
        return tuple(name for name, there in parts.items() if there)

    def tensors(self, layers: int) -> Mapping[str, tuple[int | None, ...]]:
        """Names and shapes of the tensors beside Q and P; None stands for any size of 1 or more."""
        D, out = self.stream, dict[str, tuple[int | None, ...]]()
        if self.embedding is not None:
            out |= {"embedding.weight": (D, self.width), "embedding.bias": (D,)}
        if self.layernorm is not None and self.layernorm.affine:
            out |= {"layernorm.gain": (layers, D), "layernorm.bias": (layers, D)}
        if self.readout.flat:
            out |= {"readout.weight": (None, D), "readout.bias": (1,)}
        return out

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
        known = {
            "tokens", "attention", "residual", "clip", "readout", "embedding", "layernorm", "task", "provenance",
        }  # fmt: skip
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
        readout = _table(fields, "readout", {"channel", "sign", "flat"})
        if not isinstance(readout.get("flat", False), bool):
            raise LayoutError(f"readout.flat is {readout['flat']!r}, expected true or false")
        embedding = fields.get("embedding")
        if embedding is not None and (not isinstance(embedding, int) or isinstance(embedding, bool) or embedding < 1):
            raise LayoutError(f"embedding is {embedding!r}, expected null or a width, a whole number of 1 or more")
        return cls(
            tokens=tuple((str(name), size) for name, size in raw),
            attention=AttentionSpec(**_table(fields, "attention", {"keys", "scale"})),
            residual=fields.get("residual", True),
            clip=fields.get("clip"),
            readout=Readout(**readout),
            embedding=embedding,
            layernorm=LayerNorm.from_dict(_table(fields, "layernorm", {"placement", "eps", "affine"}))
            if fields.get("layernorm") is not None
            else None,
            task=_table(fields, "task", None) if fields.get("task") is not None else None,
            provenance=_table(fields, "provenance", None),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields of the canonical checkpoint; those of ``additions`` only where the model has them."""
        out: dict[str, Any] = {
            "tokens": [[name, size] for name, size in self.tokens],
            "attention": {"keys": self.attention.keys, "scale": self.attention.scale},
            "residual": self.residual,
            "clip": self.clip,
            "readout": {"channel": self.readout.channel, "sign": self.readout.sign},
            "task": None if self.task is None else dict(self.task),
            "provenance": dict(self.provenance),
        }
        if self.readout.flat:
            out["readout"]["flat"] = True
        if self.embedding is not None:
            out["embedding"] = self.embedding
        if self.layernorm is not None:
            out["layernorm"] = dataclasses.asdict(self.layernorm)
        return out


def _table(fields: Mapping[str, Any], name: str, known: set[str] | None) -> dict[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise LayoutError(f"{name} is {value!r}, expected a table")
    for key in value:
        if known is not None and key not in known:
            raise LayoutError(f"unknown field {name}.{key}; {did_you_mean(str(key), known)}")
    return dict(cast(Mapping[str, Any], value))
