"""preconditioned-gd: y <- y + <alpha, Omega x> with a free matrix Omega per layer.

The answer to anisotropic inputs (Ahn et al. 2023, theorem 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from interp.algebra.unrolling import label_indices
from interp.families.omegas import SharedKeysFamily
from interp.families.parametrisations import MatrixParametrisation
from interp.identify.family import Fit, register_family
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.identify.score import EXACT, NEGLIGIBLE
from interp.models.skipped import Skipped

__all__ = []

ROWS_PER_PARAMETER = 4  # fewest fitted rows per number for the family to be tried


class PreconditionedGD(SharedKeysFamily):
    """A family with a free matrix must earn its place: it takes a larger gain to prefer it."""

    name = "preconditioned-gd"
    contains = frozenset({"gd"})
    worth = 0.05
    turn = 1

    formula = "y ← y + ⟨α, Ω x⟩"

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> MatrixParametrisation | Skipped:
        inputs, label = label_indices(run.spec)
        if len(label) != 1:
            return Skipped("the label is a vector")
        if any(fit.family.name == "gd" and fit.score.unexplained < EXACT for fit in fits):
            return Skipped("gd is already exact")
        layers, prompts = network.layers, network.fitted.prompts
        needed = ROWS_PER_PARAMETER * layers.layers * len(inputs) ** 2
        if needed > prompts.count * prompts.outputs:
            numbers = needed // ROWS_PER_PARAMETER
            return Skipped(f"its {numbers} numbers need {2 * needed} prompts (--prompts)")
        width = run.spec.width
        return MatrixParametrisation(inputs, label[0], width, layers.layers, layers.scale, layers.residual)

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        left, leaves = other.score.unexplained, own.score.unexplained
        if leaves < EXACT and left > NEGLIGIBLE:
            return True
        return other.family.name in self.contains and own.score.gain(other.score, end) > self.worth


register_family(PreconditionedGD())
