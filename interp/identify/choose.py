"""The families fitted one after the other, and the one that explains the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from interp.identify.family import FAMILIES, Family, Fit
from interp.identify.losses import Losses, measure_losses
from interp.identify.score import RECOGNIZED, RECOGNIZED_LOWER, SAID, Score
from interp.identify.statements import NOTHING, Statements, state
from interp.models.skipped import Skipped

if TYPE_CHECKING:
    from interp.identify.run import Run

__all__ = ["Choice", "choose", "identify"]

_NOT_LAYER_BY_LAYER = "predicts the same, but is not what happens layer by layer"
_DESCRIBES = "the smallest family that describes the layers"


@dataclass(frozen=True, eq=False)
class Choice:
    """``entries`` are all families in the order they were tried, each with its fit or why it has none. ``chosen`` is
    None when no family explains the network; ``why`` says of every family why it is or is not the one."""

    run: Run
    entries: tuple[tuple[Family, Fit | Skipped], ...]
    chosen: Fit | None
    why: Mapping[str, str]
    statements: Statements = NOTHING

    @property
    def fits(self) -> tuple[Fit, ...]:
        return tuple(fit for _, fit in self.entries if isinstance(fit, Fit))

    @property
    def closest(self) -> Fit | None:
        """The chosen fit, or the one that comes closest; None when none could be scored."""
        scored = [fit for fit in self.fits if fit.score.fidelity is not None]
        return self.chosen or max(scored, key=lambda fit: fit.score.fidelity or 0.0, default=None)

    @cached_property
    def losses(self) -> Losses:
        """Of the network, the closest fit and the references of the task."""
        self.run.progress("measuring losses")
        return measure_losses(self.run, self.closest)

    def fit_of(self, name: str) -> Fit | None:
        return next((fit for fit in self.fits if fit.family.name == name), None)


def identify(run: Run) -> Choice:
    """Fit every family that applies on half of the prompts, score it on the other half, and choose."""
    run.progress("fitting the families")
    entries: list[tuple[Family, Fit | Skipped]] = []
    for family in sorted(FAMILIES.values(), key=lambda family: family.turn):
        skipped = family.applies(run)
        fits = [fit for _, fit in entries if isinstance(fit, Fit)]
        entries.append((family, skipped or family.fit(run, fits)))
    fits = [fit for _, fit in entries if isinstance(fit, Fit)]
    _, reasons = choose(fits)
    run.progress("following the network layer by layer")
    statements = state(run, fits, lambda end, gain: choose(fits, end, gain)[0])
    chosen, function = statements.chosen, statements.function
    if chosen is not None and function is not None and chosen.family is not function.family:
        reasons = {**reasons, function.family.name: _NOT_LAYER_BY_LAYER, chosen.family.name: _DESCRIBES}
    why = {family.name: str(fit) if isinstance(fit, Skipped) else reasons[family.name] for family, fit in entries}
    if chosen is not None:
        chosen = chosen.family.refine(chosen, run)
        entries = [(f, chosen if f is chosen.family else fit) for f, fit in entries]
    return Choice(run, tuple(entries), chosen, why, statements)


def choose(fits: Sequence[Fit], end: int = 0, gain: int = 0) -> tuple[Fit | None, Mapping[str, str]]:
    """Climb from the smallest recognized family; a step goes to the smallest one that improves on the present one. So
    each family on the way has earned its numbers against the one before, and none that could be climbed to improves on
    the last. Returns the last, and of every family why it is or is not the one. ``end`` and
    ``gain``: of the intervals, where scores and what a larger family gains are read (``Score.reaches``, ``gain``)."""
    recognized = [fit for fit in fits if fit.score.reaches(RECOGNIZED, end) and not fit.failed]
    ordered = sorted(recognized, key=lambda fit: fit.parameters)
    path = ordered[:1]
    while path:
        better = next((fit for fit in ordered if _climbs(fit, path, gain)), None)
        if better is None:
            break
        path.append(better)
    chosen = path[-1] if path else None
    return chosen, {fit.family.name: _why(fit, path, chosen, fits) for fit in fits}


def _climbs(fit: Fit, path: Sequence[Fit], gain: int) -> bool:
    present = path[-1]
    return fit not in path and fit.parameters >= present.parameters and fit.family.improves(fit, present, gain)


def _why(fit: Fit, path: Sequence[Fit], chosen: Fit | None, fits: Sequence[Fit]) -> str:
    if fit.failed:
        return fit.failed[0] if len(fit.failed) == 1 else f"not all conditions hold: {', '.join(fit.failed)}"
    below = next((f for f in fits if f.family.name in fit.family.contains and f.score.gain(fit.score, -1) > SAID), None)
    if below is not None:
        return f"its fit failed: it is worse than that of {below.family.title}, which it contains"
    if not fit.score.recognized or not path:
        return _too_low(fit.score)
    if fit is chosen:
        return "the smallest family that explains the network"
    if fit in path:
        better = path[path.index(fit) + 1]
        return better.family.preferred(better, fit)
    below = next((p for p in reversed(path) if p.family.name in fit.family.contains), None)
    if below is not None and not fit.family.improves(fit, below):
        gain = below.score.unexplained - fit.score.unexplained
        if gain < SAID:
            return f"explains materially no more than {below.family.title}, which it contains"
        return (
            f"explains {gain:.2g} of the variance more than {below.family.title}, which it contains: under "
            f"{fit.family.worth:g} is too little for its {fit.parameters} numbers"
        )
    return f"{path[-1].family.title} has fewer numbers"


def _too_low(score: Score) -> str:
    if score.fidelity is None:
        return "fidelity is undefined: the network's prediction is constant or not finite"
    if score.fidelity < RECOGNIZED:
        return f"fidelity below {RECOGNIZED}"
    return f"the interval of its fidelity reaches below {RECOGNIZED_LOWER}"
