"""What probe scores say, in sentences. A score counts only as far as it beats its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.reports.findings import listed
from interp.reports.numbers import is_finite, number
from interp.results import ProbeScore

__all__ = [
    "CONTROLS",
    "ProbeGroup",
    "above",
    "above_all",
    "above_untrained",
    "beside_controls",
    "depth_text",
    "gap_text",
    "paired_prompts",
    "probe_finding",
    "probe_groups",
    "published_finding",
    "target_words",
    "where_text",
]

CONTROLS = {
    "untrained": "untrained models of the same shape",
    "shuffled": "targets of other prompts",
    "inputs": "the inputs alone (before the first layer)",
}
_SHORT = {"untrained": "untrained models", "shuffled": "shuffled targets", "inputs": "the inputs"}
KINDS = {
    "token": "one token",
    "within-prompt": "the implicit weights of every prompt",
    "gram": "the second moments of the context's tokens",
    "attention-linear": "a learned mean of the context's tokens, linearly",
    "attention-mlp": "a learned mean of the context's tokens, by an MLP",
}


_TARGETS = {
    "w": "the true weights of the prompt",
    "w-ols": "the least-squares weights",
    "w-ridge": "the weights of ridge regression with the true noise",
    "alpha": "Xᵀy",
    "noise": "the noise level of the prompt",
    "label": "the token's label, without noise",
    "current": "the token's own input or state",
    "preconditioned": "the token's input or state times the inverse of the inputs' second moments and the noise",
    "preconditioned-published": "the same by the six steps of arXiv 2309.05858",
    "next": "the next state",
}
_NUMBERED = {
    "chebyshev": "the same by {} steps of Chebyshev iteration",
    "previous": "the state {} before",
}


def target_words(names: Sequence[str]) -> str:
    """What targets are, as far as they are known: ``w, the true weights of the prompt; …``."""
    told = []
    for name in names:
        family, _, number_ = name.rpartition("-")
        count = f"{number_} token{'s' * (number_ != '1')}" if family == "previous" else number_
        words = _TARGETS.get(name) or _NUMBERED.get(family, "").format(count)
        told += [f"{name}, {words}"] if words else []
    return "; ".join(told)


def depth_text(layers: int) -> str:
    """Where in the network activations are, by the layers run: the input, or after so many layers."""
    return "in the input" if layers == 0 else f"after {layers} layer{'s' * (layers > 1)}"


def above(score: ProbeScore, control: str) -> bool:
    """Whether the probe finds more than this control does, clear at 95 %."""
    low = score.selectivity_ci.get(control, (None, None))[0]
    return is_finite(low) and low > 0


def above_untrained(score: ProbeScore) -> bool:
    """Whether the probe finds more than in any model like the untrained ones."""
    return above(score, "untrained")


def above_all(score: ProbeScore) -> bool:
    """Whether it beats every control: what is read is neither in the inputs nor in models that were never trained."""
    return bool(score.control) and all(above(score, control) for control in score.control)


def beside_controls(score: ProbeScore) -> tuple[float | None, tuple[float | None, float | None]]:
    """R^2 on the prompts of the controls, which is what they and the differences belong to."""
    return (score.r2, score.r2_ci) if score.paired_prompts is None else (score.paired_r2, score.paired_r2_ci)


def paired_prompts(scores: Sequence[ProbeScore]) -> int | None:
    """How many prompts the controls were measured on; None when on those of R^2 itself."""
    return next((score.paired_prompts for score in scores if score.paired_prompts is not None), None)


def _hardest(score: ProbeScore) -> str:
    """The control that leaves least."""
    return min(score.control, key=lambda name: score.selectivity.get(name) or 0.0)


def gap_text(score: ProbeScore, control: str) -> str:
    """R^2 minus that of a control, with its interval: ``+0.58 [+0.29, +0.67]``."""
    value = score.selectivity.get(control)
    if not is_finite(value):
        other = score.control.get(control)
        own, _ = beside_controls(score)
        return f"{own - other:+.3g}" if is_finite(own) and is_finite(other) else "not measured"
    low, high = score.selectivity_ci.get(control, (None, None))
    interval = f" [{low:+.2f}, {high:+.2f}]" if is_finite(low) and is_finite(high) else ""
    return f"{value:+.2f}{interval}"


@dataclass(frozen=True, eq=False)
class ProbeGroup:
    """Scores of one protocol that are read from one kind of place."""

    protocol: str
    kind: str
    targets: tuple[str, ...]
    layers: tuple[int, ...]
    positions: tuple[int | None, ...]
    scores: Mapping[tuple[str, int, int | None], ProbeScore]  # target, layer, position

    @property
    def last(self) -> int | None:
        """The position with the most context."""
        return self.positions[-1]

    def of(self, target: str) -> list[ProbeScore]:
        return [score for (name, _, _), score in self.scores.items() if name == target]


def probe_groups(scores: Sequence[ProbeScore]) -> tuple[ProbeGroup, ...]:
    """By protocol (the sound one first) and kind, in the order of the scores."""
    keys = dict.fromkeys((score.protocol, score.kind) for score in scores)
    groups = []
    for protocol, kind in sorted(keys, key=lambda key: key[0] != "sound"):
        own = [s for s in scores if (s.protocol, s.kind) == (protocol, kind)]
        groups.append(
            ProbeGroup(
                protocol=protocol,
                kind=kind,
                targets=tuple(dict.fromkeys(s.target for s in own)),
                layers=tuple(sorted({s.layer for s in own})),
                positions=tuple(sorted({s.position for s in own}, key=lambda p: (p is None, p or 0))),
                scores={(s.target, s.layer, s.position): s for s in own},
            )
        )
    return tuple(groups)


def where_text(position: int | None, kind: str = "token") -> str:
    """The place of a score in the prompt."""
    if position is None:
        return "the query" if kind == "token" else "the prompt"
    return f"token {position}"


def _best(group: ProbeGroup, target: str) -> ProbeScore | None:
    """The highest score of a target among those above all their controls."""
    found = [score for score in group.of(target) if above_all(score) and is_finite(score.r2)]
    return max(found, key=lambda score: score.r2 or 0.0, default=None)


def probe_finding(group: ProbeGroup) -> str:
    """Which targets are read better than by any control, from where, and by how much."""
    place = KINDS.get(group.kind, group.kind)
    place = place if group.protocol == "sound" else f"{place} (protocol {group.protocol})"
    scored = [target for target in group.targets if any(is_finite(score.r2) for score in group.of(target))]
    if not scored:
        return f"Nothing could be scored from {place}"
    best = {target: score for target in scored if (score := _best(group, target)) is not None}
    if not best:
        compared = any(score.selectivity_ci for score in group.scores.values())
        reason = (
            "no target is read better than by all controls" if compared else "there are no controls to compare with"
        )
        return f"From {place} {reason} ({len(scored)} tried)"
    ranked = sorted(best.items(), key=lambda pair: -(pair[1].selectivity.get(_hardest(pair[1])) or 0.0))
    several = len(group.positions) > 1
    told = [
        f"{target} (R² {number(beside_controls(score)[0], 2)} {depth_text(score.layer)}"
        f"{f' at {where_text(score.position)}' if several else ''}, "
        f"{gap_text(score, _hardest(score))} above {_SHORT.get(_hardest(score), _hardest(score))})"
        for target, score in ranked
    ]
    verb = "is" if len(best) == 1 else "are"
    few = paired_prompts(list(best.values()))
    where = f" (R² on the {few} prompts of the controls)" if few is not None else ""
    return (
        f"From {place}, {len(best)} of {len(scored)} targets {verb} read better than by any control{where}: "
        f"{listed(told)}"
    )


def published_finding(group: ProbeGroup) -> str:
    """The same protocol as in a paper: no controls, so no claim but the errors."""
    text = f"As published ({group.protocol}), from {KINDS.get(group.kind, group.kind)}"
    told = []
    for target in group.targets:
        known = [score for score in group.of(target) if is_finite(score.mse)]
        if known:
            least = min(known, key=lambda score: score.mse or 0.0)
            where = f", {where_text(least.position)}" if group.kind == "token" else ""
            told.append(f"{target} {number(least.mse, 2)} {depth_text(least.layer)}{where}")
    return f"{text}: lowest mean squared error of {listed(told, most=3)}" if told else f"{text}: nothing was scored"
