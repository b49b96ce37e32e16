"""Probes across prompts: one pass over any number of them, for all targets, layers and positions at once.

Per kind of features (see ``interp.probes.activations``) all layers are streams and all positions are cells of one
``Moments``, so every layer is compared on the same prompts. What the pass leaves behind has a fixed size; fits, choices
of lambda and held-out errors come from it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.tasks import KINDS, Prefixes, Prompts, Target, Task
from interp.probes.activations import Activations, Reader
from interp.probes.controls import shuffled
from interp.probes.moments import Moments, group_of

__all__ = ["Battery", "batteries", "gather"]


@dataclass(frozen=True, kw_only=True)
class Battery:
    """The probes of one kind: ``targets`` with their sizes, read at ``positions`` (None: the query) or, for kinds that
    read whole prompts, at none. ``by_prefix``: a causal model, whose targets are of the tokens before a position."""

    kind: str
    targets: tuple[Target, ...]
    sizes: tuple[int, ...]
    positions: tuple[int | None, ...]
    by_prefix: bool = False

    @property
    def placed(self) -> bool:
        """Whether positions are an axis of the features."""
        return self.kind == "token" or (self.kind == "within-prompt" and self.by_prefix)

    @property
    def widths(self) -> dict[str, int]:
        return {target.name: size for target, size in zip(self.targets, self.sizes, strict=True)}

    def features(self, read: Activations, layers: Sequence[int]) -> Float[Tensor, "layer *cell prompt feature"]:
        if self.kind == "gram":
            return read.second_moments(layers)
        places = self.positions if self.placed else (None,)
        out = torch.stack([torch.stack([read.features(self.kind, layer, at) for at in places]) for layer in layers])
        return out if self.placed else out[:, 0]

    def outputs(self, prompts: Prompts) -> Float[Tensor, "*cell prompt output"]:
        """The targets side by side; zeros where one is not defined, so that it has no variance and no score there."""
        if not self.placed:
            return self._outputs(prompts, None)
        seen = [(prompts, at) for at in self.positions]
        if self.by_prefix and isinstance(prompts, Prefixes):
            seen = [(prompts if at is None else prompts.before(at), None) for at in self.positions]
        return torch.stack([self._outputs(*place) for place in seen])

    def _outputs(self, prompts: Prompts, position: int | None) -> Float[Tensor, "prompt output"]:
        columns = []
        for target, size in zip(self.targets, self.sizes, strict=True):
            value = target.value(prompts, position)
            columns.append(torch.zeros(prompts.count, size, dtype=torch.float64) if value is None else value)
        return torch.cat(columns, dim=1)


def batteries(
    task: Task,
    targets: Sequence[Target],
    positions: tuple[int | None, ...],
    kinds: Sequence[str] = KINDS,
    causal: bool = False,
) -> tuple[Battery, ...]:
    """One per kind that any of the targets is looked for with. ``causal``: in a model with causal keys."""
    few = task.sample(1, 0)
    by_prefix = causal and isinstance(few, Prefixes)
    last = None if None in positions or by_prefix else task.context - 1  # where every target is defined
    sizes = {}
    for target in targets:
        value = target.value(few, last)
        sizes[target.name] = 1 if value is None else value.shape[1]
    out = []
    for kind in kinds:
        own = tuple(target for target in targets if kind in target.kinds)
        if own:
            places = positions if kind == "token" or (kind == "within-prompt" and causal) else (None,)
            widths = tuple(sizes[target.name] for target in own)
            out.append(Battery(kind=kind, targets=own, sizes=widths, positions=places, by_prefix=by_prefix))
    return tuple(out)


def gather(
    reader: Reader,
    wanted: Sequence[Battery],
    layers: Sequence[int],
    prompts: Iterable[Prompts],
    count: int,
    groups: int,
    shuffle: bool = False,
) -> Mapping[str, Moments]:
    """The moments of every kind, from one pass over ``count`` prompts that come in chunks.

    ``shuffle`` gives every prompt the targets of another one.
    """
    out: dict[str, Moments] = {}
    start = 0
    for chunk in prompts:
        group = group_of(torch.arange(start, start + chunk.count), count, groups)
        start += chunk.count
        read = reader.read(chunk)
        for battery in wanted:
            X, Y = battery.features(read, layers), battery.outputs(chunk)
            if battery.kind not in out:
                out[battery.kind] = Moments.zeros(groups, X.shape[-1], Y.shape[-1], (len(layers),), X.shape[1:-2])
            out[battery.kind].update(X, shuffled(Y) if shuffle else Y, group)
    return out
