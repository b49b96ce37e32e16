"""An Analysis of an embedded network made by hand, for the tests of what people see."""

from __future__ import annotations

from dataclasses import replace

from interp.results import (
    Analysis,
    Check,
    ClosedForm,
    Direction,
    Division,
    DivisionBin,
    Evidence,
    Family,
    Form,
    HeadRole,
    Replacement,
    Rescaled,
    Slot,
)

FORMULA = "ŷ = ȳ + (C / V)(u − x̄)"


def closed_form(passed: bool = True) -> ClosedForm:
    return ClosedForm(
        formula=FORMULA if passed else None,
        keys="all",
        checks=(
            Check(name="agreement", passed=True, found="fidelity 0.998", bar="0.95 or more"),
            Check(name="division", passed=passed, found="power 0.98, R² 0.99", bar="R² 0.9 or more"),
        ),
        forms=(
            Form(
                name="least-squares", formula=FORMULA, fidelity=0.998, fidelity_ci=(0.997, 0.999), error=0.04,
                slope=0.99, slope_stderr=0.003,
            ),
        ),
        slots=(
            Slot(layer=0, index=0, holds="x", sign=-1, scale=0.33, r2=0.997, query_r2=1.0),
            Slot(layer=1, index=0, holds="x - mean", sign=-1, scale=0.09, r2=0.99, query_r2=0.98),
            Slot(layer=1, index=1, holds="constant", sign=1, scale=1.4, r2=None, query_r2=None),
            Slot(layer=1, index=2, holds="mixture", sign=1, scale=None, r2=0.5, query_r2=None),
        ),
        directions=(Direction(layer=1, holds="y - mean", vector=(0.5, -2.0, 0.0), r2=0.97, query_r2=0.96),),
        heads=(
            HeadRole(
                layer=0, head=0, role="centring", centring=0.99, numerator=None, numerator_r2=None, denominator=-0.1,
                denominator_r2=0.0,
            ),
            HeadRole(
                layer=1, head=None, role="numerator and denominator", centring=None, numerator=1.0, numerator_r2=0.99,
                denominator=0.98, denominator_r2=0.99,
            ),
        ),
        divisions=(
            Division(
                layer=0, r2=None, exponent=None, exponent_stderr=None, variation=None, numerator_r2=None, bins=()
            ),
            Division(
                layer=1, r2=0.99, exponent=0.98, exponent_stderr=0.002, variation=1.0, numerator_r2=0.97,
                bins=tuple(DivisionBin(V=2.0**k, scale=3.0 * 2.0**k, stderr=0.1) for k in range(-3, 4)),
            ),
        ),
        divides=1 if passed else None,
        rescaled=(
            Rescaled(
                quantity="x", factor=0.25, outside=0.8, fidelity=0.95, fidelity_ci=(0.94, 0.97),
                rivals={"gd": 0.3, "gd++": -2e9},
            ),
            Rescaled(
                quantity="x", factor=4.0, outside=0.8, fidelity=0.97, fidelity_ci=(0.96, 0.98),
                rivals={"gd": -5000.0, "gd++": None},
            ),
            Rescaled(
                quantity="y", factor=-1.0, outside=0.05, fidelity=0.99, fidelity_ci=(0.98, 1.0), rivals={"gd": 0.6}
            ),
        ),
        replacements=(Replacement(layer=1, fidelity=0.4, fidelity_ci=(0.3, 0.5)),),
        query_share=0.999,
        weights_left=120,
        weights=229,
    )  # fmt: skip


def analysed(base: Analysis, passed: bool = True) -> Analysis:
    """``base``, an analysis of something else, as it is for such a network."""
    verdict = replace(
        base.verdict,
        algorithm="closed-form" if passed else "unrecognized",
        recognized=passed,
        summary=f"It computes the closed form {FORMULA}." if passed else "Unrecognized: not all conditions hold.",
    )
    row = Family(
        name="closed-form",
        parameters=0,
        fidelity=0.998,
        fidelity_ci=(0.997, 0.999),
        mse=0.0,
        chosen=passed,
        why="all conditions hold",
    )
    return replace(
        base,
        layers=(),
        implicit=(),
        regression=None,
        recovered=None,
        probes=(),
        families=(row,),
        verdict=verdict,
        closed_form=closed_form(passed),
        evidence=Evidence(
            prompts=base.evidence.prompts,
            losses=base.evidence.losses,
            depth_losses=(),
            notes=("coefficients: skipped, because LayerNorm is not linear",),
            held_out=base.evidence.held_out,
        ),
    )
