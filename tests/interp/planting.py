"""Networks with a known algorithm inside, hidden as well as the gauge allows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.algebra.gauge import LiveCoordinates
from interp.algebra.linear_prompts import gram_prompts
from interp.algebra.sensitivity import predict
from interp.checkpoints.opening import Checkpoint
from interp.families.omegas import OmegaFamily, OmegaFit
from interp.families.parametrisations import BasisParametrisation
from interp.identify.estimates import Estimate, count
from interp.identify.family import FAMILIES
from interp.identify.score import Score
from interp.models.specification import ModelSpec
from interp.models.tasks import RegressionPrompts
from interp.models.transformer import LinearTransformer

OMEGAS = ("xx", "xy", "yx", "yy")
SUBSETS = tuple(tuple(itertools.compress(OMEGAS, chosen)) for chosen in itertools.product((1, 0), repeat=4))


@dataclass(frozen=True)
class Planted:
    model: LinearTransformer
    omega: Tensor  # (layer, 4), in the order of OMEGAS

    @property
    def right_verdict(self) -> str:
        """The smallest family that holds every planted omega that has a say; a constant is no algorithm."""
        omega = self.omega.clone()
        omega[-1, :2] = 0  # x is not read after the last layer
        omega[0, 3] = 0 if len(omega) == 1 else omega[0, 3]  # the query's y starts at 0
        xx, xy, yx, yy = (omega != 0).any(0).tolist()
        if not yx:
            return "unrecognized"  # nothing else moves the query's y away from 0
        return "diag" if xy or yy else "gd++" if xx else "gd"


def spec_for(dim: int, context: int, noise: float = 5.0, **fields: object) -> ModelSpec:
    task = {"name": "noisy_regression", "dim": dim, "context": context, "noise": {"uniform": [0, noise]}}
    return ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task, **fields})


def checkpoint(model: LinearTransformer, name: str = "planted") -> Checkpoint:
    """The model as if it had been read from a file."""
    dtype = str(model.Q.dtype).removeprefix("torch.")
    return Checkpoint(model=model, name=name, sha256="0" * 64, layout="canonical", dtype=dtype, notes=())


def block_scalar_heads(omega: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(P, Q) with two heads per layer: Q = diag(I, 0) carries xx and yx, Q = diag(0, 1) carries xy and yy."""
    P = torch.zeros(len(omega), 2, dim + 1, dim + 1, dtype=torch.float64)
    Q = torch.zeros_like(P)
    for head in range(2):
        Q[:, head] = torch.diag(torch.tensor([1.0 - head] * dim + [float(head)], dtype=torch.float64))
        for layer, row in enumerate(omega.tolist()):
            P[layer, head] = torch.diag(torch.tensor([row[head]] * dim + [row[2 + head]], dtype=torch.float64))
    return P, Q


def trace_heads(tau: dict[str, Tensor], dim: int) -> tuple[Tensor, Tensor]:
    """(P, Q) with the trace terms: tau maps "x:xx", "x:yy" and "y:xx" to one number per layer. d^2 + 2 d heads."""
    pairs = {
        "x:xx": itertools.product(range(dim), range(dim)),
        "x:yy": itertools.product(range(dim), [dim]),
        "y:xx": itertools.product([dim], range(dim)),
    }
    heads = [(row, column, tau[name]) for name in tau for row, column in pairs[name]]
    Q = torch.zeros(len(next(iter(tau.values()))), len(heads), dim + 1, dim + 1, dtype=torch.float64)
    P = torch.zeros_like(Q)
    for head, (row, column, values) in enumerate(heads):  # P G Q^T = value * G[column, column] at (row, row)
        Q[:, head, row, column] = 1.0
        P[:, head, row, column] = values
    return P, Q


