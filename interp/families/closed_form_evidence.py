"""What speaks for the closed form: agreement, invariances far from the task, and LayerNorm as the place of division."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from interp.families.passage import LayerPassage, passage_of
from interp.identify.score import bootstrap_fidelity
from interp.models.layers import At, LayerNorm
from interp.models.skipped import Skipped
from interp.models.tasks import LinePrompts, Task
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer
from interp.results import Form, Replacement, Rescaled
from interp.solvers.line_descent import Descent
from interp.stats.averages import ratio_with_error
from interp.stats.bootstrap import ratio
from interp.stats.least_squares import affine_map, with_one

__all__ = ["FORMULAS", "closer", "form_values", "forms", "possible_forms", "replacements", "rescalings"]

TAIL = 0.025  # of the prompts of the task lie below, and above, what is called outside
FORMULAS = {
    "least-squares": "ŷ = ȳ + (C / V)(u − x̄)",
    "shrunken": "ŷ = (1 − h)(N + 1)/N · [ȳ + (C / V)(u − x̄)]",
}


Values = Float[Tensor, " prompt"]


def possible_forms(keys: str) -> tuple[str, ...]:
    """Those that sums over these keys can give."""
    return tuple(FORMULAS) if keys == "all" else ("least-squares",)


def form_values(prompts: LinePrompts, name: str) -> Values:
    """What a closed form, by its name in ``FORMULAS``, predicts."""
    line = prompts.least_squares()
    return line.prediction if name == "least-squares" else line.shrunken


def forms(network: Values, prompts: LinePrompts, keys: str, seed: int) -> tuple[Form, ...]:
    """The closed forms that sums over these keys can give, the closest to the network first."""
    out = []
    for name in possible_forms(keys):
        value = form_values(prompts, name)
        score = bootstrap_fidelity(value[:, None], network[:, None], seed)
        slope, error = ratio_with_error(value * network, value * value)
        size = float(value.square().sum())
        out.append(
            Form(
                name=name,
                formula=FORMULAS[name],
                fidelity=score.fidelity,
                fidelity_ci=score.interval,
                error=(float((network - value).square().sum()) / size) ** 0.5 if size > 0 else None,
                slope=slope,
                slope_stderr=error,
            )
        )
    return tuple(sorted(out, key=lambda form: -(form.fidelity if form.fidelity is not None else -float("inf"))))


def closer(network: Values, form: Values, rival: Values, seed: int) -> tuple[float, float]:
    """The ratio of squared differences, form against rival, and the upper end of its 95 % interval over prompts."""
    ours, theirs = (form - network).square(), (rival - network).square()
    value, (_, high) = ratio(ours, theirs.clamp_min(1e-300), seed)
    return (float("inf") if value is None else value), (float("inf") if high is None else high)


def rescalings(
    model: LinearTransformer, task: Task, prompts: int, name: str, rivals: Sequence[Descent], seed: int, draw_seed: int
) -> tuple[Rescaled, ...]:
    """The network and the form ``name`` where all x, or all y, of the prompts of ``draw_seed`` are multiplied by a
    factor. The form does not move with x and follows y; whatever is a polynomial in x is lost."""
    out = []
    sizes: dict[str, Callable[[LinePrompts], Tensor]] = {
        "x": lambda drawn: drawn.least_squares().V,
        "y": lambda drawn: drawn.y.square().mean(1),
    }
    usual = task.sample(prompts, draw_seed)
    for quantity, size in sizes.items():
        low, high = torch.quantile(size(usual), torch.tensor([TAIL, 1 - TAIL], dtype=torch.float64))
        for variation in task.variations().values():
            if variation.axis != quantity or isinstance(variation.task, Skipped):
                continue
            drawn = variation.task.sample(prompts, draw_seed)
            network = predict(model, *drawn.inputs(model.spec))[:, 0]
            values = {rival.name: rival.predict(drawn) for rival in rivals}
            outside = (size(drawn) < low) | (size(drawn) > high)
            score = bootstrap_fidelity(form_values(drawn, name)[:, None], network, seed)
            out.append(
                Rescaled(
                    quantity=quantity,
                    factor=variation.value,
                    outside=float(outside.double().mean()),
                    fidelity=score.fidelity,
                    fidelity_ci=score.interval,
                    rivals={n: bootstrap_fidelity(v[:, None], network, seed).fidelity for n, v in values.items()},
                )
            )
    return tuple(out)


def replacements(
    model: LinearTransformer, fitted: LinePrompts, held_out: LinePrompts, seed: int
) -> tuple[Replacement, ...]:
    """The network with one LayerNorm replaced by an affine map of a token, the same for all rows: the one that comes
    closest to LayerNorm on the fitted prompts, or in the last layer to the prediction itself. Scored on the half of the
    prompts that speaks more for the map."""
    norm = model.spec.find(LayerNorm)
    if norm is None:
        return ()
    halves = [(drawn, passage_of(model, drawn)) for drawn in (fitted, held_out)]
    out = []
    for layer in range(model.layers):
        entries = [passage.layers[layer] for _, passage in halves]
        entry = entries[0]
        if layer + 1 == model.layers:
            read, kept = (partial(of, model) for of in (_read_out, _kept))
            solution = affine_map(read(entry.mid), (halves[0][1].prediction - kept(entry))[:, None])
            found = [(with_one(read(e.mid)) @ solution)[:, 0] + kept(e) for e in entries]
        else:
            target = entry.after - entry.before if norm.placement == "before-skip" else entry.after
            replaced = _replaced(layer, affine_map(entry.mid.flatten(0, 1), target.flatten(0, 1)))
            found = [predict(model, *drawn.inputs(model.spec), at=replaced)[:, 0, 0] for drawn, _ in halves]
        scores = [
            bootstrap_fidelity(value[:, None], passage.prediction[:, None], seed)
            for value, (_, passage) in zip(found, halves, strict=True)
        ]
        best = max(scores, key=lambda s: s.fidelity if s.fidelity is not None else -float("inf"))
        out.append(Replacement(layer=layer, fidelity=best.fidelity, fidelity_ci=best.interval))
    return tuple(out)


def _weights_of_read_out(model: LinearTransformer, tokens: int) -> Float[Tensor, "token D"]:
    if model.spec.readout.flat:
        return model.spec.readout.sign * model.tensors["readout.weight"]
    out = torch.zeros(tokens, model.spec.stream, dtype=torch.float64)
    out[-1, model.spec.channel(model.spec.readout.channel).start] = model.spec.readout.sign
    return out


def _read_out(model: LinearTransformer, z: Float[Tensor, "prompt token D"]) -> Float[Tensor, "prompt pair"]:
    """sum_i w_i[a] z_i[b]: the prediction of the network whose LayerNorm is the map A is sum_ab A[a, b] of these."""
    weights = _weights_of_read_out(model, z.shape[1])
    return torch.einsum("ia,nib->nab", weights, z).flatten(1)


def _kept(model: LinearTransformer, entry: LayerPassage) -> Float[Tensor, " prompt"]:
    """What reaches the prediction beside LayerNorm, in the reading e + LN(z)."""
    norm = model.spec.find(LayerNorm)
    if norm is None or norm.placement == "after-skip":
        return torch.zeros_like(entry.before[:, 0, 0])
    return (entry.before * _weights_of_read_out(model, entry.before.shape[1])).sum((-1, -2))


def _replaced(layer: int, solution: Float[Tensor, "entry_and_1 entry"]) -> At:
    """The pass with an affine map of a token in the place of one LayerNorm."""
    mid: list[Tensor] = []

    def at(name: str, value: Tensor) -> Tensor:
        if name == f"blocks.{layer}.hook_resid_mid":
            mid[:] = [value]
        return with_one(mid[0]) @ solution if name == f"blocks.{layer}.ln.hook_normalized" else value

    return at
