"""Importers: descriptions, in TOML, of how a foreign file's tensors make a canonical model.

A description has the fields of the canonical checkpoint, a table ``[weights]`` with an expression each for Q and P
(``interp.checkpoints.expressions``), and optionally ``[tensors]``, the names and shapes of the file it is for. Sizes of
channels and the task's dim, context and weight_std may depend on the token size D ("D-1"). The built-in layouts are
such files in ``layouts/``. A description without ``[weights]`` may hold ``[task]`` alone: it sets the task of a file
whose layout is known otherwise.
"""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from interp.checkpoints.arrays import FLOATS, ArrayFile
from interp.checkpoints.expressions import BoundExpression, WeightExpression, parse_weights
from interp.checkpoints.grammar import number
from interp.checkpoints.slips import HeadLayout
from interp.checkpoints.stored import MEMORY
from interp.checkpoints.weight_tree import SIDE_BY_SIDE
from interp.errors import LayoutError, UnreadableFile, UsageError, did_you_mean
from interp.models.specification import ModelSpec
from interp.models.tensors import Tensor
from interp.models.transformer import LinearTransformer, check_shapes

__all__ = ["Import", "Layout", "builtin_layouts", "detect", "read_description", "task_fields"]

SPEC_FILE = "spec file"  # the name of a layout that is not built in
MOST_HEADS = 16  # that are looked for side by side
_SIZE_LIMIT = 1_000_000  # bytes of a description
_OF_D = ("dim", "context", "weight_std")  # of a task: may depend on D
_FIELDS = {"tokens", "attention", "residual", "clip", "loops", "readout", "task", "provenance"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A description, read but not yet applied to a file."""

    name: str
    description: str
    fields: Mapping[str, Any]  # of the canonical checkpoint, some depending on D
    Q: WeightExpression
    P: WeightExpression
    tensors: Mapping[str, tuple[int | str, ...]] | None

    def fits(self, arrays: ArrayFile) -> bool:
        """Whether the file has ``tensors`` by name and shape; a letter stands for one size throughout."""
        sizes: dict[str, int] = {}
        for name, pattern in (self.tensors or {}).items():
            info = arrays.arrays.get(name)
            if info is None or info.dtype not in FLOATS or len(info.shape) != len(pattern):
                return False
            for want, size in zip(pattern, info.shape, strict=True):
                if size < 1 or (sizes.setdefault(want, size) if isinstance(want, str) else want) != size:
                    return False
        return True


@dataclass(frozen=True, kw_only=True)
class Import:
    """A layout applied to a file: what the model is, before its weights are read."""

    layout: Layout
    arrays: ArrayFile
    spec: ModelSpec
    Q: BoundExpression
    P: BoundExpression
    dtype: str  # of the file's tensors, the widest if they differ
    shape: tuple[int, ...]  # of Q and of P: (layers, heads, D, D)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the arrays that it reads."""
        return tuple(dict.fromkeys(self.Q.tensors + self.P.tensors))

    @classmethod
    def bind(cls, layout: Layout, arrays: ArrayFile) -> Import:
        """Apply a layout to a file's header. Raises LayoutError when they do not fit."""
        if not layout.fits(arrays):
            wanted = ", ".join(f"{n} ({', '.join(map(str, s))})" for n, s in (layout.tensors or {}).items())
            raise LayoutError(
                f"layout {layout.name!r} is for floating-point {wanted}, but {arrays.path} holds {arrays.seen()}"
            )
        shapes = {name: info.shape for name, info in arrays.arrays.items()}
        Q, P = layout.Q.bind(shapes), layout.P.bind(shapes)
        used = tuple(dict.fromkeys(Q.tensors + P.tensors))
        if not used:
            both = f"neither {Q.expression.text!r} nor {P.expression.text!r}"
            raise LayoutError(f"{both} names a tensor of {arrays.path}")
        for name in used:
            if arrays.arrays[name].dtype not in FLOATS:
                raise LayoutError(
                    f"{name!r} in {arrays.path} is {arrays.arrays[name].dtype}, expected one of {', '.join(FLOATS)}"
                )
        import torch

        dtypes = (getattr(torch, arrays.arrays[name].dtype) for name in used)
        # On the meta device tensors have a shape and no data: the same code as for the weights finds the sizes.
        empty = {name: torch.empty(shapes[name], dtype=torch.float64, device="meta") for name in used}
        q, p = _matrices(Q, P, empty)
        spec = _specification(layout, q.shape[-1])
        check_shapes(spec, {"Q": tuple(q.shape), "P": tuple(p.shape)})
        if 16 * math.prod(q.shape) > MEMORY:
            raise LayoutError(f"Q is {tuple(q.shape)}, over {MEMORY} bytes with P; is this a linear transformer?")
        dtype = str(functools.reduce(torch.promote_types, dtypes)).removeprefix("torch.")
        return cls(layout=layout, arrays=arrays, spec=spec, Q=Q, P=P, dtype=dtype, shape=tuple(q.shape))

    def load(self) -> tuple[LinearTransformer, tuple[str, ...]]:
        """The model, and notes on how its weights were made.

        Expressions are evaluated in float64. The result is kept in the file's dtype when that loses nothing, as with
        transposes and signs, else (products of low-precision factors) in float64.
        """
        import torch

        loaded = self.arrays.load(dict.fromkeys(self.Q.tensors + self.P.tensors))
        q, p = _matrices(self.Q, self.P, {name: tensor.double() for name, tensor in loaded.items()})
        dtype = getattr(torch, self.dtype)
        notes = [f"Q = {self.Q.expression.text}, P = {self.P.expression.text}"]
        if all(torch.equal(value.to(dtype).double().nan_to_num(), value.nan_to_num()) for value in (q, p)):
            q, p = q.to(dtype), p.to(dtype)
        else:
            notes.append(f"Q and P are kept in float64: as {self.dtype} they would be rounded")
        return LinearTransformer.unrolled(self.spec, {"Q": q.contiguous(), "P": p.contiguous()}), tuple(notes)

    def head_layouts(self) -> tuple[HeadLayout, ...]:
        """The other ways in which heads can lie side by side in the file's matrices, and the models read so. There are
        none where the description tells heads apart in another way."""
        expressions = (self.layout.Q, self.layout.P)
        if self.shape[1] > 1 and not all(expression.side_by_side for expression in expressions):
            return ()
        shapes = {name: info.shape for name, info in self.arrays.arrays.items()}
        loaded = {name: tensor.double() for name, tensor in self.arrays.load(self.used).items()}
        own, _ = _matrices(self.Q, self.P, loaded)
        found: list[HeadLayout] = []
        for count, sign in product(range(1, MOST_HEADS + 1), SIDE_BY_SIDE):
            said_Q, said_P = (expression.with_heads(sign, count) for expression in expressions)
            if said_Q.root == self.layout.Q.root or said_P.root == self.layout.P.root:
                continue
            with suppress(LayoutError):  # the rows are not those of so many heads
                q, p = _matrices(said_Q.bind(shapes), said_P.bind(shapes), loaded)
                if not (q.shape == own.shape and q.equal(own)):
                    weights = {"Q": q.contiguous(), "P": p.contiguous()}
                    words = f"{count} head{'s' * (count > 1)} side by side, {sign}(…, {count}) in the description"
                    found.append((words, LinearTransformer.unrolled(self.spec, weights)))
        return tuple(found)


def builtin_layouts() -> dict[str, Layout]:
    """The layouts that ship with the package, by name."""
    folder = Path(__file__).parent / "layouts"
    return {
        path.stem: _layout(path.stem, path.stem, tomllib.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.toml"))
    }


def detect(arrays: ArrayFile) -> Layout:
    """The one built-in layout whose tensors are exactly those of the file.

    Raises LayoutError, saying what the file holds and what to supply, when there is none or more than one.
    """
    layouts = builtin_layouts()
    names = {name for name, info in arrays.arrays.items() if info.is_weight}
    matches = [entry.name for entry in layouts.values() if entry.fits(arrays) and set(entry.tensors or ()) == names]
    factor = re.fullmatch(r"(.*[\W_])?w?_?(q|k|v|o|query|key|value|out|output)", arrays.path.stem.lower())
    if arrays.format.startswith("npy") and factor is not None:
        matches = []  # a lone array is called W, whatever it is
    if len(matches) == 1:
        return layouts[matches[0]]
    supply = (
        "supply --spec FILE.toml with tokens, attention, readout and [weights] "
        f'such as Q = "W_q.T @ W_k", P = "I", or --spec NAME of a built-in layout: {", ".join(layouts)}'
    )
    if matches:
        raise LayoutError(
            f"{arrays.path} holds {arrays.seen()}, which fits several layouts: {', '.join(matches)}; {supply}"
        )
    raise LayoutError(f"the layout of {arrays.path} is not known: it holds {arrays.seen()}; {supply}")


def read_description(reference: str) -> Layout | Mapping[str, Any]:
    """The layout a ``--spec`` argument means: a TOML file, or the name of a built-in. A file without ``[weights]``
    gives the fields of its ``[task]`` instead.

    Raises UsageError if it is neither, UnreadableFile or LayoutError if the file is not a description.
    """
    if not os.path.exists(reference):
        layouts = builtin_layouts()
        if reference in layouts:
            return layouts[reference]
        raise UsageError(
            f"--spec {reference}: no such file and no such built-in layout; {did_you_mean(reference, layouts)}"
        )
    try:
        with open(reference, "rb") as file:
            content = file.read(_SIZE_LIMIT + 1)
    except OSError as error:
        raise UnreadableFile(f"--spec {reference} cannot be read: {error.strerror}; expected a TOML file") from error
    try:
        if len(content) > _SIZE_LIMIT:
            raise ValueError(f"it is larger than {_SIZE_LIMIT} bytes")
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a TOML or UTF-8 error is a ValueError
        reason = " ".join(str(error).split())
        raise LayoutError(f"--spec {reference} is not a TOML description: {reason}") from error
    if "weights" in document:
        return _layout(SPEC_FILE, reference, document)
    if set(document) != {"task"} or not isinstance(document["task"], Mapping):
        raise LayoutError(
            f"--spec {reference} has no [weights] table saying how Q and P are made; "
            f"without it, it may hold [task] alone, but it holds {', '.join(sorted(document)) or 'nothing'}"
        )
    return document["task"]


def task_fields(fields: Mapping[str, Any], D: int) -> dict[str, Any]:
    """A task as a description states it, its numbers worked out for token size ``D``."""
    told = {key: value for key, value in fields.items() if key in _OF_D and isinstance(value, str)}
    return {**fields, **{key: number(value, f"task.{key}", D) for key, value in told.items()}}


def _layout(name: str, where: str, document: Mapping[str, Any]) -> Layout:
    known = _FIELDS | {"weights", "tensors", "description"}
    for key in document:
        if key not in known:
            raise LayoutError(f"{where}: unknown field {key!r}; {did_you_mean(key, known)}")
    weights = document["weights"]
    named = isinstance(weights, Mapping) and set(weights) == {"Q", "P"}
    if not named or not all(isinstance(text, str) for text in weights.values()):
        raise LayoutError(f'{where}: weights is {weights!r}, expected expressions Q and P, such as Q = "W.T", P = "I"')
    if "tokens" not in document:
        raise LayoutError(f'{where} has no tokens, expected e.g. tokens = [["x", "D-1"], ["y", 1]]')
    tensors = document.get("tensors")
    if tensors is not None and not (
        isinstance(tensors, Mapping) and all(_is_shape(shape) for shape in tensors.values()) and tensors
    ):
        raise LayoutError(f'{where}: tensors is {tensors!r}, expected shapes by name, such as W = ["D", "D"]')
    return Layout(
        name=name,
        description=str(document.get("description", "")),
        fields={key: document[key] for key in document if key in _FIELDS},
        Q=parse_weights(weights["Q"], "weights.Q"),
        P=parse_weights(weights["P"], "weights.P"),
        tensors=None if tensors is None else {key: tuple(shape) for key, shape in tensors.items()},
    )


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(size, (int, str)) for size in value)


def _specification(layout: Layout, D: int) -> ModelSpec:
    fields = dict(layout.fields)
    if isinstance(fields["tokens"], list):
        fields["tokens"] = [_channel(entry, D) for entry in fields["tokens"]]
    if isinstance(fields.get("task"), Mapping):
        fields["task"] = task_fields(fields["task"], D)
    return ModelSpec.from_dict(fields)


def _channel(entry: Any, D: int) -> Any:
    if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str):
        return [entry[0], number(entry[1], f"the size of channel {entry[0]!r}", D)]
    return entry


