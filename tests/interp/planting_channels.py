"""Causal networks with a known algorithm, in a gauge that hides it."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.algebra.channels import block_weights
from interp.models.specification import AttentionSpec, ModelSpec, Readout
from interp.models.tasks import LinearDynamics
from interp.models.transformer import LinearTransformer

CHANNELS = ("out", "query", "state", "previous")


def channel_spec(task: LinearDynamics, clip: float | None = None, names: tuple[str, ...] = CHANNELS) -> ModelSpec:
    return ModelSpec(
        tokens=tuple((name, task.dim) for name in names),
        attention=AttentionSpec(keys="causal"),
        clip=clip,
        readout=Readout(channel=names[0], sign=1),
        task=task.to_dict(),
    )


def planted(
    task: LinearDynamics, layers: int, heads: int, seed: int, clip: float | None = 4.0, strength: float = 0.3
) -> tuple[LinearTransformer, Tensor]:
    """A block-scalar network of random numbers, and its k[layer, a, b, g, e]. The last layer writes to the read-out
    from the pairs (state, previous), so that the network predicts something."""
    generator = torch.Generator().manual_seed(seed)
    size = strength / task.context**0.5
    q, p = (torch.randn(layers, heads, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    q, p = q * size, p * size / heads
    p[-1, 0, 0, 2] += 0.3 / task.context**0.5
    q[-1, 0, 1, 3] += 1.0 / task.context**0.5
    model = LinearTransformer(spec=channel_spec(task, clip), Q=block_weights(q, task.dim), P=block_weights(p, task.dim))
    return model, torch.einsum("lhab,lheg->labge", p, q)


def scrambled(model: LinearTransformer, seed: int) -> LinearTransformer:
    """The same function: heads split (P in two parts that are not block-scalar), rescaled, shuffled; and one pair of
    heads that cancel because G is symmetric."""
    generator = torch.Generator().manual_seed(seed)
    Q, P = model.Q, model.P
    noise = 0.3 * P.abs().amax() * torch.randn(P.shape, generator=generator, dtype=P.dtype)
    Q, P = torch.cat([Q, Q], 1), torch.cat([0.4 * P + noise, 0.6 * P - noise], 1)
    L, H, D, _ = Q.shape
    u, v, w, z = (0.1 * torch.randn(L, D, generator=generator, dtype=P.dtype) for _ in range(4))

    def outer(left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum("la,lb->lab", left, right)[:, None]

    P = torch.cat([P, outer(u, v), -outer(u, z)], 1)
    Q = torch.cat([Q, outer(w, z), outer(w, v)], 1)
    factor = torch.exp(torch.randn(L, H + 2, 1, 1, generator=generator, dtype=P.dtype))
    sign = torch.where(torch.rand(factor.shape, generator=generator) < 0.5, -1.0, 1.0).to(P.dtype)
    order = torch.stack([torch.randperm(H + 2, generator=generator) for _ in range(L)])
    pick = torch.arange(L)[:, None], order
    return LinearTransformer(
        spec=model.spec, Q=(Q / (factor * sign))[pick].contiguous(), P=(P * factor * sign)[pick].contiguous()
    )
