"""Networks of simple regression with a known algorithm inside, hidden as well as the symmetries allow.

LayerNorm without gain and bias commutes with every orthogonal map of a token that keeps the vector of ones (or flips
it): those, the order, sign and scale of heads, and the scale of the embedding leave a network what it is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.models.closed_form import closed_form
from interp.models.specification import AttentionSpec, Embedding, LayerNorm, ModelSpec, Readout
from interp.models.tasks import SimpleRegression
from interp.models.transformer import LinearTransformer


def rotated(model: LinearTransformer, R: Tensor) -> LinearTransformer:
    """The network in the basis R e."""
    t = model.tensors
    tensors = {
        **t,
        "embedding.weight": R @ t["embedding.weight"],
        "embedding.bias": R @ t["embedding.bias"],
        "readout.weight": t["readout.weight"] @ R.T,
    }
    return replace(model, Q=R @ model.Q @ R.T, P=R @ model.P @ R.T, tensors=tensors)


def permutation(seed: int, D: int = 4) -> Tensor:
    order = torch.randperm(D, generator=torch.Generator().manual_seed(seed))
    return torch.eye(D, dtype=torch.float64)[order]


def keeping_ones(seed: int, D: int = 4) -> Tensor:
    """A random orthogonal matrix with R 1 = 1."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.cat([torch.ones(D, 1), torch.randn(D, D - 1, generator=generator)], 1).double()).Q
    inner, _ = torch.linalg.qr(torch.randn(D - 1, D - 1, generator=generator, dtype=torch.float64))
    middle = torch.block_diag(torch.ones(1, 1, dtype=torch.float64), inner)
    return basis @ middle @ basis.T


def regauged(model: LinearTransformer, seed: int) -> LinearTransformer:
    """Heads swapped, rescaled and flipped, and the embedding times a factor (undone in the first layer's scores)."""
    generator = torch.Generator().manual_seed(seed)
    factor = torch.exp(torch.randn(2, 2, 1, 1, generator=generator, dtype=torch.float64))
    factor[:, 1] *= -1
    size = float(torch.exp(torch.randn(1, generator=generator)))
    Q, P = (model.Q / factor).flip(1), (model.P * factor).flip(1)
    Q = torch.stack([Q[0] / size**2, Q[1]])
    tensors = dict(model.tensors)
    tensors["embedding.weight"] = size * tensors["embedding.weight"]
    tensors["embedding.bias"] = size * tensors["embedding.bias"]
    return replace(model, Q=Q, P=P, tensors=tensors)


def two_steps(
    task: SimpleRegression, rates: tuple[float, float] = (0.15, 0.1), keys: Any = "context", K: float = 1e3
) -> LinearTransformer:
    """Two steps of gradient descent in a LayerNorm network: with K >> |x|, |y| both LayerNorms are fixed linear maps.

    Slots K, x, y, -sum; each layer takes rate * (1 + x_i x_j) y_j, averaged over the keys, from y_i. The prediction is
    minus the y of the query.
    """
    n = task.context if keys == "context" else task.context + 1
    Q, P = (torch.zeros(2, 2, 4, 4, dtype=torch.float64) for _ in range(2))
    for layer, rate in enumerate(rates):
        one = K if layer == 0 else math.sqrt(2.0)  # of a row: one, and one / K for a unit of x or y
        Q[layer, 0, 0, 0], Q[layer, 0, 1, 1] = 1.0 / one**2, (K / one) ** 2
        P[layer, 0, 2, 2], P[layer, 0, 3, 2] = -rate / n, rate / n
    base = closed_form(task, keys, K=K)
    readout = torch.zeros_like(base.tensors["readout.weight"])
    readout[-1, 2] = -K / math.sqrt(2.0)
    return replace(base, Q=Q, P=P, tensors={**base.tensors, "readout.weight": readout})


def linear_steps(
    task: SimpleRegression, rates: tuple[float, ...] = (0.15, 0.1), keys: Any = "context"
) -> LinearTransformer:
    """Gradient descent in a plain linear network on tokens (1, x, y): no embedding, no LayerNorm."""
    spec = ModelSpec(
        tokens=(("1", 1), ("x", 1), ("y", 1)),
        attention=AttentionSpec(keys=keys, scale="1/n" if keys == "context" else "1/(n+1)"),
        readout=Readout(channel="y", sign=-1),
        task=task.to_dict(),
    )
    Q = torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)).expand(len(rates), 1, 3, 3).clone()
    P = torch.zeros_like(Q)
    P[:, 0, 2, 2] = -torch.tensor(rates, dtype=torch.float64)
    return LinearTransformer(spec=spec, Q=Q, P=P)


def random_network(task: SimpleRegression, keys: Any, seed: int) -> LinearTransformer:
    """LayerNorm and weights of no meaning."""
    generator = torch.Generator().manual_seed(seed)
    spec = replace(closed_form(task, keys).spec, added=(Embedding(size=4), LayerNorm()))
    shapes = {name: tuple(s or task.context + 1 for s in shape) for name, shape in spec.tensors(2).items()}
    draw = {k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in shapes.items()}
    Q, P = torch.randn(2, 2, 2, 4, 4, generator=generator, dtype=torch.float64)
    return LinearTransformer(spec=spec, Q=Q, P=P / task.context, tensors=draw)
