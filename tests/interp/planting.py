"""Networks with a known algorithm inside, hidden as well as the gauge allows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import task_from_dict
from interp.models.transformer import LinearTransformer

OMEGAS = ("xx", "xy", "yx", "yy")


@dataclass(frozen=True)
class Planted:
    model: LinearTransformer
    omega: Tensor  # (layer, 4), in the order of OMEGAS

    @property
    def smallest_family(self) -> str:
        """The smallest family that holds every planted omega that has a say."""
        omega = self.omega.clone()
        omega[-1, :2] = 0  # x is not read after the last layer
        omega[0, 3] = 0 if len(omega) == 1 else omega[0, 3]  # the query's y starts at 0
        xx, xy, _, yy = (omega != 0).any(0).tolist()
        return "diag" if xy or yy else "gd++" if xx else "gd"


def spec_for(dim: int, context: int, noise: float = 5.0) -> ModelSpec:
    task = {"name": "noisy_regression", "dim": dim, "context": context, "noise": {"uniform": [0, noise]}}
    return ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task})


def block_scalar_heads(omega: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(P, Q) with two heads per layer: Q = diag(I, 0) carries xx and yx, Q = diag(0, 1) carries xy and yy."""
    P = torch.zeros(len(omega), 2, dim + 1, dim + 1, dtype=torch.float64)
    Q = torch.zeros_like(P)
    for head in range(2):
        Q[:, head] = torch.diag(torch.tensor([1.0 - head] * dim + [float(head)], dtype=torch.float64))
        for layer, row in enumerate(omega.tolist()):
            P[layer, head] = torch.diag(torch.tensor([row[head]] * dim + [row[2 + head]], dtype=torch.float64))
    return P, Q


def scramble(P: Tensor, Q: Tensor, heads: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Split the heads into ``heads`` (at least as many as there are), permute and rescale them: the same network."""
    layers, given, D, _ = P.shape
    out_P, out_Q = P.new_zeros(layers, heads, D, D), P.new_zeros(layers, heads, D, D)
    for layer in range(layers):
        parts = [(P[layer, h], Q[layer, h]) for h in range(given)]
        while len(parts) < heads:
            index = int(torch.randint(len(parts), (1,), generator=generator))
            p, q = parts.pop(index)
            share = torch.randn(D, D, generator=generator, dtype=torch.float64) * p.abs().max()
            parts += [(p - share, q), (share, q)]
        for slot, source in enumerate(torch.randperm(heads, generator=generator).tolist()):
            factor = float(torch.exp(torch.randn(1, generator=generator))) * (-1) ** slot
            out_P[layer, slot], out_Q[layer, slot] = factor * parts[source][0], parts[source][1] / factor
    return out_P, out_Q


def random_planted(seed: int, layers: int | None = None, subset: tuple[str, ...] | None = None) -> Planted:
    """A random network of the omega families: 1..8 layers, 1..6 heads, d 2..32, a random subset of omegas that contains
    yx, and junk in the coordinates that never reach the prediction."""
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    layers, dim = layers or integer(1, 8), integer(2, 32)
    context = integer(dim, 3 * dim)
    subset = subset or ("yx", *(name for name in ("xx", "xy", "yy") if integer(0, 1)))
    omega = torch.zeros(layers, 4, dtype=torch.float64)
    sizes = {"xx": 0.3 / context, "xy": 0.3 / (context * (dim + 8)), "yx": 0.5 / context, "yy": 0.3 / (context * (dim + 8))}
    for name in subset:
        draw = 0.3 + 0.7 * torch.rand(layers, generator=generator, dtype=torch.float64)
        omega[:, OMEGAS.index(name)] = -sizes[name] * draw
    one_head = not {"xy", "yy"} & set(subset)
    P, Q = block_scalar_heads(omega, dim)
    if one_head:
        P, Q = P[:, :1], Q[:, :1]
    junk = 0.1 * torch.randn(2, P.shape[1], dim + 1, dim + 1, generator=generator, dtype=torch.float64)
    P[-1, :, :dim, :] += junk[0, :, :dim, :]  # rows of x in the last layer
    P, Q = scramble(P, Q, integer(P.shape[1], 6), generator)
    if layers == 1:
        Q[0, :, dim, :] += junk[1, 0, dim, :]  # reads the query's y, which is 0
    return Planted(LinearTransformer(spec=spec_for(dim, context), P=P, Q=Q), omega)


def random_dense(seed: int, layers: int, dim: int, size: float = 1.0) -> LinearTransformer:
    """An unstructured network, scaled so that its predictions are of the order of the target."""
    generator = torch.Generator().manual_seed(seed)
    spec = spec_for(dim, 2 * dim)
    P = torch.randn(layers, 2, dim + 1, dim + 1, generator=generator, dtype=torch.float64)
    Q = torch.randn(layers, 2, dim + 1, dim + 1, generator=generator, dtype=torch.float64)
    factor = size / (2 * dim) ** 0.5 / (dim + 1) ** 0.5
    return LinearTransformer(spec=spec, P=factor * P, Q=factor * Q / dim**0.5)


def predictions(model: LinearTransformer, prompts: int, seed: int) -> Tensor:
    drawn = task_from_dict(model.spec.task).sample(prompts, seed)
    grams = drawn.grams(model.spec)
    label = model.spec.channel(model.spec.readout.channel).indices
    out = forward(head_layers(model, drawn.context), grams.gram, grams.query).queries[-1]
    return model.spec.readout.sign * out[..., label]
