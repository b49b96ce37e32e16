"""A network of regression compared with classical solvers as behaviour: along its depth, in its errors, in how it
reacts to the query, and outside its task.

Nothing of the weights' structure is used, so this is all there is to say of networks that have no families (clipped
ones), and a check from outside of those that have. It never makes a verdict "recognized". Causal networks of regression
are not analysed.

What is compared are the weights w^l by which the network would predict after l layers. For linear layers they are
exact; for clipped ones a fit to what tokens hold, whose R^2 stands beside it.

Protocol: solvers are tuned on one sample of prompts to come as close as they can to the network after its last layer;
the iterate that matches a layer is chosen on a second sample, and its distance measured on a third.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import implicit_states
from interp.evidence.interventions import finite_prompts, operations
from interp.evidence.question import Answer, question, with_error
from interp.identify.choose import Choice
from interp.identify.losses import solves_task
from interp.identify.run import Run
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.skipped import Skipped
from interp.models.tasks import LinearExamples, LinearTask, Task
from interp.models.transformer import LinearTransformer
from interp.probes.tokens import layer_tokens
from interp.probes.within import fit_tokens
from interp.results import Behaviour, Match, Shift, Solver
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.trajectories import Trajectory, tuned_trajectories
from interp.stats.bootstrap import Interval, bootstrap, ratio, resampled_sums

__all__ = ["ImplicitWeights", "behaviour", "describe_behaviour", "implicit_weights"]

PROMPTS = 256  # of each of the three samples, fewer where tokens are many
FEWEST = 32
OPERATIONS = 4e9  # of the forward passes of one sample
NUMBERS = 2**25  # at most so many attention scores of a layer at a time
SENSED = 64  # prompts whose predictions are differentiated
NAMED = 0.05  # a solver is named when it misses at most this share of the weights' energy after the last layer
ALIKE = 1e-3  # and another that misses less than this is as good as the closest, whatever the intervals
TIE = 1.01  # distances whose ratio is below it are the same: gradient descent is momentum 0
NOTHING = 1e-24  # share of the weights' energy over all layers below which those of a layer are rounding


@dataclass(frozen=True, eq=False)
class ImplicitWeights:
    """w^0 to w^L of every prompt, with the sign of the read-out taken out, and how they were found."""

    found_by: str
    w: tuple[Float[Tensor, "prompt dim"], ...]
    linearity_r2: tuple[float | None, ...]


def implicit_weights(model: LinearTransformer, prompts: LinearExamples) -> ImplicitWeights:
    """By the unrolling where layers are linear; else by a fit to what tokens hold."""
    sign = -float(model.spec.readout.sign)
    if model.spec.clip is None and model.spec.no_map is None:
        grams = prompts.grams(model.spec)
        states = implicit_states(forward(head_layers(model, prompts.context), grams.gram, grams.query), model.spec)
        return ImplicitWeights("unrolling", tuple(sign * s.w[:, 0] for s in states), (1.0,) * len(states))
    fitted = fit_tokens(layer_tokens(model, prompts), model.spec)
    return ImplicitWeights("tokens", tuple(sign * fit.w[:, 0] for fit in fitted), tuple(fit.r2 for fit in fitted))


@question("behaviour")
def behaviour(choice: Choice, run: Run) -> Answer | Skipped | None:
    """The comparison with classical solvers, whatever the network's layers are."""
    model, task = run.model, run.task
    if not isinstance(run.network.held_out.drawn, LinearExamples):
        return None
    if not isinstance(task, LinearTask):
        return Skipped("its task does not say the law of its inputs and noise, which solvers are tuned to")
    if not model.spec.has_channels:
        return Skipped("its tokens have no read-out after every layer")
    run.progress("comparing with classical solvers")
    found = describe_behaviour(model, task, run.seeds.behaviour)
    return found if isinstance(found, Skipped) else Answer(fields={"behaviour": found})


