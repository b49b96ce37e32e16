"""The one result object. Analyses make it; reports, golden files and the command line read it, and nothing else.

Every number that came from data stands beside its uncertainty. NaN never appears: what is not known is None.
``Analysis.to_dict`` is the JSON document "interp-probe/1"; ``Analysis.from_dict`` is its inverse.
"""

from interp.probes.interventions import Erasure, Transplant
from interp.results.analysis import (
    Analysis,
    Coefficient,
    Family,
    ImplicitModel,
    Layer,
    Preconditioner,
    Split,
    Verdict,
    Weights,
)
from interp.results.behaviour import Behaviour, Match, Shift, Solver
from interp.results.closed_form import (
    Check,
    ClosedForm,
    Direction,
    Division,
    DivisionBin,
    Form,
    HeadRole,
    Replacement,
    Rescaled,
    Slot,
)
from interp.results.document import SCHEMA, CheckpointInfo
from interp.results.evidence import (
    Absorption,
    Evidence,
    Interpolation,
    LayerSwap,
    Loss,
    Outcome,
    PathPoint,
    Stress,
    StressPoint,
)
from interp.results.probes import ImplicitFit, ProbeReport, ProbeScore, ProbeTarget
from interp.results.recovered import Certificate, Disagreement, Recovered, RecoveredCoefficient, RecoveredLayer
from interp.results.regression import (
    Adaptation,
    AdaptationBin,
    FilterBin,
    Momentum,
    NoiseProfile,
    OmegaEffect,
    OmegaEffects,
    ProfileSeries,
    Regression,
    Remainder,
    SpectralFilter,
)
from interp.results.sweep import SweepRow

__all__ = [
    "SCHEMA",
    "Absorption",
    "Adaptation",
    "AdaptationBin",
    "Analysis",
    "Behaviour",
    "Certificate",
    "Check",
    "CheckpointInfo",
    "ClosedForm",
    "Coefficient",
    "Direction",
    "Disagreement",
    "Division",
    "DivisionBin",
    "Erasure",
    "Evidence",
    "Family",
    "FilterBin",
    "Form",
    "HeadRole",
    "ImplicitFit",
    "ImplicitModel",
    "Interpolation",
    "Layer",
    "LayerSwap",
    "Loss",
    "Match",
    "Momentum",
    "NoiseProfile",
    "OmegaEffect",
    "OmegaEffects",
    "Outcome",
    "PathPoint",
    "Preconditioner",
    "ProbeReport",
    "ProbeScore",
    "ProbeTarget",
    "ProfileSeries",
    "Recovered",
    "RecoveredCoefficient",
    "RecoveredLayer",
    "Regression",
    "Remainder",
    "Replacement",
    "Rescaled",
    "Shift",
    "Slot",
    "Solver",
    "SpectralFilter",
    "Split",
    "Stress",
    "StressPoint",
    "SweepRow",
    "Transplant",
    "Verdict",
    "Weights",
]
