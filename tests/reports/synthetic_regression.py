"""The regression section of an Analysis made by hand, for the tests of what people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.results import (
    Adaptation,
    AdaptationBin,
    FilterBin,
    Momentum,
    NoiseProfile,
    OmegaEffect,
    OmegaEffects,
    Preconditioner,
    ProfileSeries,
    Regression,
    Remainder,
    SpectralFilter,
)

SIGMA = tuple(0.5 * k for k in range(13))
LABELS = {
    "null": "predict zero",
    "gd-1": "1 GD step (tuned)",
    "gd-2": "2 GD steps (tuned)",
    "ols": "least squares",
    "constrr": "ridge, one penalty (8.41)",
    "adarr": "adaptive ridge",
}


def profile(
    excess: Mapping[str, Sequence[float | None]] | None = None,
    *,
    stderr: float = 0.04,
    trained: tuple[float, float] = (0.0, 5.0),
    levels: tuple[float, ...] | None = None,
    layers: int = 4,
) -> NoiseProfile:
    """A network that adapts, to sigma = 5; ``excess`` replaces series. Errors are a share of each value."""
    sigma = np.array(SIGMA)
    known: dict[str, Sequence[float | None]] = {
        "network": (0.1 + 0.3 * (sigma > 5)).tolist(),
        "recovered": (0.11 + 0.3 * (sigma > 5)).tolist(),
        "null": (9.8 - sigma).tolist(),
        "gd-1": (4 - 0.5 * sigma).tolist(),
        "gd-2": (2 + 0.1 * sigma**2).tolist(),
        "ols": (sigma**2).tolist(),
        "constrr": (0.2 * (sigma - 3) ** 2 + 0.15).tolist(),
        "adarr": (0.2 + 0.01 * sigma).tolist(),
    }
    for i in range(layers + 1):
        known[f"layer-{i}"] = [9.0 * (1 - i / layers) ** 2 + 0.1] * len(SIGMA)
    known.update(excess or {})
    labels = {"network": "the network", "recovered": "recovered algorithm (diag)"} | LABELS
    return NoiseProfile(
        sigma=SIGMA,
        prompts=(512,) * len(SIGMA),
        trained=trained,
        levels=levels,
        series=tuple(
            ProfileSeries(
                name=name,
                label=labels.get(name, f"read-out after {name.removeprefix('layer-')} layers"),
                excess=tuple(values),
                stderr=tuple(None if v is None else stderr * abs(v) for v in values),
            )
            for name, values in known.items()
        ),
    )


def adaptation(layer: int, observed: Sequence[float], *, fits: bool = True, stderr: float = 1e-3) -> Adaptation:
    """Ten bins between two observed ends; the predictions hold or miss."""
    ends = np.linspace(observed[0], observed[1], 10)
    miss = 0.0 if fits else 0.3
    return Adaptation(
        layer=layer,
        r2=0.99 if fits else -3.2,
        r2_by_weights=0.98,
        bins=tuple(
            AdaptationBin(
                x=10.0 * (k + 1),
                predicted=float(v) + miss,
                by_weights=float(v),
                observed=float(v),
                stderr=stderr,
                without=float(observed[0]) + 0.01 * k,
            )
            for k, v in enumerate(ends)
        ),
    )


def spectral(
    layer: int, noise: tuple[float, float], kept: float, ridge: float, *, stderr: float = 0.004
) -> SpectralFilter:
    """A filter that keeps ``kept`` of what ridge would keep at its largest eigenvalue, and less below."""
    bins = tuple(
        FilterBin(eigenvalue=5.0 * (k + 1), filter=kept * (k + 1) / 10, stderr=stderr, ridge=ridge * (k + 1) / 10)
        for k in range(10)
    )
    return SpectralFilter(layer=layer, noise=noise, r2=0.98, bins=bins)


def omega_effect(coefficient: str, layer: int | None, zeroed: Any, worth: Any) -> OmegaEffect:
    """``zeroed`` and ``worth`` are (value, standard error); refitted is a little less than worth."""
    value, error = worth
    return OmegaEffect(
        coefficient=coefficient,
        layer=layer,
        zeroed=zeroed[0],
        zeroed_stderr=zeroed[1],
        refitted=None if value is None else value - 0.01,
        refitted_stderr=error,
        worth=value,
        worth_stderr=error,
    )


def effects(*, refitted: bool = True) -> OmegaEffects:
    """omega_xx of layer 0 diverges when it is zeroed; omega_xy of layer 0 is worth nothing."""
    nothing = (None, None)
    rows = (
        omega_effect("xx", None, (3.6e4, 3.4e4), (0.16, 0.015)),
        omega_effect("xy", None, (1.6, 0.06), (0.1, 0.007)),
        omega_effect("yx", None, (6.9, 0.15), (6.9, 0.15)),
        omega_effect("yy", None, (5.9, 0.7), (0.05, 0.006)),
        omega_effect("xy+yy", None, (6.4, 0.2), (0.63, 0.03)),
        omega_effect("xx", 0, (9.0e8, 7.6e8), (0.03, 0.004)),
        omega_effect("xy", 0, (0.006, 0.0015), (-0.00014, 0.00014)),
        omega_effect("yx", 3, (0.7, 0.05), (0.11, 0.009)),
    )
    if not refitted:
        rows = tuple(omega_effect(e.coefficient, e.layer, (e.zeroed, e.zeroed_stderr), nothing) for e in rows)
    return OmegaEffects(
        family="diag",
        prompts=1024,
        excess=0.12,
        excess_stderr=0.006,
        refitted=-0.0014 if refitted else None,
        refitted_stderr=0.0006 if refitted else None,
        effects=rows,
        note=None if refitted else "not refitted: 128 prompts are too few for 14 coefficients (--prompts)",
    )


def momentum(layers: int) -> tuple[Momentum, ...]:
    """No momentum in layer 0, the plain gradient in layer 1, momentum afterwards."""
    rows = []
    for layer in range(layers):
        first, last = layer == 0, layer == layers - 1
        eta_r2 = None if first else 0.1 if layer == 1 else 0.83
        rows.append(
            Momentum(
                layer=layer,
                beta=None if first or last else 0.46,
                beta_stderr=None if first or last else 0.2,
                gradient=None if last else -1.2e-4,
                gradient_stderr=None if last else 1e-6,
                u_r2=None if last else 0.9,
                eta=None if first else 15.9,
                eta_stderr=None if first else 0.2,
                eta_r2=eta_r2,
                step=0.017,
                step_stderr=0.0003,
                step_r2=1.0 if first else 0.7,
                both_r2=1.0 if first else 0.85,
            )
        )
    return tuple(rows)


def remainder(layer: int, *, energy: float = 0.0, fidelity: float = 0.8) -> Remainder:
    """Nothing left, or most of it in x <- x read from Sigma."""
    if energy == 0.0:
        why = "nothing is left over"
        return Remainder(
            layer=layer,
            energy=0.0,
            blocks=None,
            rank=None,
            leading=None,
            projected_fidelity=1.0,
            projected_ci=(1.0, 1.0),
            omega_fidelity=1.0,
            omega_ci=(1.0, 1.0),
            why=why,
        )
    blocks = {ae: dict.fromkeys(("xx", "xy", "yy"), 0.0) for ae in ("xx", "xy", "yx", "yy")}
    blocks["xx"] = {"xx": 0.9, "xy": 0.06, "yy": 0.0}
    blocks["yx"]["xx"] = 0.04
    return Remainder(
        layer=layer,
        energy=energy,
        blocks=blocks,
        rank=38.2,
        leading=(0.05, 0.04, 0.04, 0.03, 0.03),
        projected_fidelity=-2.4,
        projected_ci=(-3.1, -1.8),
        omega_fidelity=fidelity,
        omega_ci=(fidelity - 0.03, fidelity + 0.03),
    )


def regression(layers: int = 4, *, levels: tuple[float, ...] | None = None, full: bool = False) -> Regression:
    """``full``: the last layers hold what the omegas do not explain, and the refits were left out."""
    noises = [(0.02, 1.6), (1.7, 3.2), (3.3, 5.0)] if levels is None else [(v, v) for v in levels]
    last = layers - 1
    return Regression(
        profile=profile(
            levels=levels, trained=(0.0, 5.0) if levels is None else (levels[0], levels[-1]), layers=layers
        ),
        omegas=effects(refitted=not full),
        shrinkage=tuple(adaptation(i, (0.98, 0.8) if i < last else (1.0, 1.2), fits=not full) for i in range(layers)),
        step=tuple(adaptation(i, (0.02, 0.02) if i < last else (0.09, -0.004), fits=not full) for i in range(layers)),
        momentum=momentum(layers),
        filters=tuple(
            spectral(i, noise, 0.9 - 0.2 * k, 1.0 - 0.2 * k)
            for i in range(1, layers + 1)
            for k, noise in enumerate(noises)
        ),
        remainder=tuple(remainder(i, energy=0.99 if full and i >= last - 1 else 0.0) for i in range(layers)),
    )


def preconditioners(layers: int = 2, dim: int = 5) -> tuple[Preconditioner, ...]:
    """A diagonal matrix and some noise."""
    rng = np.random.default_rng(0)
    rows = []
    for layer in range(layers):
        matrix = np.diag(np.linspace(-0.1, -0.02, dim)) + 1e-3 * rng.standard_normal((dim, dim))
        rows.append(
            Preconditioner(
                layer=layer,
                weight=matrix.tolist(),
                refit=matrix.tolist(),
                refit_stderr=np.full((dim, dim), 2e-4).tolist(),
                distance={"identity": 0.6, "inverse covariance": 0.05 * (layer + 1)},
            )
        )
    return tuple(rows)
