"""What the evidence for a closed form says, in sentences and rows of tables: for the terminal and the HTML report."""

from __future__ import annotations

from interp.reports.numbers import DASH, estimate, interval, number, percent
from interp.results import Check, ClosedForm, Division, Slot

__all__ = [
    "CHECK_HEADER",
    "HEAD_HEADER",
    "SLOT_HEADER",
    "check_rows",
    "checks_finding",
    "direction_lines",
    "division_finding",
    "factor_text",
    "form_lines",
    "head_rows",
    "replacement_lines",
    "rescaled_finding",
    "slot_rows",
    "slots_finding",
]

CHECK_HEADER = ("condition", "holds", "found", "asked for")
SLOT_HEADER = ("after layers", "slot", "holds", "times", "R²", "R² in the query's row")
HEAD_HEADER = (
    *("layer", "head", "role", "centring R²", "numerator", "its R²"),
    *("denominator", "its R²"),
)


def checks_finding(found: ClosedForm) -> str:
    held = sum(check.passed for check in found.checks)
    if held == len(found.checks):
        return f"All {held} conditions of the closed form hold"
    failed = [check.name for check in found.checks if not check.passed]
    return f"{held} of {len(found.checks)} conditions of the closed form hold; not: {', '.join(failed)}"


def check_rows(found: ClosedForm) -> tuple[tuple[str, ...], ...]:
    return tuple((c.name, _holds(c), c.found, c.bar) for c in found.checks)


def _holds(check: Check) -> str:
    return "yes" if check.passed else "no"


def form_lines(found: ClosedForm) -> tuple[str, ...]:
    """The closed forms beside the network, and how much of it is left."""
    lines = [
        f"{form.formula}: fidelity {interval(form.fidelity, form.fidelity_ci)}, relative error "
        f"{number(form.error, 2)}; the network's predictions are {estimate(form.slope, form.slope_stderr)} times as "
        "large"
        for form in found.forms
    ]
    keys = "the examples" if found.keys == "context" else "the examples and the query, whose y is 0"
    named = "; h is the query's leverage" if any("h" in form.formula for form in found.forms) else ""
    named += ", N the number of examples" if any("N" in form.formula for form in found.forms) else ""
    lines.append(f"sums and means are over {keys}{named}")
    if found.query_share is not None:
        share = percent(found.query_share).replace("> ", "more than ")
        lines.append(f"{share} of the prediction's variance is read from the query's row")
    lines.append(f"{found.weights_left} of the network's {found.weights} numbers are not 0")
    return tuple(lines)


def slots_finding(found: ClosedForm) -> str:
    last = max((slot.layer for slot in found.slots), default=None)
    if last is None:
        return "No slots were looked at"
    named = [f"slot {s.index}: {_held(s)}" for s in found.slots if s.layer == last and s.holds != "mixture"]
    mixed = sum(s.layer == last and s.holds == "mixture" for s in found.slots)
    where = f"Before the last layer, {', '.join(named)}" if named else "Before the last layer, no slot holds one thing"
    return where + (f"; {mixed} of the slots hold mixtures" if mixed else "")


def _held(slot: Slot) -> str:
    if slot.holds == "constant":
        return "a constant"
    return f"-({slot.holds})" if slot.sign < 0 else slot.holds


def direction_lines(found: ClosedForm) -> tuple[str, ...]:
    """Where x~ and y~ are in the tokens, whatever the basis."""
    return tuple(
        f"after {d.layer} layer{'s' * (d.layer != 1)} {d.holds} is read from the tokens along "
        f"({', '.join(number(v, 2) for v in d.vector)}) to R² {number(d.r2, 3)}, in the query's row "
        f"{number(d.query_r2, 3)}"
        for d in found.directions
    )


def slot_rows(found: ClosedForm) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(slot.layer),
            str(slot.index),
            slot.holds,
            DASH if slot.scale is None else f"{'-' if slot.sign < 0 else ''}{number(slot.scale, 3)}",
            number(slot.r2, 3),
            number(slot.query_r2, 3),
        )
        for slot in found.slots
    )


def head_rows(found: ClosedForm) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(head.layer),
            "all" if head.head is None else str(head.head),
            head.role,
            number(head.centring, 3),
            _share(head.numerator),
            number(head.numerator_r2, 3),
            _share(head.denominator),
            number(head.denominator_r2, 3),
        )
        for head in found.heads
    )


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.3g} %"


def division_finding(found: ClosedForm) -> str:
    if not found.divisions:
        return "There is no LayerNorm, so nothing divides"
    where = found.divides
    shown: Division = found.divisions[where if where is not None else -1]
    power = f"to the power {estimate(shown.exponent, shown.exponent_stderr)}, R² {number(shown.r2, 3)}"
    top = f"; its numerator is C(u − x̄) + Vȳ to R² {number(shown.numerator_r2, 3)}" if shown.numerator_r2 else ""
    if where is None:
        return f"No LayerNorm divides by V: the standard deviation of the last goes with V {power}"
    return f"The LayerNorm of layer {where} divides by V: its standard deviation goes with V {power}{top}"


def replacement_lines(found: ClosedForm) -> tuple[str, ...]:
    return tuple(
        f"with the LayerNorm of layer {r.layer} replaced by the best fixed affine map, fidelity is "
        f"{interval(r.fidelity, r.fidelity_ci)}"
        for r in found.replacements
    )


def rescaled_finding(found: ClosedForm) -> str:
    known = [r for r in found.rescaled if r.quantity == "x" and r.fidelity is not None]
    kept = [r.factor for r in known if (r.fidelity or 0.0) >= 0.9]
    if not known:
        return "Other scales of x were not tried"
    if not kept:
        return "At no other scale of x does the network follow the closed form (R² 0.9 or more)"
    low, high = factor_text(min(kept)), factor_text(max(kept))
    return f"The network follows the closed form (R² 0.9 or more) with x times {low} to {high}"


def factor_text(factor: float) -> str:
    return f"1/{1 / factor:g}" if 0 < factor < 1 else f"{factor:g}"
