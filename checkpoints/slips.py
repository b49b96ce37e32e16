"""Readings of a file that are one slip away from the reading that was made: a sign, a scale, a transpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Any, get_args

from interp.errors import LayoutError
from interp.models.layers import SCALES, Keys
from interp.models.transformer import LinearTransformer

__all__ = ["HeadLayout", "Slip", "slips"]

MOST_LOOPS = 12
MOST_ORDERS = 24  # of the channels

HeadLayout = tuple[str, LinearTransformer]  # how the heads lie in the file's matrices, and the model read so


@dataclass(frozen=True, eq=False)
class Slip:
    """``kind``: what differs. ``words`` say how it would be read: "the read-out's sign +1"."""

    kind: str
    words: str
    model: LinearTransformer


def slips(model: LinearTransformer, head_layouts: tuple[HeadLayout, ...] = ()) -> Iterator[Slip]:
    """The readings one slip away from ``model`` that are another function of the tokens; ``head_layouts`` are other
    ways in which heads can lie in the matrices of its file."""
    spec = model.spec

    def said(kind: str, words: str, **changed: Any) -> Slip:
        return Slip(kind, words, replace(model, spec=replace(spec, **changed)))

    yield from (Slip("heads", words, other) for words, other in head_layouts)
    yield said("sign", f"read-out {-spec.readout.sign:+d}", readout=replace(spec.readout, sign=-spec.readout.sign))
    for scale in SCALES:
        if scale != spec.attention.scale:
            yield said("scale", f"scale {scale}", attention=replace(spec.attention, scale=scale))
    for keys in get_args(Keys):
        if keys != spec.attention.keys and not (keys == "causal" and spec.readout.flat):
            yield said("keys", f"keys {keys}", attention=replace(spec.attention, keys=keys))
    yield said("residual", f"{'no' if spec.residual else 'a'} residual stream", residual=not spec.residual)
    yield Slip("Q transposed", "Q transposed", replace(model, Q=model.Q.mT))
    yield Slip("P transposed", "P transposed", replace(model, P=model.P.mT))
    yield Slip("Q and P", "Q and P exchanged", replace(model, Q=model.P, P=model.Q))
    if spec.has_channels:
        for tokens in islice(permutations(spec.tokens), MOST_ORDERS):
            if tokens != spec.tokens:
                yield said("channels", f"channels in the order {', '.join(name for name, _ in tokens)}", tokens=tokens)
    yield from _looped(model)


def _looped(model: LinearTransformer) -> Iterator[Slip]:
    for loops in range(1, MOST_LOOPS + 1):
        if loops == model.spec.loops:
            continue
        try:
            other = LinearTransformer.unrolled(replace(model.spec, loops=loops), dict(model.stored()))
        except LayoutError:  # larger than a model may be
            return
        yield Slip("loops", f"the stored layers run {'once' if loops == 1 else f'{loops} times'}", other)