def _matrices(Q: BoundExpression, P: BoundExpression, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Q and P, each (layers, heads, D, D). A number stands for that multiple of the identity."""
    import torch

    values = [Q.evaluate(tensors), P.evaluate(tensors)]
    known = [value for value in values if isinstance(value, torch.Tensor)]
    sides = {size for value in known for size in value.shape[-2:]}
    if len(sides) != 1:
        shown = " and ".join(
            f"{e.expression.where} gives {tuple(v.shape)}"
            for e, v in zip((Q, P), values, strict=True)
            if isinstance(v, torch.Tensor)
        )
        raise LayoutError(f"{shown or 'no matrix at all'}, expected square matrices of one size")
    (D,) = sides
    identity = torch.eye(D, dtype=torch.float64, device=known[0].device)
    full = [value if isinstance(value, torch.Tensor) else (value * identity)[None, None] for value in values]
    try:
        counts = torch.broadcast_shapes(*(value.shape[:2] for value in full))
    except RuntimeError as error:
        raise LayoutError(
            f"weights.Q gives {tuple(full[0].shape)} and weights.P {tuple(full[1].shape)}, "
            "expected the same layers and heads"
        ) from error
    if math.prod(counts) == 0:
        raise LayoutError(f"the file has {counts[0]} layers and {counts[1]} heads, expected at least one of each")
    return full[0].expand(*counts, D, D), full[1].expand(*counts, D, D)
