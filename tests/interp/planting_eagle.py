"""Networks for matrix completion with EAGLE inside, in its three regimes, or with steps that break its law."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from planting import scramble, silent_heads
from torch import Tensor

from interp.models.gram import HeadLayers, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import MatrixCompletion
from interp.models.transformer import LinearTransformer

REGIMES = ("full", "sketch", "machines")
ETA, GAMMA = 0.9, 1.8
MACHINES, RANK = 3, 3


@dataclass(frozen=True)
class PlantedEagle:
    model: LinearTransformer
    xx: Tensor  # (layer,)
    yx: Tensor
    projectors: Tensor  # (layer, n, n)
    written: Tensor  # (layer, n, n)


def small_task(regime: str, **fields: object) -> MatrixCompletion:
    given = {"dim": 6, "context": 7, "spectrum": {"decay": 0.7, "rank": 4}, **fields}
    return MatrixCompletion.from_dict(given | ({"machines": MACHINES} if regime == "machines" else {}))


def eagle_heads(
    xx: Tensor, yx: Tensor, projectors: Tensor, written: Tensor, outputs: int, machines: int
) -> tuple[Tensor, Tensor]:
    """(P, Q), one head a machine: Q reads its inputs, P conditions them (or ``written``) and writes the label."""
    layers, n = len(xx), projectors.shape[-1]
    P = torch.zeros(layers, machines, n + outputs, n + outputs, dtype=torch.float64)
    Q = torch.zeros_like(P)
    for machine in range(machines):
        own = torch.zeros(n, dtype=torch.float64)
        own[machine * n // machines : (machine + 1) * n // machines] = 1.0
        block = own[:, None] * own
        Q[:, machine, :n, :n] = projectors * block
        P[:, machine, :n, :n] = xx[:, None, None] * written * block
        P[:, machine, n:, n:] = yx[:, None, None] * torch.eye(outputs, dtype=torch.float64)
    return P, Q


def plant(
    regime: str,
    seed: int,
    layers: int = 4,
    factors: Tensor | None = None,
    heads: int = 6,
    apart: bool = False,
    **fields: object,
) -> PlantedEagle:
    """EAGLE with eta = 0.9, gamma = 1.8 and the largest |A_l|^2 of 1024 prompts, its heads scrambled. ``factors``
    (2, layer) multiply its steps, which breaks the law when they are not constant over layers. ``apart``: a sketched
    layer conditions other columns, one more than it reads."""
    generator = torch.Generator().manual_seed(seed)
    task = small_task(regime, **fields)
    n, outputs, machines = task.dim, task.outputs, task.machines
    projectors = torch.eye(n, dtype=torch.float64).repeat(layers, 1, 1)
    if regime == "sketch":
        S = torch.linalg.qr(torch.randn(layers, n, RANK, generator=generator, dtype=torch.float64))[0]
        projectors = S @ S.mT
    written = projectors
    if apart:
        other = torch.linalg.qr(torch.randn(layers, n, RANK + 1, generator=generator, dtype=torch.float64))[0]
        written = other @ other.mT
    spec = ModelSpec.from_dict({"tokens": [["x", n], ["y", outputs]], "task": task.to_dict()})
    grams = task.sample(1024, 10_000 + seed).grams(spec)
    xx, yx = torch.zeros(layers, dtype=torch.float64), torch.zeros(layers, dtype=torch.float64)
    for layer in range(layers):
        up_to = slice(layer + 1)
        P, Q = eagle_heads(xx[up_to], yx[up_to], projectors[up_to], written[up_to], outputs, machines)
        gram = forward(HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0), grams.gram, grams.query).grams[layer]
        mask = (Q[layer, :, :n, :n] != 0).any(0) if regime == "machines" else torch.ones(n, n, dtype=torch.bool)
        mask = (
            torch.block_diag(*[torch.ones(n // machines, n // machines)] * machines) if regime == "machines" else mask
        )
        block = projectors[layer] @ gram[:, :n, :n] @ projectors[layer] * mask
        norm = float(torch.linalg.eigvalsh(block)[:, -1].max())
        factor = torch.ones(2, dtype=torch.float64) if factors is None else factors[:, layer]
        xx[layer], yx[layer] = -ETA / norm * factor[0], -GAMMA / machines / norm * factor[1]
    P, Q = eagle_heads(xx, yx, projectors, written, outputs, machines)
    if heads >= machines + 2:
        more = silent_heads(P, generator)
        P, Q = torch.cat([P, more[0]], 1), torch.cat([Q, more[1]], 1)
    P, Q = scramble(P, Q, max(heads, P.shape[1]), generator)
    return PlantedEagle(LinearTransformer(spec=spec, P=P, Q=Q), xx, yx, projectors, written)
