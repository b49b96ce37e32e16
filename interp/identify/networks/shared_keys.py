"""A network of linear layers whose tokens share their keys: one linear map of a prompt per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.algebra.gauge import LiveCoordinates, beyond_rounding, live_coordinates, regauged
from interp.algebra.linear_prompts import DIVERGED, FEWEST_KEPT, finite_and_clipped, gram_prompts
from interp.algebra.sensitivity import LARGEST, Prompts, Sensitivities, bounded_weights, predict, sensitivities
from interp.algebra.unrolling import label_indices
from interp.errors import UsageError
from interp.identify.course import Course, course_of
from interp.identify.losses import affordable_prompts
from interp.identify.networks.halves import Half, Network
from interp.models.gram import GramTrajectory, HeadLayers, LayerMaps, forward, head_layers
from interp.models.skipped import Skipped
from interp.models.tasks import Examples, Task
from interp.models.transformer import LinearTransformer

__all__ = ["GramHalf", "SharedHalf", "SharedKeys"]

FEW = 64  # prompts enough for a zero pattern
MEMORY = 8 * 2**30  # bytes that the intermediate matrices of a run may take
JUDGED = 16_384  # prompts that fits are scored on, where ...
NUMBERS = 2**25  # ... their tokens and Gram matrices are no more numbers than these
CHUNK = 2048  # of them at a time
BOUND = 10.0  # times the median: a prediction that counts as no more among them, so that intervals cover


@dataclass(frozen=True, eq=False)
class GramHalf(Half):
    """Prompts as Gram matrices too."""

    prompts: Prompts

    def predicted(self, layers: LayerMaps) -> Float[Tensor, "prompt output"]:
        """What these layers predict."""
        starts = range(0, self.prompts.count, CHUNK)
        return torch.cat([predict(layers, self.prompts[start : start + CHUNK]) for start in starts])


@dataclass(frozen=True, eq=False)
class SharedHalf(GramHalf):
    """Half of the prompts, with the network's passage through them and its derivatives there."""

    sensed: Sensitivities

    @property
    def trajectory(self) -> GramTrajectory:
        return self.sensed.trajectory

    @property
    def target(self) -> Float[Tensor, "prompt output"]:
        return self.drawn.target.flatten(1)

    @classmethod
    def of(cls, layers: HeadLayers, drawn: Examples, model: LinearTransformer) -> SharedHalf:
        prompts = gram_prompts(drawn, model.spec)
        sensed = sensitivities(layers, prompts)
        # 0 where heads that cancel leave nothing but rounding, so that no family is fitted to it.
        told = beyond_rounding(sensed.prediction, predict(regauged(layers), prompts))
        sensed = replace(sensed, prediction=torch.where(told, sensed.prediction, 0.0))
        nothing = torch.zeros_like(sensed.prediction)
        return cls(drawn, sensed.prediction, nothing, bounded_weights(layers, sensed), prompts, sensed)


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedKeys(Network[SharedHalf]):
    """See ``Network``. ``layers`` are the maps for the number of examples of the task, ``live`` what of their weights
    has a say; ``judging`` is the seed of what fits are scored on."""

    layers: HeadLayers
    live: LiveCoordinates
    judging: int

    @classmethod
    def of(cls, model: LinearTransformer, task: Task, prompts: int, seeds: Sequence[int]) -> SharedKeys | Skipped:
        if model.spec.no_map is not None or model.spec.attention.keys == "causal":
            return Skipped("its layers are not linear maps that all tokens of a prompt share")
        _require_affordable(model, prompts)
        drawn = [task.telling().sample(prompts // 2, seed) for seed in seeds[:2]]
        if not isinstance(drawn[0], Examples):
            return Skipped("its prompts are no examples and queries")
        notes = []
        for index, half in enumerate(drawn):
            finite, clipped = finite_and_clipped(model, half)
            kept = finite & ~clipped
            left = (
                f"{int((~finite).sum())} of {half.count} prompts diverge (beyond {DIVERGED:g}) and "
                f"{int(clipped.sum())} meet the clip"
            )
            if int(kept.sum()) < FEWEST_KEPT * half.count:
                return Skipped(f"{left}: no linear map describes the network on its own task")
            if not bool(kept.all()):
                drawn[index] = half[kept]
                notes = [f"{left}; they are left out of every figure"]
        layers = head_layers(model, task.context)
        fitted, held_out = (SharedHalf.of(layers, half, model) for half in drawn)
        few = fitted.prompts[:FEW]
        exploding = int((held_out.weight < 1).sum())
        if exploding:
            notes.append(
                f"{exploding} of {held_out.drawn.count} held-out prompts, where the network's prediction, or what a "
                f"change of its layers does to it, is above {LARGEST:g} times its median, count as if it were that"
            )
        live = live_coordinates(layers, few.gram, few.query, few.readout)
        return cls(model, task, fitted, held_out, tuple(notes), layers=layers, live=live, judging=seeds[2])

    @cached_property
    def judged(self) -> GramHalf:
        width, own = self.model.spec.width, self.held_out
        count = min(JUDGED, self.task.most_prompts, NUMBERS // (width * (self.task.context + width)))
        if count <= own.drawn.count:
            return replace(own, weight=_bounded(own.prediction, own.weight))
        drawn = self.task.telling().sample(count, self.judging)
        usable = torch.cat([self.usable(drawn[start : start + CHUNK]) for start in range(0, count, CHUNK)])
        drawn = drawn[usable]
        parts = [
            SharedHalf.of(self.layers, drawn[start : start + CHUNK], self.model)
            for start in range(0, drawn.count, CHUNK)
        ]
        prediction, held, weight, gram, query = (
            torch.cat([get(part) for part in parts])
            for get in (
                lambda p: p.prediction, lambda p: p.held, lambda p: p.weight, lambda p: p.prompts.gram,
                lambda p: p.prompts.query,
            )
        )  # fmt: skip
        return GramHalf(
            drawn, prediction, held, _bounded(prediction, weight), replace(own.prompts, gram=gram, query=query)
        )

    @cached_property
    def judged_course(self) -> Course:
        """Where the network stands after every layer, on what fits are scored on."""
        return course_of(self.layers, self.judged.prompts.gram, *label_indices(self.model.spec))

    def usable(self, prompts: Examples) -> Bool[Tensor, " prompt"]:
        """Those on which no token diverges or meets the clip."""
        finite, clipped = finite_and_clipped(self.model, prompts)
        return finite & ~clipped

    def readouts(self, prompts: Examples) -> Mapping[str, Float[Tensor, "prompt output"]]:
        drawn = gram_prompts(prompts, self.model.spec)
        tokens = forward(head_layers(self.model, prompts.context), drawn.gram, drawn.query).queries
        read = {f"layer-{layer}": drawn.read(value) for layer, value in enumerate(tokens)}
        return {"network": read[f"layer-{self.model.layers}"], **read}

    def loss_prompts(self, prompts: int) -> int:
        model = self.model
        return affordable_prompts(
            model.layers, model.heads, model.spec.width, self.task.context, least=self.held_out.drawn.count
        )


def _bounded(prediction: Float[Tensor, "prompt output"], weight: Float[Tensor, " prompt"]) -> Float[Tensor, " prompt"]:
    sizes = prediction.norm(dim=1)
    return weight.minimum((BOUND * sizes.median() / sizes.clamp_min(1e-300)).clamp(max=1.0))


def _require_affordable(model: LinearTransformer, prompts: int) -> None:
    # Maps, Gram matrices and derivatives of every layer, with temporaries, on half of the prompts.
    each = 4 * 8 * model.layers * model.spec.width**2
    if prompts * each > MEMORY:
        raise UsageError(
            f"asked for {prompts} prompts of a model with {model.layers} layers and D = {model.spec.width}, which "
            f"would take about {prompts * each / 2**30:.0f} GiB; use --prompts {MEMORY // each} or fewer"
        )
