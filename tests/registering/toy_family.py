"""A family in one file: gradient descent on inputs that every layer centres, one number a layer.

y <- y + omega <alpha, x>,    x <- x - mean x
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.identify.family import Fit, PredictingFamily, register_family
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import LinearExamples
from interp.results import Channel, Factor, Recovered, RecoveredCoefficient, Term, Update


class CentredDescent(PredictingFamily):
    name = "centred-gd"
    formula = "y ← y + ω ⟨α, x⟩;  x ← x − x̄"

    def applies(self, run: Run) -> Skipped | None:
        examples = isinstance(run.network.held_out.drawn, LinearExamples)
        return None if examples else Skipped("its prompts are no examples of a linear function")

    def starts(self, run: Run) -> Sequence[Tensor]:
        return [torch.full((run.model.layers,), value, dtype=torch.float64) for value in (-0.1, -0.5)]

    def predict(self, theta: Tensor, prompts: LinearExamples) -> Tensor:
        x = torch.cat([prompts.x, prompts.x_query[:, None]], 1)
        y = torch.cat([prompts.y, torch.zeros_like(prompts.y[:, :1])], 1)[..., None]
        for omega in theta:
            alpha = x[:, :-1].mT @ y[:, :-1] / prompts.context
            y = y + omega * x @ alpha
            x = x - x[:, :-1].mean(1, keepdim=True)
        return -y[:, -1]

    def recovered(self, fit: Fit, run: Run) -> Recovered:
        dim = fit_dim(run)
        centred = Update(
            channel="x", terms=(Term(name="centre", factors=(Factor(name="deviation", of=("x",)),)),), kept=False
        )
        return Recovered(
            family=self.name,
            parameters=fit.parameters,
            dim=dim,
            context=run.task.context,
            tokens=(
                Channel(name="x", content="input", size=dim),
                Channel(name="y", content="label", size=1),
            ),
            scale="1/n",
            sign=-1,
            updates=tuple(
                (
                    Update(
                        channel="y",
                        terms=(
                            Term(
                                name="omega",
                                factors=(Factor(name="moment", of=("y", "x")), Factor(name="token", of=("x",))),
                                coefficient=RecoveredCoefficient(value=float(omega), stderr=float(error)),
                            ),
                        ),
                    ),
                    centred,
                )
                for omega, error in zip(fit.theta, fit.stderr, strict=True)
            ),
        )


def fit_dim(run: Run) -> int:
    return dict(run.spec.tokens)["x"]


register_family(CentredDescent())
