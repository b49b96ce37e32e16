"""Layers of channel tokens, taken apart: what is block-scalar, what is a trace, and what is neither.

A token of c channels of equal size d is a c x d matrix. A head is block-scalar if P_h = p_h (x) I and Q_h = q_h (x) I:
RevAlg-d of von Oswald et al. (arXiv 2309.05858, CompressedAlg-d in its second version). The published compression takes

    p_h[a, b] = tr(block (a, b) of P_h) / d,     q_h[e, g] likewise: means of the blocks' diagonals, nothing fitted.

A layer depends on its heads through K alone (``interp.algebra.gauge``). In K the block-scalar family is spanned by

    B[a, b, g, e]:   e_t[a] += sum_{j <= t} e_j[b] <e_j[g], e_t[e]>           coefficient k = sum_h p_h[a, b] q_h[e, g]

and rotations allow one more kind, the traces e_t[a] += (sum_j <e_j[b], e_j[g]>) e_t[e]. Maps of different channels are
orthogonal, apart from (b, g) and (g, b), which the symmetry of G mixes: so the projection on all of them solves systems
of at most three numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.algebra.gauge import live_energy
from interp.errors import LayoutError
from interp.models.specification import ModelSpec

__all__ = [
    "ChannelProjection",
    "LiveChannels",
    "block_energy",
    "block_means",
    "block_weights",
    "channel_size",
    "heads_of",
    "map_name",
    "project_channels",
]

NEGLIGIBLE_RANK = 1e-13  # singular values of k below this share of the largest are rounding


def channel_size(spec: ModelSpec) -> int:
    """d. Raises LayoutError when the channels differ in size."""
    sizes = {size for _, size in spec.tokens}
    if len(sizes) != 1:
        raise LayoutError(
            f"the channels are {dict(spec.tokens)}, expected all of one size: block-scalar heads copy a channel into "
            f"another"
        )
    return sizes.pop()


def _blocks(matrix: Float[Tensor, "*batch D D"], size: int) -> Float[Tensor, "*batch c c d d"]:
    c = matrix.shape[-1] // size
    return matrix.unflatten(-1, (c, size)).unflatten(-3, (c, size)).transpose(-3, -2)


def block_means(matrix: Float[Tensor, "*batch D D"], size: int) -> Float[Tensor, "*batch c c"]:
    """Mean of the diagonal of every block."""
    return _blocks(matrix, size).diagonal(dim1=-2, dim2=-1).mean(-1)


def block_weights(means: Float[Tensor, "*batch c c"], size: int) -> Float[Tensor, "*batch D D"]:
    """m (x) I: the inverse of ``block_means`` on the family."""
    identity = torch.eye(size, dtype=means.dtype)
    return torch.einsum("...ab,ij->...aibj", means, identity).flatten(-4, -3).flatten(-2, -1)


def block_energy(
    matrix: Float[Tensor, "D D"], size: int, rows: Bool[Tensor, " c"], columns: Bool[Tensor, " c"]
) -> float | None:
    """Share of |matrix|^2 outside the block-scalar family, over live rows and columns; None where there is nothing."""
    blocks = _blocks(matrix, size)[rows][:, columns]
    total = float(blocks.square().sum())
    inside = float(blocks.diagonal(dim1=-2, dim2=-1).mean(-1).square().sum()) * size
    return None if not total > 0 else max(0.0, 1.0 - inside / total)


def heads_of(k: Float[Tensor, "c c c c"]) -> tuple[Float[Tensor, "head c c"], Float[Tensor, "head c c"]]:
    """(q, p) of as few block-scalar heads as give k[a, b, g, e] = sum_h p_h[a, b] q_h[e, g]; at least one."""
    c = k.shape[0]
    U, S, Vh = torch.linalg.svd(k.permute(0, 1, 3, 2).reshape(c * c, c * c))
    rank = max(1, int((NEGLIGIBLE_RANK * S[0] < S).sum()))
    return Vh[:rank].reshape(rank, c, c), (U[:, :rank] * S[:rank]).T.reshape(rank, c, c)


@dataclass(frozen=True, eq=False)
class LiveChannels:
    """Per layer, which channels can carry anything. ``written``: a change there can still reach the prediction.
    ``read``: the tokens are not 0 there before the layer."""

    written: Bool[Tensor, "layer c"]
    read: Bool[Tensor, "layer c"]

    def maps(self, layer: int) -> Bool[Tensor, "c c c c"]:
        """Which k[a, b, g, e] have a say."""
        a, r = self.written[layer], self.read[layer]
        return a[:, None, None, None] & r[:, None, None] & r[:, None] & r


@dataclass(frozen=True, eq=False)
class ChannelProjection:
    """A layer's live K on the equivariant maps. ``k[a, b, g, e]`` is 0 for dead maps."""

    k: Float[Tensor, "c c c c"]
    energy: float  # ||K||^2 over live coordinates
    block: float  # of it, explained by block-scalar maps alone
    explained: float  # by block-scalar maps and traces


def project_channels(
    P: Float[Tensor, "head D D"], Q: Float[Tensor, "head D D"], size: int, live: Bool[Tensor, "c c c c"]
) -> ChannelProjection:
    """Least squares of the symmetrised K on the block-scalar maps (k), and with the traces beside them."""
    p, q = _blocks(P, size), _blocks(Q, size)
    c, d = p.shape[1], float(size)
    diagonal = torch.einsum("habii,hegjj->abge", p, q)
    crossed = torch.einsum("habij,hegji->abge", p, q)
    traced = torch.einsum("habij,hegij->abge", p, q)
    overlap = 0.5 * (diagonal + crossed.transpose(1, 2))
    traces = 0.5 * (traced + traced.transpose(1, 2))
    k = torch.zeros_like(overlap)
    block = explained = 0.0
    for b, g in combinations_with_replacement(range(c), 2):
        # In the order (b, g), (g, b), trace; the trace of (b, g) is that of (g, b).
        pairs = [(b, b)] if b == g else [(b, g), (g, b)]
        gram = 0.5 * d * torch.tensor([[d, 1.0, 1.0], [1.0, d, 1.0], [1.0, 1.0, d]], dtype=k.dtype)
        if b == g:
            gram = torch.tensor([[0.5 * (d * d + d), d], [d, d * d]], dtype=k.dtype)
        right = torch.stack([*(overlap[:, i, j] for i, j in pairs), traces[:, b, g]], -1)
        right = torch.where(live[:, b, g][..., None], right, 0.0)
        own = right[..., :-1]
        found = own @ torch.linalg.pinv(gram[:-1, :-1], hermitian=True)
        for column, (i, j) in enumerate(pairs):
            k[:, i, j] = found[..., column]
        block += float((found * own).sum())
        explained += float((right @ torch.linalg.pinv(gram, hermitian=True) * right).sum())
    # The live coordinates (a, e) and b of K.
    ae, read = live.any(1).any(1), live.any(0).any(1).any(1)
    wide = ae.repeat_interleave(size, 0).repeat_interleave(size, 1)
    energy = live_energy(P, Q, wide, read.repeat_interleave(size))
    return ChannelProjection(k, energy, block, max(explained, block))


def map_name(channels: Sequence[str], a: int, b: int, g: int, e: int) -> str:
    """How a coefficient reads: "out += state <previous, query>"."""
    return f"{channels[a]} += {channels[b]} <{channels[g]}, {channels[e]}>"
