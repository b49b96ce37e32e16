"""Which algorithm a causal model of linear dynamics runs: block-scalar heads, and one step of gradient descent.

Everything is scored by R^2 on held-out sequences against what the network adds to its input: the read-out after the
last layer minus the read-out of the tokens as they enter. So tokens that start with a good guess (W_0 s_t) explain
nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.channels import (
    ChannelProjection,
    LiveChannels,
    block_means,
    block_weights,
    channel_size,
    heads_of,
    project_channels,
)
from interp.algebra.linear_prompts import DIVERGED, FEWEST_KEPT
from interp.checkpoints.opening import Checkpoint
from interp.families.channel_heads import BlockHeads, free_numbers, live_channels, refit_heads
from interp.identify.identification import EXACT, NEGLIGIBLE, Score, bootstrap_fidelity
from interp.models.errors import LayoutError, UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import DynamicsPrompts, LinearDynamics, task_of
from interp.models.token_pass import run
from interp.models.transformer import LinearTransformer
from interp.solvers.next_state import Pairs

__all__ = [
    "FEW",
    "REFITTED",
    "FoundInSequences",
    "Half",
    "Step",
    "Subject",
    "chunk_of",
    "gradient_steps",
    "identify_sequences",
    "open_causal",
    "predict_in_chunks",
    "run_half",
    "run_heads",
]

FEWEST_SEQUENCES = 64
FEW = 64  # sequences enough for a zero pattern
REFITTED = 256  # sequences that the numbers of the heads are fitted to
ENOUGH = 0.01  # share of the variance that needs no refit
CHUNK_NUMBERS = 2**24  # attention scores in memory at a time


@dataclass(frozen=True, eq=False)
class Subject:
    """A causal network in float64, and its task."""

    model: LinearTransformer
    task: LinearDynamics

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @property
    def size(self) -> int:
        return channel_size(self.model.spec)


def open_causal(checkpoint: Checkpoint, prompts: int) -> Subject:
    """Raises LayoutError when the task or the tokens are of a kind that has no families, UnreadableFile for weights
    that are not finite, UsageError for too few prompts."""
    model = checkpoint.model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    if not isinstance(task, LinearDynamics):
        raise LayoutError(
            f"attention.keys is 'causal' and task.name is {task.name!r}, expected {LinearDynamics.name!r}: causal "
            f"models of other tasks have no families yet; interp-probe inspect shows what the file holds"
        )
    channel_size(model.spec)
    task.sample(1, 0).inputs(model.spec)  # the channels are those of the task
    if prompts < FEWEST_SEQUENCES:
        raise UsageError(
            f"asked for {prompts} prompts, expected {FEWEST_SEQUENCES} or more: half are fitted on, half scored on"
        )
    return Subject(model, task)


def chunk_of(model: LinearTransformer, context: int) -> int:
    """Sequences that fit in memory at a time."""
    return max(1, CHUNK_NUMBERS // (model.heads * context * (context + 2 * model.spec.width)))


@torch.no_grad()
def predict_in_chunks(
    spec: ModelSpec, Q: Tensor, P: Tensor, tokens: Tensor, chunk: int
) -> Float[Tensor, "sequence pos dim"]:
    return torch.cat([run(spec, {"Q": Q, "P": P}, some) for some in tokens.split(chunk)])


@dataclass(frozen=True, eq=False)
class Half:
    """Sequences on which the network stays finite: their tokens, what it predicts, and what of that it has added."""

    drawn: DynamicsPrompts
    tokens: Float[Tensor, "sequence pos D"]
    prediction: Float[Tensor, "sequence pos dim"]
    added: Float[Tensor, "sequence pos dim"]

    def __getitem__(self, index: slice) -> Half:
        return Half(self.drawn[index], self.tokens[index], self.prediction[index], self.added[index])

    def score(self, prediction: Float[Tensor, "sequence pos dim"], seed: int) -> Score:
        """R^2 of another prediction's additions against the network's, resampling sequences."""
        added = prediction - self.prediction + self.added
        return bootstrap_fidelity(added.flatten(1), self.added.flatten(1), seed)

    def unexplained(self, prediction: Float[Tensor, "sequence pos dim"]) -> float:
        error = (prediction - self.prediction).square().sum()
        spread = (self.added - self.added.mean(0)).square().sum()
        return float(error / spread) if float(spread) > 0 and bool(error.isfinite()) else float("inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The network as f_t = W_0 s_t + eta (B_t - W_0 A_t) s_t; ``w0`` is a number (W_0 = w0 I) or a matrix."""

    eta: float
    eta_stderr: float
    w0: float | Float[Tensor, "dim dim"]
    w0_stderr: float | None
    numbers: int
    prediction: Float[Tensor, "sequence pos dim"]  # held out
    score: Score


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundInSequences:
    """``heads`` run in the network's place; ``how`` they were found ("weights" or "refit"). ``published`` are the block
    means of the network's own heads. ``steps``: the step of gradient descent with W_0 a number, then a matrix."""

    live: LiveChannels
    fitted: Half
    held_out: Half
    projections: tuple[ChannelProjection, ...]
    heads: BlockHeads
    how: str
    numbers: int
    prediction: Float[Tensor, "sequence pos dim"]
    score: Score
    published: BlockHeads
    published_score: Score
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def algorithm(self) -> str | None:
        """ "revalg", which contains a step of gradient descent from W_0 = w_0 I; "gd" where only such a step, from a
        matrix, explains the network, or all of it; or None."""
        step = self.step
        if step is not None and step.score.unexplained < EXACT and self.score.unexplained > NEGLIGIBLE:
            return "gd"
        return "revalg" if self.score.recognized else "gd" if step is not None else None

    @property
    def step(self) -> Step | None:
        """The step of gradient descent that explains the network, the one with a number for W_0 if it can be."""
        good = [step for step in self.steps if step.score.recognized]
        exact = [step for step in good if step.score.unexplained < EXACT]
        return next(iter(exact or good), None)


