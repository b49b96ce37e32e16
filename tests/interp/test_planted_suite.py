"""The verdict on 320 planted networks of every family, all disturbed, and on 100 that run no algorithm.

Every weight of a planted network gets independent noise of 1e-3 of the root mean square weight of its matrix
(proposition 2, whose large weights cancel each other, of 1e-5; those with LayerNorm, for the same reason, of 1e-5 of
the weight); then its heads are scrambled. None is left out, though 65 of those with omegas predict more than ten times
the largest label on some of their own prompts. The bars: 2 % of all are named wrongly, and none of the 100 is named.
Measured as a whole: 319 of 320 right, none of 100 named. The one is EAGLE 10, called gd++: the batch that set the step
of its first layer held a prompt that makes it 0.6 of what batches make it as a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import planting
import planting_eagle
import pytest
import torch
from planting_channels import channel_spec, planted, scrambled
from planting_simple import keeping_ones, linear_steps, random_network, regauged, rotated, two_steps

from interp.analysis import analyse
from interp.models.closed_form import closed_form
from interp.models.constructions import gradient_step, preconditioned_step, richardson
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics, SimpleRegression
from interp.models.transformer import LinearTransformer

pytestmark = pytest.mark.slow

NOISE = 1e-3
PROMPTS = 512
ACTIVE = [subset for subset in planting.SUBSETS if "yx" in subset]  # the others move no prediction
Case = tuple[LinearTransformer, set[str]]  # a network, and the verdicts that are right


def disturbed(model: LinearTransformer, seed: int, noise: float = NOISE) -> LinearTransformer:
    P, Q = planting.disturb(model.P, model.Q, noise, torch.Generator().manual_seed(seed))
    return replace(model, P=P, Q=Q)


def hidden(model: LinearTransformer, seed: int, more: int) -> LinearTransformer:
    """Disturbed, and then with ``more`` heads, split from those it has."""
    model = disturbed(model, seed)
    P, Q = planting.scramble(model.P, model.Q, model.heads + more, torch.Generator().manual_seed(seed + 1))
    return replace(model, P=P, Q=Q)


def omegas(seed: int) -> Case:
    """gd, gd++ and diag, of 1 to 8 layers and 2 to 16 dimensions."""
    found = planting.random_planted(seed, subset=ACTIVE[seed % len(ACTIVE)], largest=16, noise=NOISE)
    return found.model, {found.right_verdict}


def equivariant(seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    dim, layers = 3 + seed % 2, 2 + seed % 2
    sizes = {"x:xx": 0.01, "x:yy": 0.001, "y:xx": 0.01}
    tau = {
        name: -size * (0.7 + 0.6 * torch.rand(layers, generator=generator, dtype=torch.float64))
        for name, size in sizes.items()
    }
    omega = -torch.tensor([0.02, 0.002, 0.05, 0.002], dtype=torch.float64).repeat(layers, 1)
    omega *= 0.7 + 0.6 * torch.rand(omega.shape, generator=generator, dtype=torch.float64)
    heads, traces = planting.block_scalar_heads(omega, dim), planting.trace_heads(tau, dim)
    P, Q = (torch.cat(pair, 1) for pair in zip(heads, traces, strict=True))
    return hidden(LinearTransformer(spec=planting.spec_for(dim, 10), P=P, Q=Q), seed, 2), {"equivariant"}


def preconditioned(seed: int) -> Case:
    dim, generator = 3 + seed % 6, torch.Generator().manual_seed(seed)
    root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    omega = -torch.linalg.inv(root @ root.T / dim + 0.3 * torch.eye(dim, dtype=torch.float64)) / 20
    P, Q = torch.zeros(2, 1, 1, dim + 1, dim + 1, dtype=torch.float64)
    P[..., dim, dim], Q[..., :dim, :dim] = 1.0, omega.T
    covariance = (0.5 + 2.5 * torch.rand(dim, generator=generator, dtype=torch.float64)).tolist()
    task = {"name": "noisy_regression", "dim": dim, "context": 2 * dim, "noise": {"fixed": 0.5}}
    spec = ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task | {"covariance": covariance}})
    return hidden(LinearTransformer(spec=spec, P=P, Q=Q), seed, 2), {"preconditioned-gd"}


def eagle(seed: int) -> Case:
    regime = planting_eagle.REGIMES[seed % 3]
    return hidden(planting_eagle.plant(regime, seed=seed, layers=4 + seed % 2, heads=1).model, seed, 2), {"eagle"}


def broken_law(seed: int) -> Case:
    """Steps that are up to five times too short in every other layer."""
    generator = torch.Generator().manual_seed(seed)
    factors = torch.ones(2, 4, dtype=torch.float64)
    factors[seed % 2, seed % 2 : 4 : 2] = 0.2 + 0.15 * torch.rand(2, generator=generator, dtype=torch.float64)
    regime = planting_eagle.REGIMES[seed % 3]
    return hidden(planting_eagle.plant(regime, seed=seed, factors=factors, heads=1).model, seed, 2), {"gd++"}


def dynamics(seed: int) -> LinearDynamics:
    kind = ("orthogonal", "contracting", "orthogonal")[seed % 3]
    return LinearDynamics(dim=2 + seed % 4, context=10 + seed % 7, dynamics=kind)


def revalg(seed: int) -> Case:
    model, _ = planted(dynamics(seed), layers=1 + seed % 6, heads=1 + seed // 6 % 6, seed=seed)
    return scrambled(disturbed(model, seed), seed), {"revalg"}


def proposition_1(seed: int) -> Case:
    """One step of gradient descent is block-scalar."""
    model = gradient_step(dynamics(seed), 0.03 + 0.01 * (seed % 7))
    return scrambled(disturbed(model, seed), seed), {"revalg"}


def proposition_2(seed: int) -> Case:
    task = dynamics(seed)
    polynomial = richardson((1.0, 1.5), (0.0, 0.3), scale=task.dim + task.context, inverse_lambda=0.001)
    return scrambled(disturbed(preconditioned_step(task, 1.0, polynomial), seed, 1e-5), seed), {"revalg"}


def normalised(model: LinearTransformer, seed: int) -> LinearTransformer:
    """A network with LayerNorm, disturbed and hidden. Large weights cancel in it, so each is off by 1e-5 of itself."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(value: torch.Tensor) -> torch.Tensor:
        return value * (1.0 + 1e-5 * torch.randn(value.shape, generator=generator, dtype=torch.float64))

    model = replace(
        model, P=noisy(model.P), Q=noisy(model.Q), tensors={name: noisy(t) for name, t in model.tensors.items()}
    )
    return regauged(rotated(model, keeping_ones(seed)), seed)


