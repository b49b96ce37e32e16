"""The recovered algorithm in the network's place, one layer at a time and by degrees in all of them.

A family that predicts what the network predicts need not do so layer by layer: its numbers were fitted together, and
what one layer does otherwise a later one may make good. So each layer of the network is replaced alone by that of the
algorithm, and all of them at once along the straight path between the two in the products of the weights. The control
of both is a layer that does nothing: where leaving a layer out costs nothing, replacing it at no cost shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.mixing import IdleLayers, MixedLayers, swapped
from interp.algebra.sensitivity import Prompts, predict
from interp.evidence.absorption import absorption
from interp.evidence.question import Answer, question, with_error
from interp.families.omegas import OmegaFit
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.identify.score import bootstrap_fidelity
from interp.models.gram import LayerMaps
from interp.models.skipped import Skipped
from interp.results import Interpolation, LayerSwap, Outcome, PathPoint
from interp.stats.averages import mean_with_error

__all__ = ["Bench", "affordable", "interpolation", "layer_swaps"]

STEPS = 10  # of the path, whose ends are points too
OPERATIONS = 4e9  # floating point operations that swaps and path may take together, about a second
FEWEST = 64


def affordable(layers: int, heads: int, width: int) -> int:
    """How many prompts the 2 L swaps and 2 (STEPS + 1) points of the path may be run on; at least ``FEWEST``."""
    each = layers * (2 * heads + 2) * 2 * width**3
    return max(FEWEST, int(OPERATIONS / (each * 2 * (layers + STEPS + 1))))


@dataclass(frozen=True, eq=False)
class Bench:
    """Prompts with their targets and the network's predictions, to try changed networks on."""

    prompts: Prompts
    target: Float[Tensor, "prompt output"]
    reference: Float[Tensor, "prompt output"]
    seed: int

    @classmethod
    def of(cls, network: LayerMaps, prompts: Prompts, target: Float[Tensor, "prompt output"], seed: int) -> Bench:
        return cls(prompts, target, predict(network, prompts), seed)

    def squares(self, prediction: Float[Tensor, "prompt output"]) -> Float[Tensor, " prompt"]:
        return ((prediction - self.target) ** 2).mean(1)

    def outcome(self, prediction: Float[Tensor, "prompt output"]) -> Outcome:
        score = bootstrap_fidelity(prediction, self.reference, self.seed)
        squares = self.squares(prediction)
        return Outcome(
            fidelity=score.fidelity,
            fidelity_ci=score.interval,
            **with_error("mse", mean_with_error(squares), "stderr"),
            **with_error("change", mean_with_error(squares - self.squares(self.reference)), "change_stderr"),
        )

    def run(self, layers: LayerMaps) -> Outcome:
        return self.outcome(predict(layers, self.prompts))


def layer_swaps(network: LayerMaps, recovered: LayerMaps, bench: Bench) -> tuple[LayerSwap, ...]:
    """One row per layer."""
    idle = IdleLayers(network.layers, network.residual)
    return tuple(
        LayerSwap(
            layer=layer,
            swapped=bench.run(swapped(network, recovered, layer)),
            idle=bench.run(swapped(network, idle, layer)),
        )
        for layer in range(network.layers)
    )


def interpolation(network: LayerMaps, recovered: LayerMaps, bench: Bench) -> Interpolation:
    """From the network to the recovered algorithm, and as far to layers that do nothing."""
    idle = IdleLayers(network.layers, network.residual)
    shares = [step / STEPS for step in range(STEPS + 1)]
    paths = [
        [predict(MixedLayers(network, end, (t,) * network.layers), bench.prompts) for t in shares]
        for end in (recovered, idle)
    ]
    barrier, error = _barrier(shares, [bench.squares(prediction) for prediction in paths[0]])
    return Interpolation(
        points=tuple(
            PathPoint(share=t, mixed=bench.outcome(mixed), idle=bench.outcome(bare))
            for t, mixed, bare in zip(shares, *paths, strict=True)
        ),
        barrier=barrier,
        barrier_stderr=error,
    )


def _barrier(shares: Sequence[float], squares: Sequence[Float[Tensor, " prompt"]]) -> tuple[float | None, float | None]:
    lines = (torch.lerp(squares[0], squares[-1], t) for t in shares)
    above = [mean_with_error(value - line) for value, line in zip(squares, lines, strict=True)]
    return (None, None) if (None, None) in above else max(above, key=lambda pair: pair[0] or 0.0)


@question("replacement")
def replacement(choice: Choice, run: Run) -> Answer | Skipped | None:
    """The recovered algorithm, or the closest family, in the network's place: layer by layer, and by degrees."""
    network, best = run.network, choice.closest
    if not isinstance(network, SharedKeys):
        return network.skipped
    if not isinstance(best, OmegaFit):
        return Skipped("no algorithm of layers could be scored")
    run.progress("replacing layers by those of the algorithm")
    layers, held_out = network.layers, network.held_out
    count = min(held_out.drawn.count, affordable(layers.layers, run.model.heads, run.spec.width))
    seed = int(np.random.SeedSequence(run.seeds.replacement).generate_state(2)[0])
    bench = Bench.of(layers, held_out.prompts[:count], held_out.target[:count], seed)
    return Answer(
        fields={
            "evidence.replacement": best.family.title,
            "evidence.replaced": count,
            "evidence.swaps": layer_swaps(layers, best.layers, bench),
            "evidence.interpolation": interpolation(layers, best.layers, bench),
            "evidence.absorption": absorption(layers, run.spec, network.live, bench.prompts, bench.reference, seed),
        }
    )
