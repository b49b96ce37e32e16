"""The extraction of "Linear Transformers Implicitly Discover Unified Numerical Algorithms", step by step.

(i) Heads are pruned to one a layer, or one a machine: those of the largest |P_h| |Q_h|. (ii) Weights of at most tau =
1.5 times the mean |w| of their matrix are set to 0. (iii) What is left is put at one level in Q and at two in P (with
0, the paper's two and three), by least squares. (iv) The network so obtained is run again.

Source: Lutz et al., arXiv 2509.19702, section 3 and appendix B.5. It works on P and Q themselves, so it depends on the
gauge: it is shown beside the projection of the gauge-free weights, not in place of it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.sensitivity import predict
from interp.algebra.unrolling import label_indices
from interp.identify.networks import SharedKeys
from interp.identify.score import bootstrap_fidelity
from interp.models.gram import HeadLayers
from interp.results.completion import Extraction

__all__ = ["extract", "extracted"]

THRESHOLD = 1.5


def _levels(values: Float[Tensor, " value"], count: int) -> Float[Tensor, " value"]:
    """``values`` at their best ``count`` (1 or 2) levels."""
    if count == 1:
        return values.mean().expand_as(values)  # nothing, of nothing
    order = values.argsort()
    best, out = float("inf"), values
    for k in range(1, len(values) + 1):
        levels = torch.empty_like(values)
        for part in filter(len, (order[:k], order[k:])):
            levels[part] = values[part].mean()
        cost = float((values - levels).square().sum())
        if cost < best - 1e-15 * float(values.square().sum()):
            best, out = cost, levels
    return out


def _clustered(weights: Float[Tensor, "row column"], count: int) -> Float[Tensor, "row column"]:
    kept, out = weights.abs() > THRESHOLD * weights.abs().mean(), torch.zeros_like(weights)
    out[kept] = _levels(weights[kept], count)
    return out


def extracted(layers: HeadLayers, heads: int) -> HeadLayers:
    """The network that the extraction leaves, with ``heads`` heads a layer."""
    P, Q = [], []
    for p, q in zip(layers.P, layers.Q, strict=True):
        size = torch.linalg.matrix_norm(p) * torch.linalg.matrix_norm(q)
        kept = size.argsort(descending=True)[:heads]
        P.append(torch.stack([_clustered(p[h], 2) for h in kept]))
        Q.append(torch.stack([_clustered(q[h], 1) for h in kept]))
    return HeadLayers(P=torch.stack(P), Q=torch.stack(Q), scale=layers.scale, residual=layers.residual)


def extract(network: SharedKeys, heads: int, seed: int) -> Extraction:
    """Its levels by layer, and how well it predicts what the network predicts."""
    found = extracted(network.layers, min(heads, network.model.heads))
    inputs, label = label_indices(network.model.spec)
    rows = []
    for P, Q in zip(found.P, found.Q, strict=True):
        diagonal, scores = P.diagonal(dim1=-2, dim2=-1), Q.diagonal(dim1=-2, dim2=-1)
        rows.append({
            "a1": _level(scores[:, inputs]), "a2": _level(diagonal[:, inputs]), "a3": _level(diagonal[:, label]),
            "kept Q": float((Q != 0).double().mean()), "kept P": float((P != 0).double().mean()),
        })  # fmt: skip
    held_out = network.held_out
    score = bootstrap_fidelity(predict(found, held_out.prompts), held_out.prediction, seed)
    return Extraction(layers=tuple(rows), fidelity=score.fidelity, fidelity_ci=score.interval)


def _level(values: Float[Tensor, "head index"]) -> float | None:
    """The mean of what is not 0; None when all is."""
    kept = values[values != 0]
    return float(kept.mean()) if len(kept) else None
