"""GD++: gradient descent that also improves the conditioning of its inputs, layer by layer.

    x <- (I + omega_xx Sigma^l) x,      y <- y + omega_yx <alpha^l, x>

with Sigma^l, alpha^l the statistics of the updated pairs. The prediction for a query is <w^l, x_t> = -y_t^l, and
M^l = prod (I + omega_xx Sigma) is the preconditioner: x^l = M^l x. Helpful signs are negative, omega_yx = -eta.
Sources: von Oswald et al., arXiv 2212.07677 (GD++); Vladymyrov et al., arXiv 2402.14180, theorem 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.tuning import TuningSet, minimise_smooth

__all__ = ["GDPlusPlus", "gdpp", "gdpp_gain", "next_eigenvalue", "theorem_5_1", "tune_gdpp"]


@dataclass(frozen=True, kw_only=True)
class GDPlusPlus:
    """GD++ with one (omega_xx, omega_yx) per layer. The last omega_xx cannot affect the prediction."""

    omega_xx: tuple[float, ...]
    omega_yx: tuple[float, ...]

    def weights(self, statistics: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
        return gdpp(statistics.sigma, statistics.alpha, self.omega_xx, self.omega_yx)[-1]


def gdpp(
    sigma: Float[Tensor, "prompt dim dim"],
    alpha: Float[Tensor, "prompt dim"],
    omega_xx: Sequence[float],
    omega_yx: Sequence[float],
) -> Float[Tensor, "iterate prompt dim"]:
    """The implicit weights w^0 = 0, …, w^L (prediction = +<w, x_t>) of a GD++ network.

    With y_i^l = y_i - <w^l, x_i>: Sigma^l = M Sigma M^T, alpha^l = M (alpha - Sigma w),
    w <- w - omega_yx M^T alpha^l and M <- (I + omega_xx Sigma^l) M.
    """
    if len(omega_xx) != len(omega_yx):
        raise UsageError(f"got {len(omega_xx)} omega_xx and {len(omega_yx)} omega_yx, expected one of each per layer")
    iterates = [torch.zeros_like(alpha)]
    M = torch.eye(alpha.shape[-1], dtype=alpha.dtype).expand_as(sigma)
    for xx, yx in zip(omega_xx, omega_yx, strict=True):
        w = iterates[-1]
        residual = torch.einsum("nij,nj->ni", M, alpha - torch.einsum("nij,nj->ni", sigma, w))
        iterates.append(w - yx * torch.einsum("nji,nj->ni", M, residual))
        M = M + xx * (M @ sigma @ M.mT @ M)
    return torch.stack(iterates)


def next_eigenvalue(values: Float[Tensor, "*shape"], gamma: float | Tensor) -> Float[Tensor, "*shape"]:
    """What a layer with omega_xx = -gamma does to an eigenvalue of Sigma: value (1 - gamma value)^2."""
    return values * (1.0 - gamma * values).square()


def gdpp_gain(
    values: Float[Tensor, "prompt dim"],
    omega_xx: Sequence[float] | Float[Tensor, " layer"],
    omega_yx: Sequence[float] | Float[Tensor, " layer"],
) -> Float[Tensor, "prompt dim"]:
    """The spectral gain of the last layer's weights: everything in GD++ is a polynomial in Sigma."""
    gain, factor = torch.zeros_like(values), torch.ones_like(values)  # factor: eigenvalue of M
    for xx, yx in zip(omega_xx, omega_yx, strict=True):
        gain = gain - yx * factor.square() * (1.0 - values * gain)
        factor = factor * (1.0 + xx * values * factor.square())
    return gain


def theorem_5_1(smallest: float, largest: float, layers: int) -> GDPlusPlus:
    """The construction of theorem 5.1 for a Sigma with eigenvalues in [mu, nu] = [``smallest``, ``largest``].

    Every layer but the last has omega_xx = -1/(3 nu^l), omega_yx = 0. On [0, nu] the eigenvalue map then increases, so
    nu <- (4/9) nu and mu <- mu (1 - mu/(3 nu))^2, and kappa = nu/mu = 1 + eps becomes (1 + eps)^3 / (1 + 3 eps/2)^2,
    which is 1 + 3/4 eps^2 to leading order (the paper's bound: 1 + 2 eps^2). The last layer is one gradient step of
    size 1/mu, so |w - w_ols| <= (kappa - 1) |w_ols|.
    """
    if layers < 1 or not 0 < smallest <= largest:
        raise UsageError(
            f"got smallest = {smallest!r}, largest = {largest!r}, layers = {layers!r}; expected 0 < smallest <= "
            "largest and 1 layer or more"
        )
    omega_xx = []
    bounds = torch.tensor([smallest, largest], dtype=torch.float64)
    for _ in range(layers - 1):
        gamma = 1.0 / (3.0 * float(bounds[1]))
        omega_xx.append(-gamma)
        bounds = next_eigenvalue(bounds, gamma)
    return GDPlusPlus(omega_xx=(*omega_xx, 0.0), omega_yx=(0.0,) * (layers - 1) + (-1.0 / float(bounds[0]),))


def tune_gdpp(tuning: TuningSet, layers: int, starts: int = 8, seed: int = 0) -> GDPlusPlus:
    """All coefficients chosen together for the least adjusted loss after the last layer; the best of ``starts`` local
    searches (there are poor local minima from two layers on). The first starts from the scales of theorem 5.1."""
    if layers < 1 or starts < 1:
        raise UsageError(f"got layers = {layers!r} and starts = {starts!r}, expected 1 or more of each")
    values = tuning.statistics.spectrum.values
    # the largest eigenvalue, by layer
    shrinking = tuning.largest_eigenvalue * (4.0 / 9.0) ** torch.arange(layers, dtype=values.dtype)
    generator = torch.Generator().manual_seed(seed)

    def unpack(parameters: Tensor) -> tuple[Tensor, Tensor]:
        xx = torch.cat([parameters[: layers - 1], parameters.new_zeros(1)])
        return -xx / shrinking, -parameters[layers - 1 :] / shrinking

    def loss(parameters: Tensor) -> Tensor:
        return tuning.gain_loss(gdpp_gain(values, *unpack(parameters)))

    middle = torch.tensor([1.0 / 3.0] * (layers - 1) + [1.0] * layers, dtype=values.dtype)
    random = torch.rand(starts - 1, len(middle), generator=generator, dtype=values.dtype)
    points = [middle, *(2.0 * middle * random)]
    xx, yx = unpack(min((minimise_smooth(loss, point) for point in points), key=lambda pair: pair[1])[0])
    return GDPlusPlus(omega_xx=tuple(xx.tolist()), omega_yx=tuple(yx.tolist()))
