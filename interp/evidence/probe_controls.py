"""The network beside its controls on the same prompts: untrained models, targets of other prompts, the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interp.evidence.probe_request import ProbeRequest
from interp.evidence.question import finite, with_error
from interp.models.tasks import Prompts
from interp.probes.across import Battery, gather
from interp.probes.activations import Reader
from interp.probes.controls import untrained_models
from interp.probes.held_out import HeldOut
from interp.probes.intervals import Scores, score
from interp.probes.moments import Moments
from interp.probes.ridge import cross_fit
from interp.probes.selectivity import Selectivity, above, above_untrained
from interp.results import ProbeScore
from interp.stats.bootstrap import Estimate

__all__ = ["CONTROLS", "UNTRAINED", "Controls", "enough", "measure_controls", "score_row"]

CONTROLS = ("untrained", "shuffled", "inputs")
UNTRAINED = 8  # untrained models
CALIBRATION_TOKENS = 2048


@dataclass(frozen=True, eq=False)
class Controls:
    """Held-out errors on the prompts of the controls, by kind: of the network itself, the same with targets of other
    prompts, and of the untrained models that do not diverge. ``fewer``: how many the prompts are, when the network has
    been scored on more."""

    real: Mapping[str, HeldOut]
    shuffled: Mapping[str, HeldOut]
    untrained: Mapping[str, Sequence[HeldOut]]
    fewer: int | None

    def network(self, kind: str, outputs: slice, seed: int) -> Estimate | None:
        """R^2 of the network itself, when the prompts are fewer."""
        if self.fewer is None or kind not in self.real:
            return None
        return score(self.real[kind], outputs, seed).r2

    def selectivity(self, kind: str, outputs: slice, seed: int) -> dict[str, Selectivity]:
        """For one target, all layers and positions, by the name of the control."""
        if kind not in self.real:
            return {}
        real = self.real[kind]
        first = real.squared_error[:, :1].expand_as(real.squared_error)  # layer 0 is always read, and comes first
        inputs = replace(real, squared_error=first)
        return {
            "untrained": above_untrained(real, self.untrained[kind], outputs, seed),
            "shuffled": above(real, self.shuffled[kind], outputs, seed),
            "inputs": above(real, inputs, outputs, seed),
        }


def score_row(held_out: Scores, controls: Controls, kind: str, outputs: slice, seed: int) -> Callable[..., ProbeScore]:
    """What makes the row of one target at an index of layers and positions, given its remaining fields."""
    compared = controls.selectivity(kind, outputs, seed)

    def row(at: tuple[int, ...], **fields: Any) -> ProbeScore:
        r2 = held_out.r2.at(*at)
        gaps = {name: entry.gap.at(*at) for name, entry in compared.items()} if r2[0] is not None else {}
        return ProbeScore(
            kind=kind,
            **with_error("r2", r2),
            variance=finite(held_out.variance[at]),
            control={name: finite(compared[name].control[at]) if compared else None for name in CONTROLS},
            selectivity={name: gap for name, (gap, _) in gaps.items()},
            selectivity_ci={name: ci for name, (_, ci) in gaps.items()},
            **fields,
        )

    return row


def measure_controls(
    request: ProbeRequest,
    reader: Reader,
    wanted: Sequence[Battery],
    layers: Sequence[int],
    prompts: Sequence[Prompts],
    groups: int,
    seed: int,
) -> Controls:
    """On ``prompts``, the first of those of the request, of which ``groups`` groups are made."""
    task, count = request.task, sum(chunk.count for chunk in prompts)

    def held_out(of: Reader, shuffle: bool = False) -> Mapping[str, HeldOut]:
        moments = gather(of, wanted, layers, prompts, count, groups, shuffle)
        kept = (battery for battery in wanted if enough(moments[battery.kind]))
        return {battery.kind: cross_fit(moments[battery.kind], battery.widths).held_out for battery in kept}

    calibration_seed, *model_seeds = (int(s) for s in np.random.SeedSequence(seed).generate_state(UNTRAINED + 1))
    calibration = task.sample(max(CALIBRATION_TOKENS // task.context, 8), calibration_seed)
    untrained = []
    for number, other in enumerate(untrained_models(reader.model, calibration, model_seeds)):
        request.progress(f"probing untrained models ({number + 1} of {UNTRAINED})")
        untrained.append(held_out(replace(reader, model=other)))
    fewer = count if count < request.prompts else None
    by_kind = {b.kind: [errors[b.kind] for errors in untrained if b.kind in errors] for b in wanted}
    return Controls(real=held_out(reader), shuffled=held_out(reader, shuffle=True), untrained=by_kind, fewer=fewer)


def enough(moments: Moments) -> bool:
    """Whether the prompts that do not diverge make every fold."""
    return int((moments.count > 0).sum()) >= 0.9 * moments.groups
