"""Does the network use what a probe decodes? Erase it in closed form, and measure the loss again.

Least-squares concept erasure (LEACE): of all affine maps after which no linear probe can predict z from x better than a
constant, the one that changes x least in mean square,

    r(x) = x - W^+ P W (x - E x),      W = (Sigma_xx^(1/2))^+,   P the projection onto the columns of W Sigma_xz.

Source: Belrose et al., "LEACE: Perfect linear concept erasure in closed form", arXiv 2306.03819, theorem 4.3. Where
Sigma_xx is singular, directions without variance are left alone, as they hold nothing.

The map is fitted on the tokens of training prompts and put by a hook into held-out prompts, in one token (the query,
or one position of a causal model) after one layer. There, directions stay whose correlation with z is within what
chance gives, or a target of many coordinates would take nearly all of a token that holds one of them. What chance gives
is measured on the same prompts: with a sign of its own for every prompt,

    C_s = 1/n sum_i s_i W (x_i - E x) (z_i - E z)^T W_z,      s_i = +-1 at random,

has no linear relation in it, but the tails of x and z and whatever they have in common otherwise (z may set the size of
x, as the noise level does). The limit is the largest singular value of ``FLIPS`` such matrices, so where the token
holds nothing linear of z, something is erased in 1 of ``FLIPS`` + 1 cases, ``FALSE_POSITIVES``: exactly so, but for the
centring, when x_i and -x_i are equally likely given z_i, as they are for targets that symmetry keeps out of a token
(``interp.models.tasks.targets``). In simulation with 300 rows it was 1.0 to 1.3 %.

The control erases a random subspace of the same rank, drawn in the coordinates W x, where all directions have the same
variance.
The loss is that of the prediction at the same token. With keys "context" it is no key for others; with keys "all" the
layers after also lose it as a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import Prompts, Target
from interp.models.transformer import LinearTransformer
from interp.probes.estimator import MomentRidge
from interp.probes.interventions import Erasure, Interval, with_error
from interp.probes.tokens import edited_run, token_hooks
from interp.stats.bootstrap import explained, ratio

__all__ = ["FALSE_POSITIVES", "Eraser", "chance", "erasures", "leace", "random_eraser"]

SINGULAR = 1e-12  # variances below this share of the largest are rounding
UNCORRELATED = 1e-8  # canonical correlations below this are rounding
FLIPS = 99  # draws of signs that say what chance gives
FALSE_POSITIVES = 1 / (FLIPS + 1)
CONSTANT = 1e-20  # share of the mean square below which a variance is rounding
UNDEFINED = "skipped, because the target is not defined at this position, or the same for all prompts"
ABSENT = (
    f"skipped, because the token holds nothing linear of the target (false positive rate {100 * FALSE_POSITIVES:.0f} %)"
)


@dataclass(frozen=True, eq=False)
class Eraser:
    """x -> x - (x - mean) removal^T. ``rank`` directions are taken."""

    mean: Float[Tensor, " feature"]
    removal: Float[Tensor, "feature feature"]
    rank: int

    def __call__(self, x: Float[Tensor, "row feature"]) -> Float[Tensor, "row feature"]:
        return x - (x - self.mean) @ self.removal.mT


def leace(x: Float[Tensor, "row feature"], z: Float[Tensor, "row target"], least: float = UNCORRELATED) -> Eraser:
    """The eraser of z, fitted to these rows. Directions whose canonical correlation with z is below ``least`` stay.

    Whitening z, too, leaves the columns of W Sigma_xz what they are, and makes the singular values correlations.
    """
    mean, whiten, colour = _whitening(x)
    z_mean, z_whiten, _ = _whitening(z)
    directions, correlations, _ = torch.linalg.svd(
        whiten @ (x - mean).mT @ (z - z_mean) @ z_whiten / len(x), full_matrices=False
    )
    kept = directions[:, correlations > least]
    return Eraser(mean, colour @ (kept @ kept.mT) @ whiten, kept.shape[1])


def chance(x: Float[Tensor, "row feature"], z: Float[Tensor, "row target"], generator: torch.Generator) -> float:
    """The largest canonical correlation that these rows show where there is none: of ``FLIPS`` draws of signs."""
    (mean, whiten, _), (z_mean, z_whiten, _) = _whitening(x), _whitening(z)
    x, z = (x - mean) @ whiten, (z - z_mean) @ z_whiten / len(x)
    signs = torch.randint(0, 2, (FLIPS, len(x)), generator=generator).to(x.dtype) * 2 - 1
    cross = torch.stack([(x * sign[:, None]).mT @ z for sign in signs])
    return float(torch.linalg.matrix_norm(cross, ord=2).max())


def random_eraser(x: Float[Tensor, "row feature"], rank: int, generator: torch.Generator) -> Eraser:
    """The eraser of ``rank`` random directions among those that vary."""
    mean, whiten, colour = _whitening(x)
    drawn = whiten @ colour @ torch.randn(len(mean), rank, generator=generator, dtype=x.dtype)
    basis, _ = torch.linalg.qr(drawn)
    return Eraser(mean, colour @ (basis @ basis.mT) @ whiten, rank)


def _whitening(
    x: Float[Tensor, "row feature"],
) -> tuple[Float[Tensor, " feature"], Float[Tensor, "feature feature"], Float[Tensor, "feature feature"]]:
    """(E x, W, W^+)."""
    mean = x.mean(0)
    values, vectors = torch.linalg.eigh((x - mean).mT @ (x - mean) / len(x))
    kept = values > SINGULAR * values[-1]
    root = torch.where(kept, values, 0.0).clamp_min(0.0).sqrt()
    inverse = torch.where(kept, 1.0 / torch.where(kept, root, 1.0), 0.0)
    return mean, (vectors * inverse) @ vectors.mT, (vectors * root) @ vectors.mT


def erasures(
    model: LinearTransformer, targets: Sequence[Target], train: Prompts, test: Prompts, position: int | None, seed: int
) -> tuple[Erasure, ...]:
    """Every target of the token at ``position``, erased after every layer, 0 being the input.

    The token is the one whose prediction is scored: None, the query, where prompts have one, else a position of the
    sequence. Raises UsageError otherwise.
    """
    queried = sum(tokens.shape[1] for tokens in test.inputs(model.spec)) > test.context
    if queried == (position is not None):
        raise UsageError(
            f"position is {position!r}; expected None where prompts have a query, and a position of the sequence "
            f"where they have none: that is the token whose prediction is scored"
        )
    fitted, held_out = (_Side.of(model, prompts, position) for prompts in (train, test))
    generator, signs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
    random: dict[tuple[int, int], Float[Tensor, " prompt"]] = {}  # errors by layer and rank
    out = []
    for target in targets:
        z, z_test = (target.value(prompts, position) for prompts in (train, test))
        for layer in range(model.layers + 1):
            row = Erasure(layer=layer, target=target.name, position=position, prompts=test.count)
            if z is None or z_test is None or not bool((z.var(0, correction=0) > CONSTANT * z.square().mean()).any()):
                out.append(replace(row, reason=UNDEFINED))
                continue
            x = fitted.tokens[layer]
            eraser = leace(x, z, max(UNCORRELATED, chance(x, z, signs)))
            if not eraser.rank:
                out.append(replace(row, reason=ABSENT))
                continue
            place = (layer, eraser.rank)
            if place not in random:
                random[place] = held_out.rerun(layer, random_eraser(x, eraser.rank, generator))[0]
            out.append(_erased(row, (x, z), held_out, z_test, eraser, random[place], seed))
    return tuple(out)


@dataclass(frozen=True, eq=False)
class _Side:
    """Prompts, their tokens at the position by layer, and the squared error of their predictions."""

    hooked: HookedLinearTransformer
    inputs: tuple[Tensor, ...]
    at: int
    read: int
    answer: Float[Tensor, "prompt output"]
    tokens: list[Float[Tensor, "prompt D"]]
    error: Float[Tensor, " prompt"]

    @classmethod
    def of(cls, model: LinearTransformer, prompts: Prompts, position: int | None) -> _Side:
        hooked = HookedLinearTransformer(model)
        inputs = prompts.inputs(hooked.spec)
        at = prompts.context if position is None else position
        causal = hooked.spec.attention.keys == "causal"
        if causal and hooked.spec.attention.scale not in ("1/n", "1/(n+1)"):
            inputs = tuple(tokens[:, : at + 1] for tokens in inputs)  # later tokens change nothing
        names = token_hooks(model.layers)
        prediction, cache = hooked.run_with_cache(*inputs, names_filter=names)
        read = at if causal else 0  # of the predictions: a causal model makes one at every token
        answer = prompts.target[:, 0 if position is None else at]
        tokens = [cache[name][:, at] for name in names]
        return cls(hooked, inputs, at, read, answer, tokens, (prediction[:, read] - answer).square().sum(-1))

    def rerun(self, layer: int, eraser: Eraser) -> tuple[Float[Tensor, " prompt"], int]:
        """The squared errors with the token erased after ``layer`` layers, and in how many prompts that changed it."""

        def edit(tokens: Tensor) -> Tensor:
            edited = tokens.clone()
            edited[:, self.at] = eraser(tokens[:, self.at])
            return edited

        prediction, fired = edited_run(self.hooked, self.inputs, layer, edit)
        return (prediction[:, self.read] - self.answer).square().sum(-1), fired


def _erased(
    row: Erasure,
    train: tuple[Float[Tensor, "row D"], Float[Tensor, "row size"]],
    test: _Side,
    z_test: Float[Tensor, "prompt size"],
    eraser: Eraser,
    stray: Float[Tensor, " prompt"],
    seed: int,
) -> Erasure:
    x, z = train
    after, fired = test.rerun(row.layer, eraser)
    penalty = SINGULAR * float((x - x.mean(0)).square().sum())
    null = test.answer.square().sum(-1)
    tokens = test.tokens[row.layer]
    return replace(
        row,
        rank=eraser.rank,
        **with_error("r2", _probe(x, z, tokens, z_test, penalty, seed)),
        **with_error("r2_erased", _probe(eraser(x), z, eraser(tokens), z_test, penalty, seed)),
        loss=float(test.error.mean()),
        null=float(null.mean()),
        **with_error("effect", ratio(after - test.error, null, seed)),
        **with_error("random", ratio(stray - test.error, null, seed)),
        fired=fired,
    )


def _probe(
    x: Tensor, z: Tensor, x_test: Tensor, z_test: Tensor, penalty: float, seed: int
) -> tuple[float | None, Interval]:
    """Held-out R^2 of least squares with intercept, and a penalty that keeps it from reading rounding errors."""
    fitted = torch.from_numpy(MomentRidge(alpha=penalty).fit(x.numpy(), z.numpy()).predict(x_test.numpy()))
    spread = (z_test - z_test.mean(0)).square().sum(-1)
    return explained((z_test - fitted).square().sum(-1), spread, seed)
