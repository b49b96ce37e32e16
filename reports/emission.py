"""The recovered algorithm as a text that stands alone: numpy, torch or LaTeX."""

from __future__ import annotations

from interp.reports.emitted_latex import latex_source
from interp.reports.emitted_python import python_source
from interp.results import Certificate

__all__ = ["emitted"]


def emitted(certificate: Certificate, form: str) -> str:
    """``form`` is "numpy", "torch" or "latex". The same certificate always gives the same text."""
    return latex_source(certificate) if form == "latex" else python_source(certificate, form)
