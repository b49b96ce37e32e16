"""The parts of an Analysis made by hand: losses, weights, layers, implicit models, the algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.results import (
    Coefficient,
    ImplicitModel,
    Layer,
    Loss,
    RecoveredCoefficient,
    RecoveredLayer,
    RecoveredOmegas,
    Split,
)

DIM = 10
OMEGAS = (  # xx, xy, yx, yy of the layers of a DIAG network on U(0, 5)
    (-0.01534, -0.000352, -0.02221, -0.000513),
    (-0.02871, -0.000844, -0.03127, -0.000391),
    (-0.04418, -0.000173, -0.06643, -0.000287),
    (None, None, -0.11073, -0.000642),
)
STDERR = (2.1e-4, 1.3e-5, 1.8e-4, 4.4e-6)
OPTIMUM = 3.1325
BASELINES = {
    "ols": ("least squares", 9.2714),
    "gd-1": ("1 GD step (tuned)", 5.0312),
    "gd-2": ("2 GD steps (tuned)", 4.4371),
    "gd-4": ("4 GD steps (tuned)", 3.9917),
    "gd-8": ("8 GD steps (tuned)", 3.9302),
    "constrr": ("ridge, one penalty (8.41)", 3.8211),
    "adarr": ("adaptive ridge", 3.3013),
    "tunedrr": ("tuned adaptive ridge (x 1.3 up to 17.5)", 3.2324),
}


def loss(name: str, label: str, mse: float) -> Loss:
    """Errors of single prompts vary as much as they are large; differences to the oracle's vary less."""
    excess = mse - OPTIMUM
    return Loss(
        name=name,
        label=label,
        mse=mse,
        stderr=0.0311 * mse,
        excess=excess,
        excess_stderr=0.0421 * excess + 1e-4 * bool(excess),
    )


def weights(rng: np.random.Generator, omegas: Any, dim: int, heads: int) -> tuple[np.ndarray, np.ndarray]:
    shape = (len(omegas), heads, dim + 1, dim + 1)
    Q, P = 2e-3 * rng.standard_normal(shape), 2e-3 * rng.standard_normal(shape)
    inputs = np.arange(dim)
    for i, (xx, _, yx, yy) in enumerate(omegas):
        Q[i, :, inputs, inputs] += 0.5 if xx is None else abs(xx) ** 0.5
        P[i, :, inputs, inputs] += 0.1 if xx is None else -(abs(xx) ** 0.5) / heads
        Q[i, :, dim, dim] += abs(yy) ** 0.5
        P[i, :, dim, dim] += yx / heads
    return Q, P


def layer(rng: np.random.Generator, index: int, values: tuple[float | None, ...]) -> Layer:
    omega = {n: coefficient(rng, v, s) for n, v, s in zip(("xx", "xy", "yx", "yy"), values, STDERR, strict=True)}
    live = values[0] is not None
    trace = {
        "x:xx": coefficient(rng, 2e-6 if live else None, 4e-6),
        "x:yy": coefficient(rng, -3e-7 if live else None, 8e-7),
        "y:xx": coefficient(rng, 1e-6, 3e-6),
    }
    return Layer(index=index, omega=omega, trace=trace, split=Split(block_scalar=0.9931, trace=0.0002, residual=0.0067))


def coefficient(rng: np.random.Generator, value: float | None, stderr: float) -> Coefficient:
    if value is None:
        return Coefficient(weight=None, output=None, stderr=None, refit=None, refit_stderr=None, live=False)
    weight, output, refit = (
        value * 1.01,
        value + stderr * rng.standard_normal(),
        value + 0.5 * stderr * rng.standard_normal(),
    )
    return Coefficient(weight=weight, output=output, stderr=stderr, refit=refit, refit_stderr=0.6 * stderr, live=True)


def implicit(layer: int, layers: int) -> ImplicitModel:
    done = layer / layers
    last = {
        "gd-1": 0.61,
        "gd-2": 0.33,
        "gd-4": 0.153,
        "gd-8": 0.094,
        "ols": 0.52,
        "constrr": 0.089,
        "adarr": 0.0171,
        "tunedrr": 0.0093,
        "oracle": 0.0087,
        "true": 0.3214,
    }
    distance = {name: value**done for name, value in last.items()}
    return ImplicitModel(
        layer=layer,
        a=1.0 - 0.21 * done,
        linearity_r2=1.0,
        distance=dict(distance),
        distance_stderr={name: 0.0 if layer == 0 else 0.04 * value for name, value in distance.items()},
    )


def recovered(family: str, layers: tuple[Layer, ...]) -> RecoveredOmegas:
    """The algorithm whose numbers are the refitted omegas of the layers."""
    names = ("yx",) if family == "gd" else ("xx", "xy", "yx", "yy")
    rows = [{name: c for name, c in layer.omega.items() if name in names and c.refit is not None} for layer in layers]
    return RecoveredOmegas(
        family=family,
        equation="",
        parameters=sum(map(len, rows)),
        dim=DIM,
        context=20,
        keys="context",
        scale="1",
        residual=True,
        sign=-1,
        layers=tuple(
            RecoveredLayer(
                index=layer.index,
                coefficients={
                    name: RecoveredCoefficient(value=c.refit, stderr=c.refit_stderr, undetermined=c.undetermined)
                    for name, c in row.items()
                    if c.refit is not None
                },
            )
            for layer, row in zip(layers, rows, strict=True)
        ),
    )
