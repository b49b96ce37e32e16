"""What a network for matrix completion shows of EAGLE, made by hand, for the tests of what people see."""

from __future__ import annotations

from collections.abc import Sequence

from interp.results import Completion
from interp.results.completion import Agreement, Extraction, LawPoint, MachineTraffic, ScalingLaw, SketchLayer


def law(holds: bool = True) -> ScalingLaw:
    """Three layers with gamma 0.5 throughout, and eta that grows a little; the last ω_xx is never read."""
    points = tuple(
        LawPoint(
            layer=k,
            norm=40.0 / 4**k,
            eta=None if k == 2 else 0.8 + k / 10,
            eta_ci=(None, None) if k == 2 else (0.7, 1.0),
            gamma=0.5,
            gamma_ci=(0.4, 0.6),
        )
        for k in range(3)
    )
    return ScalingLaw(
        statistic="largest",
        points=points,
        eta=0.85,
        eta_ci=(0.8, 0.9),
        gamma=0.5,
        gamma_ci=(0.5, 0.5),
        spread=1.1,
        explained=0.97,
        slope=1.02,
        slope_stderr=0.05,
        holds=holds,
        why="no layer is off by more than a factor of 1.1",
    )


def completion(regime: str = "full", read_by: Sequence[Sequence[float]] = ()) -> Completion:
    agreement = tuple(
        Agreement(
            layer=k,
            difference=1e-4 * 2**k,
            difference_stderr=1e-5,
            layerwise=5e-5 * 2**k,
            layerwise_stderr=1e-5,
            error=0.2 / 5**k,
            error_stderr=0.01 / 5**k,
        )
        for k in range(4)
    )
    sketch = tuple(
        SketchLayer(
            layer=k, rank=2, spectrum=(1.0, 0.9, 1e-9, 0.0), same=1.0, written_rank=2,
            read_by=tuple(read_by[k]) if read_by else (1.0, 1.0, 1.0),
        )
        for k in range(3)
    )  # fmt: skip
    machines = MachineTraffic(inputs=((0, 1), (2, 3)), cross=(0.0, 0.01, None), numbers=12)
    return Completion(
        regime=regime,
        laws=(law(),),
        agreement=agreement,
        sketch=sketch if regime == "sketch" else (),
        machines=machines if regime == "machines" else None,
        extraction=Extraction(layers=(), fidelity=0.9, fidelity_ci=(0.88, 0.92)),
    )
