"""Figures of the HTML report, as plotly data and layout.

A figure takes an Analysis and nothing else. Its title is its finding; its numbers are also a table. A figure that the
analysis has no numbers for is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from interp.reports.adaptation_figures import omega_figure, shrinkage_figure, step_figure
from interp.reports.behaviour_figures import shift_figure, trajectory_figure
from interp.reports.closed_form_figures import division_figure, rescaled_figure
from interp.reports.coefficient_figures import coefficient_figure, preconditioner_figure
from interp.reports.completion_figures import agreement_figure, law_figure
from interp.reports.evidence_figures import absorption_figure, interpolation_figure, stress_figure, swap_figure
from interp.reports.implicit_figures import distance_figure, filter_figure, momentum_figure
from interp.reports.loss_figures import depth_figure, depth_profile_figure, loss_figure, profile_figure
from interp.reports.remainder_figures import remainder_figure, split_figure
from interp.reports.task_in_words import task_name
from interp.results import Analysis, Figure

__all__ = ["behaviour_reason", "figures", "regression_reason", "skipped_figures"]

_MAKERS = (
    coefficient_figure,
    preconditioner_figure,
    division_figure,
    rescaled_figure,
    loss_figure,
    depth_figure,
    law_figure,
    agreement_figure,
    swap_figure,
    interpolation_figure,
    stress_figure,
    absorption_figure,
    profile_figure,
    depth_profile_figure,
    filter_figure,
    shrinkage_figure,
    step_figure,
    omega_figure,
    momentum_figure,
    distance_figure,
    trajectory_figure,
    shift_figure,
    split_figure,
    remainder_figure,
)


def figures(analysis: Analysis) -> dict[str, Figure]:
    """All figures that the analysis has numbers for, by name."""
    made = (maker(analysis) for maker in _MAKERS)
    return {figure.name: figure for figure in made if figure is not None}


def regression_reason(analysis: Analysis) -> str:
    """Why there is nothing on how the network adapts to noise; empty when there is."""
    if analysis.regression is not None:
        return ""
    if analysis.task.get("name") != "noisy_regression":
        return f"it is made for noisy regression alone, and the task is {task_name(analysis.task)}"
    if all(family.fidelity is None for family in analysis.families):
        return "no algorithm family could be scored on this network, so nothing stands beside it"
    return "the document does not hold it"


def behaviour_reason(analysis: Analysis) -> str:
    """Why there is no comparison with classical solvers; empty when there is."""
    if analysis.behaviour is not None:
        return ""
    if analysis.task.get("name") != "noisy_regression":
        return f"it is made for noisy regression alone, and the task is {task_name(analysis.task)}"
    return "this analysis has no comparison with classical solvers; its notes may say why"


def skipped_figures(analysis: Analysis, made: Mapping[str, Figure]) -> dict[str, str]:
    """Why figures are not among those ``made`` of an analysis that has a regression section, by their name."""
    if analysis.regression is None:
        return {}
    reasons = {
        "profile": "the losses at fixed noise levels are not finite",
        "profile-depth": "it has no read-outs after single layers",
        "filters": "the implicit weights are not finite, or least squares is 0",
        "shrinkage": "no layer has a factor on the labels that reaches the output and differs between prompts",
        "step": "the contexts are fitted exactly, so no residual energy differs between prompts",
        "omegas": "the recovered algorithm has no ω that could be taken out",
        "momentum": "no layer moves the implicit weights by a finite amount",
        "remainder": "the layers have no say in the prediction, or their weights overflow",
    }
    return {name: why for name, why in reasons.items() if name not in made}
