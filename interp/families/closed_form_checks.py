"""The verdict closed-form, and the conditions it takes; else a gradient method, else unrecognized.

All tolerances are the named constants below. A condition that cannot be measured is not met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from interp.families.closed_form_anatomy import DIVIDES, EXPONENT, VARIES
from interp.families.line_descent import DescentFit
from interp.identify.score import RECOGNIZED, RECOGNIZED_LOWER, Score
from interp.results import Check, Division, Form, Replacement, Rescaled

__all__ = ["checks"]

FAR = 4.0  # factor on x and on y that is called far outside
INVARIANT = 0.9  # fidelity that the form must keep there; gradient methods, polynomials in x, are far below 0 at 4 x
DESTROYED = 0.1  # share of the variance that a fixed map in LayerNorm's place must lose …
DESTROYED_BY = 10.0  # … and so many times what the form leaves


def checks(
    form: Form,
    methods: Sequence[DescentFit],
    rescaled: Sequence[Rescaled],
    divisions: Sequence[Division],
    divides: int | None,
    replacements: Sequence[Replacement],
) -> tuple[Check, ...]:
    """The conditions of the verdict closed-form."""
    agrees = Score(fidelity=form.fidelity, interval=form.fidelity_ci).recognized
    nearest = max(methods, key=lambda r: r.ratio_high)
    return (
        Check(
            name="agreement",
            passed=agrees,
            found=f"fidelity {_number(form.fidelity)} on held-out prompts",
            bar=f"{RECOGNIZED} or more, its interval above {RECOGNIZED_LOWER}",
        ),
        Check(
            name="nearer than gradient steps",
            passed=nearest.ratio_high < 1.0,
            found=f"{nearest.ratio:.2g} times the squared error of the nearest, {nearest.family.title} "
            f"({nearest.parameters} numbers fitted; at most {nearest.ratio_high:.2g} at 97.5 %)",
            bar="less than 1 for every gradient method",
        ),
        _invariance("x", rescaled),
        _invariance("y", rescaled),
        _division(divisions, divides),
        _destroyed(form, replacements, divides),
    )


def _invariance(quantity: str, rescaled: Sequence[Rescaled]) -> Check:
    far = [r for r in rescaled if r.quantity == quantity and max(abs(r.factor), 1 / abs(r.factor)) == FAR]
    best = max((f for r in far for f in r.rivals.values() if f is not None), default=None)
    outside = min((r.outside for r in far), default=0.0)
    found = ", ".join(f"times {r.factor:g}: {_number(r.fidelity)}" for r in far)
    return Check(
        name="invariance in x" if quantity == "x" else "equivariance in y",
        passed=bool(far) and all(_keeps(r) for r in far),
        found=f"fidelity with all {quantity} {found} (at least {100 * outside:.0f} % of these prompts lie outside 95 % "
        f"of the task's); the best gradient method there {_number(best)}",
        bar=f"{INVARIANT} or more, and surely more than any gradient method",
    )


def _keeps(there: Rescaled) -> bool:
    low = there.fidelity_ci[0]
    if there.fidelity is None or low is None:
        return False
    return there.fidelity >= INVARIANT and all(low > f for f in there.rivals.values() if f is not None)


def _division(divisions: Sequence[Division], divides: int | None) -> Check:
    found = "there is no LayerNorm"
    if divisions:
        shown = divisions[-1 if divides is None else divides]
        found = (
            f"the standard deviation in LayerNorm {shown.layer} goes with V to the power {_number(shown.exponent)}, "
            f"R² {_number(shown.r2)}, its logarithm varies by {_number(shown.variation)}"
        )
    low, high = EXPONENT
    bar = f"R² {DIVIDES} or more, power {low} to {high}, logarithm varies by {VARIES} or more"
    return Check(name="division", passed=divides is not None, found=found, bar=bar)


def _destroyed(form: Form, replacements: Sequence[Replacement], divides: int | None) -> Check:
    passed, found = False, "there is no LayerNorm to replace, or no figure"
    shown = next((r for r in replacements if r.layer == divides), replacements[-1] if replacements else None)
    if shown is not None and shown.fidelity is not None and form.fidelity is not None:
        lost, kept, most = 1.0 - shown.fidelity, 1.0 - form.fidelity, shown.fidelity_ci[1]
        passed = (lost if most is None else 1.0 - most) >= DESTROYED and lost >= DESTROYED_BY * kept
        found = (
            f"the best fixed map in the place of LayerNorm {shown.layer} loses {lost:.2g} of the variance, the form "
            f"{kept:.2g}"
        )
    bar = f"{DESTROYED} or more, and {DESTROYED_BY:g} times what the form leaves"
    return Check(name="LayerNorm is needed", passed=passed, found=found, bar=bar)


def _number(value: float | None) -> str:
    if value is None:
        return "undefined"
    if 0 < 1 - value < 1e-3:  # not rounded to 1
        return f"{value:.{min(1 - math.floor(math.log10(1 - value)), 12)}f}"
    return f"{value:.3g}"
