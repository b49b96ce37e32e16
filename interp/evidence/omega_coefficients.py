"""The coefficients of every layer by their three estimates, and how much of the weights they account for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from interp.algebra.basis import omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, project
from interp.evidence.question import Answer, finite, question
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import BasisParametrisation
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.gram import HeadLayers
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.results import Coefficient, Layer, Split
from interp.stats.least_squares import Estimate

__all__ = ["coefficients", "energy_split", "omega_layers"]

NOTHING = Coefficient(weight=None, output=None, stderr=None, refit=None, refit_stderr=None, live=False)


@question("coefficients", brief=True)
def coefficients(choice: Choice, run: Run) -> Answer | Skipped | None:
    """Output and refit estimates are those of the four omegas together (family diag), or of all seven when the verdict
    is equivariant; the weight estimate always projects on all seven."""
    network, spec = run.network, run.spec
    name = "equivariant" if choice.chosen is not None and choice.chosen.named == "equivariant" else "diag"
    shown = choice.fit_of(name)
    if not isinstance(network, SharedKeys) or not isinstance(shown, OmegaFit):
        return network.skipped
    return Answer(fields={"layers": omega_layers(network.layers, spec, network.live, shown)})


def omega_layers(network: HeadLayers, spec: ModelSpec, live: LiveCoordinates, shown: OmegaFit) -> tuple[Layer, ...]:
    """The coefficients of ``network``, those from data as ``shown`` has them."""
    omegas, traces = omega_maps(spec), trace_maps(spec)
    layers = []
    for index, (P, Q) in enumerate(zip(network.P, network.Q, strict=True)):
        whole = project(P, Q, (*omegas, *traces), live, index)
        block = project(P, Q, omegas, live, index)
        estimated = _estimated(shown, index)
        rows = {
            basis.name: replace(
                estimated.get(basis.name, replace(NOTHING, live=live.of(basis, index))), weight=finite(value)
            )
            for basis, value in zip((*omegas, *traces), whole.coefficients, strict=True)
        }
        layers.append(
            Layer(
                index=index,
                omega={basis.name: rows[basis.name] for basis in omegas},
                trace={basis.name: rows[basis.name] for basis in traces},
                split=energy_split(whole.energy, block.explained, whole.explained),
            )
        )
    return tuple(layers)


def energy_split(energy: float, block: float, whole: float) -> Split:
    """Shares of the live weight energy: block-scalar, the traces beside it, and the rest."""
    if not energy > 0:
        return Split(block_scalar=None, trace=None, residual=None)
    block, whole = min(block / energy, 1.0), min(max(whole, block) / energy, 1.0)
    return Split(block_scalar=block, trace=whole - block, residual=1.0 - whole)


def _estimated(shown: OmegaFit, layer: int) -> Mapping[str, Coefficient]:
    """The live coefficients of one layer by name, from the data alone (the weight estimate is still to come)."""
    parametrisation, output, fit = shown.parametrisation, shown.output, shown.refit
    assert isinstance(parametrisation, BasisParametrisation)  # of diag and equivariant
    maps, live = parametrisation.maps, parametrisation.live
    names = [(i, m.name) for i, row in enumerate(live) for m, alive in zip(maps, row, strict=True) if alive]
    return {
        name: Coefficient(
            weight=None,
            output=finite(output.theta[k]),
            stderr=finite(output.stderr[k]) if output.determined[k] else None,
            refit=finite(fit.theta[k]),
            refit_stderr=finite(fit.stderr[k]),
            live=True,
            undetermined=_undetermined(k, output, fit, names),
        )
        for k, (i, name) in enumerate(names)
        if i == layer
    }


def _undetermined(k: int, output: Estimate, fit: Estimate, names: Sequence[tuple[int, str]]) -> str | None:
    for estimate, label in ((fit, "refit"), (output, "output")):
        if not estimate.determined[k]:
            partners = ", ".join(f"{names[j][1]} of layer {names[j][0]}" for j in estimate.partners[k][:3])
            trade = f"; it trades off against {partners}" if partners else ""
            return f"the {label} does not determine it on these prompts{trade}"
        if not bool(estimate.stderr[k] < estimate.theta[k].abs()):
            return f"the standard error of the {label} exceeds its size"
    return None