def silent_heads(P: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two heads per layer whose updates cancel, because G is symmetric: v (s^T G t) u^T - v (t^T G s) u^T = 0."""
    v, s, t, u = torch.randn(4, P.shape[0], P.shape[-1], generator=generator, dtype=torch.float64) * P.abs().max()

    def outer(left: Tensor, right: Tensor) -> Tensor:
        return left[:, :, None] * right[:, None, :]

    return torch.stack([outer(v, s), -outer(v, t)], 1), torch.stack([outer(u, t), outer(u, s)], 1)


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


def disturb(P: Tensor, Q: Tensor, relative: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Add independent noise to every weight: ``relative`` times the root mean square weight of its matrix."""

    def noisy(value: Tensor) -> Tensor:
        size = value.square().mean((-1, -2), keepdim=True).sqrt()
        return value + relative * size * torch.randn(value.shape, generator=generator, dtype=torch.float64)

    return noisy(P), noisy(Q)


def random_planted(
    seed: int,
    layers: int | None = None,
    subset: tuple[str, ...] | None = None,
    largest: int = 32,
    noise: float = 0.0,
) -> Planted:
    """A random network of the omega families: 1..8 layers, 1..6 heads, d in 2..``largest``, a random subset of omegas
    that contains yx, junk in the coordinates that never reach the prediction, and heads that cancel each other.

    ``noise`` disturbs the weights before the heads are scrambled (see ``disturb``); nothing is exact then.
    """
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    layers, dim, heads = layers or integer(1, 8), integer(2, largest), integer(1, 6)
    context = integer(dim, 3 * dim)
    subset = subset or ("yx", *(name for name in ("xx", "xy", "yy") if integer(0, 1)))
    # Sigma is about n and lambda about n (d + 8), so every term moves its tokens by 10 to 50 %.
    destination = torch.tensor([0.6, 1.0], dtype=torch.float64)
    source = torch.tensor([0.5 / context, 0.3 / (context * (dim + 8))], dtype=torch.float64)
    factors = 0.3 + 0.7 * torch.rand(layers, 2, 2, generator=generator, dtype=torch.float64)
    present = torch.tensor([float(name in subset) for name in OMEGAS], dtype=torch.float64).view(2, 2)
    if heads == 1 and int(torch.linalg.matrix_rank(present)) == 1:
        # One head P = diag(p_x I, p_y), Q = diag(q_x I, q_y): omega is the outer product of p and q.
        factors = factors[:, :, :1] * factors[:, :1, :]
    omega = (-factors * destination[:, None] * source * present).flatten(1)
    P, Q = block_scalar_heads(omega, dim)
    if heads == 1 and int(torch.linalg.matrix_rank(present)) == 1:
        P, Q = _one_head(omega.view(-1, 2, 2), dim)
    if noise:
        P, Q = disturb(P, Q, noise, generator)
    junk = 0.1 * torch.randn(2, P.shape[1], dim + 1, dim + 1, generator=generator, dtype=torch.float64)
    P[-1, :, :dim, :] += junk[0, :, :dim, :]  # rows of x in the last layer
    if heads >= P.shape[1] + 2:
        silent_P, silent_Q = silent_heads(P, generator)
        P, Q = torch.cat([P, silent_P], 1), torch.cat([Q, silent_Q], 1)
    P, Q = scramble(P, Q, max(heads, P.shape[1]), generator)
    if layers == 1:
        Q[0, :, dim, :] += junk[1, 0, dim, :]  # reads the query's y, which is 0
    return Planted(LinearTransformer(spec=spec_for(dim, context), P=P, Q=Q), omega)


def _one_head(omega: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(P, Q) with one head per layer, for 2 x 2 tables of omegas that are of rank one."""
    U, S, Vh = torch.linalg.svd(omega)
    copies = torch.tensor([dim, 1])
    P, Q = (
        torch.diag_embed(S[:, :1].sqrt() * side.repeat_interleave(copies, -1)) for side in (U[:, :, 0], Vh[:, 0, :])
    )
    return P[:, None], Q[:, None]


def random_dense(seed: int, layers: int, dim: int, size: float = 1.0) -> LinearTransformer:
    """An unstructured network, scaled so that its predictions are of the order of the target."""
    generator = torch.Generator().manual_seed(seed)
    P, Q = torch.randn(2, layers, 2, dim + 1, dim + 1, generator=generator, dtype=torch.float64)
    factor = size / (2 * dim) ** 0.5 / (dim + 1) ** 0.5
    return LinearTransformer(spec=spec_for(dim, 2 * dim), P=factor * P, Q=factor * Q / dim**0.5)


NOBODY = Score(fidelity=None, interval=(None, None))


def omega_fit(
    name: str,
    spec: ModelSpec,
    live: LiveCoordinates,
    scale: float,
    output: Estimate,
    fit: Estimate | None = None,
    score: Score = NOBODY,
) -> OmegaFit:
    """A fit of one of the omega families with given estimates."""
    family = FAMILIES[name]
    assert isinstance(family, OmegaFamily)
    parametrisation = BasisParametrisation.of(family.maps, spec, live, scale)
    fit = output if fit is None else fit

    def run(prompts: RegressionPrompts) -> Tensor:
        scaled = replace(parametrisation, scale=spec.attention.factor(prompts.context))
        return predict(scaled.build(fit.theta), gram_prompts(prompts, spec))

    return OmegaFit(
        family=family, parameters=count(parametrisation), parametrisation=parametrisation, output=output,
        refit=fit, fit=fit, prediction=torch.zeros(0, 1), predict=run, score=score,
    )  # fmt: skip
