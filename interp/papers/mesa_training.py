"""The six-layer network with keys of size 40 along its training, whole, halfway to its block means, and as these.

As published: all weights are trained from small numbers, then once more from the same start, and along the way the
products of every head are averaged with the block means of the first training's end. Training is deterministic, so the
two trainings are one here. Beside that, the block means of the network as it is at that step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.algebra.channels import channel_size
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import open_checkpoint
from interp.families.channel_heads import BlockHeads
from interp.models.tasks import DynamicsPrompts
from interp.models.training import Recipe, Step, load_recipe, train
from interp.models.training.sequences import products
from interp.models.transformer import LinearTransformer
from interp.papers.comparison import row
from interp.papers.mesa_compression import BAR, COMPARED
from interp.papers.mesa_networks import losses, means, mixed, ratio_row
from interp.papers.paper import Progress
from interp.stats.averages import mean_with_error

__all__ = ["curve_rows", "trained_along", "training_rows"]

RECIPE = "lsa-6-key-40"
EVERY = 250  # steps


def training_rows(out: Path, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Trained anew, unless the networks of a training by the same recipe lie beside ``out``."""
    recipe = load_recipe(RECIPE)
    networks = trained_along(recipe, out.with_name(f"{RECIPE}-training"), EVERY, progress)
    return curve_rows(RECIPE, recipe, networks, COMPARED, seed, progress)


def trained_along(recipe: Recipe, folder: Path, every: int, progress: Progress) -> dict[int, LinearTransformer]:
    """The network every so many steps, from 0 to the last. They are kept in ``folder``, from which an interrupted
    training goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    last = folder / f"{recipe.name}.safetensors"
    stages, begins, steps = {}, {}, 0
    for k, stage in enumerate(recipe.optimiser.stages):
        stages[f"stage {k}"], begins[f"stage {k}"] = stage, steps
        steps += stage.steps

    def path(step: int) -> Path:
        return folder / f"step-{step:06d}.safetensors"

    def keep(step: Step) -> None:
        at = begins[step.name] + step.iteration
        progress(f"{recipe.name}, step {at} of {steps}: loss {step.loss:.4g}")
        if step.iteration % every == 0:
            Q, P = products(stages[step.name].weights, recipe.spec, step.state.values)
            write_checkpoint(LinearTransformer(spec=recipe.spec, Q=Q.contiguous(), P=P.contiguous()), path(at))

    if not last.exists() or open_checkpoint(str(last)).model.spec.provenance.get("recipe") != recipe.to_dict():
        trained = train(recipe, record=folder / f"{recipe.name}.training", watch=keep)
        write_checkpoint(trained.model, last)
    found = {step: open_checkpoint(str(path(step))).model for step in range(0, steps, every) if path(step).exists()}
    return {**found, steps: open_checkpoint(str(last)).model}


def curve_rows(
    name: str, recipe: Recipe, networks: dict[int, LinearTransformer], sequences: int, seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """Losses on the same fresh sequences at every step, then the ratios at the last, then layer by layer."""
    drawn = recipe.task.sample(sequences, seed + 3)
    steps = sorted(networks)
    at = {step: networks[step].to(torch.float64) for step in steps}
    final = means(at[steps[-1]])
    rows, ratios = [], []
    for step, model in at.items():
        progress(f"{name}: the losses at step {step}")
        whole = losses(model.spec, model.Q, model.P, drawn)
        at_step = means(model)
        others = {
            "compressed": losses(model.spec, *mixed(model, at_step, 1.0), drawn),
            "interpolated": losses(model.spec, *mixed(model, at_step, 0.5), drawn),
            "published": losses(model.spec, *mixed(model, final, 0.5), drawn),
        }
        mean, stderr = mean_with_error(whole)
        more = {key: mean_with_error(value)[0] for key, value in others.items()}
        rows.append(row(f"{name}, step {step}", None, mean, stderr, None, step=step, **more))
        if step == steps[-1]:
            for key, words in (("compressed", "block means"), ("interpolated", "halfway to its block means")):
                ratios.append(ratio_row(f"{name}, step {step}, {words}", others[key], whole, BAR, loss=more[key]))
            ratios += _by_layer(name, model, final, whole, drawn)
    return rows + ratios


def _by_layer(
    name: str, model: LinearTransformer, blocks: BlockHeads, whole: Tensor, drawn: DynamicsPrompts
) -> list[dict[str, Any]]:
    """One layer alone replaced by its block means, with the shares of its weights that they leave out."""
    block_Q, block_P = blocks.weights(channel_size(model.spec))
    rows = []
    for layer in range(model.layers):
        Q, P = model.Q.clone(), model.P.clone()
        Q[layer], P[layer] = block_Q[layer], block_P[layer]
        replaced = losses(model.spec, Q, P, drawn)
        outside = {
            f"outside_{key}": float((kept[layer] - weights[layer]).square().sum() / weights[layer].square().sum())
            for key, kept, weights in (("Q", block_Q, model.Q), ("P", block_P, model.P))
        }
        cell = f"{name}, layer {layer + 1} alone as block means"
        rows.append(ratio_row(cell, replaced, whole, None, layer=layer, **outside))
    return rows
