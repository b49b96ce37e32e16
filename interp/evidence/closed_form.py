"""The evidence for and against the closed form, as the family found it."""

from __future__ import annotations

from interp.evidence.question import Answer, question
from interp.families.closed_form import ClosedFormFit
from interp.identify.choose import Choice
from interp.identify.run import Run

__all__ = ["closed_form"]


@question("closed-form", brief=True)
def closed_form(choice: Choice, run: Run) -> Answer | None:
    found = next((fit.found for fit in choice.fits if isinstance(fit, ClosedFormFit) and fit.found is not None), None)
    return None if found is None else Answer(fields={"closed_form": found})
