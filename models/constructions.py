"""Hand-built causal models that run a known algorithm exactly, for linear dynamics.

Tokens are (out, query, state, previous) = (W_0 s_t, s_t, s_t, s_{t-1}), keys are causal and include the token itself,
so a head whose Q is [query, previous] and whose P is [out, state] adds, with A_t = sum_{t' <= t} s_{t'-1} s_{t'-1}^T,

    out <- out + (sum_{t' <= t} s_{t'} s_{t'-1}^T) query,    and with P = [query, previous]: query <- query + A_t query

- ``gradient_step``: one step of gradient descent on L_t(W) = sum_{t' <= t} |s_{t'} - W s_{t'-1}|^2 / 2 from W_0,
  f_t = (W_0 - eta grad L_t(W_0)) s_t. Proposition 1 of von Oswald et al., arXiv 2309.05858.
- ``preconditioned_step``: f_t = eta (sum_{t' <= t} s_{t'} s_{t'-1}^T) q(A_t) s_t for a polynomial q with q(0) != 0,
  such as those of ``richardson`` and ``neumann``: proposition 2. One layer per degree, then the step.

Our construction of proposition 2 differs from the paper's in one point. Its recursions add multiples of s_t in every
layer, but every update of a linear attention layer is of third degree in the tokens, so nothing of first degree can be
added; the residual stream keeps s_t with factor 1. So we multiply out the recursion, divide by q(0), and build one
factor after the other, 1 - A / r for a real root r in one layer, and a pair of complex roots in two, with ``out`` as
scratch space. ``query`` holds q(A_t) s_t / q(0) before the last layer, which makes up for q(0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import Polynomial
from torch import Tensor

from interp.errors import UsageError
from interp.models.specification import AttentionSpec, ModelSpec, Readout
from interp.models.tasks.linear_dynamics import LinearDynamics
from interp.models.transformer import LinearTransformer

__all__ = ["gradient_step", "neumann", "preconditioned_step", "richardson"]

CHANNELS = ("out", "query", "state", "previous")
REAL = 1e-9  # a root whose imaginary part is below this share of its size is real

Block = tuple[str, str, float | Float[Tensor, "dim dim"]]  # (row channel, column channel, factor of I or matrix)


def gradient_step(task: LinearDynamics, eta: float) -> LinearTransformer:
    """One layer, one head: a gradient step of size ``eta`` from the W_0 that the task's tokens start with."""
    score: list[Block] = [("query", "previous", 1.0)]
    update: list[Block] = [("out", "state", eta), ("out", "previous", -eta * task.start_matrix())]
    return _model(task, [[(score, update)]], {"eta": eta})


def preconditioned_step(task: LinearDynamics, eta: float, coefficients: Sequence[float]) -> LinearTransformer:
    """q(A) = sum_k ``coefficients[k]`` A^k on the query, then a gradient step of size ``eta`` from 0: K + 1 layers.

    Raises UsageError when q(0) = 0, the leading coefficient is 0, or the tokens start at a W_0 other than 0.
    """
    values = [float(c) for c in coefficients]
    if not values or not np.isfinite(values).all() or values[0] == 0.0 or values[-1] == 0.0:
        raise UsageError(
            f"the polynomial has coefficients {values}, expected finite ones from the constant upwards, the first and "
            f"last not 0: the query stays in the residual stream, and degree K takes K layers"
        )
    if float(task.start_matrix().abs().max()) > 0:
        raise UsageError(
            "task.start is not 0, expected 0: the preconditioned step of proposition 2 is taken from W = 0"
        )
    layers = [layer for root in Polynomial(values).roots() for layer in _factor(complex(root))]
    score: list[Block] = [("query", "previous", 1.0)]
    step: list[Block] = [("out", "state", eta * values[0])]
    return _model(task, [*layers, [(score, step)]], {"eta": eta, "polynomial": values})


def richardson(
    alpha: Sequence[float], beta: Sequence[float], scale: float, inverse_lambda: float = 0.0
) -> tuple[float, ...]:
    """Coefficients, in powers of A, of the second-order Richardson (Chebyshev) approximation X_K / c of (A + I /
    lambda)^-1:

        B = (A + I / lambda) / c,  T_k = T_{k-1} (I - alpha_k B),  X_k = X_{k-1} + T_k + beta_k (X_{k-1} - X_{k-2})

    from T_0 = X_0 = X_{-1} = I. It is the recursion of the authors' code, with one number c = ``scale`` for all
    sequences where the code takes the norm of each matrix, which no linear layer can compute.
    """
    if len(alpha) != len(beta) or not (scale > 0 and inverse_lambda >= 0):
        raise UsageError(
            f"got {len(alpha)} alpha and {len(beta)} beta, scale {scale!r}, 1/lambda {inverse_lambda!r}; expected one "
            f"alpha and beta per step, a positive scale and 1/lambda of 0 or more"
        )
    B = Polynomial([inverse_lambda / scale, 1.0 / scale])
    term = before = total = Polynomial([1.0])
    for a, b in zip(alpha, beta, strict=True):
        term = term * (1.0 - a * B)
        before, total = total, total + term + b * (total - before)
    return tuple(float(value) for value in np.asarray(total.coef, dtype=float) / scale)


def neumann(steps: int, scale: float, inverse_lambda: float = 0.0) -> tuple[float, ...]:
    """Coefficients of the truncated Neumann series, sum_{k=0}^K (I - B)^k / c: all alpha 1, all beta 0."""
    return richardson((1.0,) * steps, (0.0,) * steps, scale, inverse_lambda)


Head = tuple[list[Block], list[Block]]  # Q as (destination, source, factor), P as (output, source, factor)


def _factor(root: complex) -> list[list[Head]]:
    """The layers, each a list of heads, that multiply the query by 1 - A / root; for a root in the upper half plane, by
    that and its conjugate, and none for the conjugate."""
    read: list[Block] = [("query", "previous", 1.0)]
    if abs(root.imag) <= REAL * abs(root):
        return [[(read, [("query", "previous", -1.0 / root.real)])]]
    if root.imag < 0:
        return []
    inverse = 1.0 / root
    scratch: list[Block] = [("out", "previous", 1.0)]
    back: list[Block] = [("query", "previous", -2.0 * inverse.real), ("out", "previous", -1.0)]
    square: list[Block] = [("query", "previous", abs(inverse) ** 2)]
    return [[(read, scratch)], [(read, back), ([("out", "previous", 1.0)], square)]]


def _model(task: LinearDynamics, layers: Sequence[Sequence[Head]], provenance: dict[str, object]) -> LinearTransformer:
    spec = ModelSpec(
        tokens=tuple((name, task.dim) for name in CHANNELS),
        attention=AttentionSpec(keys="causal"),
        readout=Readout(channel="out", sign=1),
        task=task.to_dict(),
        provenance={"construction": provenance},
    )
    shape = (len(layers), max(map(len, layers)), spec.width, spec.width)
    Q, P = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    identity = torch.eye(task.dim, dtype=torch.float64)
    for layer, heads in enumerate(layers):
        for h, head in enumerate(heads):
            for weights, blocks in zip((Q, P), head, strict=True):
                for row, column, factor in blocks:
                    block = factor if isinstance(factor, Tensor) else factor * identity
                    weights[layer, h, spec.channel(row).indices, spec.channel(column).indices] = block
    return LinearTransformer(spec=spec, Q=Q, P=P)
