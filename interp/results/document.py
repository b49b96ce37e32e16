"""What every JSON document of the schema "interp-probe/1" has: its schema, and what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from interp.errors import LayoutError
from interp.results.plain_data import from_plain, to_plain
from interp.results.tables import Tabular

SCHEMA = "interp-probe/1"
Own = TypeVar("Own", bound="Document")


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """What was analysed."""

    name: str  # file name or zoo:NAME, for people
    sha256: str  # of the file's bytes
    layout: str  # "canonical", the name of a built-in layout, or "spec file"
    dtype: str
    tokens: tuple[tuple[str, int], ...]
    keys: str
    scale: str | float | int
    residual: bool
    clip: float | None
    readout_channel: str
    readout_sign: int
    layers: int
    heads: int
    parameters: int
    loops: int = 1  # how often the stored layers are run: ``layers`` counts every pass
    added: Mapping[str, Any] = field(default_factory=dict)  # layer kinds beside attention and read-out: their settings
    notes: tuple[str, ...] = ()  # what the reader did to the file: unwrapped, transposed, padded …
    read_by: str | None = None  # of --spec: the SHA-256 of the file, or the name of a built-in layout
    unused: Mapping[str, str] = field(default_factory=dict)  # arrays left out: what each looks like


class Document(Tabular):
    """A result that is a JSON document; ``made_by`` is the command that writes one."""

    made_by: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls: type[Own], document: Mapping[str, Any]) -> Own:
        """Rebuild a result from its JSON document. Raises LayoutError when it is not one of this schema."""
        schema = document.get("schema") if isinstance(document, Mapping) else None
        if schema != SCHEMA:
            raise LayoutError(f"the document's schema is {schema!r}, expected {SCHEMA!r}; make it with {cls.made_by}")
        return from_plain(cls, document, "document")
