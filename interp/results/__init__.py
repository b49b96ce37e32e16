"""The one result object. Analyses make it; reports, golden files and the command line read it, and nothing else.

Every number that came from data stands beside its uncertainty. NaN never appears: what is not known is None.
``Analysis.to_dict`` is the JSON document "interp-probe/1"; ``Analysis.from_dict`` is its inverse. What this room offers
is imported here, by name.
"""

from interp.models.skipped import Skipped
from interp.models.words import Words
from interp.probes.interventions import Erasure, Interval, Transplant
from interp.results.analysis import (
    Analysis,
    Coefficient,
    Family,
    ImplicitModel,
    Layer,
    Preconditioner,
    Share,
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
from interp.results.completion import (
    Agreement,
    Completion,
    Extraction,
    LawPoint,
    MachineTraffic,
    ScalingLaw,
    SketchLayer,
)
from interp.results.document import SCHEMA, CheckpointInfo, Document
from interp.results.evidence import (
    Absorption,
    CourseRow,
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
from interp.results.recovered import (
    Certificate,
    Channel,
    Content,
    Disagreement,
    Law,
    PromptKind,
    Recovered,
    RecoveredAlgorithm,
    RecoveredCompletion,
    RecoveredDescent,
    RecoveredForm,
    RecoveredHeads,
    RecoveredLayer,
    RecoveredOmegas,
    RecoveredStep,
)
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
from interp.results.section import Figure, Panel, Section, Series, Table
from interp.results.sequences import (
    Compression,
    GradientStep,
    HeadBlocks,
    Interpolated,
    MesaObjective,
    RankedNumber,
    SequenceLoss,
    Sequences,
)
from interp.results.sweep import SweepRow
from interp.results.tables import Tabular, tables_of, to_frame
from interp.results.update import (
    OMEGAS,
    Factor,
    FactorName,
    RecoveredArray,
    RecoveredCoefficient,
    Term,
    Update,
    moved,
    omega_terms,
    preconditioned,
    shape,
)
