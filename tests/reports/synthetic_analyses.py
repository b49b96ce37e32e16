"""Analyses made by hand: what the reports must show, without a network in sight."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import synthetic_parts as parts
import synthetic_regression
from synthetic_evidence import given

from interp.results import (
    Analysis,
    CheckpointInfo,
    Coefficient,
    Evidence,
    Family,
    Layer,
    Loss,
    ProbeScore,
    RecoveredLayer,
    Split,
    Verdict,
    Weights,
)

HOSTILE = "<script>alert(1)</script>"


def analysis(layers: int = 4, dim: int = parts.DIM, heads: int = 1, seed: int = 0) -> Analysis:
    """A recognized DIAG network of ``layers`` layers; the last layer's xx and xy are dead."""
    rng = np.random.default_rng(seed)
    omegas = [parts.OMEGAS[min(i, 2)] for i in range(layers - 1)] + [parts.OMEGAS[3]]
    Q, P = parts.weights(rng, omegas, dim, heads)
    rows = tuple(parts.layer(rng, i, values) for i, values in enumerate(omegas))
    return Analysis(
        checkpoint=CheckpointInfo(
            name="zoo:diag-4",
            sha256="9f2c4be07d5a61c9" * 4,
            layout="canonical",
            dtype="float32",
            tokens=(("x", dim), ("y", 1)),
            keys="context",
            scale="1",
            residual=True,
            clip=None,
            readout_channel="y",
            readout_sign=-1,
            layers=layers,
            heads=heads,
            parameters=2 * layers * heads * (dim + 1) ** 2,
        ),
        task={"name": "noisy_regression", "dim": dim, "context": 20, "noise": {"uniform": [0.0, 5.0]}},
        layers=rows,
        families=(
            Family(
                name="gd",
                parameters=layers,
                fidelity=0.9127,
                fidelity_ci=(0.9031, 0.9216),
                mse=4.4471,
                chosen=False,
                why="diag leaves 0.00031 of the variance, this 0.087",
            ),
            Family(
                name="gd++",
                parameters=2 * layers - 1,
                fidelity=0.9568,
                fidelity_ci=(0.9523, 0.9611),
                mse=3.8123,
                chosen=False,
                why="diag leaves 0.00031 of the variance, this 0.043",
            ),
            Family(
                name="diag",
                parameters=4 * layers - 2,
                fidelity=0.99969,
                fidelity_ci=(0.99962, 0.99974),
                mse=3.2461,
                chosen=True,
                why="the smallest family that explains the network",
            ),
            Family(
                name="equivariant",
                parameters=7 * layers - 4,
                fidelity=0.99971,
                fidelity_ci=(0.99964, 0.99976),
                mse=3.2460,
                chosen=False,
                why="explains no more than diag, which it contains",
            ),
            Family(
                name="preconditioned-gd",
                parameters=layers * dim**2,
                fidelity=None,
                fidelity_ci=(None, None),
                mse=None,
                chosen=False,
                why="skipped, because its 400 numbers need 3200 prompts (--prompts)",
            ),
        ),
        verdict=Verdict(
            algorithm="diag",
            recognized=True,
            solves_task=True,
            fidelity=0.99969,
            fidelity_ci=(0.99962, 0.99974),
            summary="It runs diag: its predictions on fresh prompts follow x ← x + ω_xx Σ x + ω_xy y α;  "
            f"y ← y + ω_yx ⟨α, x⟩ + ω_yy λ y per layer with {4 * layers - 2} numbers to R² = 0.99969. "
            "It solves the task (mean squared error 3.25; predicting zero 10, optimum 3.13).",
        ),
        evidence=Evidence(
            prompts=65536,
            losses=(
                parts.loss("null", "predict zero", 10.0231),
                *(parts.loss(name, label, mse) for name, (label, mse) in parts.BASELINES.items()),
                parts.loss("network", "the network", 3.2459),
                parts.loss("recovered", "recovered algorithm (diag)", 3.2461),
                parts.loss("oracle", "ridge, true noise (optimal)", parts.OPTIMUM),
            ),
            depth_losses=tuple(
                parts.loss(f"layer-{i}", f"read-out after {i} layers", 3.2459 + 6.7772 * 0.42**i * (1 - i / layers))
                for i in range(layers + 1)
            ),
            notes=("probes were not run, because no target was asked for",),
        ),
        implicit=tuple(parts.implicit(i, layers) for i in range(layers + 1)),
        provenance={
            "tool": "interp-probe 0.1.0",
            "command": "interp-probe zoo:diag-4 --report diag.html",
            "prompts": 4096,
            "seed": 0,
            "analysis_dtype": "float64",
            "device": "cpu",
            "time": "2025-01-01T00:00:00+00:00",
            "python": "3.11.2",
            "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
            "threads": 2,
            "versions": {"torch": "2.13.0", "numpy": "2.4.6", "plotly": "7.1.0", "missing": None},
        },
        weights=Weights(Q=Q.tolist(), P=P.tolist()),
        recovered=parts.recovered("diag", rows),
    )


