"""What the moments of a pass cost beside the forward pass itself. Nothing here can fail on a slow machine.

Each benchmark times one thing and, in turn with it, the forward pass on the same prompts; the ratio of the two, the
median over rounds, is in the column "extra info" (``pytest tests/benchmarks --slow -n0 --benchmark-columns=median
--benchmark-json=FILE``). Ratios of one run hold when the machine's speed drifts, seconds do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
import torch

from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.probes.intervals import score
from interp.probes.moments import Moments, group_of
from interp.probes.ridge import cross_fit

pytestmark = pytest.mark.slow
PROMPTS, LAYERS, GROUPS, ROUNDS = 4096, 4, 100, 9
TASK = NoisyRegression(dim=10, context=20, noise=NoiseLaw(kind="uniform", values=(0.0, 5.0)))


@pytest.fixture(scope="module")
def forward_pass() -> Callable[[], object]:
    spec = ModelSpec.from_dict({"tokens": [["x", 10], ["y", 1]], "task": TASK.to_dict()})
    weights = 0.02 * torch.randn(2, LAYERS, 1, 11, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layers = head_layers(LinearTransformer(spec=spec, P=weights[0], Q=weights[1]), TASK.context)
    prompts = TASK.sample(PROMPTS, 0).grams(spec)
    return lambda: forward(layers, prompts.gram, prompts.query)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(benchmark, function: Callable[[], object], reference: Callable[[], object]) -> None:
    for warm_up in (function, reference):
        warm_up()
    ratios = [seconds(function) / seconds(reference) for _ in range(ROUNDS)]
    benchmark.extra_info["ratio to the forward pass"] = round(statistics.median(ratios), 3)
    benchmark.pedantic(function, rounds=ROUNDS)


def update(features: int, outputs: int, streams: int, spread: bool) -> Callable[[], object]:
    """One chunk of a long pass: in two groups, or spread over all of them."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(streams, PROMPTS, features, generator=generator, dtype=torch.float64)
    Y = torch.randn(PROMPTS, outputs, generator=generator, dtype=torch.float64)
    group = group_of(torch.arange(PROMPTS), PROMPTS, GROUPS if spread else 2)
    moments = Moments.zeros(GROUPS, features, outputs, (streams,))
    return lambda: moments.update(X, Y, group)


@pytest.mark.parametrize(
    ("features", "outputs", "spread"),
    [(11, 82, False), (11, 82, True), (10, 40, False), (66, 41, False)],
    ids=["tokens", "tokens-in-many-groups", "implicit-weights", "second-moments"],
)
def test_update(benchmark, forward_pass, features, outputs, spread):
    compare(benchmark, update(features, outputs, LAYERS + 1, spread), forward_pass)


def test_fits_and_intervals_once_at_the_end(benchmark, forward_pass):
    """This one does not grow with the number of prompts."""
    generator = torch.Generator().manual_seed(3)
    moments = Moments.zeros(GROUPS, 11, 82, (LAYERS + 1,))
    X = torch.randn(LAYERS + 1, PROMPTS, 11, generator=generator, dtype=torch.float64)
    Y = torch.randn(PROMPTS, 82, generator=generator, dtype=torch.float64)
    moments.update(X, Y, group_of(torch.arange(PROMPTS), PROMPTS, GROUPS))
    targets = {str(number): 41 for number in range(2)}

    def finish() -> None:
        fit = cross_fit(moments, targets)
        for outputs in fit.targets.values():
            score(fit.held_out, outputs)

    compare(benchmark, finish, forward_pass)
