"""The languages that a recovered algorithm can be written in, by name. A language registers itself."""

from __future__ import annotations

from collections.abc import Callable

from interp.errors import UsageError
from interp.results import Certificate

__all__ = ["LANGUAGES", "Printer", "emitted", "register_language"]

Printer = Callable[[Certificate], str]
LANGUAGES: dict[str, Printer] = {}


def register_language(name: str) -> Callable[[Printer], Printer]:
    """Make a printer known by ``name``: its decorator. Raises UsageError when the name is taken."""

    def register(printer: Printer) -> Printer:
        if LANGUAGES.setdefault(name, printer) is not printer:
            raise UsageError(f"a language of the name {name!r} is registered already; give this one another")
        return printer

    return register


def emitted(certificate: Certificate, language: str) -> str:
    """The text that stands alone. The same certificate always gives the same text."""
    return LANGUAGES[language](certificate)
