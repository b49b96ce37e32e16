"""The lattice of omega families: gd < gd++ < diag < equivariant.

    gd                  y <- y + omega_yx <alpha, x>                     one gradient step per layer (von Oswald 2022)
    gd++                + x <- x + omega_xx Sigma x                      conditions the inputs too (versatile.md A5)
    diag                + omega_xy, omega_yy                             all block-scalar heads (versatile.md A4)
    equivariant         + the trace terms                                every rotation-equivariant layer

with Sigma = G_xx, alpha = G_xy, lambda = G_yy of the layer's own tokens. Coefficients are those of the gauge-free
tensor K, so the factor s of the attention is not part of them; the first index is the destination. The first three have
a form with the same numbers in all layers too (``interp.families.tied``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.linear_prompts import gram_prompts
from interp.algebra.sensitivity import predict
from interp.algebra.unrolling import label_indices
from interp.families.parametrisations import BasisParametrisation
from interp.families.recovered_omegas import describe_recovered
from interp.families.scaling_law import law_sentence, scaling_laws
from interp.identify.course import CourseFit, affordable, course_of, follow
from interp.identify.descent import carried_residual_shrinks, steps_ascend, steps_descend
from interp.identify.estimates import Parametrisation, count, estimate_at, output_estimate, refit
from interp.identify.family import Family, Fit, register_family
from interp.identify.mechanism import Mechanism, mechanism, weight_errors
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.identify.score import EXPLODED
from interp.models.gram import LayerMaps
from interp.models.skipped import Skipped
from interp.models.tasks import Blocks, Examples
from interp.results import RecoveredAlgorithm, ScalingLaw
from interp.stats.bootstrap import error_and_bound
from interp.stats.least_squares import Estimate

__all__ = ["ConditioningFamily", "OmegaFamily", "OmegaFit", "SharedKeysFamily"]

SURE = 6.0  # standard errors from which a coefficient is surely there


@dataclass(frozen=True, kw_only=True, eq=False)
class OmegaFit(Fit):
    """A fitted family of layers: ``output`` is the output-weighted estimate of its numbers, ``refit`` the end-to-end
    one, and ``fit`` the one that it runs with, the latter or that of its course. ``law`` is what its steps follow, if
    that was looked at."""

    parametrisation: Parametrisation
    output: Estimate
    fit: Estimate
    refit: Estimate
    laws: tuple[ScalingLaw, ...] = ()

    @property
    def layers(self) -> LayerMaps:
        return self.parametrisation.build(self.fit.theta)

    @property
    def law(self) -> ScalingLaw | None:
        """The law that holds, the paper's statistic first, or the one that explains most."""
        holding = next((law for law in self.laws if law.holds), None)
        return holding or max(self.laws, key=lambda law: law.explained or 0.0, default=None)


