"""Layers replaced, the path to the algorithm, and stress, made by hand."""

from __future__ import annotations

import dataclasses

from interp.results import (
    Absorption,
    Analysis,
    Evidence,
    Interpolation,
    LayerSwap,
    Outcome,
    PathPoint,
    Stress,
    StressPoint,
)

ERROR = 3.25  # of the network
VALUES = {
    "context": (5.0, 10.0, 20.0, 30.0, 40.0, 80.0),
    "noise": (0.0, 1.25, 2.5, 5.0, 7.5, 10.0, 20.0),
    "scale": (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    "covariance": (1.0, 3.0, 10.0, 30.0, 100.0),
}
LABELS = {
    "context": "number of examples",
    "noise": "noise σ",
    "scale": "size of the inputs",
    "covariance": "unevenness of the inputs",
}
TRAINED = {"context": (20.0, 20.0), "noise": (0.0, 5.0), "scale": (1.0, 1.0), "covariance": (1.0, 1.0)}


def outcome(change: float, fidelity: float, stderr: float = 0.01) -> Outcome:
    return Outcome(
        fidelity=fidelity,
        fidelity_ci=(fidelity - 0.001, fidelity + 0.0005) if fidelity < 1 else (1.0, 1.0),
        mse=ERROR + change,
        stderr=0.1,
        change=change,
        change_stderr=stderr * abs(change),
    )


def swaps(layers: int, *, exact: bool = True, wrong: tuple[int, ...] = ()) -> tuple[LayerSwap, ...]:
    """Exact or good to 0.2 %, but for the layers that are ``wrong``; leaving a layer out costs much."""
    good = outcome(3e-17, 1.0) if exact else outcome(0.004, 0.998)
    return tuple(
        LayerSwap(layer=i, swapped=outcome(5.1e5, -7.4e4) if i in wrong else good, idle=outcome(1.2 + i, 0.7 - 0.1 * i))
        for i in range(layers)
    )


def path(height: float = 0.0, end: float = 0.0) -> Interpolation:
    """A parabola of this height over a line that ends ``end`` above the network's error."""
    shares = [k / 10 for k in range(11)]
    return Interpolation(
        points=tuple(
            PathPoint(
                share=t,
                mixed=outcome(
                    4 * height * t * (1 - t) + end * t, 1.0 if height == 0 else 0.9975 - height * t * (1 - t)
                ),
                idle=outcome(7.0 * t**6, 1 - t**4),
            )
            for t in shares
        ),
        barrier=height,
        barrier_stderr=0.05 * height,
    )


def stress(left: float = 1e-26, grows: float = 1.0) -> tuple[Stress, ...]:
    """``left`` unexplained in training, ``grows`` times as much with every value further from it."""
    out = []
    for name, values in VALUES.items():
        low, high = TRAINED[name]
        inside = [k for k, v in enumerate(values) if low <= v <= high]
        points = []
        for k, value in enumerate(values):
            far = max(inside[0] - k, k - inside[-1], 0)
            share = left * grows**far
            points.append(
                StressPoint(
                    value=value, trained=far == 0, prompts=512, left_out=0, unexplained=share,
                    unexplained_ci=(0.8 * share, 1.3 * share), network=3.2, network_stderr=0.2, recovered=3.3,
                    recovered_stderr=0.2, oracle=3.1,
                )
            )  # fmt: skip
        agreeing = [p.value for p in points if (p.unexplained_ci[1] or 0.0) <= 0.01]
        region = (agreeing[0], agreeing[-1]) if agreeing else None
        out.append(Stress(name=name, label=LABELS[name], points=tuple(points), agrees=region))
    return tuple(out)


def absorption(*fidelities: float) -> tuple[Absorption, ...]:
    counts = (0, 1, 2, 4, 8, 16, 32, 64)
    return tuple(
        Absorption(directions=k, fidelity=f, fidelity_ci=(f - 0.02, min(f + 0.02, 1.0)))
        for k, f in zip(counts, fidelities, strict=False)
    )


def exact(evidence: Evidence, layers: int) -> Evidence:
    """A network that is its algorithm."""
    return dataclasses.replace(
        evidence,
        replacement="diag",
        replaced=2048,
        swaps=swaps(layers),
        interpolation=path(),
        stress=stress(),
    )


def opaque(evidence: Evidence, layers: int) -> Evidence:
    """The algorithm follows the network as a whole, not in its last two layers, and not far outside of training."""
    return dataclasses.replace(
        evidence,
        replacement="diag",
        replaced=2048,
        swaps=swaps(layers, exact=False, wrong=tuple(range(layers - 2, layers))),
        interpolation=path(height=1600.0),
        stress=stress(left=0.002, grows=4.0),
        absorption=absorption(0.52, 0.55, 0.46, 0.39, 0.51, 0.54, 0.59, 0.9998),
    )


def given(analysis: Analysis, *, like: str = "exact") -> Analysis:
    """The analysis with evidence of one of these kinds."""
    make = {"exact": exact, "opaque": opaque}[like]
    return dataclasses.replace(analysis, evidence=make(analysis.evidence, len(analysis.layers)))