def disagreeing() -> Analysis:
    """The awkward FULL network: the last layer's estimates disagree in sign, and one refit is not determined."""
    base = analysis()
    last, first = base.layers[-1], base.layers[0]
    opposed = dataclasses.replace(
        last.omega["yx"], weight=-12.04, output=2.13, stderr=0.31, refit=1.87, refit_stderr=0.4
    )
    sloppy = dataclasses.replace(
        first.omega["xy"], refit=0.41, refit_stderr=3.7, undetermined="its standard error exceeds its size"
    )
    zero = dataclasses.replace(first.omega["yy"], output=1.2e-6, stderr=4.4e-6)
    layers = (
        dataclasses.replace(first, omega={**first.omega, "xy": sloppy, "yy": zero}),
        *base.layers[1:-1],
        dataclasses.replace(last, omega={**last.omega, "yx": opposed}),
    )
    return dataclasses.replace(base, layers=layers, recovered=parts.recovered("diag", layers))


def unrecognized() -> Analysis:
    base = analysis()
    verdict = Verdict(
        algorithm="unrecognized",
        recognized=False,
        solves_task=True,
        fidelity=0.7213,
        fidelity_ci=(0.6987, 0.7421),
        summary="Unrecognized: no family explains its predictions. The closest is equivariant, R² = 0.721 "
        "[0.699, 0.742] on fresh prompts. It solves the task (mean squared error 3.25; optimum 3.13).",
    )
    losses = tuple(
        parts.loss("recovered", "closest family (equivariant)", 4.21) if entry.name == "recovered" else entry
        for entry in base.evidence.losses
    )
    families = tuple(
        dataclasses.replace(
            f,
            chosen=False,
            fidelity=None if f.fidelity is None else 0.72 * f.fidelity,
            fidelity_ci=(0.69, 0.74),
            why="fidelity below 0.95" if f.fidelity else f.why,
        )
        for f in base.families
    )
    split = Split(block_scalar=0.412, trace=0.031, residual=0.557)
    layers = tuple(dataclasses.replace(layer, split=split) for layer in base.layers)
    evidence = dataclasses.replace(base.evidence, losses=losses)
    return dataclasses.replace(
        base, verdict=verdict, families=families, layers=layers, evidence=evidence, recovered=None
    )


def refused() -> Analysis:
    """A network that does not beat predicting zero."""
    base = analysis(layers=2)
    verdict = Verdict(
        algorithm="gd",
        recognized=True,
        solves_task=False,
        fidelity=0.9991,
        fidelity_ci=(0.9988, 0.9993),
        summary="Does not solve the task (mean squared error 10.4; predicting zero 10, optimum 3.13). It runs gd: its "
        "predictions on fresh prompts follow y ← y + ω_yx ⟨α, x⟩ per layer with 2 numbers to R² = 0.9991.",
    )
    losses = tuple(
        parts.loss(entry.name, entry.label, 10.4) if entry.name in ("network", "recovered") else entry
        for entry in base.evidence.losses
    )
    families = tuple(
        dataclasses.replace(
            f, chosen=True, fidelity=0.9991, fidelity_ci=(0.9988, 0.9993), mse=10.4, why="the smallest family"
        )
        if f.name == "gd"
        else dataclasses.replace(f, chosen=False, fidelity=0.9992, why="explains no more than gd")
        for f in base.families
    )
    evidence = dataclasses.replace(base.evidence, losses=losses)
    return dataclasses.replace(
        base, verdict=verdict, evidence=evidence, families=families, recovered=parts.recovered("gd", base.layers)
    )


def empty(reason: str = "nothing could be estimated, because the weights are all zero") -> Analysis:
    """Every list empty, every number missing."""
    base = analysis(layers=1)
    return dataclasses.replace(
        base,
        layers=(),
        recovered=None,
        families=(),
        implicit=(),
        provenance={},
        verdict=Verdict(
            algorithm="unrecognized",
            recognized=False,
            solves_task=False,
            fidelity=None,
            fidelity_ci=(None, None),
            summary="Nothing is known about this network.",
        ),
        evidence=Evidence(prompts=0, losses=(), depth_losses=(), notes=(reason,)),
        weights=Weights(Q=None, P=None, why="the matrices have more numbers than the document may hold"),
    )


