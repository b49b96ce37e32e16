"""The baselines of arXiv 2402.14180, table 1: half mean squared error above the oracle's, d = 10, n = 20.

Two references: an independent numpy computation of the same quantities from 100 000 prompts, printed to four decimals,
and the paper's own rows, whose sampling error is not stated.
"""

from __future__ import annotations

import math

import pytest
import torch

from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.solvers.ridge import TunedRR, tune_const, tune_tuned
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet

PROMPTS = 40_000


def uniform(top: float) -> NoiseLaw:
    return NoiseLaw(kind="uniform", values=(0.0, top))


# noise law, (ConstRR, AdaRR, TunedRR, oracle) by the independent computation, (ConstRR, AdaRR, TunedRR) of the paper.
# TunedRR for {1, 3} was tuned on a coarse grid there (factor 1.5, cap 9): ours may be a little lower.
COLUMNS = {
    "U1": (uniform(1.0), (0.0084, 0.0027, 0.0017, 0.1625), (0.009, 0.003, 0.002)),
    "U2": (uniform(2.0), (0.0639, 0.0159, 0.0109, 0.5049), (0.066, 0.016, 0.010)),
    "U3": (uniform(3.0), (0.1560, 0.0350, 0.0244, 0.8853), (0.161, 0.034, 0.023)),
    "U4": (uniform(4.0), (0.2618, 0.0539, 0.0381, 1.2416), (0.265, 0.053, 0.037)),
    "U5": (uniform(5.0), (0.3593, 0.0692, 0.0490, 1.5663), (0.365, 0.068, 0.049)),
    "U6": (uniform(6.0), (0.4536, 0.0833, 0.0596, 1.8428), (0.454, 0.081, 0.060)),
    "U7": (uniform(7.0), (0.5286, 0.0915, 0.0655, 2.0970), (0.530, 0.092, 0.068)),
    "1,3": (NoiseLaw(kind="choice", values=(1.0, 3.0)), (0.2199, 0.0518, 0.0219, 1.2276), (0.222, 0.051, 0.021)),
    "1,3,5": (NoiseLaw(kind="choice", values=(1.0, 3.0, 5.0)), (0.4280, 0.0825, 0.0543, 1.8359), (0.422, 0.084, 0.054)),
}
METHODS = ("ConstRR", "AdaRR", "TunedRR", "oracle")
QUICK = ("U2", "U5", "1,3", "1,3,5")


@pytest.mark.parametrize(
    "column", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COLUMNS]
)
def test_the_ridge_baselines_reproduce_table_1(column: str) -> None:
    noise, reference, paper = COLUMNS[column]
    task = NoisyRegression(dim=10, context=20, noise=noise)

    def prompts(count: int, seed: int) -> tuple[TuningSet, torch.Tensor]:
        sample = task.sample(count, seed)
        oracle = task.oracle_weights(sample)
        tuning = TuningSet(RegressionStatistics.from_data(sample.x, sample.y), oracle)
        return tuning, 0.5 * (oracle - sample.w).square().sum(-1)

    tuning, _ = prompts(10_000, seed=1)  # other prompts than those scored
    fresh, oracle_losses = prompts(PROMPTS, seed=2)
    methods = (tune_const(tuning), TunedRR(), tune_tuned(tuning))
    losses = [fresh.losses(method.weights(fresh.statistics)) for method in methods] + [oracle_losses]
    for i, sample in enumerate(losses):
        # the reference's own sampling error is less than ours; 5e-5 is the rounding of its last digit
        slack = 4 * math.sqrt(2) * float(sample.std()) / math.sqrt(PROMPTS) + 5e-5
        assert float(sample.mean()) == pytest.approx(reference[i], abs=slack), METHODS[i]
        if i < 3:  # the paper gives no standard error: allow 5 % beside our own
            assert float(sample.mean()) == pytest.approx(paper[i], abs=slack + 0.05 * paper[i] + 5e-4), METHODS[i]
