"""Scores of probes: how they are grouped, compared with their controls, and what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.reports.numbers import is_finite, listed, number, several
from interp.results import ProbeScore, Series

__all__ = [
    "CONTROLS", "KINDS", "ProbeGroup", "above", "above_all", "beside_controls", "depth_finding", "depth_text",
    "gap_text", "growth_finding", "paired_prompts", "probe_finding", "probe_groups", "published_finding",
    "target_words", "where_text",
]  # fmt: skip

_SERIES = (
    Series(key="untrained", label="untrained models", colour="var(--series-2)", symbol="square", dash="dash"),
    Series(key="shuffled", label="shuffled targets", colour="var(--series-4)", symbol="x", dash="dot"),
    Series(key="inputs", label="inputs alone", colour="var(--series-3)", symbol="line"),
)
CONTROLS = {series.key: series for series in _SERIES}
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
    meanings = []
    for name in names:
        family, _, count = name.rpartition("-")
        counted = f"{count} token{'s' * (count != '1')}" if family == "previous" else count
        meanings.append((name, _TARGETS.get(name) or _NUMBERED.get(family, "").format(counted)))
    return "; ".join(f"{name}, {words}" for name, words in meanings if words)


def depth_text(layers: int) -> str:
    """Where in the network activations are, by the layers run: the input, or after so many layers."""
    return "in the input" if layers == 0 else f"after {several(layers, 'layer')}"


def above(score: ProbeScore, control: str) -> bool:
    """Whether the probe finds more than this control does, clear at 95 %."""
    low = score.selectivity_ci.get(control, (None, None))[0]
    return is_finite(low) and low > 0


def above_all(score: ProbeScore) -> bool:
    """Whether it beats every control: what is read is neither in the inputs nor in models that were never trained."""
    return bool(score.control) and all(above(score, control) for control in score.control)


def beside_controls(score: ProbeScore) -> tuple[float | None, tuple[float | None, float | None]]:
    """R^2 on the prompts of the controls, which is what they and the differences belong to."""
    return (score.r2, score.r2_ci) if score.paired_prompts is None else (score.paired_r2, score.paired_r2_ci)


def paired_prompts(scores: Sequence[ProbeScore]) -> int | None:
    """How many prompts the controls were measured on; None when on those of R^2 itself."""
    return next((score.paired_prompts for score in scores if score.paired_prompts is not None), None)


def _hardest(score: ProbeScore) -> tuple[str, str]:
    """The control that leaves least, and what it is called."""
    name = min(score.control, key=lambda name: score.selectivity.get(name) or 0.0)
    return name, CONTROLS[name].label if name in CONTROLS else name


def gap_text(score: ProbeScore, control: str) -> str:
    """R^2 minus that of a control, with its interval: ``+0.58 [+0.29, +0.67]``."""
    value = score.selectivity.get(control)
    if not is_finite(value):
        other, paired = score.control.get(control), beside_controls(score)[0]
        return f"{paired - other:+.3g}" if is_finite(paired) and is_finite(other) else "not measured"
    low, high = score.selectivity_ci.get(control, (None, None))
    return f"{value:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if is_finite(low) and is_finite(high) else "")


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

    @property
    def place(self) -> str:
        return KINDS.get(self.kind, self.kind)

    @property
    def compared(self) -> bool:
        """Whether there are controls to compare with."""
        return any(score.selectivity_ci for score in self.scores.values())

    def of(self, target: str) -> list[ProbeScore]:
        return [score for (name, _, _), score in self.scores.items() if name == target]

    def along(self, target: str, layers: Sequence[int], positions: Sequence[int | None]) -> list[ProbeScore]:
        """The scores of a target at these places, by position and then by layer."""
        keys = [(target, layer, position) for position in positions for layer in layers]
        return [self.scores[key] for key in keys if key in self.scores]

    def in_order(self) -> list[ProbeScore]:
        """All scores, target by target."""
        return [score for target in self.targets for score in self.along(target, self.layers, self.positions)]


def probe_groups(scores: Sequence[ProbeScore]) -> tuple[ProbeGroup, ...]:
    """By protocol (the sound one first) and kind, in the order of the scores."""
    kinds: dict[tuple[str, str], list[ProbeScore]] = {}
    for score in scores:
        kinds.setdefault((score.protocol, score.kind), []).append(score)
    return tuple(_group(*key, kinds[key]) for key in sorted(kinds, key=lambda key: key[0] != "sound"))


def _group(protocol: str, kind: str, entries: Sequence[ProbeScore]) -> ProbeGroup:
    targets = tuple(dict.fromkeys(s.target for s in entries))
    layers = tuple(sorted({s.layer for s in entries}))
    positions = tuple(sorted({s.position for s in entries}, key=lambda p: (p is None, p or 0)))
    scores = {(s.target, s.layer, s.position): s for s in entries}
    return ProbeGroup(protocol, kind, targets, layers, positions, scores)


def where_text(position: int | None, kind: str = "token") -> str:
    """The place of a score in the prompt."""
    nowhere = "the query" if kind == "token" else "the prompt"
    return nowhere if position is None else f"token {position}"


def probe_finding(group: ProbeGroup) -> str:
    """Which targets are read better than by any control, from where, and by how much."""
    place = group.place if group.protocol == "sound" else f"{group.place} (protocol {group.protocol})"
    scored = {
        target: scores for target in group.targets if (scores := [s for s in group.of(target) if is_finite(s.r2)])
    }
    if not scored:
        return f"Nothing could be scored from {place}"
    clear = {target: [s for s in scores if above_all(s)] for target, scores in scored.items()}
    best = {target: max(scores, key=lambda s: s.r2 or 0.0) for target, scores in clear.items() if scores}
    if not best:
        none = "no target is read better than by all controls"
        reason = none if group.compared else "there are no controls to compare with"
        return f"From {place} {reason} ({len(scored)} tried)"
    texts = []
    for target, score in sorted(best.items(), key=lambda pair: -(pair[1].selectivity.get(_hardest(pair[1])[0]) or 0.0)):
        hardest, said = _hardest(score)
        at = f" at {where_text(score.position)}" if len(group.positions) > 1 else ""
        r2 = f"R² {number(beside_controls(score)[0], 2)} {depth_text(score.layer)}{at}"
        texts.append(f"{target} ({r2}, {gap_text(score, hardest)} above {said})")
    few = paired_prompts(list(best.values()))
    where = f" (R² on the {few} prompts of the controls)" if few is not None else ""
    count = f"{len(best)} of {len(scored)} targets {'is' if len(best) == 1 else 'are'}"
    return f"From {place}, {count} read better than by any control{where}: {listed(texts)}"


def published_finding(group: ProbeGroup) -> str:
    """The same protocol as in a paper: no controls, so no claim but the errors."""
    text = f"As published ({group.protocol}), from {group.place}"
    texts = []
    for target in group.targets:
        scored = [score for score in group.of(target) if is_finite(score.mse)]
        if scored:
            least = min(scored, key=lambda score: score.mse or 0.0)
            where = f", {where_text(least.position)}" if group.kind == "token" else ""
            texts.append(f"{target} {number(least.mse, 2)} {depth_text(least.layer)}{where}")
    return f"{text}: lowest mean squared error of {listed(texts, most=3)}" if texts else f"{text}: nothing was scored"


def depth_finding(group: ProbeGroup) -> str:
    """Which targets beat all three controls in the last layer."""
    last = group.layers[-1]
    scores = [s for target in group.targets for s in group.along(target, (last,), (group.last,)) if is_finite(s.r2)]
    beating = [s.target for s in scores if above_all(s)]
    where = f"By depth, at {where_text(group.last, group.kind)}: {depth_text(last)}"
    if not scores:
        return f"{where} there are no scores"
    if not beating:
        return f"{where} no target beats all controls"
    verb = "beats" if len(beating) == 1 else "beat"
    return f"{where}, {len(beating)} of {len(scores)} targets {verb} all controls ({', '.join(beating)})"


def growth_finding(group: ProbeGroup) -> str:
    """Which targets are read better with more context: intervals of the first and last position apart."""
    last, places = group.layers[-1], [p for p in group.positions if p is not None]
    changed: dict[str, list[str]] = {"better": [], "worse": []}
    for target in group.targets:
        bounds = [beside_controls(s)[1] for s in group.along(target, (last,), (places[0], places[-1]))]
        ends = [v for pair in bounds for v in pair if is_finite(v)]
        if len(ends) == 4 and ends[2] > ends[1]:
            changed["better"].append(target)
        elif len(ends) == 4 and ends[3] < ends[0]:
            changed["worse"].append(target)
    parts = [f"{word} for {listed(targets)}" for word, targets in changed.items() if targets]
    change = ", ".join(parts) or "clearly neither better nor worse for any target"
    return f"From token {places[0]} to token {places[-1]} probes {depth_text(last)} get {change}"
