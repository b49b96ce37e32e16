"""One step of gradient descent in context, f_t = (W_0 - eta grad L_t(W_0)) s_t (von Oswald et al., proposition 1).

With A_t and B_t of ``interp.solvers.next_state`` the network's predictions are M_0 s_t + eta B_t s_t - M A_t s_t, M_0
being what the tokens start with: a regression in eta and M, and W_0 = M / eta. W_0 is a number times the identity, or a
matrix where the tokens start with W_0 s_t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.families.recovered_sequences import recovered_step
from interp.identify.family import Family, Fit, register_family
from interp.identify.networks import CausalSequences
from interp.identify.run import Run
from interp.identify.score import EXACT, NEGLIGIBLE
from interp.identify.verdict import score_words
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import States, StatesTask
from interp.results import RecoveredAlgorithm
from interp.solvers.next_state import Pairs

__all__ = ["GradientStep", "Step", "fit_step", "step_sentence"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """``w0`` is a number (W_0 = w0 I) or a matrix."""

    eta: float
    eta_stderr: float
    w0: float | Float[Tensor, "dim dim"]
    w0_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class GradientStep(Family):
    """The step with W_0 a number, or a ``matrix``."""

    name: str
    label: str
    matrix: bool
    turn: int = 3
    algorithm = "gd"
    formula = "f = (W₀ − η ∇L(W₀)) s_t, one step of gradient descent"

    def applies(self, run: Run) -> Skipped | None:
        if not isinstance(run.network, CausalSequences):
            return run.network.skipped or Skipped("its tokens are no causal sequence")
        task = run.task
        if not isinstance(run.network.fitted.drawn, States) or not isinstance(task, StatesTask):
            return Skipped("its tokens hold no states")
        start = _start(run.spec, task)
        if not run.spec.residual or start not in ("start", "zero"):
            return Skipped("the channel that is read out does not start with a guess of the next state, or with 0")
        if self.matrix and not (start == "start" and bool(task.start_matrix().any())):
            return Skipped("its tokens do not start with W₀ s_t")
        return None

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        network, task, sign = run.network, run.task, run.spec.readout.sign
        assert isinstance(task, StatesTask)  # it applies
        fitted, held_out = network.fitted, network.held_out
        pairs = Pairs(fitted.drawn.states)
        step = fit_step(fitted.added.view_as(pairs.current), pairs, self.matrix, sign)
        if step is None:
            return Skipped("the best step is of size 0")
        start = _start_matrix(run.spec, task)

        def predict(prompts: States) -> Float[Tensor, "prompt output"]:
            now = Pairs(prompts.states)
            moved = step.eta * now.descent - now.curvature @ decay(step, sign, now.states.shape[2]).T
            return (sign * now.current @ start.T + moved).flatten(1)

        prediction = predict(held_out.drawn)
        return Fit(
            family=self,
            parameters=1 + (step.w0.numel() if isinstance(step.w0, Tensor) else 1),
            score=held_out.score(prediction, run.seeds.intervals),
            prediction=prediction,
            predict=predict,
            theta=step,
        )

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        """Only where it is the network to rounding and the other is not."""
        bar = EXACT if isinstance(other.family, GradientStep) else NEGLIGIBLE
        return own.score.unexplained < EXACT and other.score.unexplained > bar

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        return step_sentence(fit)

    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        return recovered_step(fit, run)


def step_sentence(fit: Fit) -> str:
    """The network as this step, with its numbers."""
    step, exact = fit.theta, fit.score.unexplained < EXACT
    start = "a matrix W₀" if isinstance(step.w0, Tensor) else f"W₀ = {_number(step.w0, step.w0_stderr)} I"
    how = "It is" if exact else f"To R² = {score_words(fit.score)} it is"
    return f"{how} one step of gradient descent, η = {step.eta:.4g}, from {start}."


def _number(value: float, stderr: float | None) -> str:
    return f"{value:.3g}" if not stderr or stderr < 1e-9 else f"{value:.2g} ± {stderr:.1g}"


def _start(spec: ModelSpec, task: StatesTask) -> str:
    """What the channel that is read out holds before the first layer."""
    names = [name for name, _ in spec.tokens]
    contents = task.contents(len(names)) or ()
    return contents[names.index(spec.readout.channel)]


def _start_matrix(spec: ModelSpec, task: StatesTask) -> Float[Tensor, "dim dim"]:
    """M_0: s_t is read out as M_0 s_t before the first layer."""
    W_0 = task.start_matrix()
    return W_0 if _start(spec, task) == "start" else torch.zeros_like(W_0)


def decay(step: Step, sign: int, dim: int) -> Float[Tensor, "dim dim"]:
    """M = eta W_0 in the token's own sign."""
    W_0 = step.w0 if isinstance(step.w0, Tensor) else step.w0 * torch.eye(dim, dtype=torch.float64)
    return sign * step.eta * W_0


def fit_step(added: Float[Tensor, "sequence pos dim"], pairs: Pairs, matrix: bool, sign: int) -> Step | None:
    """By least squares of what the network adds, a cluster per sequence; None for a step of size 0."""
    eta, M, errors = (_regress_matrix if matrix else _regress_number)(added, pairs.descent, pairs.curvature)
    if not eta:
        return None
    W_0 = sign * M / eta
    w0 = W_0 if matrix else float(W_0[0, 0])
    return Step(eta=eta, eta_stderr=errors[0], w0=w0, w0_stderr=None if matrix else errors[1] / abs(eta))


Rows = Float[Tensor, "sequence pos dim"]
Regression = tuple[
    float, Float[Tensor, "dim dim"], tuple[float, float]
]  # eta, M, standard errors of eta and a scalar M


def _regress_matrix(added: Rows, descent: Rows, curvature: Rows) -> Regression:
    """Of added = eta descent - M curvature: residuals of both sides after the best M for each, then one number."""
    X, both = curvature.flatten(0, 1), torch.cat([added.flatten(0, 1), descent.flatten(0, 1)], 1)
    solution = torch.linalg.lstsq(X, both, driver="gelsd").solution
    fit_added, fit_descent = solution.chunk(2, 1)
    left, right = (both - X @ solution).chunk(2, 1)
    power = float(right.square().sum())
    eta = float((left * right).sum()) / power if power > 0 else 0.0
    scores = ((left - eta * right) * right).reshape(added.shape[0], -1).sum(1)
    error = float(scores.square().sum().sqrt() / right.square().sum())
    return eta, (eta * fit_descent - fit_added).T, (error, float("nan"))


def _regress_number(added: Rows, descent: Rows, curvature: Rows) -> Regression:
    columns = torch.stack([descent.flatten(1), -curvature.flatten(1)], -1)
    design = columns.flatten(0, 1)
    theta = torch.linalg.lstsq(design, added.flatten()[:, None], driver="gelsd").solution[:, 0]
    inverse = torch.linalg.pinv(design.T @ design, hermitian=True)
    root = torch.einsum("np,npk->nk", added.flatten(1) - columns @ theta, columns) @ inverse
    eta, mu = theta.tolist()
    # W_0 = M / eta: to first order in both.
    combined = float((root[:, 1] - mu / eta * root[:, 0]).norm()) if eta else float("nan")
    M = mu * torch.eye(added.shape[-1], dtype=added.dtype)
    return eta, M, (float(root[:, 0].norm()), combined)


register_family(GradientStep(name="gradient step", label="gd", matrix=False))
register_family(GradientStep(name="gradient step, W₀ a matrix", label="gd, W₀ a matrix", matrix=True))
