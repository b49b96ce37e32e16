"""The main job for causal models of linear dynamics: one checkpoint in, one ``Analysis`` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from interp.algebra.channels import block_energy, block_means, map_name
from interp.checkpoints.opening import Checkpoint
from interp.evidence.probing import default_probes
from interp.evidence.sequence_evidence import (
    Comparators,
    blends,
    compressions,
    objectives,
    ranked,
    sequence_errors,
    shown_positions,
    summarised,
    tuned_comparators,
)
from interp.families.channel_heads import (
    FUNCTIONALS,
    Uncertainty,
    free_numbers,
    output_estimates,
    sense,
    uncertainty,
)
from interp.identify.estimates import Estimate
from interp.identify.identification import EXACT, Score
from interp.identify.losses import depth_label, solves_task, summarise
from interp.identify.recovered import no_verdict, score_words
from interp.identify.sequence_identification import FoundInSequences, Step, Subject, identify_sequences, open_causal
from interp.provenance import ASKED, checkpoint_info, provenance, recorded_weights, seeds_of
from interp.results import (
    Analysis,
    Coefficient,
    Evidence,
    Family,
    GradientStep,
    HeadBlocks,
    Layer,
    Loss,
    Sequences,
    Split,
    Verdict,
)

__all__ = ["analyse_sequences"]

SENSED = 256  # sequences behind the output-weighted estimates and the standard errors
LOSS_SEQUENCES = 2048  # at most
PROBED = 2048  # at most
FORMULAS = {
    "gd": "f = (W₀ − η ∇L(W₀)) s_t, one step of gradient descent",
    "revalg": "e[a] ← e[a] + Σ k[a, b, g, e] Σ_j e_j[b] ⟨e_j[g], e[e]⟩, block-scalar heads",
}


def analyse_sequences(
    checkpoint: Checkpoint,
    prompts: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
    *,
    verdict_only: bool = False,
) -> Analysis:
    """With ``verdict_only`` without probes, compressed and interpolated networks and mesa-objectives.

    Raises as ``open_causal`` does.
    """
    subject = open_causal(checkpoint, prompts)
    model, task = subject.model, subject.task
    seeds = seeds_of(seed)
    origin = {
        "checkpoint": checkpoint_info(checkpoint),
        "task": task.to_dict(),
        "provenance": provenance(prompts, seed, command, verdict_only),
        "weights": recorded_weights(model),
    }
    found = identify_sequences(subject, prompts, seeds[:3], progress)
    if isinstance(found, str):
        nothing = Evidence(prompts=0, losses=(), depth_losses=(), notes=(found,))
        # It diverges on its own task, so it does not solve it.
        verdict = no_verdict(found, False)
        return Analysis(**origin, layers=(), families=(), verdict=verdict, evidence=nothing, implicit=())

    progress("estimating coefficients")
    layers, known = _layers(subject, found, seeds[5])

    progress("measuring losses")
    comparators = tuned_comparators(found.fitted)
    drawn = task.sample(min(prompts, LOSS_SEQUENCES), seeds[4])
    errors = sequence_errors(subject, comparators, {"recovered": found.heads, "published": found.published}, drawn)
    labels = {"network": "the network", **_labels(found), **comparators.labels}
    positions = shown_positions(task.context)
    evidence, solves, share = _evidence(found, errors, labels, model.layers)

    if verdict_only:
        probes, note = (), f"further evidence: skipped, because {ASKED}"
    else:
        progress("probing activations")
        probes, note = default_probes(model, task, min(prompts, PROBED), seeds[6])
    recovered = found.how, found.heads, found.numbers
    sequences = Sequences(
        prompts=len(errors["network"]),
        positions=positions,
        clipped=_clipped(subject, found),
        live=_live(subject, found),
        losses=summarised(errors, labels, positions),
        compressions=()
        if verdict_only
        else compressions(subject, found.fitted, found.held_out, found.live, found.published, recovered, seeds[5]),
        interpolation=() if verdict_only else blends(subject, found.held_out, found.published),
        gradient_step=_gradient_step(found, comparators),
        ranking=ranked(subject.spec, found.heads, known),
        objectives=() if verdict_only else objectives(model, found.held_out, _query(subject, found), positions[-3:]),
        alpha=tuple(comparators.alpha.tolist()),
        beta=tuple(comparators.beta.tolist()),
    )
    notes = (*found.notes, *(() if note is None else (note,)))
    return Analysis(
        **origin,
        layers=layers,
        families=_families(found),
        verdict=_verdict(subject, found, sequences, solves, share),
        evidence=Evidence(
            prompts=evidence.prompts,
            held_out=evidence.held_out,
            losses=evidence.losses,
            depth_losses=evidence.depth_losses,
            notes=notes,
        ),
        implicit=(),
        probes=probes,
        sequences=sequences,
    )


def _labels(found: FoundInSequences) -> Mapping[str, str]:
    kind = "recovered algorithm" if found.algorithm == "revalg" else "closest block-scalar heads"
    return {"recovered": f"{kind} (revalg)", "published": "block means of each head (published)"}


def _evidence(
    found: FoundInSequences, errors: Mapping[str, Tensor], labels: Mapping[str, str], layers: int
) -> tuple[Evidence, bool, float | None]:
    """Mean squared errors (summed over coordinates, mean over positions) and whether the task is solved."""
    squares = {name: 2.0 * values.mean(1) for name, values in errors.items()}
    depth = {f"layer-{layer}": depth_label(layer) for layer in range(layers + 1)}
    rows: dict[str, Loss] = {row.name: row for row in summarise({**labels, **depth}, squares)}
    solves, share = solves_task(squares)
    ladder = sorted((rows[name] for name in labels), key=lambda row: -row.mse if row.mse is not None else float("-inf"))
    evidence = Evidence(
        prompts=len(squares["network"]),
        held_out=found.held_out.drawn.count,
        losses=tuple(ladder),
        depth_losses=tuple(rows[name] for name in depth),
    )
    return evidence, solves, share


def _layers(subject: Subject, found: FoundInSequences, seed: int) -> tuple[tuple[Layer, ...], Uncertainty]:
    model, spec, size = subject.model, subject.spec, subject.size
    tokens, target = found.fitted.tokens[:SENSED], found.fitted.prediction[:SENSED]
    generator = torch.Generator().manual_seed(seed)
    functionals = [torch.randn(target.shape, generator=generator, dtype=target.dtype) for _ in range(FUNCTIONALS)]
    sensed = sense(spec, model.Q, model.P, tokens, functionals)
    estimates = output_estimates(sensed, found.live, size)
    free = free_numbers(found.live, found.heads.q.shape[1])
    known = uncertainty(spec, found.heads, free, tokens, target, seed)
    names = [name for name, _ in spec.tokens]
    layers = []
    for index, projection in enumerate(found.projections):
        read, written = found.live.read[index], found.live.written[index]
        energy = projection.energy
        layers.append(
            Layer(
                index=index,
                omega={},
                trace={},
                split=_split(energy, projection.block, projection.explained),
                heads=tuple(
                    _head(model.Q[index, h], model.P[index, h], size, read, written) for h in range(model.heads)
                ),
                maps=_maps(names, found, index, estimates[index], known),
            )
        )
    return tuple(layers), known


def _split(energy: float, block: float, whole: float) -> Split:
    if not energy > 0:
        return Split(block_scalar=None, trace=None, residual=None)
    block, whole = min(block / energy, 1.0), min(max(whole, block) / energy, 1.0)
    return Split(block_scalar=block, trace=whole - block, residual=1.0 - whole)


def _head(Q: Tensor, P: Tensor, size: int, read: Tensor, written: Tensor) -> HeadBlocks:
    outside = block_energy(Q, size, read, read), block_energy(P, size, written, read)
    whole = None if None in outside else 1.0 - (1.0 - (outside[0] or 0.0)) * (1.0 - (outside[1] or 0.0))
    return HeadBlocks(
        Q=block_means(Q, size).tolist(),
        P=block_means(P, size).tolist(),
        residual=whole,
        residual_Q=outside[0],
        residual_P=outside[1],
    )


def _maps(
    names: list[str], found: FoundInSequences, layer: int, output: Estimate | None, known: Uncertainty
) -> dict[str, Coefficient]:
    """The live coefficients of one layer, by their three estimates."""
    if output is None:
        return {}
    k, refit = found.projections[layer].k, found.heads.k[layer]
    out = {}
    for row, place in enumerate(torch.nonzero(found.live.maps(layer)).tolist()):
        at = tuple(place)
        determined = output.determined[row]
        fit_error = float(known.stderr[layer][at]) if found.how == "refit" else float("nan")  # weights are not fitted
        out[map_name(names, *place)] = Coefficient(
            weight=float(k[at]),
            output=float(output.theta[row]) if determined else None,
            stderr=float(output.stderr[row]) if determined else None,
            refit=float(refit[at]),
            refit_stderr=fit_error if fit_error == fit_error else None,
            live=True,
            undetermined=None if determined else "other coefficients of this layer have the same effect on the data",
        )
    return out


def _families(found: FoundInSequences) -> tuple[Family, ...]:
    def mse(prediction: Tensor) -> float | None:
        value = float((prediction - found.held_out.drawn.target).square().sum(-1).mean())
        return value if value < float("inf") else None

    rows = []
    step = found.step
    for candidate in found.steps:
        scalar = not isinstance(candidate.w0, Tensor)
        chosen = candidate is step and found.algorithm == "gd"
        rows.append(
            Family(
                name="gd" if scalar else "gd, W₀ a matrix",
                parameters=candidate.numbers,
                fidelity=candidate.score.fidelity,
                fidelity_ci=candidate.score.interval,
                mse=mse(candidate.prediction),
                chosen=chosen,
                why=_why_step(candidate, found),
            )
        )
    rows.append(
        Family(
            name="revalg",
            parameters=found.numbers,
            fidelity=found.score.fidelity,
            fidelity_ci=found.score.interval,
            mse=mse(found.prediction),
            chosen=found.algorithm == "revalg",
            why=_why_heads(found),
        )
    )
    return tuple(rows)


def _why_heads(found: FoundInSequences) -> str:
    if not found.score.recognized:
        return _too_low(found.score)
    if found.algorithm == "gd":
        return "one step of gradient descent explains what it leaves"
    return "block-scalar heads explain the network"


def _too_low(score: Score) -> str:
    if score.fidelity is None:
        return "fidelity is undefined: the network adds nothing to its input, or is not finite"
    return "its fidelity, or the lower end of the interval, is too low"


def _why_step(step: Step, found: FoundInSequences) -> str:
    if not step.score.recognized:
        return _too_low(step.score)
    if found.algorithm == "gd":
        return "one step of gradient descent explains the network"
    if step.score.unexplained < EXACT:
        return "the network is one step of gradient descent, which block-scalar heads contain"
    return "close to one step of gradient descent; revalg, which contains it, has the network's further terms"


def _gradient_step(found: FoundInSequences, comparators: Comparators) -> GradientStep | None:
    if not found.steps:
        return None
    step = found.step or found.steps[0]
    matrix = isinstance(step.w0, Tensor)
    return GradientStep(
        eta=step.eta,
        eta_stderr=step.eta_stderr,
        w0=None if matrix else float(step.w0),
        w0_stderr=step.w0_stderr,
        w0_matrix=step.w0.tolist() if isinstance(step.w0, Tensor) else None,
        fidelity=step.score.fidelity,
        fidelity_ci=step.score.interval,
        recognized=step.score.recognized,
        exact=step.score.unexplained < EXACT,
        line_search_eta=comparators.eta,
        line_search_stderr=comparators.eta_stderr,
    )


def _verdict(
    subject: Subject, found: FoundInSequences, sequences: Sequences, solves: bool, share: float | None
) -> Verdict:
    step = found.step
    losses = {row.name: row.loss for row in sequences.losses}
    figures = ", ".join(
        f"{words} {losses[name]:.4g}"
        for name, words in (
            ("network", "half the squared error"), ("null", "predicting zero"), ("gd-1", "one gradient step"),
            ("prop-2", "preconditioned gradient steps"), ("ridge", "exact ridge"),
        )
        if losses.get(name) is not None
    )  # fmt: skip
    task = f"It solves the task ({figures})." if solves else f"Does not solve the task ({figures})."
    gradient = "" if step is None else _gradient_words(step)
    score, algorithm = found.score, found.algorithm or "unrecognized"
    if algorithm == "revalg":
        what = (
            f"It runs revalg: block-scalar heads, {found.numbers} numbers in {subject.model.layers} "
            f"layer{'s' * (subject.model.layers > 1)}, predict what it predicts to R² = {score_words(score)} on "
            f"fresh sequences.{gradient}"
        )
    elif step is not None:
        score = step.score
        close = "come close" if found.score.recognized else "do not explain it"
        heads = f"Block-scalar heads {close} (R² = {score_words(found.score)})."
        what = f"{heads}{gradient}"
    else:
        what = (
            f"Unrecognized: block-scalar heads do not explain its predictions (R² = {score_words(score)} on fresh "
            f"sequences), nor does a step of gradient descent."
        )
    return Verdict(
        algorithm=algorithm,
        recognized=algorithm != "unrecognized",
        solves_task=solves,
        fidelity=score.fidelity,
        fidelity_ci=score.interval,
        summary=f"{what} {task}" if solves else f"{task} {what}",
    )


def _gradient_words(step: Step) -> str:
    start = "a matrix W₀" if isinstance(step.w0, Tensor) else f"W₀ = {_small(step.w0, step.w0_stderr)} I"
    is_ = "It is" if step.score.unexplained < EXACT else f"To R² = {score_words(step.score)} it is"
    return f" {is_} one step of gradient descent, η = {step.eta:.4g}, from {start}."


def _small(value: float, stderr: float | None) -> str:
    return f"{value:.3g}" if not stderr or stderr < 1e-9 else f"{value:.2g} ± {stderr:.1g}"


def _clipped(subject: Subject, found: FoundInSequences) -> float:
    clip = subject.spec.clip
    if clip is None:
        return 0.0
    sensed = sense(subject.spec, subject.model.Q, subject.model.P, found.fitted.tokens[:SENSED], ())
    at = torch.stack([(value.abs() >= clip).flatten(1).any(1) for value in sensed.passage[1:]])
    return float(at.any(0).double().mean())


def _live(subject: Subject, found: FoundInSequences) -> dict[str, list[list[str]]]:
    names = [name for name, _ in subject.spec.tokens]

    def chosen(mask: Tensor) -> list[list[str]]:
        return [[name for name, live in zip(names, row.tolist(), strict=True) if live] for row in mask]

    return {"read": chosen(found.live.read), "written": chosen(found.live.written)}


def _query(subject: Subject, found: FoundInSequences) -> int:
    """The channel that the last layer scores with when it writes the prediction."""
    out = [name for name, _ in subject.spec.tokens].index(subject.spec.readout.channel)
    return int(found.projections[-1].k[out].square().sum((0, 1)).argmax())
