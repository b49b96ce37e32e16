"""The theory of Vladymyrov et al., "Linear Transformers are Versatile In-Context Learners" (arXiv 2402.14180).

Networks here are made by hand. The paper writes scores e_j^T Q e_i and the toolkit e_i^T Q e_j: where a test uses the
paper's Q, it is transposed on the way in.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from interp.algebra.unrolling import ImplicitState, implicit_states
from interp.models.gram import HeadLayers, forward
from interp.models.specification import ModelSpec
from interp.solvers.gdpp import gdpp, theorem_5_1
from interp.solvers.ridge import ols, residual_variance, ridge
from interp.solvers.statistics import RegressionStatistics

DIM, CONTEXT, PROMPTS = 4, 9, 5
SPEC = ModelSpec(tokens=(("x", DIM), ("y", 1)))


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    return random(PROMPTS, CONTEXT, DIM, seed=seed), random(PROMPTS, CONTEXT, seed=seed + 1)


def tokens(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y[..., None]], dim=-1)


def unroll(layers: HeadLayers, x: Tensor, y: Tensor) -> tuple[ImplicitState, ...]:
    context = tokens(x, y)
    return implicit_states(forward(layers, context.mT @ context, torch.zeros(len(x), 1, DIM + 1, dtype=x.dtype)), SPEC)


def diagonal(raw: Tensor) -> HeadLayers:
    """One head per layer, P = diag(p_x I, p_y), Q = diag(q_x I, q_y); ``raw`` is (layer, 4): p_x, p_y, q_x, q_y."""
    spread = torch.tensor([[1.0, 0.0]] * DIM + [[0.0, 1.0]], dtype=torch.float64)
    P, Q = torch.diag_embed(raw[:, :2] @ spread.T), torch.diag_embed(raw[:, 2:] @ spread.T)
    return HeadLayers(P=P[:, None], Q=Q[:, None], scale=1.0, residual=1.0)


def omegas(*layers: dict[str, float]) -> HeadLayers:
    """Layers with the named omegas. Two heads: Q = diag(I, 0) carries xx and yx, Q = diag(0, 1) carries xy and yy."""
    heads = []
    for source in ("x", "y"):
        raw = [[row.get("x" + source, 0.0), row.get("y" + source, 0.0), source == "x", source == "y"] for row in layers]
        heads.append(diagonal(torch.tensor(raw, dtype=torch.float64)))
    P, Q = (torch.cat([getattr(head, name) for head in heads], dim=1) for name in "PQ")
    return HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)


def outer(u: Tensor, v: Tensor) -> Tensor:
    return u[..., :, None] * v[..., None, :]


def apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]


# --- theorem 4.1: the latent linear model ---------------------------------------------------------------------------


def paper_forward(x: Tensor, y: Tensor, query: Tensor, P: Tensor, Q: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Equation (1) of the paper, token by token for one prompt: e_i += sum_k sum_j (e_j^T Q_k e_i) P_k e_j, j <= n."""

    def delta(e: Tensor, keys: list[Tensor], layer: int) -> Tensor:
        out = torch.zeros_like(e)
        for k in range(P.shape[1]):
            for key in keys:
                out = out + (key @ Q[layer, k] @ e) * (P[layer, k] @ key)
        return out

    context, asked = list(tokens(x, y)), torch.cat([query, query.new_zeros(1)])
    states = [(torch.stack(context), asked)]
    for layer in range(len(P)):
        moved = [e + delta(e, context, layer) for e in [*context, asked]]
        context, asked = moved[:-1], moved[-1]
        states.append((torch.stack(context), asked))
    return states


def test_every_layer_holds_a_linear_model_of_the_prompt() -> None:
    """Theorem 4.1: x_i^l = M^l x_i + y_i u^l and y_i^l = a^l y_i - <w^l, x_i>; the query likewise, with y = 0."""
    x, y = data()
    query = random(DIM, seed=9)
    P, Q = 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=2), 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=3)
    states = unroll(HeadLayers(P=P, Q=Q.mT, scale=1.0, residual=1.0), x[:1], y[:1])
    for state, (context, asked) in zip(states, paper_forward(x[0], y[0], query, P, Q), strict=True):
        M, u, w, a = state.M[0], state.u[0, :, 0], state.w[0, 0], state.a[0, 0, 0]
        scale = float(context.abs().max())
        expected = tokens(x[0] @ M.T + outer(y[0], u), a * y[0] - x[0] @ w)
        torch.testing.assert_close(context, expected, rtol=1e-11, atol=1e-12 * scale)
        torch.testing.assert_close(asked, torch.cat([M @ query, -(w @ query)[None]]), rtol=1e-11, atol=1e-12 * scale)


