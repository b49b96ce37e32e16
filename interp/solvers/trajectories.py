"""Classical solvers as trajectories: all their iterates, with free numbers chosen so that one of them comes closest to
given weights.

A solver is compared with a network as a whole path w_0, w_1, …, so its free numbers must not depend on the iterate.
They are tuned for the iterate that the network is to be matched by last, ``layers`` or twice as many steps, on prompts
of their own; what has no free numbers (conjugate gradients, Newton-Schulz) has nothing to tune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.chebyshev import chebyshev, chebyshev_steps
from interp.solvers.conjugate_gradients import conjugate_gradients
from interp.solvers.gdpp import gdpp, tune_gdpp
from interp.solvers.gradient_descent import gradient_descent, gradient_descent_gain
from interp.solvers.newton_schulz import newton_schulz
from interp.solvers.ridge import ConstRR
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet, minimise_positive

__all__ = ["Trajectory", "tuned_trajectories"]

MOST_STEPS = 32
SQUARINGS = 24  # of Newton-Schulz at most: each squares the error
PENALTIES = 41  # of the ridge path, from 10^3 to 10^-3 of the mean eigenvalue
STARTS = 2  # local searches for GD++


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """``marks`` are the numbers of the iterates: steps, or penalties along the ridge path, from much to little."""

    name: str
    label: str
    unit: str = "steps"  # or "penalty"
    parameters: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[float, ...]
    iterates: Callable[[RegressionStatistics], Float[Tensor, "mark prompt dim"]]


def tuned_trajectories(tuning: TuningSet, layers: int) -> tuple[Trajectory, ...]:
    """Every solver, tuned to the weights that ``tuning`` calls the oracle's."""
    steps = min(max(2 * layers, 8), MOST_STEPS)
    counted, squarings = tuple(float(k) for k in range(steps + 1)), min(steps + 8, SQUARINGS)
    return (
        *_gradient_methods(tuning, sorted({min(layers, MOST_STEPS), min(2 * layers, MOST_STEPS)}), steps, counted),
        Trajectory(
            name="cg", label="conjugate gradients", marks=counted,
            iterates=lambda s: conjugate_gradients(s.sigma, s.alpha, steps),
        ),
        Trajectory(
            name="newton-schulz", label="Newton-Schulz", marks=tuple(float(k) for k in range(squarings + 1)),
            iterates=lambda s: newton_schulz(s.sigma, s.alpha, squarings),
        ),
        _gdpp(tuning, min(layers, MOST_STEPS)),
        _ridge_path(tuning.statistics.spectrum.values),
    )  # fmt: skip


def _gradient_methods(
    tuning: TuningSet, horizons: list[int], steps: int, counted: tuple[float, ...]
) -> tuple[Trajectory, ...]:
    values, scale = tuning.statistics.spectrum.values, tuning.largest_eigenvalue

    def tuned(gain: Callable[..., Tensor], grids: list[np.ndarray], precision: float = 1e-4) -> tuple[float, ...]:
        """The numbers of least loss after as many steps as one of ``horizons``; all but the first are below 1."""

        def loss(count: int, *numbers: float) -> float:
            allowed = all(number < 1.0 for number in numbers[1:])
            return float(tuning.gain_loss(gain(count, *numbers))) if allowed else float("inf")

        found = [(n, *minimise_positive(partial(loss, n), [g.tolist() for g in grids], precision)) for n in horizons]
        return min(found, key=lambda point: loss(*point))[1:]

    (step,) = tuned(
        lambda n, step: gradient_descent_gain(values, [step] * n), [np.geomspace(0.01 / scale, 2 / scale, 16)], 1e-5
    )
    eta, rest = tuned(
        lambda n, eta, rest: gradient_descent_gain(values, [eta] * n, 1.0 - rest),
        [np.geomspace(0.03 / scale, 2 / scale, 9), np.geomspace(0.1, 0.95, 6)],
    )
    largest, share = tuned(
        lambda n, largest, share: gradient_descent_gain(values, chebyshev_steps(share * largest, largest, n)),
        [np.geomspace(0.3 * scale, 8 * scale, 8), np.geomspace(0.003, 0.9, 8)],
    )
    return (
        Trajectory(
            name="gd", label="gradient descent", parameters={"step": step}, marks=counted,
            iterates=lambda s: gradient_descent(s.sigma, s.alpha, [step] * steps),
        ),
        Trajectory(
            name="momentum", label="gradient descent with momentum",
            parameters={"step": eta, "momentum": 1.0 - rest}, marks=counted,
            iterates=lambda s: gradient_descent(s.sigma, s.alpha, [eta] * steps, 1.0 - rest),
        ),
        Trajectory(
            name="chebyshev", label="Chebyshev iteration",
            parameters={"smallest": share * largest, "largest": largest}, marks=counted,
            iterates=lambda s: chebyshev(s.sigma, s.alpha, share * largest, largest, steps),
        ),
    )  # fmt: skip


def _gdpp(tuning: TuningSet, layers: int) -> Trajectory:
    tuned = tune_gdpp(tuning, layers, starts=STARTS)
    parameters = {
        f"{name} {layer}": value
        for layer, pair in enumerate(zip(tuned.omega_xx, tuned.omega_yx, strict=True))
        for name, value in zip(("omega_xx", "omega_yx"), pair, strict=True)
    }
    return Trajectory(
        name="gd++", label="GD++", parameters=parameters, marks=tuple(float(k) for k in range(layers + 1)),
        iterates=lambda s: gdpp(s.sigma, s.alpha, tuned.omega_xx, tuned.omega_yx),
    )  # fmt: skip


def _ridge_path(values: Float[Tensor, "prompt dim"]) -> Trajectory:
    marks = tuple((max(float(values.mean()), 1e-300) * np.geomspace(1e3, 1e-3, PENALTIES)).tolist())

    def iterates(known: RegressionStatistics) -> Float[Tensor, "mark prompt dim"]:
        return torch.stack([ConstRR(penalty=mark).weights(known) for mark in marks])

    return Trajectory(name="ridge", label="ridge path", unit="penalty", marks=marks, iterates=iterates)
