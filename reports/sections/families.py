"""The algorithm families that were fitted to the network, and which of them it is."""

from __future__ import annotations

from interp.reports.numbers import DASH, number, several
from interp.reports.registry import section
from interp.reports.sections.losses import loss
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Family, Section, Skipped

__all__ = ["chosen_family", "family_error", "family_finding"]

ROUNDING = 1e-12  # of the error of predicting zero: a loss that is smaller is 0 as far as float64 can tell


def chosen_family(analysis: Analysis) -> Family | None:
    return next((f for f in analysis.families if f.chosen), None)


def family_finding(analysis: Analysis) -> str:
    chosen = chosen_family(analysis)
    if chosen is not None:
        count = several(chosen.parameters, "number") if chosen.parameters else "no fitted number"
        return f"The family {chosen.name} explains the network with {count}"
    scored = [f for f in analysis.families if f.fidelity is not None]
    if not scored:
        return "No family was scored"
    best = max(scored, key=lambda f: f.fidelity or 0.0)
    if (best.fidelity or 0.0) <= 0:
        return f"No family explains the network: none predicts better than a constant (R² {number(best.fidelity)})"
    return f"No family explains the network; the nearest, {best.name}, reaches R² {number(best.fidelity)}"


def family_error(analysis: Analysis, mse: float | None) -> str:
    """The mean squared error of a family, or that it is 0 beside predicting zero."""
    null = loss(analysis.evidence.losses, "null")
    zero = null.mse if null is not None and null.mse is not None else 0.0
    return "0 to rounding" if mse is not None and abs(mse) <= ROUNDING * zero else number(mse)


@section("families", title="algorithm families", where="evidence")
def families(analysis: Analysis) -> Section | Skipped:
    if not analysis.families:
        return Skipped("this analysis has none")
    columns = {
        "family": lambda f: f"{f.name} (chosen)" if f.chosen else f.name,
        "numbers": lambda f: DASH if f.fidelity is None and not f.parameters else str(f.parameters),
        "fidelity R² [95 %]": "fidelity", "error": lambda f: family_error(analysis, f.mse),
    }  # fmt: skip
    ordered = sorted(analysis.families, key=lambda f: (f.fidelity is None, f.parameters))
    notes = (
        "Fitted on one half of the prompts and scored on others. Fidelity compares their predictions with the "
        "network's, the mean squared error with the truth.",
    )
    return Section(
        name="families", title="Families, smallest first", finding=family_finding(analysis), notes=notes,
        table=tabulate(ordered, columns, marked=lambda f: f.chosen),
        remarks=tuple(f"{row.name}: {row.why}" for row in analysis.families if row.why),
    )  # fmt: skip
