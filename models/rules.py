"""Tables of a document, such as a recipe's or a checkpoint's task: dataclasses whose fields carry a rule, so that one
function reads, checks and writes all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from interp.errors import LayoutError, did_you_mean
from interp.models.layers.registry import read_table
from interp.models.numbers import as_float, is_count, is_number, is_size

__all__ = [
    "AMOUNT",
    "COUNT",
    "COUNTS",
    "EVALUATED",
    "FACTOR",
    "FLAG",
    "POSITIVE",
    "SCALE",
    "SEED",
    "SHARE",
    "SIZE",
    "Rule",
    "Table",
    "one_of",
    "plain",
    "ruled",
]


AnyTable = TypeVar("AnyTable", bound="Table")


@dataclass(frozen=True)
class Rule:
    """What a field may be. ``read`` turns a value of TOML into that of the field, and leaves what it cannot as it is;
    ``words`` say what was expected, or are a function of the refused value that says it."""

    words: str | Callable[[object], str]
    holds: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value

    def checked(self, value: Any, place: str) -> Any:
        """The value of the field. Raises LayoutError with the ``place`` of a value that breaks the rule."""
        value = self.read(value)
        if not self.holds(value):
            hint = f", expected {self.words}" if isinstance(self.words, str) else f"; {self.words(value)}"
            raise LayoutError(f"{place} is {value!r}{hint}")
        return value


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


COUNT = Rule("a whole number of 1 or more", is_count)
EVALUATED = Rule("a whole number of 2 or more", lambda v: is_count(v) and v >= 2)  # prompts, for a standard error
COUNTS = Rule("a list of whole numbers of 1 or more", lambda v: isinstance(v, tuple) and all(map(is_count, v)), _listed)
POSITIVE = Rule("a positive number", lambda v: is_number(v) and v > 0, as_float)
SIZE = Rule("a number from 0 to 1e150", is_size, as_float)
SCALE = Rule("a positive number up to 1e150", lambda v: is_size(v) and v > 0, as_float)
FACTOR = Rule("a number that is not 0", lambda v: is_number(v) and v != 0, as_float)
AMOUNT = Rule("a finite number of 0 or more", lambda v: is_number(v) and v >= 0, as_float)
SHARE = Rule("a number between 0 and 1", lambda v: isinstance(v, float) and 0 < v < 1)
FLAG = Rule("true or false", lambda v: isinstance(v, bool))
SEED = Rule(
    "a whole number from 0 to 2^32 - 1", lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**32
)


def one_of(known: Collection[str]) -> Rule:
    """A word of a list."""
    words = tuple(known)  # in which, unlike in a dictionary, a list or a table can be looked for
    return Rule(lambda value: did_you_mean(str(value), words), lambda value: value in words)


def ruled(rule: Rule, default: Any = dataclasses.MISSING, *, optional: bool = False) -> Any:
    """A field of a ``Table``; an ``optional`` one may be None, which no document can say."""
    default = None if optional else default
    return dataclasses.field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, kw_only=True)
class Table:
    """Fields made by ``ruled``; ``title`` is the name of the table in its document."""

    title: ClassVar[str]

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if value is not None or entry.default is not None:
                object.__setattr__(self, entry.name, _checked(entry, value, self.title))

    @classmethod
    def read(cls: type[AnyTable], given: object, where: str | None = None) -> AnyTable:
        """Read a parsed table. Raises LayoutError for what is unknown, missing or breaks its rule."""
        where, entries = where or cls.title, {entry.name: entry for entry in dataclasses.fields(cls)}
        values = read_table(given, where, entries)
        for name, entry in entries.items():
            if name not in values and entry.default is dataclasses.MISSING:
                raise LayoutError(f"the recipe has no {where}.{name}")
        return cls(**{name: _checked(entries[name], value, where) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """What ``read`` reads; None and False are left out."""
        return {name: plain(value) for name, value in vars(self).items() if value is not None and value is not False}


def _checked(entry: dataclasses.Field, value: Any, where: str) -> Any:
    rule = entry.metadata.get("rule")
    return value if rule is None else rule.checked(value, f"{where}.{entry.name}")


def plain(value: Any) -> Any:
    """As a document holds it: tuples as lists, and objects as they write themselves."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value
