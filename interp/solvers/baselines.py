"""The registry of classical algorithms a network is compared with, tuned for its task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.solvers.gradient_descent import tune_constant_step
from interp.solvers.ridge import ConstRR, TunedRR, tune_const, tune_tuned
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet

__all__ = ["Baseline", "regression_baselines"]

GD_STEPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Baseline:
    """An estimator of w from a context. ``name`` is for machines, ``label`` for people; ``weights`` maps the
    statistics of N prompts of dimension d to (N, d)."""

    name: str
    label: str
    weights: Callable[[RegressionStatistics], Tensor]


def regression_baselines(tuning: TuningSet, weight_std: float = 1.0) -> tuple[Baseline, ...]:
    """null, gd-1, gd-2, gd-4, gd-8 (each with its own tuned constant step), ols, constrr, adarr, tunedrr; tuned on
    ``tuning``, whose prompts have w ~ N(0, weight_std^2 I).

    adarr and tunedrr estimate the noise from residuals, so they are left out when the context is no longer than the
    dimension. Apply them to other prompts than those of ``tuning`` to keep the comparison honest.
    """
    const = tune_const(tuning)
    out = [Baseline("null", "predict zero", lambda statistics: torch.zeros_like(statistics.alpha))]
    for steps in GD_STEPS:
        label = f"{steps} GD step{'s' * (steps != 1)} (tuned)"
        out.append(Baseline(f"gd-{steps}", label, tune_constant_step(tuning, steps).weights))
    out.append(Baseline("ols", "least squares", ConstRR(penalty=0.0).weights))
    out.append(Baseline("constrr", f"ridge, one penalty ({const.penalty:.3g})", const.weights))
    if tuning.statistics.context > tuning.statistics.dim:
        out.append(Baseline("adarr", "adaptive ridge", TunedRR(factor=weight_std**-2).weights))
        tuned = tune_tuned(tuning)
        limit = f" up to {tuned.cap:.3g}" if math.isfinite(tuned.cap) else ""
        label = f"tuned adaptive ridge (x {tuned.factor:.3g}{limit})"
        out.append(Baseline("tunedrr", label, tuned.weights))
    return tuple(out)
