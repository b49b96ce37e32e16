"""A tiny language that says how Q and P are made from the tensors of a file. It is parsed here, never run as code.

    product := factor (("@" | "*") factor)*        "@" matrix product; "*" needs a number on one side
    factor  := "-" factor | atom ".T"*             ".T" transposes the last two axes
    atom    := number | "I" | name [ "[" index ("," index)* "]" ] | "(" product ")"
               | "pad" "(" product "," number ")" | ("heads" | "interleaved") "(" product "," integer ")"
    index   := integer | "l" | "h" | [integer] ":" [integer]     "l", "h": the layer and the head being made

A name is bare (``layers.0.W_q``) or quoted (``'blocks/~/q'``, needed when it holds other characters or ends in ``.T``);
``{l}`` and ``{h}`` in it stand for the number of the layer and the head. ``a:b`` is a slice, as in Python.
``pad(A, v)`` is diag(A, v), in blocks. ``heads(A, n)``, of the rows of n heads one below the other, is those of each
head; ``heads(A.T, n).T`` of their columns. ``interleaved(A, n)``: the first rows of all heads come first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from interp.checkpoints.stored import MEMORY
from interp.checkpoints.weight_tree import (
    SIDE_BY_SIDE,
    Name,
    Node,
    Product,
    Scalar,
    Slice,
    Unary,
    leaves,
    parse,
    side_by_side,
    with_heads,
)
from interp.errors import LayoutError, did_you_mean
from interp.models.tensors import Tensor

__all__ = ["BoundExpression", "WeightExpression", "parse_weights"]


def parse_weights(text: str, where: str) -> WeightExpression:
    """Read an expression; ``where`` names it in messages, e.g. "weights.Q". Raises LayoutError."""
    return WeightExpression(text=text, where=where, root=parse(text, where))


@dataclass(frozen=True, kw_only=True)
class WeightExpression:
    """A parsed expression. ``bind`` finds its tensors in a file, ``BoundExpression.evaluate`` computes it."""

    text: str
    where: str
    root: Node

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> BoundExpression:
        """Find the tensors it names among ``shapes``; raises LayoutError for one that is not there."""
        names: dict[str, dict[tuple[int, int], str]] = {}
        extents: dict[str, dict[str, int]] = {"l": {}, "h": {}}  # how many, by who says so
        for leaf in leaves(self.root):
            found = names.setdefault(leaf.pattern, self._matches(leaf.pattern, shapes))
            for axis, letter in enumerate("lh"):
                if "{" + letter + "}" in leaf.pattern:
                    extents[letter][leaf.pattern] = len({key[axis] for key in found})
            if leaf.index:
                self._check_index(leaf, {shapes[name] for name in found.values()}, extents)
        for n in side_by_side(self.root):
            extents["h"][f"side by side, {n}"] = n
        counts = {}
        for letter, said in extents.items():
            if len(set(said.values())) > 1:
                kind = {"l": "layers", "h": "heads"}[letter]
                raise LayoutError(
                    f"{self.where} = {self.text!r}: the number of {kind} differs: "
                    + ", ".join(f"{n} in {pattern!r}" for pattern, n in said.items())
                )
            counts[letter] = next(iter(said.values()), None)
        return BoundExpression(expression=self, names=names, layers=counts["l"], heads=counts["h"])

    @property
    def side_by_side(self) -> bool:
        """Whether it says of heads that they lie side by side."""
        return bool(side_by_side(self.root))

    def with_heads(self, sign: str, count: int) -> WeightExpression:
        """The same with ``count`` heads side by side, laid out as ``sign`` of ``SIDE_BY_SIDE`` says."""
        return replace(self, root=with_heads(self.root, sign, count))

    def _matches(self, pattern: str, shapes: Iterable[str]) -> dict[tuple[int, int], str]:
        """The tensors a pattern stands for, by (layer, head) counted from 0; without {l} or {h} that number is 0."""
        letters = [letter for letter in "lh" if f"{{{letter}}}" in pattern]
        if not letters:
            if pattern in shapes:
                return {(0, 0): pattern}
            raise LayoutError(
                f"{self.where} = {self.text!r} names the tensor {pattern!r}, which the file does not hold; "
                + did_you_mean(pattern, shapes)
            )
        regex = re.escape(pattern)
        for letter in letters:  # the first time any number, then the same one
            regex = regex.replace(rf"\{{{letter}\}}", f"(?P<{letter}>[0-9]+)", 1)
            regex = regex.replace(rf"\{{{letter}\}}", f"(?P={letter})")
        matches = [match for match in (re.fullmatch(regex, name) for name in shapes) if match]
        numbered = {tuple(int(m.groupdict().get(letter, 0)) for letter in "lh"): m[0] for m in matches}
        if not numbered:
            raise LayoutError(
                f"{self.where} = {self.text!r} names the tensors {pattern!r}, and the file holds none such; "
                + did_you_mean(_filled(pattern, 0, 0), shapes)
            )
        # Some count from 1. Anything but an unbroken grid means that a tensor is missing, not that it may be left out.
        axes = [set(axis) for axis in zip(*numbered, strict=True)]
        first = [0 if 0 in axis else 1 for axis in axes]
        grid = list(product(*(range(start, max(axis) + 1) for start, axis in zip(first, axes, strict=True))))
        if len(grid) > len(numbered):
            name = _filled(pattern, *next(key for key in grid if key not in numbered))
            raise LayoutError(
                f"{self.where} = {self.text!r}: the file holds {len(numbered)} such tensors, but not {name!r}"
            )
        return {(i - first[0], j - first[1]): name for (i, j), name in numbered.items()}

    def _check_index(self, leaf: Name, shapes: set[tuple[int, ...]], extents: dict[str, dict[str, int]]) -> None:
        for shape in shapes:
            if len(leaf.index) > len(shape):
                raise LayoutError(
                    f"{self.where} = {self.text!r}: {len(leaf.index)} indices for {leaf.pattern!r} of shape {shape}"
                )
            for item, size in zip(leaf.index, shape, strict=False):
                if isinstance(item, int) and not -size <= item < size:
                    raise LayoutError(
                        f"{self.where} = {self.text!r}: index {item} is outside {leaf.pattern!r} of shape {shape}"
                    )
                if isinstance(item, str):
                    extents[item][f"{leaf.pattern}{list(shape)}"] = size


@dataclass(frozen=True, kw_only=True)
class BoundExpression:
    """An expression with its tensors found. ``layers`` and ``heads`` are None when nothing in it depends on them."""

    expression: WeightExpression
    names: Mapping[str, Mapping[tuple[int, int], str]]
    layers: int | None
    heads: int | None

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of all tensors it reads."""
        return tuple(name for found in self.names.values() for name in found.values())

    def evaluate(self, tensors: Mapping[str, Tensor]) -> Tensor | float:
        """Its value as (layers or 1, heads or 1, rows, columns); a number c stands for c times the identity.

        A result with more than two axes supplies the layers, or layers and heads, itself.
        """
        from torch import stack

        values: list[Tensor] = []
        for layer, head in product(range(self.layers or 1), range(self.heads or 1)):
            value = self._value(self.expression.root, tensors, layer, head)
            if isinstance(value, Scalar):
                if not value.identity:
                    raise self._error("it is a number, expected a matrix")
                return value.factor
            values.append(value)
        shapes = sorted({tuple(value.shape) for value in values})
        if len(shapes) > 1:
            raise self._error(f"its layers and heads have different shapes: {', '.join(map(str, shapes))}")
        # Axes in front of the matrix: (layer, head) or (layer,) if no name or index gave them; (head,) if only l did.
        in_front = 0 if self.heads is not None else 1 if self.layers is not None else 2
        if not 2 <= len(shapes[0]) <= 2 + in_front or 0 in shapes[0]:
            raise self._error(f"it gives shape {shapes[0]}, expected a matrix for each layer and head")
        if self.layers is None and self.heads is None and len(shapes[0]) > 2:
            return values[0] if len(shapes[0]) == 4 else values[0][:, None]
        heads = self.heads or (shapes[0][0] if len(shapes[0]) == 3 else 1)
        return stack(values).reshape(self.layers or 1, heads, *shapes[0][-2:])

    def _error(self, reason: str) -> LayoutError:
        return LayoutError(f"{self.expression.where} = {self.expression.text!r}: {reason}")

    def _value(self, node: Node, tensors: Mapping[str, Tensor], layer: int, head: int) -> Tensor | Scalar:
        match node:
            case Scalar():
                return node
            case Name():
                found = self.names[node.pattern]
                key = (layer if "{l}" in node.pattern else 0, head if "{h}" in node.pattern else 0)
                places = {"l": layer, "h": head}
                return tensors[found[key]][tuple(_place(item, places) for item in node.index)]
            case Unary():
                inner = self._value(node.inner, tensors, layer, head)
                return self._of_head(node, inner, head) if node.sign in SIDE_BY_SIDE else self._unary(node, inner)
            case Product():
                left = self._value(node.left, tensors, layer, head)
                return self._multiply(node.sign, left, self._value(node.right, tensors, layer, head))

    def _unary(self, node: Unary, inner: Tensor | Scalar) -> Tensor | Scalar:
        if isinstance(inner, Scalar):
            if node.sign == "pad":
                raise self._error("pad needs a tensor, whose size is known")
            return Scalar(-inner.factor, inner.identity) if node.sign == "-" else inner
        if node.sign == "-":
            return -inner
        matrix = self._matrix(inner, node.sign)
        if node.sign == ".T":
            return matrix.mT
        padded = matrix.new_zeros(*matrix.shape[:-2], matrix.shape[-2] + 1, matrix.shape[-1] + 1)
        padded[..., :-1, :-1], padded[..., -1, -1] = matrix, node.value
        return padded

    def _of_head(self, node: Unary, inner: Tensor | Scalar, head: int) -> Tensor:
        if isinstance(inner, Scalar):
            raise self._error(f"{node.sign} needs a tensor, whose size is known")
        rows, n = self._matrix(inner, node.sign).shape[-2], int(node.value)
        if rows % n:
            raise self._error(f"{rows} rows are not those of {n} heads side by side")
        return (
            inner[..., head * rows // n : (head + 1) * rows // n, :] if node.sign == "heads" else inner[..., head::n, :]
        )

    def _matrix(self, value: Tensor, operation: str) -> Tensor:
        if value.ndim < 2:
            raise self._error(f"{operation} needs a matrix, got shape {tuple(value.shape)}")
        return value

    def _multiply(self, sign: str, left: Tensor | Scalar, right: Tensor | Scalar) -> Tensor | Scalar:
        numbers = [isinstance(side, Scalar) and not side.identity for side in (left, right)]
        if sign == "*" and not any(numbers):
            raise self._error("* needs a number on one side; the matrix product is @")
        if sign == "@" and any(numbers):
            raise self._error("@ needs matrices on both sides; a number multiplies with *")
        if isinstance(left, Scalar):
            if isinstance(right, Scalar):
                return Scalar(left.factor * right.factor, left.identity or right.identity)
            return left.factor * right
        if isinstance(right, Scalar):
            return right.factor * left
        left, right = self._matrix(left, "@"), self._matrix(right, "@")
        # Asked of shapes alone first, where a product of any size costs nothing.
        if 8 * left.shape[-2] * right.shape[-1] * math.prod(left.shape[:-2]) * math.prod(right.shape[:-2]) > MEMORY:
            raise self._error(f"shapes {tuple(left.shape)} and {tuple(right.shape)} make over {MEMORY} bytes")
        try:
            return left @ right
        except RuntimeError as error:
            raise self._error(f"shapes {tuple(left.shape)} and {tuple(right.shape)} do not multiply") from error


def _filled(pattern: str, layer: int, head: int) -> str:
    return pattern.replace("{l}", str(layer)).replace("{h}", str(head))


def _place(item: int | str | Slice, places: Mapping[str, int]) -> int | slice:
    if isinstance(item, Slice):
        return slice(item.start, item.stop)
    return places[item] if isinstance(item, str) else item
