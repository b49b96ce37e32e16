"""The recovered algorithm as a text that stands alone. A language is one file that registers its printer."""

from interp.reports.emit import html, latex, numpy, text, torch
from interp.reports.emit.languages import LANGUAGES, emitted, register_language

__all__ = ["LANGUAGES", "emitted", "html", "latex", "numpy", "register_language", "text", "torch"]
