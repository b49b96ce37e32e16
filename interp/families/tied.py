"""The tied omega families: one set of numbers for all layers, as in a network that runs one layer again and again.

    tied gd     y <- y + omega_yx <alpha, x>,  the same omega_yx in every layer; likewise tied gd++ and tied diag

theta_untied[l, k] = theta[k] in every layer l where map k has a say, so derivatives by theta[k] are sums over layers.
Whether a file says that it is looped does not matter: what is asked is whether its layers do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from interp.families.omegas import OmegaFamily
from interp.families.parametrisations import BasisParametrisation
from interp.identify.family import FAMILIES, Fit, materially_better, register_family
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.skipped import Skipped

__all__ = ["TiedFamily", "TiedParametrisation"]


class TiedParametrisation(BasisParametrisation):
    """One coefficient of every map for all layers."""

    @property
    def places(self) -> tuple[Sequence[int], ...]:
        present = [k for k, alive in enumerate(self.mask.any(0).tolist()) if alive]
        return tuple(tuple(present.index(k) for k, alive in enumerate(row) if alive) for row in self.live)


class TiedFamily(OmegaFamily):
    """Some of the omegas, the same in all layers: in a verdict the algorithm of its name, and ``tied``."""

    tied = True

    def applies(self, run: Run) -> Skipped | None:
        return super().applies(run) or (Skipped("it has one layer") if run.model.layers < 2 else None)

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        """It fails where the same with numbers of their own for all layers is materially better."""
        fit, name = super().fit(run, fits), self.name.removeprefix("tied ")
        free = next((other for other in fits if other.family.name == name), None)
        if not isinstance(fit, Fit) or free is None or not materially_better(free, fit):
            return fit
        return replace(fit, failed=(f"explains materially less than {name}, whose layers may differ",))

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> BasisParametrisation:
        return TiedParametrisation.of(self.maps, run.spec, network.live, network.layers.scale)


TIED = ("gd", "gd++", "diag")
for _name in TIED:
    _free = FAMILIES[_name]
    assert isinstance(_free, OmegaFamily)
    register_family(
        TiedFamily(
            name=f"tied {_name}",
            algorithm=_name,
            maps=_free.maps,
            contains=frozenset(f"tied {name}" for name in TIED[: TIED.index(_name)]),
            formula=f"{_free.formula}, the same in every layer,",
            descending=_free.descending,
            ascending=f"tied {_free.ascending}" if _free.ascending in TIED else _free.ascending,
        )
    )