def test_the_recursion_of_the_latent_model() -> None:
    """Lemma 4.3: with [[A, b], [c^T, dd]] = sum_k P_k G^l Q_k,
    M <- (I + A) M - b w^T,  u <- (I + A) u + a b,  a <- (1 + dd) a + <c, u>,  w <- (1 + dd) w - M^T c."""
    x, y = data()
    P, Q = 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=2), 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=3)
    states = unroll(HeadLayers(P=P, Q=Q.mT, scale=1.0, residual=1.0), x, y)
    eye = torch.eye(DIM, dtype=torch.float64)
    zero = torch.zeros(PROMPTS, DIM, dtype=torch.float64)
    M, u, w, a = eye.expand(PROMPTS, -1, -1), zero, zero, torch.ones(PROMPTS, dtype=torch.float64)
    for layer, state in enumerate(states):
        for ours, theirs in ((state.M, M), (state.u[..., 0], u), (state.w[:, 0], w), (state.a[:, 0, 0], a)):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11 * float(theirs.abs().max()))
        if layer < 3:
            e = tokens(x @ M.mT + outer(y, u), a[:, None] * y - apply(x, w))
            block = sum(P[layer, k] @ (e.mT @ e) @ Q[layer, k] for k in range(2))
            assert isinstance(block, Tensor)
            A, b, c, dd = block[:, :DIM, :DIM], block[:, :DIM, DIM], block[:, DIM, :DIM], block[:, DIM, DIM]
            M, u, a, w = (
                (eye + A) @ M - outer(b, w),
                apply(eye + A, u) + a[:, None] * b,
                (1 + dd) * a + (c * u).sum(-1),
                (1 + dd)[:, None] * w - apply(M.mT, c),
            )


def test_the_prediction_is_odd_in_the_query_so_an_even_target_is_out_of_reach() -> None:
    """Theorem 4.2's reason: <w^L, x_t> changes sign with x_t, y = x_t(1)^2 does not, so their product averages to 0."""
    x, y = data()
    context = tokens(x, y)
    P, Q = 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=2), 0.2 * random(3, 2, DIM + 1, DIM + 1, seed=3)
    query = tokens(random(PROMPTS, 1, DIM, seed=4), torch.zeros(PROMPTS, 1, dtype=torch.float64))
    layers = HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)
    there, back = (forward(layers, context.mT @ context, sign * query).queries[-1] for sign in (1, -1))
    assert torch.equal(there, -back)


# --- section 4.4, lemma A.1: the diagonal parametrisation -----------------------------------------------------------


