"""A hand-built network that solves simple regression in closed form: two LayerNorm layers, width 4, one division.

Tokens (1, x_i, y_i) are embedded with zero mean, so that LayerNorm subtracts nothing, as K, x, y and minus their sum.

    layer 1, one head     takes the means of x and y from every row; LayerNorm then only rescales, to first order in 1/K
    layer 2, numerator    u~ sum x~y~ - y~_q sum x~^2 = N (C u~ + V ybar), as the query's y~_q = 0 - ybar
    layer 2, denominator  1 * sum x~^2 = N V
    LayerNorm             divides the numerator by the standard deviation of a token whose largest entries are +-G V

with x~ = x - xbar, so that the read-out of the query row is (C u~ + V ybar) / V, the least-squares prediction. Three
scales make it exact in the limit: K >> |x~|, |y~| (the first LayerNorm is linear), r >> |yhat| (V dominates the second
standard deviation) and G / r >> 1 (the token's old content is negligible). ``keys`` "context" sums over the examples;
"all" also over the query, whose y is 0: then the prediction is (1 - h) (N + 1) / N times that of least squares, h the
leverage of the query, because adding a point with y = 0 shrinks the fit there by 1 - h (the leave-one-out identity).

Source: Hagiwara, arXiv 2607.15819, sections 2 to 2.5, for the architecture (attention, LayerNorm, read-out). These
matrices are derived here; the paper's own were not available to us. In its notation W_3 W_1 is our Q and W_2 our P^T.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.specification import AttentionSpec, Embedding, Keys, LayerNorm, ModelSpec, Placement, Readout
from interp.models.tasks.simple_regression import CHANNELS, SimpleRegression
from interp.models.transformer import LinearTransformer

__all__ = ["closed_form", "leverage_corrected"]

D = 4
LAMBDA = 1e-3  # of the second entry of the corrected denominator; the cross terms it leaves are O(1 / (K^2 LAMBDA))


def closed_form(
    task: SimpleRegression,
    keys: Keys = "context",
    *,
    K: float = 1e4,
    r: float = 1e4,
    G: float = 1e6,
    placement: Placement = "after-skip",
) -> LinearTransformer:
    """The construction, with its scale parameters K, r and G.

    ``placement`` "before-skip" is the other reading of the architecture, e <- e + LN(e + update). The old token stays:
    twice the mean is taken from it, so that x + (x - 2 xbar) is centred, and LayerNorms with gains K / sqrt(2) and G r
    make what is added as large as it needs to be. Raises UsageError for a scale that is not positive and finite.
    """
    _require_positive(K=K, r=r, G=G)
    outside = placement == "before-skip"
    n = task.context if keys == "context" else task.context + 1
    one, size = (2 * K, 2.0) if outside else (math.sqrt(2), math.sqrt(2) / K)  # a row of layer 2: one, size x~, size y~
    amplitude = G * one / math.sqrt(2)
    Q, P = torch.zeros(2, 2, 2, D, D, dtype=torch.float64)
    Q[0, 0] = _unit(0, 0) / K**2
    P[0, 0] = -(2.0 if outside else 1.0) / n * (_unit(1, 1) - _unit(3, 1) + _unit(2, 2) - _unit(3, 2))
    Q[1, 0] = _unit(1, 2) - _unit(2, 1)
    P[1, 0] = amplitude / (r * n * size**3) * (_unit(1, 1) - _unit(2, 1))
    Q[1, 1] = _unit(0, 1)
    P[1, 1] = amplitude / (n * one * size**2) * (task.context / n) * (_unit(0, 1) - _unit(3, 1))
    norm, tensors = LayerNorm(placement=placement, eps=0.0, affine=outside), {}
    if outside:
        gain = torch.tensor([[K / math.sqrt(2)], [G * r]], dtype=torch.float64).expand(2, D)
        tensors = {"layernorm.gain": gain.clone(), "layernorm.bias": torch.zeros(2, D, dtype=torch.float64)}
    tensors |= _ends(task, K, 1.0, r / (2 * math.sqrt(2)) / (G * r if outside else 1.0))
    return _model(task, keys, norm, Q, P, tensors, K=K, r=r, G=G)


def leverage_corrected(
    task: SimpleRegression, *, K: float = 1e4, r: float = 1e4, G: float = 1e6, label: float = 1e-3
) -> LinearTransformer:
    """The construction with keys "all" whose denominator is N/(N+1) sum x~^2 - u~^2 = (1 - h) sum x~^2: least squares
    itself, and not its shrunken form.

    u~^2 is read from the second order of the first LayerNorm, whose gain and bias make the last slot 1: with y scaled
    down by ``label``, slot 0 + (slot 1 + slot 2) / 2 = sqrt(2) (1 - 3/8 (u~ / K)^2). The read-out undoes the scaling.
    """
    _require_positive(K=K, r=r, G=G, label=label)
    n, size = task.context + 1, math.sqrt(2) / K
    Q, P = torch.zeros(2, 2, 2, D, D, dtype=torch.float64)
    Q[0, 0] = _unit(0, 0) / K**2
    P[0, 0] = -1.0 / n * (_unit(1, 1) - _unit(3, 1) + _unit(2, 2) - _unit(3, 2))
    Q[1, 0] = _unit(1, 2) - _unit(2, 1)
    P[1, 0] = G / (r * n * size**3 * label) * (_unit(1, 1) - _unit(2, 1))
    square = torch.tensor([[1.0, 0.5, 0.5, -math.sqrt(2)]], dtype=torch.float64).T * (-8 * K**2 / (3 * math.sqrt(2)))
    last = _unit(3, 3)[3:]
    Q[1, 1] = task.context / n / (math.sqrt(2) * size**2) * _unit(0, 1) - square @ last / (LAMBDA * n)
    P[1, 1] = G / n * (_unit(0, 1) - _unit(3, 1) + LAMBDA * (_unit(0, 3) - _unit(3, 3)))
    gain = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64)
    bias = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.float64)
    tensors = {"layernorm.gain": gain, "layernorm.bias": bias, **_ends(task, K, label, r / (2 * math.sqrt(2)))}
    norm = LayerNorm(placement="after-skip", eps=0.0, affine=True)
    return _model(task, "all", norm, Q, P, tensors, K=K, r=r, G=G, label=label, corrected=True)


def _require_positive(**scales: float) -> None:
    for name, value in scales.items():
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"the scale {name} is {value!r}, expected a positive finite number")


def _unit(row: int, column: int) -> Float[Tensor, "4 4"]:
    out = torch.zeros(D, D, dtype=torch.float64)
    out[row, column] = 1.0
    return out


def _ends(task: SimpleRegression, K: float, label: float, size: float) -> dict[str, Tensor]:
    """The embedding (K, x, label y, minus their sum), and the read-out: slot 1 minus slot 2 of the query."""
    weight = torch.diag(torch.tensor([K, 1.0, label], dtype=torch.float64))
    readout = torch.zeros(task.context + 1, D, dtype=torch.float64)
    readout[-1, 1], readout[-1, 2] = size, -size
    return {
        "embedding.weight": torch.cat([weight, -weight.sum(0, keepdim=True)]),
        "embedding.bias": torch.zeros(D, dtype=torch.float64),
        "readout.weight": readout,
        "readout.bias": torch.zeros(1, dtype=torch.float64),
    }


def _model(
    task: SimpleRegression, keys: Keys, norm: LayerNorm, Q: Tensor, P: Tensor, tensors: dict[str, Tensor], **scales: Any
) -> LinearTransformer:
    spec = ModelSpec(
        tokens=CHANNELS,
        attention=AttentionSpec(keys=keys),
        readout=Readout(channel="y", sign=1, flat=True),
        added=(Embedding(size=D), norm),
        task=task.to_dict(),
        provenance={"construction": scales},
    )
    return LinearTransformer(spec=spec, Q=Q, P=P, tensors=tensors)
