"""Probe scores made by hand, for the tests of what people see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import synthetic_analyses

from interp.results import ProbeReport, ProbeScore, ProbeTarget

NOTHING = (None, None)
HELD = {"w": 0.02, "label": 0.9, "current": 1.0}  # R^2 in the last layer
INPUTS = {"w": 0.02, "label": 0.01, "current": 1.0}
UNTRAINED = {"w": 0.02, "label": 0.05, "current": 0.7}
TARGETS = tuple(
    ProbeTarget(name=name, formula=f"formula of {name}", source="a paper", expectation="where it is kept")
    for name in HELD
)


def score(target: str, layer: int, layers: int, *, kind: str = "token", position: int | None = None) -> ProbeScore:
    """Between what the inputs hold and what the last layer holds. Real differences are known to +-0.03."""
    done = layer / layers
    r2 = INPUTS[target] + (HELD[target] - INPUTS[target]) * done
    control = {
        "untrained": INPUTS[target] + (UNTRAINED[target] - INPUTS[target]) * done,
        "shuffled": -0.01,
        "inputs": INPUTS[target],
    }
    gaps = {name: r2 - value for name, value in control.items()}
    return ProbeScore(
        layer=layer,
        target=target,
        kind=kind,
        r2=r2,
        r2_ci=(r2 - 0.03, r2 + 0.03),
        mse=1 - r2,
        control=control,
        position=position,
        selectivity=gaps,
        selectivity_ci={name: (gap - 0.03, gap + 0.03) for name, gap in gaps.items()},
        penalty=0.1,
        prompts=2048,
        variance=1.0,
    )


def unscored(target: str, layer: int, position: int | None) -> ProbeScore:
    return ProbeScore(
        layer=layer,
        target=target,
        kind="token",
        r2=None,
        r2_ci=NOTHING,
        mse=None,
        control={},
        position=position,
        reason="skipped, because the target is not defined at this position",
    )


def published(target: str, layer: int, position: int) -> ProbeScore:
    return ProbeScore(
        layer=layer,
        target=target,
        kind="token",
        r2=None,
        r2_ci=NOTHING,
        mse=10.0 / (position + 1) / (layer + 1),
        control=dict.fromkeys(("untrained", "shuffled", "inputs")),
        position=position,
        prompts=256,
        protocol="mesa",
    )


def at_the_query(layers: int = 4) -> tuple[ProbeScore, ...]:
    """Two kinds of probe of a network with shared keys."""
    return (
        *(score(target, layer, layers) for target in HELD for layer in range(layers + 1)),
        *(score("w", layer, layers, kind="within-prompt") for layer in range(layers + 1)),
    )


def along_a_sequence(positions: Sequence[int] = (1, 5, 20), layers: int = 3) -> tuple[ProbeScore, ...]:
    """A causal network; w has no value at the first position, and one target is scored as published too."""
    return (
        *(
            unscored(target, layer, p)
            if target == "w" and p == positions[0]
            else score(target, layer, layers, position=p)
            for target in HELD
            for p in positions
            for layer in range(layers + 1)
        ),
        *(published("label", layer, p) for p in positions for layer in range(layers + 1)),
    )


def report(scores: Sequence[ProbeScore]) -> ProbeReport:
    base = synthetic_analyses.analysis()
    return ProbeReport(
        checkpoint=base.checkpoint,
        task=base.task,
        probes=tuple(scores),
        targets=TARGETS,
        provenance=base.provenance,
        notes=("controls, and the differences to them: on 1024 prompts",),
    )


def hostile() -> ProbeReport:
    """Names that try to run code."""
    bad = "<img src=x onerror=alert(1)>"
    base = report([ProbeScore(**{**vars(s), "target": bad}) for s in at_the_query() if s.target == "label"])
    target = ProbeTarget(name=bad, formula=bad, source="</script><script>alert(2)</script>", expectation=bad)
    return ProbeReport(**{**vars(base), "targets": (target,), "notes": (synthetic_analyses.HOSTILE,)})


def on_fewer_prompts(scores: Sequence[ProbeScore]) -> tuple[ProbeScore, ...]:
    """The same controls and differences; R^2 itself is of more prompts, and 0.05 higher."""
    return tuple(
        s if s.r2 is None or s.protocol != "sound"
        else replace(s, r2=s.r2 + 0.05, r2_ci=(s.r2 + 0.04, s.r2 + 0.06), paired_r2=s.r2, paired_r2_ci=s.r2_ci,
                     paired_prompts=384)
        for s in scores
    )  # fmt: skip