def divided(seed: int) -> Case:
    keys = "all" if seed % 2 else "context"
    return normalised(closed_form(SimpleRegression(context=10 + 2 * (seed % 6)), keys), seed), {"closed-form"}


def simple_steps(seed: int) -> Case:
    task, keys = SimpleRegression(context=12), "all" if seed % 2 else "context"
    rates = 0.08 + 0.01 * (seed % 5), 0.1
    if seed % 4 < 2:
        return normalised(two_steps(task, rates, keys), seed), {"gd"}
    return hidden(linear_steps(task, rates, keys), seed, 1), {"gd"}


PLANTED: dict[str, tuple[Callable[[int], Case], int]] = {
    "omegas": (omegas, 150),
    "equivariant": (equivariant, 10),
    "preconditioned-gd": (preconditioned, 20),
    "eagle": (eagle, 30),
    "gd++ of matrix completion": (broken_law, 20),
    "revalg": (revalg, 40),
    "proposition 1": (proposition_1, 10),
    "proposition 2": (proposition_2, 10),
    "closed-form": (divided, 20),
    "gradient steps on simple regression": (simple_steps, 10),
}


# --- networks that run no algorithm ----------------------------------------------------------------------------------


def dense(seed: int) -> LinearTransformer:
    return planting.random_dense(seed, 1 + seed % 8, 2 + seed % 14, size=(0.3, 0.6, 1.0, 1.5)[seed % 4])


def untrained(seed: int) -> LinearTransformer:
    """As trainings start: small weights, predictions close to 0."""
    return planting.random_dense(seed, 1 + seed % 6, 4 + seed % 8, size=(0.01, 0.03, 0.1)[seed % 3])


def symmetry_broken(seed: int) -> LinearTransformer:
    return planting.random_planted(seed, subset=planting.OMEGAS, largest=12, noise=1.0).model


