"""The main job for networks on simple regression: one checkpoint in, one ``Analysis`` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.closed_form.anatomy import directions, divisions, head_roles, query_share, rows_of, slots
from interp.closed_form.evidence import closer, forms, replacements, rescalings
from interp.closed_form.rivals import Rival, fit_rivals
from interp.closed_form.verdict import Scored, checks, choose_rival
from interp.identification import RECOGNIZED, RECOGNIZED_LOWER, Score, bootstrap_fidelity
from interp.losses import Panel, labels_of, solves_task, squared_errors, summarise
from interp.models.embedded import run_model
from interp.models.errors import LayoutError, UsageError
from interp.models.tasks import SimplePrompts, SimpleRegression
from interp.models.transformer import LinearTransformer
from interp.provenance import checkpoint_info, provenance, recorded_weights, seeds_of
from interp.recovered import no_verdict, score_words, task_sentence
from interp.results import Analysis, ClosedForm, Evidence, Family, Form, Verdict

__all__ = ["analyse_simple_regression"]

FEWEST_PROMPTS = 256  # half of them must hold the 60 numbers of the polynomial twice over
LOSS_PROMPTS = 16_384
NOT_LINEAR = (
    "coefficients and implicit weights: skipped, because LayerNorm makes no layer a linear map of its token; the "
    "slots, the heads' roles and the place of the division stand in their place"
)
NOT_BASIS = (
    "coefficients and implicit weights: skipped, because they are those of noisy_regression; the gradient methods "
    "fitted to the network stand in their place"
)


def analyse_simple_regression(
    checkpoint: Checkpoint,
    prompts: int,
    seed: int,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> Analysis:
    """Is it the closed form, a gradient method, or neither? ``prompts``: half fitted on, half scored on.

    Raises LayoutError when the model is not one of this task, UnreadableFile for weights that are not finite,
    UsageError for too few prompts.
    """
    model, task = _subject(checkpoint, prompts)
    keys, seeds = model.spec.attention.keys, seeds_of(seed)
    origin = {
        "checkpoint": checkpoint_info(checkpoint),
        "task": task.to_dict(),
        "provenance": provenance(prompts, seed, command),
        "weights": recorded_weights(model),
    }
    progress("running the network")
    fitted, held_out = (task.sample(prompts // 2, s) for s in seeds[:2])
    seen, passage = (run_model(model, *drawn.inputs(model.spec)) for drawn in (fitted, held_out))
    network = passage.prediction
    if not bool(torch.isfinite(seen.prediction).all() & torch.isfinite(network).all()):
        why = "skipped, because its predictions are not finite on prompts of its task"
        nothing = Evidence(prompts=0, losses=(), depth_losses=(), notes=(why,))
        return Analysis(**origin, layers=(), families=(), verdict=no_verdict(why, False), evidence=nothing, implicit=())

    progress("fitting gradient methods")
    rivals = fit_rivals(fitted, keys, seen.prediction, max(2, model.layers), seeds[3])
    found_forms = forms(network, held_out, keys, seeds[2])
    closest = found_forms[0]
    truth = held_out.least_squares()
    halves = ((fitted, seen.prediction), (held_out, network))
    scored = tuple(_scored(rival, closest, halves, seeds[2]) for rival in rivals)

    progress("looking for slots, roles and the division")
    weights, rows = dict(model.named()), rows_of(held_out, keys)
    found_divisions, divides = divisions(passage, rows, model.spec, weights)
    rescaled = rescalings(model, held_out, closest.name, rivals, seeds[2])
    replaced = replacements(model, fitted, held_out, seeds[2])
    conditions = checks(closest, scored, rescaled, found_divisions, divides, replaced)
    closed = all(check.passed for check in conditions)
    chosen, why = (None, _overruled(scored)) if closed else choose_rival(scored)
    closed_form = ClosedForm(
        formula=closest.formula if closed else None,
        keys=keys,
        checks=conditions,
        forms=found_forms,
        slots=slots(passage, rows),
        directions=directions(passage, rows),
        heads=head_roles(passage, rows, model.spec, weights),
        divisions=found_divisions,
        divides=divides,
        rescaled=rescaled,
        replacements=replaced,
        query_share=query_share(passage, model.spec, weights),
        weights_left=sum(int((value != 0).sum()) for value in weights.values()),
        weights=model.parameters,
    )

    progress("measuring losses")
    recovered = _Recovered.of(closed, closest, scored, rivals, chosen)
    panels = [_network_panel(model), _recovered_panel(recovered), _baselines(task, keys, prompts, seeds[3])]
    squares = squared_errors(task.sample, panels, LOSS_PROMPTS, LOSS_PROMPTS, seeds[4])
    losses = summarise(labels_of(panels), squares)
    solves, share = solves_task(squares)
    mse = {entry.name: entry.mse for entry in losses}
    said = task_sentence(solves, share, mse.get("network"), mse.get("null"), mse.get("oracle"))
    target = truth.prediction
    return Analysis(
        **origin,
        layers=(),
        families=(
            *_form_rows(found_forms, closed, conditions, held_out),
            *(
                _family_row(s, r, s is chosen, why[s.name], held_out, target)
                for s, r in zip(scored, rivals, strict=True)
            ),
        ),
        verdict=_verdict(recovered, closed_form, solves, said),
        evidence=Evidence(
            prompts=len(squares["network"]),
            held_out=held_out.count,
            losses=tuple(sorted(losses, key=lambda e: -e.mse if e.mse is not None else float("-inf"))),
            depth_losses=(),
            notes=(NOT_LINEAR if model.spec.layernorm is not None else NOT_BASIS,),
        ),
        implicit=(),
        closed_form=closed_form,
    )


def _subject(checkpoint: Checkpoint, prompts: int) -> tuple[LinearTransformer, SimpleRegression]:
    model = checkpoint.model.require_finite().to(torch.float64)
    spec, fields = model.spec, model.spec.task
    if fields is None or fields.get("name") != SimpleRegression.name:
        stated = "none" if fields is None else repr(fields.get("name"))
        raise LayoutError(
            f"the model has {' and '.join(spec.additions)} and its task is {stated}, expected "
            f"{SimpleRegression.name!r}, the one task that such models can be analysed on; a --spec file with [task] "
            "sets it"
        )
    task = SimpleRegression.from_dict(fields)
    task.require_model(spec, len(model.tensors["readout.weight"]) if spec.readout.flat else None)
    if spec.attention.keys == "causal":
        raise LayoutError("attention.keys is 'causal', expected 'context' or 'all' for simple_regression")
    if spec.readout.channel != "y":
        raise LayoutError(f"readout.channel is {spec.readout.channel!r}, expected 'y', the label of {task.name}")
    if prompts < FEWEST_PROMPTS:
        raise UsageError(f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more: half are fitted on")
    return model, task


# --- the algorithm in the network's place ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Recovered:
    """What is run beside the network: the closed form, the chosen gradient method, or what comes closest."""

    name: str
    recognized: bool
    score: Score
    parameters: int
    predict: Callable[[SimplePrompts], Float[Tensor, " prompt"]]
    formula: str

    @classmethod
    def of(
        cls, closed: bool, form: Form, scored: Sequence[Scored], rivals: Sequence[Rival], chosen: Scored | None
    ) -> _Recovered:
        if closed or (chosen is None and (form.fidelity or -1.0) >= max(s.score.fidelity or -1.0 for s in scored)):
            shrunken = form.name == "shrunken"
            return cls(
                "closed-form",
                closed,
                Score(fidelity=form.fidelity, interval=form.fidelity_ci),
                0,
                lambda d: d.least_squares().shrunken if shrunken else d.least_squares().prediction,
                form.formula,
            )
        best = chosen or max(scored, key=lambda s: s.score.fidelity if s.score.fidelity is not None else -float("inf"))
        rival = rivals[list(scored).index(best)]
        return cls(best.name, chosen is not None, best.score, best.parameters, rival.predict, rival.formula)

    @property
    def label(self) -> str:
        return f"{'recovered algorithm' if self.recognized else 'closest'} ({self.name})"


def _network_panel(model: LinearTransformer) -> Panel[SimplePrompts]:
    return Panel(
        labels={"network": "the network"},
        predict=lambda drawn: {"network": run_model(model, *drawn.inputs(model.spec)).prediction[:, None]},
    )


def _recovered_panel(recovered: _Recovered) -> Panel[SimplePrompts]:
    return Panel(
        labels={"recovered": recovered.label},
        predict=lambda drawn: {"recovered": recovered.predict(drawn)[:, None]},
    )


def _baselines(task: SimpleRegression, keys: str, prompts: int, seed: int) -> Panel[SimplePrompts]:
    """Zero, the mean label, two gradient steps tuned to the task, and least squares itself."""
    drawn = task.sample(max(prompts // 2, 1024), seed)
    (tuned,) = fit_rivals(drawn, keys, drawn.least_squares().prediction, 2, seed, ("preconditioned-gd",))

    def run(prompts: SimplePrompts) -> Mapping[str, Tensor]:
        found = prompts.least_squares()
        values = {
            "null": torch.zeros_like(found.prediction),
            "mean": found.mean_y,
            "preconditioned-gd-2": tuned.predict(prompts),
            "oracle": found.prediction,
        }
        return {name: value[:, None] for name, value in values.items()}

    labels = {
        "null": "predicting zero",
        "mean": "the mean label of the prompt",
        "preconditioned-gd-2": "two preconditioned gradient steps, tuned to the task",
        "oracle": "least squares, the target",
    }
    return Panel(labels=labels, predict=run)


# --- rows and words -------------------------------------------------------------------------------------------------


def _scored(rival: Rival, form: Form, halves: Sequence[tuple[SimplePrompts, Tensor]], seed: int) -> Scored:
    ratios = []
    for drawn, network in halves:
        truth = drawn.least_squares()
        value = truth.prediction if form.name == "least-squares" else truth.shrunken
        ratios.append(closer(network, value, rival.predict(drawn), seed))
    held_out, network = halves[1]
    score = bootstrap_fidelity(rival.predict(held_out)[:, None], network[:, None], seed)
    ratio, high = max(ratios, key=lambda pair: pair[1])
    return Scored(name=rival.name, parameters=rival.parameters, score=score, ratio=ratio, ratio_high=high)


def _overruled(scored: Sequence[Scored]) -> Mapping[str, str]:
    times = {s.name: float(f"{1 / max(s.ratio, 1e-300):.2g}") for s in scored}
    return {name: f"leaves {value:g} times the squared error of the closed form" for name, value in times.items()}


def _form_rows(
    found: Sequence[Form], closed: bool, conditions: Sequence, held_out: SimplePrompts
) -> tuple[Family, ...]:
    truth = held_out.least_squares()
    rows = []
    for index, form in enumerate(found):
        failed = [check.name for check in conditions if not check.passed]
        if closed and index == 0:
            why = "all conditions of the closed form hold"
        elif index:
            why = f"the other closed form of these sums is nearer: {found[0].formula}"
        else:
            why = f"not all conditions of the closed form hold: {', '.join(failed)}"
        value = truth.prediction if form.name == "least-squares" else truth.shrunken
        rows.append(
            Family(
                name="closed-form" if form.name == "least-squares" else "closed-form (shrunken)",
                parameters=0,
                fidelity=form.fidelity,
                fidelity_ci=form.fidelity_ci,
                mse=float((value - truth.prediction).square().mean()),
                chosen=closed and index == 0,
                why=why,
            )
        )
    return tuple(rows)


def _family_row(
    scored: Scored, rival: Rival, chosen: bool, why: str, held_out: SimplePrompts, target: Float[Tensor, " prompt"]
) -> Family:
    mse = float((rival.predict(held_out) - target).square().mean())
    return Family(
        name=rival.name,
        parameters=rival.parameters,
        fidelity=scored.score.fidelity,
        fidelity_ci=scored.score.interval,
        mse=mse if mse < float("inf") else None,
        chosen=chosen,
        why=why,
    )


def _verdict(recovered: _Recovered, found: ClosedForm, solves: bool, task: str) -> Verdict:
    r2 = score_words(recovered.score)
    if recovered.recognized and recovered.name == "closed-form":
        where = f"the LayerNorm of layer {found.divides} divides by the variance V of x"
        what = f"It computes the closed form {recovered.formula}: R² = {r2} on fresh prompts, and {where}."
    elif recovered.recognized:
        what = (
            f"It runs {recovered.name}: two or more gradient steps {recovered.formula} with {recovered.parameters} "
            f"numbers follow its predictions to R² = {r2}. It is not the closed form."
        )
    elif recovered.name == "closed-form" and (recovered.score.fidelity or 0.0) >= RECOGNIZED:
        failed = ", ".join(check.name for check in found.checks if not check.passed)
        what = (
            f"Unrecognized: its predictions follow the closed form to R² = {r2}, but not all conditions hold: {failed}."
        )
    else:
        what = (
            f"Unrecognized: neither the closed form nor a gradient method explains its predictions (bar: {RECOGNIZED}, "
            f"lower end {RECOGNIZED_LOWER}). The closest is {recovered.name}, R² = {r2} on fresh prompts."
        )
    return Verdict(
        algorithm=recovered.name if recovered.recognized else "unrecognized",
        recognized=recovered.recognized,
        solves_task=solves,
        fidelity=recovered.score.fidelity,
        fidelity_ci=recovered.score.interval,
        summary=f"{what} {task}" if solves else f"{task} {what}",
    )
