"""How linear implicit models are: exactly where layers are, less where a clip cuts or a query is its own key."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planting import block_scalar_heads, spec_for

from interp.evidence.implicit_fits import implicit_fits
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.results import ImplicitFit

TASK = NoisyRegression(dim=4, context=12, noise=NoiseLaw(kind="uniform", values=(0.0, 2.0)))


def fits(layers: tuple[int, ...], *positions: int | None, context: int = 12, **fields: Any) -> tuple[ImplicitFit, ...]:
    """Of three layers of GD++."""
    P, Q = block_scalar_heads(torch.tensor([[-0.01, 0.0, -0.04, 0.0]] * 3, dtype=torch.float64), 4)
    model = LinearTransformer(spec=spec_for(4, context, noise=2.0, **fields), P=P, Q=Q)
    drawn = NoisyRegression(dim=4, context=context, noise=TASK.noise).sample(128, 0)
    return implicit_fits(model, drawn, positions, layers)


def test_linear_layers_with_shared_keys() -> None:
    found = fits((0, 3), None)
    assert [(fit.layer, fit.position, fit.rows) for fit in found] == [(0, None, "tokens"), (3, None, "tokens")]
    assert all(fit.linearity_r2 == pytest.approx(1.0, abs=1e-12) and fit.prompts == 128 for fit in found)


def test_a_clip() -> None:
    (clipped,) = fits((3,), None, clip=2.0)
    low, high = clipped.linearity_r2_ci
    assert clipped.linearity_r2 is not None and low is not None and high is not None
    assert low < clipped.linearity_r2 < high < 1.0


def test_causal_keys() -> None:
    nothing, first, second = fits((1, 2), 0, 5, attention={"keys": "causal"})[1:]
    assert (nothing.position, nothing.rows, nothing.linearity_r2) == (0, "queries", None) and nothing.reason is not None
    assert (first.position, first.layer) == (5, 1) and first.linearity_r2 == pytest.approx(1.0, abs=1e-12)
    assert second.linearity_r2 is not None and 0.5 < second.linearity_r2 < 1.0  # its own key by now


def test_no_token_to_spare() -> None:
    (fit,) = fits((3,), None, context=4)
    assert fit.linearity_r2 is None and fit.reason is not None and "no more tokens than unknowns" in fit.reason