def memorised(seed: int) -> LinearTransformer:
    """It answers <w, x_t> with its own w, scaled by the energy of the inputs, whatever the examples say."""
    dim, generator = 3 + seed % 6, torch.Generator().manual_seed(seed)
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    P, Q = torch.zeros(2, 1, dim, dim + 1, dim + 1, dtype=torch.float64)
    for i in range(dim):  # head i writes w_i sum_j x_j,i^2 x_t,i
        Q[0, i, i, i], P[0, i, dim, i] = 1.0, -float(w[i]) / (2 * dim)
    P, Q = planting.scramble(P, Q, dim + 1, generator)
    return LinearTransformer(spec=planting.spec_for(dim, 2 * dim, noise=1.0), P=P, Q=Q)


def dense_sequences(seed: int) -> LinearTransformer:
    task = LinearDynamics(dim=4, context=12, dynamics=("orthogonal", "fixed", "contracting")[seed % 3])
    generator = torch.Generator().manual_seed(seed)
    scale = (0.2, 0.1, 1e-3)[seed % 3]
    Q, P = scale * torch.randn(2, 1 + seed % 2, 2, 16, 16, generator=generator, dtype=torch.float64)
    return LinearTransformer(spec=channel_spec(task, 4.0), Q=Q, P=P)


def one_teacher(seed: int) -> LinearTransformer:
    """On its own task eta W A_t s_t is the same as eta B_t s_t, a step of gradient descent."""
    task = LinearDynamics(dim=4, context=12, dynamics="fixed", teacher=seed)
    model, W = gradient_step(task, 0.1), task.sample(1, 0).W[0]
    P = model.P.clone()
    out, state, previous = (model.spec.channel(name).indices for name in ("out", "state", "previous"))
    P[0, 0, out, state], P[0, 0, out, previous] = 0.0, 0.1 * W
    return LinearTransformer(spec=channel_spec(task, None), Q=model.Q, P=P)


def dense_completion(seed: int) -> LinearTransformer:
    spec = planting_eagle.plant(planting_eagle.REGIMES[seed % 3], seed=1).model.spec
    generator = torch.Generator().manual_seed(seed)
    width = spec.width
    P, Q = (0.04, 0.12)[seed % 2] * torch.randn(2, 4, 3, width, width, generator=generator, dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q)


def random_layernorm(seed: int) -> LinearTransformer:
    return random_network(SimpleRegression(context=12), "all" if seed % 2 else "context", seed)


NOTHING: dict[str, tuple[Callable[[int], LinearTransformer], int]] = {
    "dense": (dense, 25),
    "untrained": (untrained, 15),
    "symmetry broken": (symmetry_broken, 10),
    "memorised weights": (memorised, 10),
    "dense, causal": (dense_sequences, 15),
    "one teacher": (one_teacher, 5),
    "dense, matrix completion": (dense_completion, 10),
    "random LayerNorm networks": (random_layernorm, 10),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses on few prompts, rivals from one start: no verdict here hangs on more."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)
    monkeypatch.setattr("interp.identify.networks.token_network.MOST_LOSSES", 512)
    monkeypatch.setattr("interp.solvers.line_descent.STARTS", 1)
    monkeypatch.setattr("interp.solvers.line_descent.EVALUATIONS", 40)


def named(model: LinearTransformer) -> str:
    return analyse(planting.checkpoint(model), PROMPTS, verdict_only=True).verdict.algorithm


def test_the_suite_is_as_large_as_it_says() -> None:
    assert sum(count for _, count in PLANTED.values()) == 320
    assert sum(count for _, count in NOTHING.values()) == 100


def test_planted_networks_are_named() -> None:
    wrong = {}
    for group, (build, count) in PLANTED.items():
        for seed in range(count):
            model, right = build(seed)
            if (found := named(model)) not in right:
                wrong[group, seed] = found, right
    assert len(wrong) <= 0.02 * 320, wrong


@pytest.mark.parametrize("group", NOTHING)
def test_networks_without_an_algorithm_are_not_named(group: str) -> None:
    build, count = NOTHING[group]
    named_ones = {seed: found for seed in range(count) if (found := named(build(seed))) != "unrecognized"}
    assert not named_ones
