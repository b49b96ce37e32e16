"""The language of weights as a tree: what a text means, before any file is looked at. Its grammar is in
``interp.checkpoints.expressions``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from interp.checkpoints.grammar import Parser

__all__ = [
    "SIDE_BY_SIDE",
    "Name",
    "Node",
    "Product",
    "Scalar",
    "Slice",
    "Unary",
    "leaves",
    "parse",
    "side_by_side",
    "with_heads",
]

_GRAMMAR = "tensor names, numbers, I, @, *, -, .T, [l,h,0,2:5], pad(A, 1), heads(A, 4)"
_MOST_HEADS = 10_000
SIDE_BY_SIDE = ("heads", "interleaved")


@dataclass(frozen=True)
class Scalar:
    """``factor`` times the identity of whatever size fits; a plain number when not ``identity``."""

    factor: float
    identity: bool


@dataclass(frozen=True)
class Slice:
    start: int | None
    stop: int | None


@dataclass(frozen=True)
class Name:
    pattern: str
    index: tuple[int | str | Slice, ...]


@dataclass(frozen=True)
class Unary:
    """``sign`` is "-", ".T", "pad", which puts ``value`` below the matrix, to the right, or one of ``SIDE_BY_SIDE``, in
    which there are ``value`` heads."""

    sign: str
    inner: Node
    value: float = 0.0


@dataclass(frozen=True)
class Product:
    sign: str
    left: Node
    right: Node


Node = Scalar | Name | Unary | Product


def parse(text: str, where: str) -> Node:
    """Read an expression; ``where`` names it in messages. Raises LayoutError."""
    parser = Parser(text, where, _GRAMMAR)
    root = _product(parser)
    parser.finish()
    return root


def _product(parser: Parser) -> Node:
    left = _factor(parser)
    while sign := parser.take("@", "*"):
        left = Product(sign, left, _factor(parser))
    return left


def _factor(parser: Parser) -> Node:
    parser.deeper()
    node = Unary("-", _factor(parser)) if parser.take("-") else _atom(parser)
    while parser.peek()[0] == "transpose":
        parser.next += 1
        node = Unary(".T", node)
    parser.depth -= 1
    return node


def _atom(parser: Parser) -> Node:
    kind, value = parser.peek()
    if parser.take("("):
        inner = _product(parser)
        parser.need(")")
        return inner
    if kind not in ("number", "quoted", "name"):
        raise parser.error(f"{value!r} is not expected there" if value else "it ends too early")
    parser.next += 1
    if kind == "number":
        return Scalar(_finite(parser, value), identity=False)
    if kind == "quoted":
        return Name(value[1:-1], _index(parser))
    name = re.sub(r"(\.T)+$", "", value)
    if name in ("pad", *SIDE_BY_SIDE) and parser.take("("):
        return _function(parser, name)
    if name == "I":
        return Scalar(1.0, identity=True)
    node: Node = Name(name, () if name != value else _index(parser))
    for _ in range((len(value) - len(name)) // 2):
        node = Unary(".T", node)
    return node


def _function(parser: Parser, name: str) -> Node:
    inner = _product(parser)
    parser.need(",")
    sign = -1.0 if parser.take("-") else 1.0
    kind, word = parser.peek()
    if kind != "number":
        raise parser.error(f"the second argument of {name} is not a number")
    parser.next += 1
    parser.need(")")
    value = sign * _finite(parser, word)
    if name in SIDE_BY_SIDE and not (value.is_integer() and 1 <= value <= _MOST_HEADS):
        raise parser.error(f"{sign * float(word):g} is no number of heads")
    return Unary(name, inner, value)


def _index(parser: Parser) -> tuple[int | str | Slice, ...]:
    if not parser.take("["):
        return ()
    items: list[int | str | Slice] = []
    while True:
        items.append(_item(parser, items))
        if not parser.take(","):
            parser.need("]")
            return tuple(items)


def _item(parser: Parser, before: list[int | str | Slice]) -> int | str | Slice:
    kind, word = parser.peek()
    if kind == "name" and word in ("l", "h") and word not in before:
        parser.next += 1
        return word
    start = _integer(parser)
    if parser.take(":"):
        return Slice(start, _integer(parser))
    if start is None:
        raise parser.error(f"{word!r} is no index")
    return start


def _integer(parser: Parser) -> int | None:
    negative = parser.take("-") is not None
    kind, word = parser.peek()
    if kind == "number" and word.isdecimal():
        parser.next += 1
        return -int(word) if negative else int(word)
    if negative:
        raise parser.error(f"{word!r} is no index")
    return None


def _finite(parser: Parser, text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise parser.error(f"{text} is too large")
    return value


def leaves(node: Node) -> list[Name]:
    match node:
        case Name():
            return [node]
        case Product():
            return leaves(node.left) + leaves(node.right)
        case Unary():
            return leaves(node.inner)
    return []


def side_by_side(node: Node) -> list[int]:
    """The numbers of heads of every ``heads(A, n)``."""
    match node:
        case Product():
            return side_by_side(node.left) + side_by_side(node.right)
        case Unary():
            return [*([int(node.value)] if node.sign in SIDE_BY_SIDE else []), *side_by_side(node.inner)]
    return []


def _resaid(node: Node, sign: str, count: int) -> Node:
    match node:
        case Product():
            return replace(node, left=_resaid(node.left, sign, count), right=_resaid(node.right, sign, count))
        case Unary():
            inner = _resaid(node.inner, sign, count)
            return Unary(sign, inner, float(count)) if node.sign in SIDE_BY_SIDE else replace(node, inner=inner)
    return node


def _split(node: Node, sign: str, count: int) -> Node:
    match node:
        case Product() if node.sign == "@":
            left = Unary(".T", Unary(sign, Unary(".T", node.left), float(count)))
            return Product("@", left, Unary(sign, node.right, float(count)))
        case Product():
            return replace(node, left=_split(node.left, sign, count), right=_split(node.right, sign, count))
        case Unary():
            return replace(node, inner=_split(node.inner, sign, count))
    return node


def with_heads(node: Node, sign: str, count: int) -> Node:
    """The same with ``count`` heads side by side in what is multiplied last, laid out as ``sign`` of ``SIDE_BY_SIDE``
    says, or laid out so where it says of heads itself."""
    return _resaid(node, sign, count) if side_by_side(node) else _split(node, sign, count)
