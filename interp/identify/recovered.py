"""The recovered algorithm in figures and words: coefficients by their three estimates, the table of families, the
verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, project
from interp.families.omegas import BasisFamily
from interp.identify.estimates import Estimate
from interp.identify.identification import Candidate, Score
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.results import Behaviour, Coefficient, Family, Layer, Loss, ScalingLaw, Split, Verdict

__all__ = ["describe_layers", "family_rows", "no_verdict", "score_words", "task_sentence", "verdict"]

NOTHING = Coefficient(weight=None, output=None, stderr=None, refit=None, refit_stderr=None, live=False)


def describe_layers(
    network: HeadLayers,
    spec: ModelSpec,
    live: LiveCoordinates,
    candidates: Sequence[Candidate],
    chosen: Candidate | None,
) -> tuple[Layer, ...]:
    """Coefficients of every layer. Output and refit estimates are those of the four omegas together (family diag), or
    of all seven when the verdict is equivariant; the weight estimate always projects on all seven."""
    name = "equivariant" if chosen is not None and chosen.family.name == "equivariant" else "diag"
    shown = next(c for c in candidates if c.family.name == name)
    omegas, traces = omega_maps(spec), trace_maps(spec)
    layers = []
    for index in range(network.layers):
        P, Q = network.P[index], network.Q[index]
        whole = project(P, Q, (*omegas, *traces), live, index)
        block = project(P, Q, omegas, live, index)
        estimated = _estimated(shown, index)
        coefficients = {
            basis.name: replace(
                estimated.get(basis.name, replace(NOTHING, live=live.of(basis, index))), weight=_finite(value)
            )
            for basis, value in zip((*omegas, *traces), whole.coefficients, strict=True)
        }
        layers.append(
            Layer(
                index=index,
                omega={basis.name: coefficients[basis.name] for basis in omegas},
                trace={basis.name: coefficients[basis.name] for basis in traces},
                split=_split(whole.energy, block.explained, whole.explained),
            )
        )
    return tuple(layers)


def _split(energy: float, block: float, whole: float) -> Split:
    if not energy > 0:
        return Split(block_scalar=None, trace=None, residual=None)
    block, whole = min(block / energy, 1.0), min(max(whole, block) / energy, 1.0)
    return Split(block_scalar=block, trace=whole - block, residual=1.0 - whole)


def _estimated(shown: Candidate, layer: int) -> Mapping[str, Coefficient]:
    """The live coefficients of one layer by name, from the data alone (the weight estimate is still to come)."""
    parametrisation, output, fit = shown.parametrisation, shown.output, shown.fit
    if not isinstance(parametrisation, BasisFamily) or output is None or fit is None:
        return {}
    maps, live = parametrisation.maps, parametrisation.live
    names = [(i, m.name) for i, row in enumerate(live) for m, alive in zip(maps, row, strict=True) if alive]
    return {
        name: Coefficient(
            weight=None,
            output=_finite(output.theta[k]),
            stderr=_finite(output.stderr[k]) if output.determined[k] else None,
            refit=_finite(fit.theta[k]),
            refit_stderr=_finite(fit.stderr[k]),
            live=True,
            undetermined=_undetermined(k, output, fit, names),
        )
        for k, (i, name) in enumerate(names)
        if i == layer
    }


def _finite(value: Tensor) -> float | None:
    return float(value) if bool(torch.isfinite(value)) else None


def _undetermined(k: int, output: Estimate, fit: Estimate, names: Sequence[tuple[int, str]]) -> str | None:
    for estimate, label in ((fit, "refit"), (output, "output")):
        if not estimate.determined[k]:
            partners = ", ".join(f"{names[j][1]} of layer {names[j][0]}" for j in estimate.partners[k][:3])
            trade = f"; it trades off against {partners}" if partners else ""
            return f"the {label} does not determine it on these prompts{trade}"
        if not bool(estimate.stderr[k] < estimate.theta[k].abs()):
            return f"the standard error of the {label} exceeds its size"
    return None


def family_rows(
    candidates: Sequence[Candidate],
    chosen: Candidate | None,
    why: Mapping[str, str],
    target: Float[Tensor, "prompt output"],
) -> tuple[Family, ...]:
    return tuple(
        Family(
            name=c.family.name,
            parameters=c.parameters,
            fidelity=c.score.fidelity,
            fidelity_ci=c.score.interval,
            mse=None if c.prediction is None else _finite(((c.prediction - target) ** 2).mean()),
            chosen=c is chosen,
            why=why[c.family.name],
        )
        for c in candidates
    )


def verdict(
    chosen: Candidate | None,
    best: Candidate | None,
    solves: bool,
    share: float | None,
    losses: Sequence[Loss],
    law: ScalingLaw | None = None,
) -> Verdict:
    """The verdict; its summary leads with what a reader must not miss. A gd++ whose steps follow ``law`` is eagle, of
    one that does not hold it is said by how much."""
    mse = {entry.name: entry.mse for entry in losses}
    task = task_sentence(solves, share, mse.get("network"), mse.get("null"), mse.get("oracle"))
    eagle = law is not None and law.holds
    if chosen is not None:
        what = (
            f"It runs {'eagle' if eagle else chosen.family.name}: its predictions on fresh prompts follow "
            f"{chosen.family.formula} per layer with {chosen.parameters} number{'s' * (chosen.parameters != 1)} to R² "
            f"= {score_words(chosen.score)}."
        )
        if law is not None and eagle:
            what += (
                f" Its steps follow the norm of A from layer to layer, ω_xx = -η/|A|² and ω_yx = -γ/|A|² with η = "
                f"{_interval_words(law.eta, law.eta_ci)} and γ = {_interval_words(law.gamma, law.gamma_ci)} "
                f"({law.statistic} |A|²): {law.why}."
            )
        elif law is not None:
            what += f" It is not EAGLE, whose steps follow the norm of A from layer to layer: {law.why}"
            much = law.explained is not None and law.explained > 0.5
            what += (
                f", though the norm explains {100 * (law.explained or 0.0):.0f} % of how they change." if much else "."
            )
    elif best is not None:
        what = (
            f"Unrecognized: no family explains its predictions. The closest is {best.family.name}, "
            f"R² = {score_words(best.score)} on fresh prompts."
        )
    else:
        what = "Unrecognized: its prediction is constant or not finite, so there is nothing to explain."
    shown = chosen or best
    return Verdict(
        algorithm="eagle" if eagle else chosen.family.algorithm if chosen else "unrecognized",
        recognized=chosen is not None,
        solves_task=solves,
        fidelity=shown.score.fidelity if shown else None,
        fidelity_ci=shown.score.interval if shown else (None, None),
        summary=f"{what} {task}" if solves else f"{task} {what}",
    )


def no_verdict(why: str, solves: bool, behaviour: Behaviour | None = None) -> Verdict:
    """The verdict on a network that cannot be run on its task as linear maps; ``solves``: it was measured to solve the
    task all the same."""
    told = "Solves the task, but is" if solves else "Does not solve the task, and is"
    summary = f"{told} unrecognized: {why.removeprefix('skipped, because ')}."
    if behaviour is not None and behaviour.closest is not None:
        label = next(solver.label for solver in behaviour.solvers if solver.name == behaviour.closest)
        summary += f" As behaviour, which is no recognition, it is closest to {label}."
    return Verdict(
        algorithm="unrecognized", recognized=False, solves_task=solves, fidelity=None, fidelity_ci=(None, None),
        summary=summary,
    )  # fmt: skip


def task_sentence(
    solves: bool, share: float | None, network: float | None, null: float | None, oracle: float | None
) -> str:
    figures = ""
    if network is not None and null is not None and oracle is not None:
        optimum = "0 to rounding" if oracle < 1e-15 * null else f"{oracle:.3g}"
        figures = f" (mean squared error {network:.3g}; predicting zero {null:.3g}, optimum {optimum})"
    if not solves:
        return f"Does not solve the task{figures}."
    return f"It solves the task{figures}, {100 * (share or 0.0):.0f} % of what the optimum gains."


def _interval_words(value: float | None, interval: tuple[float | None, float | None]) -> str:
    low, high = interval
    assert value is not None and low is not None and high is not None  # of a law that holds
    return f"{value:.2g} [{low:.2g}, {high:.2g}]"


def score_words(score: Score) -> str:
    """A fidelity with its interval, to the digits that its distance from 1 allows."""
    low, high = score.interval
    fidelity = score.fidelity
    if fidelity is None or low is None or high is None:
        return "undefined"
    if 1 - fidelity < 1e-10:
        return "1 to rounding"
    digits = max(3, 2 - int(torch.tensor(max(1 - fidelity, 1e-12)).log10().floor()))
    return f"{fidelity:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