def all_none() -> Analysis:
    """Every list filled, every number missing."""
    base = analysis()
    nothing = Coefficient(weight=None, output=None, stderr=None, refit=None, refit_stderr=None, live=True)
    layers = tuple(
        Layer(
            index=layer.index,
            omega=dict.fromkeys(layer.omega, nothing),
            trace=dict.fromkeys(layer.trace, nothing),
            split=Split(block_scalar=None, trace=None, residual=None),
        )
        for layer in base.layers
    )
    evidence = dataclasses.replace(
        base.evidence,
        losses=tuple(Loss(name=entry.name, label=entry.label, mse=None, stderr=None) for entry in base.evidence.losses),
        depth_losses=tuple(
            Loss(name=entry.name, label=entry.label, mse=None, stderr=None) for entry in base.evidence.depth_losses
        ),
    )
    implicit = tuple(
        dataclasses.replace(m, a=None, linearity_r2=None, distance=dict.fromkeys(m.distance), distance_stderr={})
        for m in base.implicit
    )
    families = tuple(
        dataclasses.replace(f, fidelity=None, fidelity_ci=(None, None), mse=None, chosen=False) for f in base.families
    )
    verdict = dataclasses.replace(
        base.verdict, algorithm="unrecognized", recognized=False, fidelity=None, fidelity_ci=(None, None)
    )
    return dataclasses.replace(
        base, layers=layers, evidence=evidence, implicit=implicit, families=families, verdict=verdict, recovered=None
    )


def hostile() -> Analysis:
    """A file that tries to run code wherever its text is shown."""
    base = analysis(layers=2)
    image = "<img src=x onerror=alert(1)>"
    checkpoint = dataclasses.replace(
        base.checkpoint,
        name=HOSTILE,
        tokens=((f"<b>{HOSTILE}</b>", parts.DIM), ("y\x1b[31m", 1)),
        notes=(image, "[red]markup[/red]"),
    )
    losses = tuple(dataclasses.replace(entry, label=f"<b>{entry.label}</b>{image}") for entry in base.evidence.losses)
    evidence = dataclasses.replace(base.evidence, losses=losses, notes=(HOSTILE, "</script><script>alert(2)</script>"))
    return dataclasses.replace(
        base,
        checkpoint=checkpoint,
        evidence=evidence,
        provenance={HOSTILE: {"x": image}},
        verdict=dataclasses.replace(base.verdict, summary=f"{HOSTILE} \x1b[2J {image}"),
        task={"name": HOSTILE},
    )


def with_bad_weights() -> Analysis:
    """Three entries of Q that are not finite, as a document read from JSON has them (null) and as memory has them."""
    base = analysis()
    Q: Any = np.array(base.weights.Q).tolist()
    Q[1][0][2][3], Q[1][0][4][5], Q[1][0][10][10] = None, float("nan"), float("inf")
    return dataclasses.replace(base, weights=dataclasses.replace(base.weights, Q=Q))


def with_probes() -> Analysis:
    scores = tuple(
        ProbeScore(
            layer=i,
            target="w (ridge)",
            kind="ridge",
            r2=0.2 * i,
            r2_ci=(0.2 * i - 0.03, 0.2 * i + 0.03),
            mse=1 - 0.2 * i,
            control={"untrained": 0.01, "shuffled": -0.02, "inputs": None},
        )
        for i in range(5)
    )
    return dataclasses.replace(analysis(), probes=scores)


def noisy() -> Analysis:
    """DIAG, with everything that is measured of how it deals with noise."""
    return given(dataclasses.replace(analysis(), regression=synthetic_regression.regression()))


def full() -> Analysis:
    """The awkward FULL network on two noise levels: the omegas carry little of its last weights, nothing was
    refitted."""
    base = disagreeing()
    split = Split(block_scalar=0.0031, trace=0.0001, residual=0.9968)
    layers = tuple(dataclasses.replace(x, split=split) if x.index >= 2 else x for x in base.layers)
    found = dataclasses.replace(
        base,
        layers=layers,
        regression=synthetic_regression.regression(levels=(1.0, 3.0), full=True),
        task=base.task | {"noise": {"choice": [1.0, 3.0]}},
    )
    return given(found, like="opaque")


def unrecognized_and_noisy() -> Analysis:
    return given(dataclasses.replace(unrecognized(), regression=synthetic_regression.regression()), like="opaque")


def preconditioned() -> Analysis:
    base = refused()
    verdict = dataclasses.replace(base.verdict, algorithm="preconditioned-gd", solves_task=True)
    families = tuple(dataclasses.replace(f, chosen=f.name == "preconditioned-gd") for f in base.families)
    matrices = synthetic_regression.preconditioners()
    layers = tuple(
        RecoveredLayer(index=m.layer, coefficients={}, matrix=m.refit, matrix_stderr=m.refit_stderr) for m in matrices
    )
    found = dataclasses.replace(parts.recovered("gd", base.layers), family="preconditioned-gd", layers=layers)
    return dataclasses.replace(base, verdict=verdict, families=families, preconditioners=matrices, recovered=found)


def everything(layers: int) -> Analysis:
    """Every field of the document filled."""
    import synthetic_probes  # which builds on this module

    return dataclasses.replace(
        given(analysis(layers=layers), like="opaque"),
        regression=synthetic_regression.regression(layers),
        preconditioners=synthetic_regression.preconditioners(layers, dim=2),
        probes=synthetic_probes.along_a_sequence((1, 5), layers=1),
    )


def deep() -> Analysis:
    """Seven layers, three heads, everything measured."""
    found = dataclasses.replace(analysis(layers=7, heads=3), regression=synthetic_regression.regression(layers=7))
    return given(found)
