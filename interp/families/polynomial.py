"""polynomial: the prediction is <q(Sigma) alpha, x>, with q a polynomial of degree L - 1.

L gradient steps of any size and sign, in any order, are one such polynomial: so the steps are known only up to their
order, and steps of mixed sign are no descent. The coefficients of q are what the prediction determines:

    w = sum_k q_k Sigma^k alpha ,   Sigma = s sum_j x_j x_j^T ,  alpha = s sum_j y_j x_j        (k = 0 .. L - 1)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.linear_prompts import gram_prompts
from interp.algebra.unrolling import label_indices
from interp.identify.family import Family, Fit, register_family
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import Examples
from interp.results import Channel, Factor, Recovered, RecoveredCoefficient, Term, Update
from interp.stats.least_squares import Estimate, least_squares

__all__ = ["Polynomial"]


class Polynomial(Family):
    """See above. Its numbers are as many as those of gd, which it contains: gd is preferred where it is as good."""

    name = "polynomial"
    formula = "y ← y + q_0 ⟨α, x⟩ + q_1 ⟨α, Σ x⟩ + …"
    contains = frozenset({"gd"})
    turn = 2

    def applies(self, run: Run) -> Skipped | None:
        if not isinstance(run.network, SharedKeys):
            return run.network.skipped or Skipped("its tokens do not share their keys in layers that are linear maps")
        inputs, label = label_indices(run.spec)
        if len(run.spec.tokens) != 2 or len(label) != 1 or not run.spec.residual:
            return Skipped("it is one of networks on tokens (x, y) with a residual stream")
        return None if run.model.layers <= len(inputs) else Skipped("powers of Sigma beyond the size of x are no more")

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        network = run.network
        assert isinstance(network, SharedKeys)  # it applies
        fitted, judged = network.fitted, network.judged
        rows, size = self._scaled(run, fitted.drawn)
        weight = fitted.weight
        found = least_squares((weight[:, None] * rows)[:, None], weight[:, None] * fitted.prediction)
        theta = found.theta / size

        def predict(prompts: Examples) -> Float[Tensor, "prompt output"]:
            return (self._powers(run, prompts) @ theta)[:, None]

        return Fit(
            family=self,
            parameters=run.model.layers,
            score=judged.score(predict(judged.drawn), run.seeds.intervals),
            prediction=predict(network.held_out.drawn),
            predict=predict,
            theta=(theta, found.stderr / size, found),
        )

    def _scaled(self, run: Run, prompts: Examples) -> tuple[Float[Tensor, "prompt power"], Float[Tensor, " power"]]:
        rows = self._powers(run, prompts)
        size = rows.square().mean(0).sqrt().clamp_min(1e-300)
        return rows / size, size

    def _powers(self, run: Run, prompts: Examples) -> Float[Tensor, "prompt power"]:
        """<Sigma^k alpha, x> of the query, k = 0 .. L - 1, with the sign of the read-out."""
        x, y = label_indices(run.spec)
        drawn, scale = gram_prompts(prompts, run.spec), run.spec.attention.factor(prompts.context)
        sigma, w = scale * drawn.gram[:, x][:, :, x], scale * drawn.gram[:, x][:, :, y]
        query, columns = drawn.query[:, 0, x], []
        for _ in range(run.model.layers):
            columns.append((w[..., 0] * query).sum(1))
            w = sigma @ w
        return run.spec.readout.sign * torch.stack(columns, 1)

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        return (
            "The predictions determine its coefficients; steps of mixed sign, or such that the residual grows, are no "
            "gradient descent."
        )

    def recovered(self, fit: Fit, run: Run) -> Recovered:
        theta, stderr, found = fit.theta
        assert isinstance(found, Estimate)
        x, _ = label_indices(run.spec)
        names = {name for name, _ in run.spec.tokens} - {run.spec.readout.channel}
        by, to = names.pop(), run.spec.readout.channel
        terms = tuple(
            Term(
                name=f"q_{k}",
                factors=(Factor(name="moment", of=(to, by)), *(Factor(name="moment", of=(by, by)),) * k,
                         Factor(name="token", of=(by,))),
                coefficient=RecoveredCoefficient(
                    value=float(theta[k]),
                    stderr=float(stderr[k]) if found.determined[k] else None,
                    undetermined=None if found.determined[k] else "the prompts do not determine it",
                ),
            )
            for k in range(len(theta))
        )  # fmt: skip
        return Recovered(
            family=self.name,
            parameters=fit.parameters,
            context=run.task.context,
            dim=len(x),
            tokens=(Channel(name=by, content="input", size=len(x)), Channel(name=to, content="label", size=1)),
            reads=to,
            updates=((Update(channel=to, terms=terms),),),
            keys=run.spec.attention.keys,
            scale=run.spec.attention.scale,
            sign=run.spec.readout.sign,
        )


register_family(Polynomial())
