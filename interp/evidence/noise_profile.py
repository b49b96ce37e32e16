"""Loss against the true noise level: what a network does inside and beyond the range it was trained on.

The oracle is the posterior mean of the target, so the excess loss is the mean square of the distance to it (no noise of
the target is left in the figure), and where the keys are the context alone its mean over the query is known,

    E_{x_t} (<w, x_t> - <w_oracle, x_t>)^2 = |C^1/2 (w - w_oracle)|^2 ,          C the covariance of the inputs.

All levels share their inputs, weights and noise directions, so a profile is smooth and differences along it are paired.
Source: Vladymyrov et al., arXiv 2402.14180, figures 2, 3 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import implicit_states
from interp.models.gram import LayerMaps, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearExamples, LinearTask, NoiseLaw
from interp.results import NoiseProfile, ProfileSeries
from interp.solvers.baselines import Baseline
from interp.solvers.statistics import RegressionStatistics
from interp.stats.averages import mean_with_error

__all__ = ["noise_levels", "noise_profile", "readout_weights"]

STEPS = 12  # of the grid from 0 to one beyond the largest noise level


def noise_levels(law: NoiseLaw) -> tuple[float, ...]:
    """From 0 to one beyond the law's largest level, the law's own numbers among them."""
    top = law.largest + 1.0
    grid = [top * step / STEPS for step in range(STEPS + 1)]
    between = [value for value in law.values if min(abs(value - point) for point in grid) > 1e-9]
    return tuple(sorted({*grid, *between}))


def readout_weights(
    layers: LayerMaps, prompts: LinearExamples, spec: ModelSpec
) -> tuple[Float[Tensor, "prompt dim"], ...]:
    """w with prediction = <w, x_t>, for the read-out after every layer (first: before any)."""
    grams = prompts.grams(spec)
    states = implicit_states(forward(layers, grams.gram, grams.query), spec)
    return tuple(-spec.readout.sign * state.w[:, 0] for state in states)


def noise_profile(
    network: LayerMaps,
    recovered: LayerMaps,
    label: str,
    spec: ModelSpec,
    task: LinearTask,
    baselines: Sequence[Baseline],
    draw: Callable[[LinearTask], LinearExamples],
) -> NoiseProfile:
    """Excess loss of the network, of its read-out after every layer, of the recovered algorithm (named ``label``) and
    of the baselines, at every one of ``noise_levels``. ``draw`` gives prompts of a task, the same seed for all."""
    sigmas = noise_levels(task.noise)
    labels = {"network": "the network", "recovered": label}
    labels |= {
        f"layer-{layer}": f"read-out after {layer} layer{'s' * (layer != 1)}" for layer in range(network.layers + 1)
    }
    labels |= {b.name: b.label for b in baselines}
    variances = torch.ones(task.dim) if task.covariance is None else torch.tensor(task.covariance)

    def excess(w: Tensor, prompts: LinearExamples) -> Float[Tensor, " prompt"]:
        off = w - task.oracle_weights(prompts)
        if spec.attention.keys != "context":  # the weights depend on the query, which is one of the keys
            return (off * prompts.x_query).sum(-1) ** 2
        return (off**2 * variances.to(off.dtype)).sum(-1)

    columns, counts = [], []
    for sigma in sigmas:
        prompts = draw(task.with_noise(NoiseLaw(kind="fixed", values=(sigma,))))
        statistics = RegressionStatistics.from_data(prompts.x, prompts.y)
        read = readout_weights(network, prompts, spec)
        weights = {"network": read[-1], "recovered": readout_weights(recovered, prompts, spec)[-1]}
        weights |= {f"layer-{layer}": w for layer, w in enumerate(read)}
        weights |= {b.name: b.weights(statistics) for b in baselines}
        columns.append({name: mean_with_error(excess(w, prompts)) for name, w in weights.items()})
        counts.append(prompts.count)
    return NoiseProfile(
        sigma=sigmas,
        prompts=tuple(counts),
        trained=(min(task.noise.values), max(task.noise.values)),
        levels=None if task.noise.kind == "uniform" else tuple(sorted(set(task.noise.values))),
        series=tuple(
            ProfileSeries(
                name=name,
                label=text,
                excess=tuple(column[name][0] for column in columns),
                stderr=tuple(column[name][1] for column in columns),
            )
            for name, text in labels.items()
        ),
    )
