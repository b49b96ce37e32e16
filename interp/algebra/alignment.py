"""Writing two networks in one gauge, so that their matrices can be subtracted.

Head order, P -> kP with Q -> Q/k (k of either sign) leave a network unchanged. ``align`` pairs the heads of two layers
and finds the k that brings each pair together; ``canonical`` writes one layer in a form of its own. Distances of whole
layers are those of K (``interp.algebra.gauge``), which needs no gauge at all, and sees through split heads too.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float, Int

__all__ = ["align", "canonical", "tensor_product_norms", "weight_distance"]

Matrix = Float[np.ndarray, "D D"]
Heads = Float[np.ndarray, "head D D"]


def align(P: Heads, Q: Heads, to_P: Heads, to_Q: Heads) -> tuple[Int[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """(order, factor): head h of the other network is best matched by factor[h] P[order[h]], Q[order[h]] / factor[h].

    The order minimises sum_h ||P_h x Q_h - P'_h x Q'_h||^2 over all pairings. The factor minimises
    ||P' - kP||^2 / ||P'||^2 + ||Q' - Q/k||^2 / ||Q'||^2, whose stationary points are the roots of a quartic. Where a
    matrix is zero or not finite there is nothing to fit, and the factor is 1.
    """
    overlap = np.einsum("hab,gab->hg", to_P, P) * np.einsum("hab,gab->hg", to_Q, Q)
    same = np.array_equal(P, to_P) and np.array_equal(Q, to_Q)  # also where heads are equal or zero
    if same or not np.isfinite(overlap).all():
        return np.arange(len(P)), np.ones(len(P))
    _, order = scipy.optimize.linear_sum_assignment(-overlap)
    factor = np.array([_factor(P[g], Q[g], to_P[h], to_Q[h]) for h, g in enumerate(order)])
    return order, factor


def _factor(P: Matrix, Q: Matrix, to_P: Matrix, to_Q: Matrix) -> float:
    sizes = [float(np.linalg.norm(m)) for m in (P, Q, to_P, to_Q)]
    if not all(0 < size < np.inf for size in sizes):
        return 1.0
    p, q = float(np.sum(P * to_P)) / sizes[2] ** 2, float(np.sum(Q * to_Q)) / sizes[3] ** 2
    pp, qq = (sizes[0] / sizes[2]) ** 2, (sizes[1] / sizes[3]) ** 2
    if not np.isfinite([p, q, pp, qq]).all() or min(pp, qq) == 0:
        return 1.0

    def error(k: float) -> float:
        return k * k * pp - 2 * k * p + qq / (k * k) - 2 * q / k

    roots = np.roots([pp, -p, 0.0, q, -qq])
    real = [float(r.real) for r in roots if abs(r.imag) <= 1e-6 * abs(r) and r.real != 0]
    ratio = np.sqrt(sizes[1] * sizes[2] / (sizes[0] * sizes[3]))  # exact where the two differ by gauge alone
    return min([1.0, -1.0, ratio, -ratio, *real], key=error)


def canonical(P: Heads, Q: Heads) -> tuple[Int[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """(order, factor) of one layer, to be used as those of ``align``, such that ||P|| = ||Q||, the entry of Q that is
    largest in size is positive, and heads come by falling ||P|| ||Q||. A head with a zero or non-finite matrix keeps
    its scale."""
    heads = len(P)
    p, q = (np.linalg.norm(m.reshape(heads, -1), axis=1) for m in (P, Q))
    usable = np.isfinite(p) & np.isfinite(q) & (p > 0) & (q > 0)
    factor = np.where(usable, np.sqrt(np.divide(q, p, out=np.ones(heads), where=usable)), 1.0)
    flat = Q.reshape(heads, -1)
    largest = np.take_along_axis(flat, np.argmax(np.abs(flat), axis=1)[:, None], 1)[:, 0]
    factor = np.where(usable & (largest < 0), -factor, factor)
    order = np.argsort(-np.where(usable, p * q, 0.0), kind="stable")
    return order, factor[order]


def weight_distance(
    P: Heads,
    Q: Heads,
    to_P: Heads,
    to_Q: Heads,
    live_maps: Bool[np.ndarray, "D D"],
    live_channels: Bool[np.ndarray, " D"],
) -> float:
    """||K - K'|| / ||K'|| over live coordinates, free of gauge. NaN where K' is zero or a weight is not finite.

    With heads paired and scaled by ``align``, P x Q - P' x Q' = (P - P') x Q + P' x (Q - Q'): the norm of these twice
    as many, small, heads does not cancel. Any pairing gives the same number but for rounding.
    """

    def size(p: Heads, q: Heads) -> float:
        return float(tensor_product_norms(p * live_channels, q * live_channels)[live_maps].sum())

    reference = size(to_P, to_Q)
    if not 0 < reference < np.inf:
        return float("nan")
    order, factor = align(P, Q, to_P, to_Q)
    P, Q = P[order] * factor[:, None, None], Q[order] / factor[:, None, None]
    difference = size(np.concatenate([P - to_P, to_P]), np.concatenate([Q, Q - to_Q]))
    return float(np.sqrt(max(difference, 0.0) / reference))


def tensor_product_norms(P: Float[np.ndarray, "head D c"], Q: Float[np.ndarray, "head D c"]) -> Matrix:
    """sum_bc K[a, b, c, e]^2 for every (a, e), with K = sum_h P_h[a, b] Q_h[e, c] symmetrised over (b, c):

    1/2 sum_hk [ (P_h[a] . P_k[a]) (Q_h[e] . Q_k[e]) + (P_h[a] . Q_k[e]) (P_k[a] . Q_h[e]) ].
    """
    heads, D, _ = P.shape
    PP, QQ = np.einsum("hab,kab->ahk", P, P), np.einsum("hec,kec->ehk", Q, Q)
    total = PP.reshape(D, -1) @ QQ.reshape(D, -1).T
    for h, k in combinations_with_replacement(range(heads), 2):
        crossed = (P[h] @ Q[k].T) * (P[k] @ Q[h].T)
        total += crossed if h == k else 2.0 * crossed
    return 0.5 * total
