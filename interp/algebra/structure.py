"""Structure in the inputs that gd++ can have when not every layer sees all of x: sketches and machines.

    sketch      x <- x + omega_xx Pi' Sigma Pi x;  y <- y + omega_yx alpha^T Pi x
    machines    x_mu <- x_mu + omega_xx Sigma_mu,mu x_mu;  y <- y + omega_yx alpha^T x

They are the regimes of limited computation and of distributed data of EAGLE (Lutz et al., arXiv 2509.19702, section 4).
A layer of a sketched network reads x through a projector Pi and writes x through a projector Pi'. In EAGLE both are
S S^T, so the columns A S that are read are those that are conditioned. Trained networks need not keep to that: Pi' may
be what later layers read, conditioned before they do.

Both are read off the gauge-free weight tensor K (``interp.algebra.gauge``), so head order, scale and
splitting do not matter:

- Pi: M[c, e] = mean_k of the weight of G[y_k, c] in T[y_k, e] is omega_yx Pi. Its rank is where the singular values
  fall most, Pi projects on the leading subspace of M M^T + M^T M. S itself is not determined, only its range;
- Pi': N[a, b] = sum_ce K[a, b, c, e] Pi[e, c], over x alone, is omega_xx Pi' (r I + Pi) / 2, as K is symmetric in
  (b, c). Pi' is the projector with a multiple nearest to what that says of omega_xx Pi', but Pi where that lies within
  Pi and is hardly nearer. A layer that writes no x has Pi' = Pi;
- machines: W[a, e], the weight of G[a, e] in T[a, e], is omega_xx within a machine and 0 between two. The machines are
  the connected components of what exceeds half of the largest weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from interp.algebra.basis import BlockMap, omega_maps
from interp.algebra.unrolling import label_indices
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec

__all__ = [
    "MachineMap",
    "Sketch",
    "SketchMap",
    "find_machines",
    "find_sketch",
    "label_weights",
    "machine_maps",
    "nearest_projector",
    "sketch_maps",
]

GAP = 3.0  # least ratio of successive singular values that makes a rank
SAME = 1e-5  # distance of two projectors, in the Frobenius norm, that is rounding
HARDLY = 0.1  # most of what Pi explains of the written matrix by which a part of Pi may explain more to be passed over
LINK = 0.5  # of the largest weight between two inputs, from which they are on one machine
SEPARATE = 0.2  # most of the mean weight within machines that the mean weight between them may have


@dataclass(frozen=True, eq=False)
class Sketch:
    """``reads[l]`` is Pi_l, the identity where a layer sees all of x, of rank ``ranks[l]``; ``spectra[l]`` the singular
    values of M_l, relative to the largest. ``writes[l]`` is Pi'_l, the very same tensor where it is Pi_l."""

    reads: tuple[Float[Tensor, "n n"], ...]
    ranks: tuple[int, ...]
    spectra: tuple[tuple[float, ...], ...]
    writes: tuple[Float[Tensor, "n n"], ...]

    @property
    def exact(self) -> bool:
        """Whether no layer reads all of x, but for rounding."""
        pairs = zip(self.ranks, self.spectra, strict=True)
        return all(rank < len(spectrum) and spectrum[rank] < SAME for rank, spectrum in pairs)

    @property
    def numbers(self) -> int:
        """How many numbers say what the subspaces are: r (n - r) each."""
        apart = [w for r, w in zip(self.reads, self.writes, strict=True) if w is not r]
        return sum(round(float(p.trace()) * (len(p) - float(p.trace()))) for p in (*self.reads, *apart))


def label_weights(layers: HeadLayers, layer: int, spec: ModelSpec) -> Float[Tensor, "n n"]:
    """M[c, e]: T[y, e] gets M[c, e] G[y, c], averaged over the label's coordinates."""
    inputs, label = label_indices(spec)
    P, Q = layers.P[layer], layers.Q[layer]
    own = P[:, label][:, :, label].diagonal(dim1=-2, dim2=-1).mean(-1)
    first = torch.einsum("h,hec->ce", own, Q[:, inputs][:, :, inputs])
    second = torch.einsum("hkc,hek->ce", P[:, label][:, :, inputs], Q[:, inputs][:, :, label]) / len(label)
    return first + second


def find_sketch(layers: HeadLayers, spec: ModelSpec) -> Sketch | str:
    """The sketch, or why there is none."""
    reads, ranks, spectra, writes = [], [], [], []
    for layer in range(layers.layers):
        M = label_weights(layers, layer, spec)
        s = torch.linalg.svdvals(M)
        if not float(s[0]) > 0:
            return f"layer {layer} writes nothing of x to the label"
        relative = s / s[0]
        ratios = relative[:-1] / relative[1:].clamp_min(1e-15)
        n = len(s)
        rank = int(ratios.argmax()) + 1 if n > 1 and float(ratios.max()) >= GAP else n
        vectors = torch.linalg.eigh(M @ M.mT + M.mT @ M).eigenvectors[:, n - rank :]
        read = vectors @ vectors.mT if rank < n else torch.eye(n, dtype=M.dtype)
        reads.append(read)
        writes.append(_written_projector(_weights_at(layers, layer, spec, read), read))
        ranks.append(rank)
        spectra.append(tuple(relative.tolist()))
    if all(rank == reads[0].shape[0] for rank in ranks):
        return "every layer reads all of x"
    return Sketch(tuple(reads), tuple(ranks), tuple(spectra), tuple(writes))