class SharedKeysFamily(Family):
    """A family of layers for networks whose tokens share their keys, fitted by what it does to the predictions."""

    def applies(self, run: Run) -> Skipped | None:
        if not isinstance(run.network, SharedKeys):
            return run.network.skipped or Skipped("its tokens do not share their keys in layers that are linear maps")
        inputs = [name for name, _ in run.spec.tokens if name != run.spec.readout.channel]
        return None if len(inputs) == 1 else Skipped(f"it has {len(inputs)} input channels, not one beside the label")

    # What must shrink at every step, to first order, for the name to hold: nothing, the examples' "error", or their
    # "residual" as the tokens carry it too.
    descending: Literal["", "error", "residual"] = ""

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> Parametrisation | Skipped:
        raise NotImplementedError

    def further_starts(self, parametrisation: Parametrisation, network: SharedKeys) -> Sequence[Tensor]:
        """Where to begin a refit, beside the output-weighted estimate: at the projection of the weights."""
        known = isinstance(parametrisation, BasisParametrisation)
        return [parametrisation.by_weights(network.layers, network.live)] if known else ()

    def structure_numbers(self, parametrisation: Parametrisation) -> int:
        """Numbers that were read off the weights, not fitted."""
        return 0

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        network = run.network
        assert isinstance(network, SharedKeys)  # it applies
        parametrisation = self.parametrise(run, network, fits)
        if isinstance(parametrisation, Skipped):
            return parametrisation
        fitted = network.fitted
        output = output_estimate(parametrisation, network.layers, fitted.sensed)
        smaller = self._smaller(parametrisation, fits)
        starts = [output.theta, *self.further_starts(parametrisation, network), *smaller]
        estimate = refit(parametrisation, fitted.prompts, fitted.prediction, starts, fitted.weight)
        if smaller and network.judged.drawn is not network.held_out.drawn:
            best = min((estimate.theta, *smaller), key=lambda theta: self._left(parametrisation, theta, network))
            if best is not estimate.theta:
                estimate = estimate_at(parametrisation, fitted.prompts, fitted.prediction, best, fitted.weight)
        return self._with(parametrisation, output, estimate, run)

    def _left(self, parametrisation: Parametrisation, theta: Tensor, network: SharedKeys) -> float:
        """The mean error on prompts that were neither fitted nor are scored on: a few numbers more can fit the rare
        prompts that are there, and explode on others."""
        half = network.held_out
        prediction = predict(parametrisation.build(theta), half.prompts)
        error, bound = error_and_bound(prediction, half.prediction, half.weight, EXPLODED)
        return float(torch.minimum(error, bound).mean())

    def _smaller(self, parametrisation: Parametrisation, fits: Sequence[Fit]) -> list[Tensor]:
        """The numbers of fitted families that it contains, with 0 for what they lack: it is no worse than they are."""
        if not isinstance(parametrisation, BasisParametrisation):
            return []
        out, own = [], [m.name for m in parametrisation.maps]
        for fit in (f for f in fits if isinstance(f, OmegaFit) and f.family.name in self.contains):
            smaller = fit.parametrisation
            if isinstance(smaller, BasisParametrisation) and smaller.by_layer is parametrisation.by_layer is None:
                table = torch.zeros(parametrisation.mask.shape, dtype=torch.float64)
                table[:, [own.index(m.name) for m in smaller.maps]] = smaller.table(fit.fit.theta)
                out.append(parametrisation.flatten(table))
        return out

    def _with(self, parametrisation: Parametrisation, output: Estimate, estimate: Estimate, run: Run) -> OmegaFit:
        """The fit of these numbers."""
        network, spec = run.network, run.spec
        assert isinstance(network, SharedKeys)
        layers, judged = parametrisation.build(estimate.theta), network.judged

        def run_algorithm(prompts: Examples) -> Float[Tensor, "prompt output"]:
            # A network scales its sums by the number of examples that there are, and so does its algorithm.
            scaled = parametrisation.scaled(spec.attention.factor(prompts.context))
            return predict(scaled.build(estimate.theta), gram_prompts(prompts, spec))

        return OmegaFit(
            family=self,
            parameters=count(parametrisation) + self.structure_numbers(parametrisation),
            score=judged.score(judged.predicted(layers), run.seeds.intervals),
            prediction=predict(layers, network.held_out.prompts),
            predict=run_algorithm,
            parametrisation=parametrisation,
            output=output,
            fit=estimate,
            refit=estimate,
        )

    def course(self, fit: Fit, run: Run) -> CourseFit | None:
        network = run.network
        assert isinstance(fit, OmegaFit) and isinstance(network, SharedKeys)
        gram, parametrisation = network.fitted.prompts.gram, fit.parametrisation
        count = affordable(parametrisation, run.spec.width, len(gram))
        if not count or not bool(network.held_out.prediction.any()):
            return None
        followed = course_of(network.layers, gram[:count], *label_indices(run.spec))
        starts = [*self.further_starts(parametrisation, network), fit.output.theta, fit.fit.theta]
        return follow(parametrisation, followed, network.judged_course, starts, run.seeds.intervals)

    def mechanism(self, fit: Fit, run: Run) -> Mechanism | None:
        network = run.network
        assert isinstance(fit, OmegaFit) and isinstance(network, SharedKeys)
        parametrisation = fit.parametrisation
        if not isinstance(parametrisation, BasisParametrisation) or parametrisation.by_layer is not None:
            return None
        layers = parametrisation.build(fit.output.theta)
        return mechanism(layers, parametrisation.maps, network, run.seeds.intervals)

    def beyond(self, fit: Fit, course: CourseFit, smaller: Fit, run: Run) -> bool:
        network = run.network
        assert isinstance(fit, OmegaFit) and isinstance(network, SharedKeys)
        own, other = fit.parametrisation, smaller.parametrisation if isinstance(smaller, OmegaFit) else None
        if not isinstance(own, BasisParametrisation) or not isinstance(other, BasisParametrisation):
            return False
        assert course.fit is not None  # as ``course`` gives it
        if own.by_layer is not None or other.by_layer is not None:
            return False
        weights, errors = weight_errors(network.layers, own.maps, network.live)
        names = {m.name for m in other.maps}
        shared = torch.tensor([m.name in names for m in own.maps])
        held = own.table(own.flatten(weights))
        by_weights = other.beyond(own.maps, held, errors).abs() > SURE * errors
        by_course = own.table(course.fit.theta).abs() > SURE * own.table(course.fit.stderr.nan_to_num(torch.inf))
        return bool((own.mask & by_weights & (by_course | shared)).any())

    def descends(self, fit: Fit, run: Run, end: int = 0) -> bool:
        if not self.descending:
            return True
        network = run.network
        assert isinstance(fit, OmegaFit) and isinstance(network, SharedKeys)
        course = course_of(fit.layers, network.held_out.prompts.gram, *label_indices(run.spec))
        down = [step for step in steps_descend(course, run.spec.readout.sign, end) if step is not None]
        if self.descending == "residual" and len(down) > 1:
            down += [step for step in carried_residual_shrinks(course, end) if step is not None]
        # Numbers that trade off can give a step either sign; the network's own steps are what they are.
        return all(down) and not any(steps_ascend(network.judged_course, run.spec.readout.sign, end))

    def following(self, fit: Fit, course: CourseFit, run: Run) -> Fit:
        assert isinstance(fit, OmegaFit) and course.fit is not None  # as ``course`` gives it
        return replace(self._with(fit.parametrisation, fit.output, course.fit, run), refit=fit.refit)

    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        assert isinstance(fit, OmegaFit)  # what ``fit`` returns
        return describe_recovered(fit, run.spec, run.task.context, isinstance(run.network.held_out.drawn, Blocks))