def describe_behaviour(model: LinearTransformer, task: LinearTask, seed: int) -> Behaviour | Skipped:
    """The comparison, or why there is none: too few tokens to fit w to, too large a network, or one that diverges or
    predicts nothing."""
    if model.spec.clip is not None and task.context + 1 <= model.spec.width:
        return Skipped(f"the {task.context + 1} tokens of a prompt leave the weights of a clipped network free")
    count = min(PROMPTS, _affordable(model, task.context))
    if count < FEWEST:
        return Skipped("its prompts are too long for forward passes in the time that this part has")
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(4)]
    tuned, chosen, scored = (_drawn(model, task, count, s) for s in seeds[:3])
    if min(sample.count for sample in (tuned, chosen, scored)) < count // 2:
        return Skipped("most prompts diverge")
    network, known, few = implicit_weights(model, scored), _statistics(scored), scored[:SENSED]
    energy = float(network.w[-1].square().sum())
    if not energy > 0 or not math.isfinite(energy):
        return Skipped("the network's implicit weights are 0, or not finite")
    solvers = tuned_trajectories(task.tuning(tuned, implicit_weights(model, tuned).w[-1]), model.layers)
    earlier, layers = implicit_weights(model, chosen).w, range(1, model.layers + 1)
    matches: list[Match] = []
    for solver in solvers:
        choosing, scoring = (earlier, solver.iterates(_statistics(chosen))), (network.w, solver.iterates(known))
        entries = (_match(solver, layer, choosing, scoring, scored.w, seeds[3]) for layer in layers)
        matches += [entry for entry in entries if entry is not None]
    last = {entry.solver: entry for entry in matches if entry.layer == model.layers}
    kept = {solver.name: solver for solver in solvers if solver.name in last}
    closest, alike = _closest([last[name] for name in kept])
    best = {name: solver.marks.index(last[name].best) for name, solver in kept.items()}
    gradient, other = _sensitivity(model, few), _statistics(few)
    size = gradient.square().sum(-1)
    return Behaviour(
        weights=network.found_by,
        linearity_r2=network.linearity_r2,
        solvers=tuple(
            Solver(
                name=name,
                label=solver.label,
                unit=solver.unit,
                parameters=dict(solver.parameters),
                **with_error(
                    "sensitivity", ratio(_errors(gradient, solver.iterates(other)[best[name]]), size, seeds[3])
                ),
            )
            for name, solver in kept.items()
        ),
        matches=tuple(matches),
        null_similarity=tuple(_similarity(w - scored.w, -scored.w, seeds[3])[0] for w in network.w),
        shifts=_shifts(model, task, kept, best, count, seeds[3]),
        solves_task=_solves(model, task, scored),
        closest=closest,
        alike=alike,
        named=NAMED,
        prompts=scored.count,
    )


def _affordable(model: LinearTransformer, context: int) -> int:
    """Prompts that fit in time and memory."""
    maps = model.spec.clip is None and model.spec.no_map is None
    count = int(OPERATIONS / operations(model, context, maps))
    return count if maps else min(count, int(NUMBERS / (model.heads * (context + 1) ** 2)))


def _drawn(model: LinearTransformer, task: Task, count: int, seed: int) -> LinearExamples:
    found = finite_prompts(model, task.sample(count, seed))
    assert isinstance(found, LinearExamples)
    return found


def _statistics(prompts: LinearExamples) -> RegressionStatistics:
    return RegressionStatistics.from_data(prompts.x, prompts.y)


def _errors(w: Float[Tensor, "prompt dim"], other: Float[Tensor, "*mark prompt dim"]) -> Float[Tensor, "*mark prompt"]:
    return (other - w).square().sum(-1)


def _match(
    solver: Trajectory,
    layer: int,
    choosing: tuple[Sequence[Tensor], Tensor],
    scoring: tuple[Sequence[Tensor], Tensor],
    truth: Float[Tensor, "prompt dim"],
    seed: int,
) -> Match | None:
    """None where the layer's weights are 0."""
    (earlier, own), (weights, other) = choosing, scoring
    w, size = weights[layer], weights[layer].square().sum(-1)
    if not float(size.sum()) > NOTHING * max(float(v.square().sum()) for v in weights):
        return None
    errors = _errors(earlier[layer], own).T.nan_to_num(nan=torch.inf, posinf=torch.inf)
    draws = resampled_sums(errors.clamp_max(1e300), seed)
    best = int(errors.clamp_max(1e300).sum(0).argmin())
    marks = torch.tensor(solver.marks, dtype=torch.float64)
    low, high = marks[draws.argmin(1)].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    budget = None
    if solver.unit == "steps" and layer < len(marks):
        budget, _ = ratio(_errors(w, other[layer]), size, seed)
    return Match(
        layer=layer,
        solver=solver.name,
        best=solver.marks[best],
        best_ci=(low, high),
        **with_error("distance", ratio(_errors(w, other[best]), size, seed)),
        at_budget=budget,
        **with_error("similarity", _similarity(w - truth, other[best] - truth, seed)),
    )