def _written_projector(N: Float[Tensor, "n n"], read: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Pi' of a layer with the weights N that reads x through ``read``, the very tensor ``read`` where it is Pi."""
    weighed = read.trace() * torch.eye(len(read), dtype=read.dtype) + read
    W = torch.linalg.solve(weighed, 2.0 * N, left=False)  # omega_xx Pi'
    nearest = nearest_projector(W)
    if nearest is None or float((nearest - read).norm()) < SAME:
        return read
    within = float((read @ nearest - nearest).norm()) < SAME
    explains = [float((W * projector).sum().square() / projector.trace()) for projector in (read, nearest)]
    return read if within and explains[1] < (1.0 + HARDLY) * explains[0] else nearest


def _weights_at(layers: HeadLayers, layer: int, spec: ModelSpec, read: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """N[a, b] = sum_ce K[a, b, c, e] read[e, c] over x, with K symmetrised over (b, c)."""
    P, Q = _of_inputs(layers, layer, spec)
    return 0.5 * (torch.einsum("hab,hec,ec->ab", P, Q, read) + (P @ read @ Q).sum(0))


def _of_inputs(layers: HeadLayers, layer: int, spec: ModelSpec) -> tuple[Tensor, Tensor]:
    """P and Q of all heads from x to x."""
    inputs, _ = label_indices(spec)
    return layers.P[layer][:, inputs][:, :, inputs], layers.Q[layer][:, inputs][:, :, inputs]


def nearest_projector(W: Float[Tensor, "n n"]) -> Float[Tensor, "n n"] | None:
    """The orthogonal projector that has a multiple nearest to W, in the Frobenius norm; None for W = 0."""
    values, vectors = torch.linalg.eigh(0.5 * (W + W.mT))
    total = float(values.sum())
    if total == 0:
        return None
    aligned, order = (values if total > 0 else -values).sort(descending=True)
    # With k directions the best multiple is their mean eigenvalue, and leaves |W|^2 less (sum of eigenvalues)^2 / k.
    gained = aligned.cumsum(0).clamp_min(0.0).square() / torch.arange(1, len(aligned) + 1)
    kept = vectors[:, order[: int(gained.argmax()) + 1]]
    return kept @ kept.mT


def _input_weights(layers: HeadLayers, layer: int, spec: ModelSpec) -> Float[Tensor, "n n"]:
    """W[a, e]: the weight of G[a, e] in T[a, e]."""
    P, Q = _of_inputs(layers, layer, spec)
    turned = torch.einsum("hae,hea->ae", P, Q)
    return torch.einsum("haa,hee->ae", P, Q) + turned - turned.diagonal().diag()


def find_machines(layers: HeadLayers, spec: ModelSpec) -> Float[Tensor, "n n"] | str:
    """1 for two inputs, by position in x, of one machine and 0 for others, or why there are no machines. The last
    layer's x is never read, so it does not count."""
    if layers.layers < 2:
        return "a single layer changes no x that is read"
    rows = torch.stack([_input_weights(layers, layer, spec) for layer in range(layers.layers - 1)])
    sizes = rows.abs().amax((1, 2))
    if not float(sizes.max()) > 0:
        return "no layer changes x"
    W = (rows[sizes > 0] / sizes[sizes > 0, None, None]).mean(0).abs()
    linked = W / W.max() >= LINK
    count, part = connected_components((linked | linked.T).numpy(), directed=False)
    if count == 1:
        return "all inputs are mixed with each other"
    within = torch.from_numpy(part[:, None] == part)
    if not float(W[~within].mean()) <= SEPARATE * float(W[within].mean()):
        return "the inputs fall into no separate blocks"
    return within.double()


@dataclass(frozen=True, eq=False)
class SketchMap(BlockMap):
    """A block of the Gram matrix between projections: Pi' Sigma Pi for xx, alpha^T Pi for yx."""

    read: Float[Tensor, "n n"]
    written: Float[Tensor, "n n"]

    def within(self, block: Float[Tensor, "prompt row column"]) -> Float[Tensor, "prompt row column"]:
        out = block @ self.read
        return self.written @ out if self.row == self.column else out

    def by_weights(self, layers: HeadLayers, layer: int, spec: ModelSpec) -> float:
        """The coefficient by orthogonal projection of K on this map."""
        if self.row != self.column:
            M = label_weights(layers, layer, spec)
            return float((M * self.read).sum() / self.read.trace())
        size = 0.5 * (self.read.trace() * self.written.trace() + (self.read * self.written).sum())
        return float((_weights_at(layers, layer, spec, self.read) * self.written).sum() / size)


@dataclass(frozen=True, eq=False)
class MachineMap(BlockMap):
    """The blocks of Sigma within machines."""

    mask: Float[Tensor, "n n"]

    def within(self, block: Float[Tensor, "prompt row column"]) -> Float[Tensor, "prompt row column"]:
        return self.mask * block

    def entries(self) -> Tensor:
        a, e = torch.nonzero(self.mask, as_tuple=True)
        a, e = a + self.row.start, e + self.column.start
        return torch.stack([a, a, e, e], -1)


def sketch_maps(spec: ModelSpec, sketch: Sketch) -> tuple[tuple[SketchMap, ...], ...]:
    """xx and yx, for every layer."""
    xx, _, yx, _ = omega_maps(spec)
    return tuple(
        tuple(SketchMap(m.name, m.row, m.column, read, written) for m in (xx, yx))
        for read, written in zip(sketch.reads, sketch.writes, strict=True)
    )


def machine_maps(spec: ModelSpec, mask: Float[Tensor, "n n"]) -> tuple[BlockMap, ...]:
    """xx and yx, the same for all layers."""
    xx, _, yx, _ = omega_maps(spec)
    return MachineMap(xx.name, xx.row, xx.column, mask), yx