class ConditioningFamily(SharedKeysFamily):
    """A form of gd++: where the rows of a matrix are completed its steps may follow the norm of A, as in EAGLE."""

    algorithm = "gd++"

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        law = fit.law if isinstance(fit, OmegaFit) else None
        return "" if law is None else law_sentence(law)

    def refine(self, fit: Fit, run: Run) -> Fit:
        network = run.network
        assert isinstance(fit, OmegaFit) and isinstance(network, SharedKeys)
        if not isinstance(network.held_out.drawn, Blocks):
            return fit
        run.progress("looking for EAGLE")
        assert isinstance(fit.parametrisation, BasisParametrisation)  # as that of every form of gd++
        laws = scaling_laws(fit.parametrisation, fit.fit, network.layers, run.task, run.spec, run.seeds.adaptation)
        return replace(fit, laws=laws, algorithm="eagle" if any(law.holds for law in laws) else fit.algorithm)


@dataclass(frozen=True, kw_only=True)
class OmegaFamily(SharedKeysFamily):
    """All layers of some of the omegas, and the traces."""

    name: str
    maps: tuple[str, ...]
    contains: frozenset[str] = frozenset()
    formula: str = ""
    algorithm: str = ""
    turn: int = 0
    descending: Literal["", "error", "residual"] = ""
    ascending: str = ""

    def parametrise(self, run: Run, network: SharedKeys, fits: Sequence[Fit]) -> BasisParametrisation:
        return BasisParametrisation.of(self.maps, run.spec, network.live, network.layers.scale)


class GdPlusPlus(OmegaFamily, ConditioningFamily):
    """gd++ on all of x."""


X, Y = "x ← x + ω_xx Σ x", "y ← y + ω_yx ⟨α, x⟩"
OMEGAS = ("xx", "xy", "yx", "yy")
register_family(
    OmegaFamily(
        name="gd",
        maps=("yx",),
        contains=frozenset({"tied gd"}),
        formula=Y,
        descending="residual",
        ascending="polynomial",
    )
)
register_family(
    GdPlusPlus(
        name="gd++",
        maps=("xx", "yx"),
        contains=frozenset({"tied gd", "gd", "tied gd++"}),
        formula=f"{X};  {Y}",
        descending="error",
        ascending="diag",
    )
)
register_family(
    OmegaFamily(
        name="diag",
        maps=OMEGAS,
        contains=frozenset({"tied gd", "gd", "tied gd++", "gd++", "tied diag"}),
        formula=f"{X} + ω_xy y α;  {Y} + ω_yy λ y",
    )
)
register_family(
    OmegaFamily(
        name="equivariant",
        maps=(*OMEGAS, "traces"),
        contains=frozenset({"tied gd", "gd", "tied gd++", "gd++", "tied diag", "diag"}),
        formula=f"{X} + ω_xy y α + (τ_x:xx tr Σ + τ_x:yy λ) x;  {Y} + ω_yy λ y + τ_y:xx tr Σ y",
    )
)
