"""The recovered algorithm in figures and words: coefficients by their three estimates, the table of families, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.basis import omega_maps, trace_maps
from interp.estimates import Estimate
from interp.evidence import loss
from interp.families import BasisFamily
from interp.gauge import LiveCoordinates, project
from interp.identification import Candidate
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.results import Coefficient, Family, Layer, Loss, Split, Verdict

__all__ = ["describe_layers", "family_rows", "verdict"]


def describe_layers(
    network: HeadLayers,
    spec: ModelSpec,
    live: LiveCoordinates,
    candidates: Sequence[Candidate],
    chosen: Candidate | None,
) -> tuple[Layer, ...]:
    """Coefficients of every layer. Output and refit estimates are those of the four omegas together (family diag), or of
    all seven when the verdict is equivariant; the weight estimate always projects on all seven."""
    name = "equivariant" if chosen is not None and chosen.family.name == "equivariant" else "diag"
    shown = next(c for c in candidates if c.family.name == name)
    omegas, traces = omega_maps(spec), trace_maps(spec)
    layers = []
    for index in range(network.layers):
        P, Q = network.P[index], network.Q[index]
        whole = project(P, Q, (*omegas, *traces), live, index)
        block = project(P, Q, omegas, live, index)
        estimates = _estimates(shown, index)
        coefficients = {
            basis.name: _coefficient(float(value), live.of(basis, index), estimates.get(basis.name))
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


_Pair = tuple[float, float, float, float, str | None]  # output, its stderr, refit, its stderr, why undetermined


def _estimates(shown: Candidate, layer: int) -> Mapping[str, _Pair]:
    """The live coefficients of one layer, by name."""
    parametrisation, output, fit = shown.parametrisation, shown.output, shown.fit
    if not isinstance(parametrisation, BasisFamily) or output is None or fit is None:
        return {}
    names = [(i, m.name) for i, row in enumerate(parametrisation.live) for m, on in zip(parametrisation.maps, row, strict=True) if on]
    return {
        name: (
            float(output.theta[k]), float(output.stderr[k]), float(fit.theta[k]), float(fit.stderr[k]),
            _undetermined(k, output, fit, names),
        )
        for k, (i, name) in enumerate(names)
        if i == layer
    }  # fmt: skip


def _undetermined(k: int, output: Estimate, fit: Estimate, names: Sequence[tuple[int, str]]) -> str | None:
    for estimate, label in ((fit, "refit"), (output, "output")):
        if not estimate.determined[k]:
            partners = ", ".join(f"{names[j][1]} of layer {names[j][0]}" for j in estimate.partners[k][:3])
            trade = f"; it trades off against {partners}" if partners else ""
            return f"the {label} does not determine it on these prompts{trade}"
        if not bool(estimate.stderr[k] < estimate.theta[k].abs()):
            return f"the standard error of the {label} exceeds its size"
    return None


def _coefficient(weight: float, live: bool, estimate: _Pair | None) -> Coefficient:
    if not live or estimate is None:
        return Coefficient(weight=weight if live else None, output=None, stderr=None, refit=None, refit_stderr=None, live=live)
    output, stderr, refit, refit_stderr, undetermined = (_finite(v) if not isinstance(v, str) else v for v in estimate)
    return Coefficient(
        weight=weight,
        output=output,  # type: ignore[arg-type]
        stderr=stderr,  # type: ignore[arg-type]
        refit=refit,  # type: ignore[arg-type]
        refit_stderr=refit_stderr,  # type: ignore[arg-type]
        live=True,
        undetermined=undetermined,  # type: ignore[arg-type]
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None


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
            mse=None if c.prediction is None else loss("", "", c.prediction, target).mse,
            chosen=c is chosen,
            why=why[c.family.name],
        )
        for c in candidates
    )


def verdict(
    chosen: Candidate | None, best: Candidate | None, solves: bool, share: float | None, losses: Sequence[Loss]
) -> Verdict:
    """The verdict; its summary leads with what a reader must not miss."""
    mse = {entry.name: entry.mse for entry in losses}
    task = _task_sentence(solves, share, mse.get("network"), mse.get("null"), mse.get("oracle"))
    if chosen is not None:
        what = (
            f"It runs {chosen.family.name}: its predictions on fresh prompts follow {chosen.family.formula} per layer with "
            f"{chosen.parameters} numbers to R² = {_r2(chosen)}."
        )
    elif best is not None:
        what = (
            f"Unrecognized: no family explains its predictions. The closest is {best.family.name}, R² = {_r2(best)} "
            f"on fresh prompts."
        )
    else:
        what = "Unrecognized: its prediction is constant or not finite, so there is nothing to explain."
    shown = chosen or best
    return Verdict(
        algorithm=chosen.family.name if chosen else "unrecognized",
        recognized=chosen is not None,
        solves_task=solves,
        fidelity=shown.score.fidelity if shown else None,
        fidelity_ci=shown.score.interval if shown else (None, None),
        summary=f"{what} {task}" if solves else f"{task} {what}",
    )


def _task_sentence(solves: bool, share: float | None, network: float | None, null: float | None, oracle: float | None) -> str:
    figures = "" if network is None else f" (mean squared error {network:.3g}; predicting zero {null:.3g}, optimum {oracle:.3g})"
    if not solves:
        return f"Does not solve the task{figures}."
    return f"It solves the task{figures}, {share:.0%} of what the optimum gains."


def _r2(candidate: Candidate) -> str:
    low, high = candidate.score.interval
    fidelity = candidate.score.fidelity
    if fidelity is None or low is None or high is None:
        return "undefined"
    if 1 - fidelity < 1e-10:
        return f"1 to rounding (1 - R² = {max(1 - fidelity, 0.0):.0e})"
    digits = max(3, 2 - int(torch.tensor(max(1 - fidelity, 1e-12)).log10().floor()))
    return f"{fidelity:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
