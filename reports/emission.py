"""The recovered algorithm as a text that stands alone: numpy, torch or LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from interp.reports import (
    emitted_closed_form,
    emitted_completion,
    emitted_descent,
    emitted_heads,
    emitted_regression,
    emitted_step,
)
from interp.reports.certificate_text import Account
from interp.reports.emitted_latex import LatexPart, latex_source
from interp.reports.emitted_python import LIBRARIES, Library, PythonPart, python_source
from interp.results import (
    Certificate,
    RecoveredCompletion,
    RecoveredDescent,
    RecoveredForm,
    RecoveredHeads,
    RecoveredOmegas,
    RecoveredStep,
)

__all__ = ["emitted"]


@runtime_checkable
class _Emitter(Protocol):
    """The module of one kind of algorithm."""

    def account(self, certificate: Certificate) -> Account: ...

    def python_part(self, certificate: Certificate, library: Library) -> PythonPart: ...

    def latex_part(self, certificate: Certificate) -> LatexPart: ...


EMITTERS: Mapping[type, _Emitter] = {
    RecoveredOmegas: emitted_regression,
    RecoveredCompletion: emitted_completion,
    RecoveredHeads: emitted_heads,
    RecoveredStep: emitted_step,
    RecoveredForm: emitted_closed_form,
    RecoveredDescent: emitted_descent,
}


def emitted(certificate: Certificate, form: str) -> str:
    """``form`` is "numpy", "torch" or "latex". The same certificate always gives the same text."""
    emitter = EMITTERS[type(certificate.recovered)]
    if form == "latex":
        return latex_source(certificate, emitter.latex_part(certificate), emitter.account(certificate))
    library = LIBRARIES[form]
    return python_source(certificate, emitter.python_part(certificate, library), emitter.account(certificate), library)
