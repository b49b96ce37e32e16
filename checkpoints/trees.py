"""The arrays of nested dictionaries, lists and stand-ins for objects, by the way that leads to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from interp.checkpoints.pickles import Damaged, Global, Inert
from interp.checkpoints.stored import StoredArray

__all__ = ["Tree", "Way", "tree_of"]

Way = tuple[str, ...]

_ENTRY_LIMIT = 100_000
_DEPTH_LIMIT = 50
_KEY_LIMIT = 1000  # characters
_TEXT_LIMIT = 200


@dataclass(frozen=True)
class Tree:
    """``said``: what short texts, whole numbers and yes-or-no's say, by dotted name. ``left_out``: what is no array."""

    arrays: dict[Way, StoredArray] = field(default_factory=dict)
    said: dict[str, str | int | bool] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # by name: what it is, "" for a plain value
    nameless: bool = False  # the root itself is the one array


def tree_of(root: Any) -> Tree:
    """Every leaf of ``root``. Raises Damaged for nesting without end and for two arrays of one name."""
    tree = Tree(nameless=isinstance(root, StoredArray) and root.members is None)
    names, found = set(), list(_leaves(root))
    holding = {way[:depth] for way, leaf in found if isinstance(leaf, StoredArray) for depth in range(len(way) + 1)}
    objects = {way for way, leaf in found if isinstance(leaf, Inert) and way not in holding}
    for way, leaf in found:
        name = ".".join(way)
        if isinstance(leaf, StoredArray):
            if leaf.problem is not None:
                raise Damaged(f"{name or 'its array'} cannot be true: {leaf.problem}")
            if name in names:
                raise Damaged(f"two arrays would both be called {name!r}; rename one")
            names.add(name)
            tree.arrays[way or ("W",)] = leaf
            continue
        if any(way[:depth] in objects for depth in range(len(way))):
            pass  # named with the object that it is a part of
        elif isinstance(leaf, (Inert, Global)):
            if way not in holding:
                tree.left_out[name] = f"the Python object {leaf.name}"
        else:
            tree.left_out[name] = ""
        if isinstance(leaf, (bool, str)) or (isinstance(leaf, int) and abs(leaf) < 2**63):
            tree.said[name] = leaf[:_TEXT_LIMIT] if isinstance(leaf, str) else leaf
    return tree


def _leaves(root: Any) -> Iterator[tuple[Way, Any]]:
    """A file can nest without end, or share a branch a billion times; this cannot."""
    stack: list[tuple[Way, Any, int]] = [((), root, 0)]
    visited = 0
    while stack:
        way, node, depth = stack.pop()
        visited += 1
        if depth > _DEPTH_LIMIT or visited > _ENTRY_LIMIT:
            raise Damaged(
                f"it has more than {_ENTRY_LIMIT} entries or nests them deeper than {_DEPTH_LIMIT}; "
                "expected a state dict"
            )
        inside = _inside(node)
        if inside is None:
            yield way, node
            continue
        if isinstance(node, Inert):
            yield way, node
        stack.extend((way if key is None else (*way, key), value, depth + 1) for key, value in reversed(inside))


def _inside(node: Any) -> list[tuple[str | None, Any]] | None:
    """The named parts of a node, None for a leaf. The name None: what is in there is named as if the level were not."""
    if isinstance(node, dict):
        return [(_text(key), value) for key, value in node.items()]
    if isinstance(node, (list, tuple)):
        return [(str(index), value) for index, value in enumerate(node)]
    if isinstance(node, StoredArray) and node.members is not None:
        alone = len(node.members) == 1  # numpy.save of a dictionary
        return [(None if alone else str(index), value) for index, value in enumerate(node.members)]
    if isinstance(node, Inert):
        return _inside_object(node)
    return None


def _inside_object(node: Inert) -> list[tuple[str | None, Any]]:
    """The arrays in an object of somebody's class lie in what it was made of: a frozen dictionary in its one argument,
    a module in three dictionaries of its state, others in the fields of theirs. Plain values are the object's own."""
    state = node.state
    if isinstance(state, dict) and isinstance(state.get("_parameters"), dict):
        inside = [(None, state[key]) for key in ("_parameters", "_buffers", "_modules") if key in state]
        return [pair for pair in inside if isinstance(pair[1], (dict, Inert))]
    parts: list[tuple[str | None, Any]] = []
    for index, value in enumerate((*node.arguments, *node.items)):
        parts.append((None if isinstance(value, dict) else str(index), value))
    for fields in state if isinstance(state, tuple) else (state,):
        if isinstance(fields, dict):
            parts.append((None, fields))
    parts.append((None, node.entries))
    holding = (dict, list, tuple, Inert, StoredArray)
    return [(key, value) for key, value in parts if isinstance(value, holding) and value not in ({}, [], ())]


def _text(key: Any) -> str:
    return key[:_KEY_LIMIT] if isinstance(key, str) else repr(key)[:_KEY_LIMIT] if isinstance(key, bytes) else str(key)
