"""The main job for networks on simple regression: one checkpoint in, one ``Analysis`` out."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.identify.identification import RECOGNIZED, RECOGNIZED_LOWER
from interp.identify.losses import Panel, labels_of, solves_task, squared_errors, summarise
from interp.identify.recovered import no_verdict, score_words, task_sentence
from interp.identify.simple_identification import RecoveredSimple, identify_simple, open_simple
from interp.identify.simple_verdict import Scored
from interp.models.layers import LayerNorm
from interp.models.tasks import SimplePrompts
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer
from interp.provenance import checkpoint_info, provenance, recorded_weights, seeds_of
from interp.results import Analysis, ClosedForm, Evidence, Family, Verdict
from interp.solvers.line_descent import Descent

__all__ = ["analyse_simple_regression"]

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

    Raises as ``open_simple`` does.
    """
    model, task = open_simple(checkpoint, prompts)
    seeds = seeds_of(seed)
    origin = {
        "checkpoint": checkpoint_info(checkpoint),
        "task": task.to_dict(),
        "provenance": provenance(prompts, seed, command),
        "weights": recorded_weights(model),
    }
    found = identify_simple(model, task, prompts, seeds, progress)
    if isinstance(found, str):
        nothing = Evidence(prompts=0, losses=(), depth_losses=(), notes=(found,))
        return Analysis(
            **origin, layers=(), families=(), verdict=no_verdict(found, False), evidence=nothing, implicit=()
        )
    closed_form, recovered, held_out = found.closed_form, found.recovered, found.held_out

    progress("measuring losses")
    keys = model.spec.attention.keys
    references = task.references(task.sample(max(prompts // 2, 1024), seeds[3]), model.layers, keys)
    panels = [
        _network_panel(model),
        _recovered_panel(recovered),
        Panel(labels=references.labels, predict=references.predict),
    ]
    squares = squared_errors(task.sample, panels, LOSS_PROMPTS, LOSS_PROMPTS, seeds[4])
    losses = summarise(labels_of(panels), squares)
    solves, share = solves_task(squares)
    mse = {entry.name: entry.mse for entry in losses}
    said = task_sentence(solves, share, mse.get("network"), mse.get("null"), mse.get("oracle"))
    target = held_out.least_squares().prediction
    return Analysis(
        **origin,
        layers=(),
        families=(
            *_form_rows(closed_form, held_out),
            *(
                _family_row(s, r, s is found.chosen, found.why[s.name], held_out, target)
                for s, r in zip(found.scored, found.rivals, strict=True)
            ),
        ),
        verdict=_verdict(recovered, closed_form, solves, said),
        evidence=Evidence(
            prompts=len(squares["network"]),
            held_out=held_out.count,
            losses=tuple(sorted(losses, key=lambda e: -e.mse if e.mse is not None else float("-inf"))),
            depth_losses=(),
            notes=(NOT_LINEAR if model.spec.find(LayerNorm) is not None else NOT_BASIS,),
        ),
        implicit=(),
        closed_form=closed_form,
    )


def _network_panel(model: LinearTransformer) -> Panel[SimplePrompts]:
    return Panel(
        labels={"network": "the network"},
        predict=lambda drawn: {"network": predict(model, *drawn.inputs(model.spec))[:, 0]},
    )


def _recovered_panel(recovered: RecoveredSimple) -> Panel[SimplePrompts]:
    return Panel(
        labels={"recovered": recovered.label},
        predict=lambda drawn: {"recovered": recovered.predict(drawn)[:, None]},
    )


# --- rows and words -------------------------------------------------------------------------------------------------


def _form_rows(closed_form: ClosedForm, held_out: SimplePrompts) -> tuple[Family, ...]:
    truth = held_out.least_squares()
    found, conditions, closed = closed_form.forms, closed_form.checks, closed_form.formula is not None
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
    scored: Scored, rival: Descent, chosen: bool, why: str, held_out: SimplePrompts, target: Float[Tensor, " prompt"]
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


def _verdict(recovered: RecoveredSimple, found: ClosedForm, solves: bool, task: str) -> Verdict:
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
