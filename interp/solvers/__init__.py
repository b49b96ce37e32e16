"""Reference solvers for in-context linear regression. They know nothing of networks."""

from __future__ import annotations

from interp.solvers.baselines import Baseline, regression_baselines
from interp.solvers.chebyshev import chebyshev, chebyshev_steps
from interp.solvers.conjugate_gradients import conjugate_gradients
from interp.solvers.gdpp import GDPlusPlus, gdpp, gdpp_gain, next_eigenvalue, theorem_5_1, tune_gdpp
from interp.solvers.gradient_descent import (
    GradientDescent,
    gradient_descent,
    gradient_descent_gain,
    heavy_ball,
    tune_constant_step,
    tune_steps,
)
from interp.solvers.newton_schulz import inverse_iterates, newton_schulz
from interp.solvers.ridge import (
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
from interp.solvers.statistics import RegressionStatistics, Spectrum
from interp.solvers.tuning import TuningSet

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
