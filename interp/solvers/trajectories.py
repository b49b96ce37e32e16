"""Classical solvers as trajectories: all their iterates, with free numbers chosen so that one of them comes closest to
given weights.

A solver is compared with a network as a whole path w_0, w_1, …, so its free numbers must not depend on the iterate.
They are tuned for the iterate that the network is to be matched by last, ``layers`` or twice as many steps, on prompts
of their own; what has no free numbers (conjugate gradients, Newton-Schulz) has nothing to tune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.chebyshev import chebyshev, chebyshev_steps
from interp.solvers.conjugate_gradients import conjugate_gradients
from interp.solvers.gdpp import gdpp, tune_gdpp
from interp.solvers.gradient_descent import gradient_descent, gradient_descent_gain, heavy_ball
from interp.solvers.newton_schulz import newton_schulz
from interp.solvers.ridge import ridge_gain
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet, minimise_positive

__all__ = ["Trajectory", "momentum_gain", "tuned_trajectories"]

MOST_STEPS = 32
SQUARINGS = 24  # of Newton-Schulz at most: each squares the error
PENALTIES = 41  # of the ridge path, from 10^3 to 10^-3 of the mean eigenvalue
STARTS = 2  # local searches for GD++


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """``marks`` are the numbers of the iterates: steps, or penalties along the ridge path, from much to little."""

    name: str
    label: str
    unit: str  # "steps" or "penalty"
    parameters: Mapping[str, float]
    marks: tuple[float, ...]
    iterates: Callable[[RegressionStatistics], Float[Tensor, "mark prompt dim"]]


def tuned_trajectories(tuning: TuningSet, layers: int) -> tuple[Trajectory, ...]:
    """Every solver, tuned to the weights that ``tuning`` calls the oracle's."""
    values = tuning.statistics.spectrum.values
    scale = max(float(values[:, -1].mean()), 1e-300)
    horizons = sorted({min(layers, MOST_STEPS), min(2 * layers, MOST_STEPS)})
    steps = min(max(2 * layers, 8), MOST_STEPS)
    return (
        _descent(tuning, values, scale, horizons, steps),
        _momentum(tuning, values, scale, horizons, steps),
        _chebyshev(tuning, values, scale, horizons, steps),
        Trajectory(
            name="cg", label="conjugate gradients", unit="steps", parameters={}, marks=_counted(steps),
            iterates=lambda s: conjugate_gradients(s.sigma, s.alpha, steps),
        ),
        Trajectory(
            name="newton-schulz", label="Newton-Schulz", unit="steps", parameters={},
            marks=_counted(min(steps + 8, SQUARINGS)),
            iterates=lambda s: newton_schulz(s.sigma, s.alpha, min(steps + 8, SQUARINGS)),
        ),
        _gdpp(tuning, min(layers, MOST_STEPS)),
        _ridge_path(values),
    )  # fmt: skip


def _counted(steps: int) -> tuple[float, ...]:
    return tuple(float(k) for k in range(steps + 1))


def _geometric(low: float, high: float, count: int) -> list[float]:
    return [low * (high / low) ** (k / (count - 1)) for k in range(count)]


def _descent(tuning: TuningSet, values: Tensor, scale: float, horizons: list[int], steps: int) -> Trajectory:
    def loss(step: float, count: int) -> float:
        return float(tuning.gain_loss(gradient_descent_gain(values, [step] * count)))

    grid = _geometric(0.01 / scale, 2 / scale, 16)
    found = [(minimise_positive(lambda s, n=n: loss(s, n), [grid]), n) for n in horizons]
    (step,), _ = min(found, key=lambda pair: loss(pair[0][0], pair[1]))
    return Trajectory(
        name="gd", label="gradient descent", unit="steps", parameters={"step": step}, marks=_counted(steps),
        iterates=lambda s: gradient_descent(s.sigma, s.alpha, [step] * steps),
    )  # fmt: skip


def momentum_gain(
    values: Float[Tensor, "prompt dim"], eta: float, beta: float, iterations: int
) -> Float[Tensor, "prompt dim"]:
    """The spectral gain of the last iterate of ``heavy_ball``."""
    gain = previous = torch.zeros_like(values)
    for _ in range(iterations):
        gain, previous = gain + eta * (1.0 - values * gain) + beta * (gain - previous), gain
    return gain


def _momentum(tuning: TuningSet, values: Tensor, scale: float, horizons: list[int], steps: int) -> Trajectory:
    def loss(eta: float, rest: float, count: int) -> float:
        if rest >= 1.0:
            return float("inf")
        return float(tuning.gain_loss(momentum_gain(values, eta, 1.0 - rest, count)))

    grids = [_geometric(0.03 / scale, 2 / scale, 9), _geometric(0.1, 0.95, 6)]
    found = [(minimise_positive(lambda e, r, n=n: loss(e, r, n), grids, 1e-4), n) for n in horizons]
    (eta, rest), _ = min(found, key=lambda pair: loss(pair[0][0], pair[0][1], pair[1]))
    beta = 1.0 - rest
    return Trajectory(
        name="momentum", label="gradient descent with momentum", unit="steps",
        parameters={"step": eta, "momentum": beta}, marks=_counted(steps),
        iterates=lambda s: heavy_ball(s.sigma, s.alpha, eta, beta, steps),
    )  # fmt: skip


def _chebyshev(tuning: TuningSet, values: Tensor, scale: float, horizons: list[int], steps: int) -> Trajectory:
    def loss(largest: float, share: float, count: int) -> float:
        if share >= 1.0:
            return float("inf")
        return float(tuning.gain_loss(gradient_descent_gain(values, chebyshev_steps(share * largest, largest, count))))

    grids = [_geometric(0.3 * scale, 8 * scale, 8), _geometric(0.003, 0.9, 8)]
    found = [(minimise_positive(lambda g, r, n=n: loss(g, r, n), grids, 1e-4), n) for n in horizons]
    (largest, share), _ = min(found, key=lambda pair: loss(pair[0][0], pair[0][1], pair[1]))
    smallest = share * largest
    return Trajectory(
        name="chebyshev", label="Chebyshev iteration", unit="steps",
        parameters={"smallest": smallest, "largest": largest}, marks=_counted(steps),
        iterates=lambda s: chebyshev(s.sigma, s.alpha, smallest, largest, steps),
    )  # fmt: skip


def _gdpp(tuning: TuningSet, layers: int) -> Trajectory:
    tuned = tune_gdpp(tuning, layers, starts=STARTS)
    parameters = {
        f"{name} {layer}": value
        for layer, pair in enumerate(zip(tuned.omega_xx, tuned.omega_yx, strict=True))
        for name, value in zip(("omega_xx", "omega_yx"), pair, strict=True)
    }
    return Trajectory(
        name="gd++", label="GD++", unit="steps", parameters=parameters, marks=_counted(layers),
        iterates=lambda s: gdpp(s.sigma, s.alpha, tuned.omega_xx, tuned.omega_yx),
    )  # fmt: skip


def _ridge_path(values: Tensor) -> Trajectory:
    mean = max(float(values.mean()), 1e-300)
    marks = tuple(reversed(_geometric(1e-3 * mean, 1e3 * mean, PENALTIES)))

    def iterates(known: RegressionStatistics) -> Float[Tensor, "mark prompt dim"]:
        spectrum = known.spectrum
        return torch.stack([spectrum.filtered(ridge_gain(spectrum.values, mark), known.alpha) for mark in marks])

    return Trajectory(
        name="ridge", label="ridge path", unit="penalty", parameters={}, marks=marks, iterates=iterates
    )  # fmt: skip
