"""Reference solvers for in-context linear regression. They know nothing of networks."""

from __future__ import annotations

from interp.algorithms.baselines import Baseline, regression_baselines
from interp.algorithms.chebyshev import chebyshev, chebyshev_steps
from interp.algorithms.conjugate_gradients import conjugate_gradients
from interp.algorithms.gdpp import GDPlusPlus, gdpp, gdpp_gain, next_eigenvalue, theorem_5_1, tune_gdpp
from interp.algorithms.gradient_descent import (
    GradientDescent,
    gradient_descent,
    gradient_descent_gain,
    heavy_ball,
    tune_constant_step,
    tune_steps,
)
from interp.algorithms.newton_schulz import inverse_iterates, newton_schulz
from interp.algorithms.ridge import (
    AdaRR,
    ConstRR,
    TunedRR,
    ols,
    residual_variance,
    ridge,
    ridge_gain,
    tune_const,
    tune_tuned,
)
from interp.algorithms.statistics import RegressionStatistics, Spectrum
from interp.algorithms.tuning import TuningSet

__all__ = [
    "AdaRR",
    "Baseline",
    "ConstRR",
    "GDPlusPlus",
    "GradientDescent",
    "RegressionStatistics",
    "Spectrum",
    "TunedRR",
    "TuningSet",
    "chebyshev",
    "chebyshev_steps",
    "conjugate_gradients",
    "gdpp",
    "gdpp_gain",
    "gradient_descent",
    "gradient_descent_gain",
    "heavy_ball",
    "inverse_iterates",
    "newton_schulz",
    "next_eigenvalue",
    "ols",
    "regression_baselines",
    "residual_variance",
    "ridge",
    "ridge_gain",
    "theorem_5_1",
    "tune_const",
    "tune_constant_step",
    "tune_gdpp",
    "tune_steps",
    "tune_tuned",
]
