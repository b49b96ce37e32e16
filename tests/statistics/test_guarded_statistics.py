"""What is said of a network's numbers is honest: every test here fails when one piece of the statistics is wrong.

guarded                                                      by
prompts that a fit is scored on are not those it was fitted to   test_fitted_and_held_out_prompts_differ
standard errors of the coefficients of causal networks       test_standard_errors_of_causal_networks_cover
the standard error of eta of a gradient step                 test_standard_errors_of_causal_networks_cover
"closer than any rival" is said at the upper end of 95 %     test_closer_is_seldom_said_of_equals
momentum is scored on the half that it was not fitted to     test_momentum_is_scored_where_it_was_not_fitted
a solver's iterate is chosen on prompts of its own           test_an_iterate_is_chosen_where_it_is_not_scored
percentiles are expanded, and by G - 1 degrees of freedom    test_intervals_hold_the_truth_with_few_groups
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.analysis import analyse
from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.opening import Checkpoint, open_checkpoint
from interp.evidence import behaviour
from interp.evidence.momentum import Increments, momentum_fits
from interp.families.closed_form_evidence import closer
from interp.models.closed_form import closed_form
from interp.models.constructions import gradient_step
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics, NoisyRegression, SimpleRegression
from interp.models.transformer import LinearTransformer
from interp.results import Behaviour
from interp.solvers.gradient_descent import gradient_descent
from interp.solvers.statistics import RegressionStatistics
from interp.stats.bootstrap import bootstrap


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def opened(model: LinearTransformer, folder: Path) -> Checkpoint:
    write_checkpoint(model, folder / "model.safetensors")
    return open_checkpoint(str(folder / "model.safetensors"))


def descent(layers: int = 2, dim: int = 3, context: int = 10) -> LinearTransformer:
    """Gradient descent with steps of 0.03 on noisy regression, one head a layer."""
    spec = ModelSpec.from_dict(
        {
            "tokens": [["x", dim], ["y", 1]],
            "task": {"name": "noisy_regression", "dim": dim, "context": context, "noise": {"uniform": [0, 1]}},
        }
    )
    P, Q = torch.zeros(2, layers, 1, dim + 1, dim + 1, dtype=torch.float64)
    Q[:, 0, :dim, :dim], P[:, 0, dim, dim] = torch.eye(dim, dtype=torch.float64), -0.03
    return LinearTransformer(spec=spec, P=P, Q=Q)


NETWORKS = {
    NoisyRegression: descent,
    LinearDynamics: lambda: gradient_step(LinearDynamics(dim=2, context=6), 0.07),
    SimpleRegression: lambda: closed_form(SimpleRegression(context=8)),
}


@pytest.mark.parametrize("task", NETWORKS)
def test_fitted_and_held_out_prompts_differ(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves are drawn by the task, from seeds of their own."""
    monkeypatch.setattr("interp.solvers.next_state.TUNING", 1)
    drawn: list[tuple[int, int]] = []
    sample = task.sample

    def recorded(self: Any, count: int, seed: int, *rest: Any, **fields: Any) -> Any:
        drawn.append((count, seed))
        return sample(self, count, seed, *rest, **fields)

    monkeypatch.setattr(task, "sample", recorded)
    prompts = 258  # half of it is a count that nothing else draws
    analyse(opened(NETWORKS[task](), tmp_path), prompts, 3, verdict_only=True)
    halves = [seed for count, seed in drawn if count == prompts // 2]
    assert len(halves) >= 2 and halves[0] != halves[1]


def test_standard_errors_of_causal_networks_cover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that are nearly a step of gradient descent, each analysed on two samples of sequences: the estimates
    differ by what their standard errors say, sqrt(s_1^2 + s_2^2)."""
    monkeypatch.setattr("interp.solvers.next_state.TUNING", 1)
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)
    apart: dict[str, list[float]] = {"output": [], "eta": []}

    def compare(name: str, one: Any, two: Any, value: str, error: str) -> None:
        a, b, s, t = (getattr(side, field) for field in (value, error) for side in (one, two))
        if None not in (a, b, s, t) and s + t > 1e-9 * abs(a):
            apart[name].append((a - b) / (s**2 + t**2) ** 0.5)

    for seed in range(10):
        model = gradient_step(LinearDynamics(dim=2, context=6), 0.07)
        P, Q = (
            W + 0.1 * W.abs().amax() * random(*W.shape, seed=2 * seed + k) for k, W in enumerate((model.P, model.Q))
        )
        checkpoint = opened(LinearTransformer(spec=model.spec, P=P, Q=Q), tmp_path)
        one, two = (analyse(checkpoint, 128, 100 + 2 * seed + k, verdict_only=True) for k in range(2))
        for left, right in zip(one.layers, two.layers, strict=True):
            for name in left.maps.keys() & right.maps.keys():
                compare("output", left.maps[name], right.maps[name], "output", "stderr")
        assert one.sequences is not None and two.sequences is not None
        compare("eta", one.sequences.gradient_step, two.sequences.gradient_step, "eta", "eta_stderr")
    sizes = {name: float(torch.tensor(values).square().mean().sqrt()) for name, values in apart.items()}
    assert all(0.5 < size < 1.7 for size in sizes.values()), (sizes, {k: len(v) for k, v in apart.items()})


def test_closer_is_seldom_said_of_equals() -> None:
    """Of a form and a rival that are equally close to the network: about 25 times in 1000, where the ratio itself is
    below 1 every other time."""
    said = below = 0
    for seed in range(300):
        network, form, rival = random(3, 100, seed=seed)
        value, high = closer(network, network + form, network + rival, seed)
        said, below = said + (high < 1.0), below + (value < 1.0)
    assert 120 < below < 180
    assert 1 <= said < 20
    assert closer(network, network + 0.1 * form, network + rival, 0)[1] < 1.0


def test_momentum_is_scored_where_it_was_not_fitted() -> None:
    u, g = random(2, 200, 3, seed=0)
    fit, other = (Increments(u, g, du=-beta * u + g, dw=-eta * u) for beta, eta in ((0.5, 0.2), (-0.4, -0.3)))
    row = momentum_fits([fit, fit], [other, other], seed=0)[0]
    assert (row.beta, row.gradient, row.eta) == tuple(pytest.approx(v, abs=1e-9) for v in (0.5, 1.0, 0.2))
    assert row.u_r2 is not None and row.u_r2 < 0.5
    assert row.eta_r2 == pytest.approx(1 - (0.5 / 0.3) ** 2)


@dataclass(frozen=True)
class _Weights:
    """Implicit weights that follow gradient descent, with as many steps as the sample of prompts says."""

    steps: dict[float, int]

    def __call__(self, model: LinearTransformer, prompts: Any) -> behaviour.ImplicitWeights:
        at = self.steps[float(prompts.x[0, 0, 0])]
        path = gradient_descent(*_sums(prompts), (0.03,) * 8)
        return behaviour.ImplicitWeights("unrolling", (path[0], *(path[at],) * model.layers), (1.0,) * 3)


def _sums(prompts: Any) -> tuple[Tensor, Tensor]:
    statistics = RegressionStatistics.from_data(prompts.x, prompts.y)
    return statistics.sigma, statistics.alpha


def test_an_iterate_is_chosen_where_it_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the sample to choose on the network is at step 3, on the one to score on at step 1: the former counts."""
    model, order = descent(), []
    task = NoisyRegression.from_dict(dict(model.spec.task or {}))
    sample = NoisyRegression.sample

    def recorded(self: Any, count: int, seed: int, *rest: Any, **fields: Any) -> Any:
        prompts = sample(self, count, seed, *rest, **fields)
        order.append(float(prompts.x[0, 0, 0]))
        return prompts

    monkeypatch.setattr(NoisyRegression, "sample", recorded)
    behaviour.describe_behaviour(model, task, 0)  # tuned, chosen, scored: the first three samples
    monkeypatch.setattr(behaviour, "implicit_weights", _Weights(dict(zip(order[:3], (3, 3, 1), strict=True))))
    found = behaviour.describe_behaviour(model, task, 0)
    assert isinstance(found, Behaviour)
    gd = [match for match in found.matches if match.solver == "gd"]
    assert gd and all(match.best >= 3 for match in gd)  # by steps of the size that fits it
    assert all(match.distance is not None and match.distance > 0.1 for match in gd)


@pytest.mark.parametrize("groups", [8, 12])
def test_intervals_hold_the_truth_with_few_groups(groups: int) -> None:
    """2000 populations: plain percentiles of 8 groups hold a mean in 88 of 100, expanded ones in 95."""
    found = bootstrap(lambda total: total / groups, random(groups, 2000, seed=groups), seed=0)
    assert 0.93 < float(((found.low < 0) & (found.high > 0)).double().mean()) < 0.97