def _similarity(
    left: Float[Tensor, "prompt dim"], right: Float[Tensor, "prompt dim"], seed: int
) -> tuple[float | None, Interval]:
    """sum <left, right> / sqrt(sum |left|^2 sum |right|^2)."""
    parts = (left * right).sum(-1), left.square().sum(-1), right.square().sum(-1)
    return bootstrap(lambda product, a, b: product / (a * b).sqrt(), *parts, seed=seed).at()


def _closest(last: Sequence[Match]) -> tuple[str | None, tuple[str, ...]]:
    """The solver that is closest after the last layer, if it is close, and those whose intervals reach its own."""
    known = [entry for entry in last if entry.distance is not None and entry.distance < NAMED]
    if not known:
        return None, ()
    least = min(entry.distance or 0.0 for entry in known)
    best = next(entry for entry in known if (entry.distance or 0.0) <= TIE * least + NOTHING)  # simpler ones come first
    reach = max(best.distance_ci[1] or 0.0, ALIKE)
    lows = ((entry, entry.distance_ci[0]) for entry in known if entry is not best)
    return best.solver, tuple(entry.solver for entry, low in lows if low is not None and low <= reach)


def _solves(model: LinearTransformer, task: LinearTask, prompts: LinearExamples) -> bool:
    answer = prompts.target[:, 0, 0]
    oracle = (task.oracle_weights(prompts) * prompts.x_query).sum(-1)
    predictions = {"null": torch.zeros_like(answer), "network": _predicted(model, prompts), "oracle": oracle}
    return solves_task({name: (found - answer).square() for name, found in predictions.items()}).answer == "yes"


def _sensitivity(model: LinearTransformer, prompts: LinearExamples) -> Float[Tensor, "prompt dim"]:
    """dp/dx_t of every prompt, through the whole network: with the query among the keys it is not w."""
    x = prompts.x_query.clone().requires_grad_()
    predicted = _predicted(model, prompts.asking(x))
    (gradient,) = torch.autograd.grad(predicted.sum(), x)
    return gradient


def _predicted(model: LinearTransformer, prompts: LinearExamples) -> Float[Tensor, " prompt"]:
    """The prediction at the query."""
    if model.spec.clip is None and model.spec.no_map is None:
        grams = prompts.grams(model.spec)
        query = forward(head_layers(model, prompts.context), grams.gram, grams.query).queries[-1]
        return model.spec.readout.sign * query[:, 0, model.spec.channel(model.spec.readout.channel).start]
    return HookedLinearTransformer(model)(*prompts.inputs(model.spec))[:, -1, 0]


def _shifts(
    model: LinearTransformer, task: Task, solvers: dict[str, Trajectory], best: dict[str, int], count: int, seed: int
) -> tuple[Shift, ...]:
    out = []
    for number, (name, variation) in enumerate(task.variations().items()):
        label, other = variation.label, variation.task
        if variation.axis is not None or isinstance(other, Skipped):
            continue
        fits = min(count, _affordable(model, other.context))
        drawn = _drawn(model, other, max(fits, 1), seed + 1 + number) if fits >= FEWEST else None
        found: dict[str, tuple[float | None, Interval]] = dict.fromkeys(solvers, (None, (None, None)))
        count_of, reason = 0, None
        if drawn is None:
            reason = "skipped, because prompts are too long"
        elif drawn.count < FEWEST // 2:
            reason = "skipped, because most diverge"
        else:
            count_of, predicted = drawn.count, _predicted(model, drawn)
            for solver, trajectory in solvers.items():
                w = trajectory.iterates(_statistics(drawn))[best[solver]]
                found[solver] = ratio((predicted - (w * drawn.x_query).sum(-1)).square(), predicted.square(), seed)
        out.append(
            Shift(
                name=name,
                label=label,
                disagreement={solver: value for solver, (value, _) in found.items()},
                disagreement_ci={solver: interval for solver, (_, interval) in found.items()},
                prompts=count_of,
                reason=reason,
            )
        )
    return tuple(out)