def identify_sequences(
    subject: Subject, prompts: int, seeds: Sequence[int], progress: Callable[[str], None] = lambda step: None
) -> FoundInSequences | str:
    """``seeds`` are for the sequences that are fitted, those held out, and the intervals. Returns why there is nothing
    to identify when the network cannot be run."""
    model, spec, size = subject.model, subject.spec, subject.size
    progress("running the network")
    halves, lost = [], 0
    task, fresh = subject.task, None
    if task.dynamics == "fixed":
        # With one W for all sequences W s may be learned from the states or known by heart: the same on its own task.
        task = replace(task, dynamics="orthogonal", teacher=None)
        fresh = "identified on sequences with a fresh W each, where a W known by heart is of no use"
    for seed in seeds[:2]:
        half, gone = run_half(model, task.sample(prompts // 2, seed))
        lost += gone
        halves.append(half)
    fitted, held_out = halves
    if lost > (1.0 - FEWEST_KEPT) * 2 * (prompts // 2):
        return (
            f"skipped, because {lost} of {2 * (prompts // 2)} sequences diverge (beyond {DIVERGED:g}): the network "
            f"cannot be run on its own task"
        )
    progress("fitting block-scalar heads")
    live = live_channels(spec, model.Q, model.P, fitted.tokens[:FEW], size)
    projections = tuple(
        project_channels(P, Q, size, live.maps(layer))
        for layer, (P, Q) in enumerate(zip(model.P, model.Q, strict=True))
    )
    published = BlockHeads(block_means(model.Q, size), block_means(model.P, size))
    heads, how = BlockHeads.of([heads_of(found.k) for found in projections]), "weights"
    numbers = int(sum(live.maps(layer).sum() for layer in range(model.layers)))
    free = free_numbers(live, model.heads)
    counted = int(free[0].sum() + free[1].sum())
    numbers = min(numbers, counted)
    if fitted.unexplained(run_heads(subject, heads, fitted)) > ENOUGH:
        # Fitted to some of the sequences, and kept if it is better on the others of this half.
        count = min(REFITTED, fitted.drawn.count // 2)
        fit = refit_heads(spec, published, free, fitted.tokens[:count], fitted.prediction[:count], seeds[2])
        others = fitted[count:]
        if others.unexplained(run_heads(subject, fit.heads, others)) < others.unexplained(
            run_heads(subject, heads, others)
        ):
            heads, how, numbers = fit.heads, "refit", counted
    prediction = run_heads(subject, heads, held_out)
    return FoundInSequences(
        live=live,
        fitted=fitted,
        held_out=held_out,
        projections=projections,
        heads=heads,
        how=how,
        numbers=numbers,
        prediction=prediction,
        score=held_out.score(prediction, seeds[2]),
        published=published,
        published_score=held_out.score(run_heads(subject, published, held_out), seeds[2]),
        steps=gradient_steps(subject, fitted, held_out, seeds[2]),
        notes=tuple(
            note
            for note in (
                fresh,
                f"{lost} sequences diverge (beyond {DIVERGED:g}); they are left out of every figure" if lost else None,
            )
            if note is not None
        ),
    )


def run_half(model: LinearTransformer, drawn: DynamicsPrompts) -> tuple[Half, int]:
    """The network run on some sequences; those on which it diverges are left out, and counted."""
    tokens = drawn.inputs(model.spec)[0]
    prediction = predict_in_chunks(model.spec, model.Q, model.P, tokens, chunk_of(model, drawn.context))
    finite = (prediction.abs() < DIVERGED).flatten(1).all(1)  # False for NaN too
    lost = int((~finite).sum())
    if lost:
        drawn, tokens, prediction = drawn[finite], tokens[finite], prediction[finite]
    before = model.spec.read(tokens)
    added = prediction - before if model.spec.residual else prediction
    if not len(added):
        return Half(drawn, tokens, prediction, added), lost
    # What cancelling heads leave of nothing is rounding, and nothing is fitted to it.
    rounding = added.abs() < 1e-13 * before.abs().amax().clamp_min(1e-300)
    return Half(drawn, tokens, prediction, torch.where(rounding, 0.0, added)), lost


def run_heads(subject: Subject, heads: BlockHeads, half: Half) -> Float[Tensor, "sequence pos dim"]:
    Q, P = (block_weights(value, subject.size) for value in (heads.q, heads.p))
    chunk = max(1, CHUNK_NUMBERS // (Q.shape[1] * half.tokens.shape[1] * (half.tokens.shape[1] + 2 * Q.shape[-1])))
    return predict_in_chunks(subject.spec, Q, P, half.tokens, chunk)


def gradient_steps(subject: Subject, fitted: Half, held_out: Half, seed: int) -> tuple[Step, ...]:
    """The network's predictions as f_t = M_0 s_t + eta B_t s_t - M A_t s_t, by least squares: eta, and W_0 = M / eta.
    M_0 is what the tokens start with. A matrix for W_0 is tried where the tokens start with W_0 s_t."""
    spec, task = subject.spec, subject.task
    contents = task.contents(len(spec.tokens)) or ()
    index = [name for name, _ in spec.tokens].index(spec.readout.channel)
    if not spec.residual or contents[index] not in ("start", "zero"):
        return ()
    sides = []
    for half in (fitted, held_out):
        pairs = Pairs(half.drawn.states)
        sides.append((half, pairs.descent, pairs.curvature))
    half, descent, curvature = sides[0]
    steps = []
    started = contents[index] == "start" and bool(task.start_matrix().any())
    for matrix in (False, True) if started else (False,):
        eta, M, errors = _step(half.added, descent, curvature, matrix)
        if not eta:
            continue
        test, test_descent, test_curvature = sides[1]
        added = eta * test_descent - test_curvature @ M.T
        prediction = test.prediction - test.added + added
        sign = spec.readout.sign
        w0 = M / eta
        steps.append(
            Step(
                eta=eta,
                eta_stderr=errors[0],
                w0=sign * w0 if matrix else sign * float(w0[0, 0]),
                w0_stderr=None if matrix else errors[1] / abs(eta),
                numbers=1 + w0.numel() if matrix else 2,
                prediction=prediction,
                score=test.score(prediction, seed),
            )
        )
    return tuple(steps)


def _step(
    added: Float[Tensor, "sequence pos dim"],
    descent: Float[Tensor, "sequence pos dim"],
    curvature: Float[Tensor, "sequence pos dim"],
    matrix: bool,
) -> tuple[float, Float[Tensor, "dim dim"], tuple[float, float]]:
    """eta and M of added = eta descent - M curvature, and the standard errors of eta and of a scalar M."""
    dim = added.shape[-1]
    if matrix:
        # Residuals of both sides after the best M for each, then one number.
        X = curvature.flatten(0, 1)
        solved = torch.linalg.lstsq(X, torch.cat([added.flatten(0, 1), descent.flatten(0, 1)], 1), driver="gelsd")
        fit_added, fit_descent = solved.solution.split(dim, 1)
        left, right = added.flatten(0, 1) - X @ fit_added, descent.flatten(0, 1) - X @ fit_descent
        power = float(right.square().sum())
        eta = float((left * right).sum()) / power if power > 0 else 0.0
        return eta, (eta * fit_descent - fit_added).T, _errors(left - eta * right, right, added.shape[0])
    columns = torch.stack([descent.flatten(1), -curvature.flatten(1)], -1)
    design = columns.flatten(0, 1)
    theta = torch.linalg.lstsq(design, added.flatten()[:, None], driver="gelsd").solution[:, 0]
    residual = added.flatten(1) - columns @ theta
    inverse = torch.linalg.pinv(design.T @ design, hermitian=True)
    root = torch.einsum("np,npk->nk", residual, columns) @ inverse
    stderr = root.square().sum(0).sqrt()
    eta, mu = theta.tolist()
    # W_0 = M / eta: to first order in both.
    combined = float((root[:, 1] - mu / eta * root[:, 0]).square().sum().sqrt()) if eta else float("nan")
    return eta, mu * torch.eye(dim, dtype=added.dtype), (float(stderr[0]), combined)


def _errors(residual: Tensor, right: Tensor, sequences: int) -> tuple[float, float]:
    scores = (residual * right).reshape(sequences, -1).sum(1)
    return float(scores.square().sum().sqrt() / right.square().sum()), float("nan")