def test_four_numbers_say_what_a_diagonal_layer_does() -> None:
    """x += omega_xx Sigma x + omega_xy y alpha,  y += omega_yx <alpha, x> + omega_yy lambda y."""
    x, y = data()
    p_x, p_y, q_x, q_y = 0.03, -0.05, 0.7, -0.4
    state = unroll(diagonal(torch.tensor([[p_x, p_y, q_x, q_y]], dtype=torch.float64)), x, y)[1]
    statistics = RegressionStatistics.from_data(x, y)
    eye = torch.eye(DIM, dtype=torch.float64)
    torch.testing.assert_close(state.M, eye + p_x * q_x * statistics.sigma, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(state.u[..., 0], p_x * q_y * statistics.alpha, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(state.w[:, 0], -p_y * q_x * statistics.alpha, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(state.a[:, 0, 0], 1 + p_y * q_y * statistics.lambda_, rtol=1e-12, atol=1e-13)


def test_lemma_a1_the_update_of_u_and_w() -> None:
    """With g = Sigma (a w* - w) and rho = sum r_i^2 (residuals of least squares):

        u <- (I - Lam) u + Gam g,       Lam = -omega_xy a^2 rho I - omega_xx Sigma^l,   Gam = a omega_xy (M + u w*^T)
        w <- (1 + s) w - Pi g - Phi u,  s = omega_yy lambda^l,
                                        Pi = omega_yx M^T (M + u w*^T),                 Phi = a rho omega_yx M^T

    The text prints (M + a u w*^T) in Gam and Pi; the identity holds without that a, and only without.
    """
    x, y = data()
    raw = [[-0.03, 0.05, 0.6, 0.5], [0.04, -0.06, 0.5, -0.7], [-0.02, -0.04, 0.9, 0.4]]
    states = unroll(diagonal(torch.tensor(raw, dtype=torch.float64)), x, y)
    statistics = RegressionStatistics.from_data(x, y)
    best = ols(statistics.sigma, statistics.alpha)
    rho = (y - apply(x, best)).square().sum(-1)
    printed_error = 0.0
    for layer in range(3):
        p_x, p_y, q_x, q_y = raw[layer]
        M, u, w, a = (states[layer].M, states[layer].u[..., 0], states[layer].w[:, 0], states[layer].a[:, 0])
        x_l, y_l = x @ M.mT + outer(y, u), a * y - apply(x, w)
        now = RegressionStatistics.from_data(x_l, y_l)

        # g is minus half the gradient of sum_i (a y_i - <w, x_i>)^2
        free = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((a * y - apply(x, free)).square().sum(), free)
        g = apply(statistics.sigma, a * best - w)
        torch.testing.assert_close(g, -0.5 * gradient, rtol=1e-11, atol=1e-11)

        mixed = M + outer(u, best)
        a_rho = a * rho[:, None]
        torch.testing.assert_close(now.alpha, apply(mixed, g) + a_rho * u, rtol=1e-10, atol=1e-11)
        u_next = u + p_x * q_y * a * a_rho * u + p_x * q_x * apply(now.sigma, u) + a * p_x * q_y * apply(mixed, g)
        s = p_y * q_y * now.lambda_[:, None]
        w_next = (1 + s) * w - p_y * q_x * apply(M.mT, apply(mixed, g)) - a_rho * p_y * q_x * apply(M.mT, u)
        torch.testing.assert_close(states[layer + 1].u[..., 0], u_next, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(states[layer + 1].w[:, 0], w_next, rtol=1e-10, atol=1e-11)

        printed = M + a[..., None] * outer(u, best)
        w_printed = (1 + s) * w - p_y * q_x * apply(M.mT, apply(printed, g)) - a_rho * p_y * q_x * apply(M.mT, u)
        printed_error = max(printed_error, float((w_printed - w_next).abs().max() / w_next.abs().max()))
    assert printed_error > 1e-3


# --- section 5: what each term does ---------------------------------------------------------------------------------


def test_gdpp_layers_hold_the_weights_of_the_solver() -> None:
    """GD++ is the diagonal network with q_y = 0; theorem 5.1's construction is one of them."""
    x, y = data()
    statistics = RegressionStatistics.from_data(x, y)
    values = statistics.spectrum.values
    schedule = theorem_5_1(float(values.min()), float(values.max()), 12)
    raw = [[xx, yx, 1.0, 0.0] for xx, yx in zip(schedule.omega_xx, schedule.omega_yx, strict=True)]
    states = unroll(diagonal(torch.tensor(raw, dtype=torch.float64)), x, y)
    iterates = gdpp(statistics.sigma, statistics.alpha, schedule.omega_xx, schedule.omega_yx)
    for state, w in zip(states, iterates, strict=True):
        torch.testing.assert_close(state.w[:, 0], w, rtol=1e-9, atol=1e-10)
        assert not bool(state.u.any()) and bool((state.a == 1).all())
    torch.testing.assert_close(iterates[-1], ols(statistics.sigma, statistics.alpha), rtol=1e-6, atol=1e-6)


def test_omega_yy_alone_rescales_the_labels_by_their_energy() -> None:
    x, y = data()
    states = unroll(omegas({"yy": -0.01}, {"yy": 0.02}), x, y)
    energy = y.square().sum(-1)
    first = 1 - 0.01 * energy
    torch.testing.assert_close(states[1].a[:, 0, 0], first, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(states[2].a[:, 0, 0], first * (1 + 0.02 * first**2 * energy), rtol=1e-12, atol=1e-13)
    assert not bool(states[2].w.any()) and not bool(states[2].u.any())


def two_level_solution(low: float, high: float) -> tuple[float, float]:
    """(step, n omega_yy) with step (1 + sigma^2 n omega_yy) = 1/(1 + sigma^2) at both noise levels."""
    at_low, at_high = 1 / (1 + low**2), 1 / (1 + high**2)
    slope = (at_high - at_low) / (high**2 - low**2)
    step = at_low - slope * low**2
    return step, slope / step


def ridge_error(context: int, sigma: float, levels: tuple[float, float], prompts: int = 24) -> float:
    """Root mean square distance of theorem 5.2's network (made for ``levels``) to ridge with the true noise."""
    step, n_omega_yy = two_level_solution(*levels)
    layers = omegas({"yx": -step}, {"yy": n_omega_yy / context})
    errors = []
    for prompt in range(prompts):
        x = random(1, context, DIM, seed=7 * prompt) / math.sqrt(context)
        noise = random(1, context, seed=7 * prompt + 1)
        y = apply(x, random(1, DIM, seed=7 * prompt + 2)) + sigma * noise
        statistics = RegressionStatistics.from_data(x, y)
        expected = ridge(statistics.sigma, statistics.alpha, sigma**2)
        found = unroll(layers, x, y)[2].w[:, 0]
        errors.append(float((found - expected).square().sum() / expected.square().sum()))
    return math.sqrt(sum(errors) / len(errors))


@pytest.mark.parametrize("levels", [(1.0, 3.0), (0.5, 2.0)])
def test_theorem_5_2_two_layers_are_exact_ridge_for_two_noise_levels(levels: tuple[float, float]) -> None:
    """x ~ N(0, I/n), layer 1 only omega_yx, layer 2 only omega_yy: exact as n grows.

    The limit is reached at the rate of the fluctuations of Sigma and lambda, 1/sqrt(n): with n = 30 000, lambda varies
    by sqrt(2/n) = 0.8 %, which 1 + omega_yy lambda = 2/11 (sigma = 3) magnifies to 4 %."""
    step, n_omega_yy = two_level_solution(*levels)
    if levels == (1.0, 3.0):
        assert (step, n_omega_yy) == (pytest.approx(0.55), pytest.approx(-1 / 11))
    for sigma in levels:
        assert step * (1 + sigma**2 * n_omega_yy) == pytest.approx(1 / (1 + sigma**2), rel=1e-12)
        far, near = ridge_error(300, sigma, levels), ridge_error(30_000, sigma, levels)
        assert near < 0.06
        assert 4 < far / near < 25
    between = 0.5 * sum(levels)
    assert ridge_error(30_000, between, levels) > 0.1  # two numbers can match two levels, not a third


def test_omega_xy_makes_the_step_of_the_next_layer_depend_on_the_noise() -> None:
    """Section 5.3, layer 1 only omega_xy, layer 2 only omega_yx:

        x_i^1 = (I + omega_xy Sigma w* w*^T) x_i + omega_xy r_i Sigma w*,   x_t^1 = x_t,
        prediction = step <Sigma w*, x_t>,   step = -omega_yx (1 + omega_xy (w*^T Sigma w* + sum_i r_i^2))

    exactly; the paper keeps only the part of the step that depends on the noise, sum_i r_i^2.
    """
    x, y = data()
    xy, yx = -0.004, -0.05
    context = tokens(x, y)
    query = tokens(random(PROMPTS, 1, DIM, seed=4), torch.zeros(PROMPTS, 1, dtype=torch.float64))
    trajectory = forward(omegas({"xy": xy}, {"yx": yx}), context.mT @ context, query)
    statistics = RegressionStatistics.from_data(x, y)
    best = ols(statistics.sigma, statistics.alpha)
    image = apply(statistics.sigma, best)
    residuals = y - apply(x, best)

    moved = (context @ trajectory.maps[0].mT)[..., :DIM]
    factor = torch.eye(DIM, dtype=torch.float64) + xy * outer(image, best)
    torch.testing.assert_close(moved, x @ factor.mT + xy * outer(residuals, image), rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(trajectory.queries[1], query, rtol=0.0, atol=0.0)

    noise = residuals.square().sum(-1)
    torch.testing.assert_close(noise, (CONTEXT - DIM) * residual_variance(statistics), rtol=1e-10, atol=1e-11)
    step = -yx * (1 + xy * ((best * image).sum(-1) + noise))
    predicted = -trajectory.queries[2][:, 0, DIM]
    torch.testing.assert_close(predicted, step * (image * query[:, 0, :DIM]).sum(-1), rtol=1e-10, atol=1e-12)


def test_the_step_after_omega_xy_shrinks_linearly_in_the_residual_energy() -> None:
    """Residuals scaled up at fixed Sigma and w*: the step changes by -omega_yx omega_xy, < 0 for omegas of one sign."""
    x, y = data()
    statistics = RegressionStatistics.from_data(x, y)
    best = ols(statistics.sigma, statistics.alpha)
    fitted = apply(x, best)
    residuals = y - fitted
    xy, yx = -0.004, -0.05
    steps, energies = [], []
    for scale in (0.0, 1.0, 2.0):
        w = unroll(omegas({"xy": xy}, {"yx": yx}), x, fitted + scale * residuals)[2].w[:, 0]
        image = apply(statistics.sigma, best)
        steps.append((w * image).sum(-1) / image.square().sum(-1))
        energies.append(scale**2 * residuals.square().sum(-1))
    for i in (1, 2):
        torch.testing.assert_close(steps[i] - steps[0], -yx * xy * (energies[i] - energies[0]), rtol=1e-9, atol=1e-12)
    assert bool((steps[2] < steps[1]).all()) and bool((steps[1] < steps[0]).all())
