"""gd++ where a layer sees part of x at a time; what it sees is read off the weights (``interp.algebra.structure``).

    gd++ (sketched)     x <- x + omega_xx Pi' Sigma Pi x;  y <- y + omega_yx <alpha, Pi x>
    gd++ (machines)     x_mu <- x_mu + omega_xx Sigma_mu,mu x_mu;  y <- y + omega_yx <alpha, x>

The regimes of limited computation and of distributed data of EAGLE (Lutz et al., arXiv 2509.19702, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.algebra.structure import find_machines, find_sketch, machine_maps, sketch_maps
from interp.families.omegas import ConditioningFamily, OmegaFit
from interp.families.parametrisations import BasisParametrisation, SketchedParametrisation
from interp.identify.estimates import Parametrisation
from interp.identify.family import Fit, materially_better, register_family, surely_less
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.identify.score import NEGLIGIBLE
from interp.models.skipped import Skipped
from interp.models.tasks import Blocks

__all__ = []


class StructuredFamily(ConditioningFamily):
    """The structure is not fitted, so it is enough that the family surely explains more than a smaller one."""

    contains = frozenset({"gd", "gd++"})
    turn = 2

    def applies(self, run: Run) -> Skipped | None:
        skipped = super().applies(run)
        if skipped is not None:
            return skipped
        blocks = isinstance(run.network.held_out.drawn, Blocks)
        return None if blocks else Skipped("its prompts are not the rows of a matrix")

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        worse = other.family.name in self.contains and other.score.unexplained > NEGLIGIBLE
        return (worse and surely_less(own.score, other.score, 1.0)) or materially_better(own, other, end)


class SketchedFamily(StructuredFamily):
    name = "gd++ (sketched)"

    formula = "x ← x + ω_xx Π′ Σ Π x;  y ← y + ω_yx ⟨α, Π x⟩"

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> SketchedParametrisation | Skipped:
        sketch = find_sketch(network.layers, run.spec)
        if isinstance(sketch, str):
            return Skipped(sketch)
        return SketchedParametrisation.on_sketch(sketch, run.spec, network.live, network.layers.scale)

    def further_starts(self, parametrisation: Parametrisation, network: SharedKeys) -> Sequence[Tensor]:
        assert isinstance(parametrisation, SketchedParametrisation)
        layers, spec = network.layers, network.model.spec
        by_layer = enumerate(sketch_maps(spec, parametrisation.sketch))
        table = [[m.by_weights(layers, layer, spec) for m in maps] for layer, maps in by_layer]
        return [parametrisation.flatten(torch.tensor(table, dtype=torch.float64))]

    def structure_numbers(self, parametrisation: Parametrisation) -> int:
        assert isinstance(parametrisation, SketchedParametrisation)
        return parametrisation.sketch.numbers

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        """Also where the other has layers read all of x, which those of the network cannot."""
        if other.score.unexplained > NEGLIGIBLE and _cannot_read_all(own) and not _cannot_read_all(other):
            return True
        return super().improves(own, other, end)

    def preferred(self, own: Fit, other: Fit) -> str:
        if _cannot_read_all(own):
            return f"here layers read all of x, which those of the network cannot ({self.name})"
        return super().preferred(own, other)


def _cannot_read_all(fit: Fit) -> bool:
    parametrisation = fit.parametrisation if isinstance(fit, OmegaFit) else None
    return isinstance(parametrisation, SketchedParametrisation) and parametrisation.sketch.exact


class MachinesFamily(StructuredFamily):
    name = "gd++ (machines)"

    formula = "x_μ ← x_μ + ω_xx Σ_μμ x_μ;  y ← y + ω_yx ⟨α, x⟩"

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> BasisParametrisation | Skipped:
        machines = find_machines(network.layers, run.spec)
        if isinstance(machines, str):
            return Skipped(machines)
        maps = machine_maps(run.spec, machines)
        return BasisParametrisation.on(maps, run.spec, network.live, network.layers.scale)


register_family(SketchedFamily())
register_family(MachinesFamily())
