"""Matrix completion: what of EAGLE a network shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interp.results.tables import Tabular


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One layer: eta = -omega_xx |A_l|^2 and gamma = -omega_yx |A_l|^2 with 95 % intervals (resampled prompts and the
    coefficients' standard errors). None for the omega_xx that is never read."""

    layer: int
    norm: float  # |A_l|_2^2 by the law's statistic
    eta: float | None
    eta_ci: tuple[float | None, float | None]
    gamma: float | None
    gamma_ci: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class ScalingLaw:
    """omega_xx = -eta / |A_l|^2 and omega_yx = -gamma / |A_l|^2 with one eta and one gamma for all layers.

    ``eta`` and ``gamma`` are geometric means over layers, with 95 % intervals (from how far the layers are off them, or
    from what is not known of each layer, whichever is wider); ``spread`` is the largest factor by which a layer is off;
    ``explained`` the share of the variance of log(-omega) over layers that the law accounts for (0: constant steps do
    as well); ``slope`` that of log(-omega) against log |A_l|^-2, 1 by the law.
    """

    statistic: str  # "largest" of 1024 prompts, as in the paper, or "mean"; of what a layer sees of A, or " whole"
    points: tuple[LawPoint, ...]
    eta: float | None
    eta_ci: tuple[float | None, float | None]
    gamma: float | None
    gamma_ci: tuple[float | None, float | None]
    spread: float | None
    explained: float | None
    slope: float | None
    slope_stderr: float | None
    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """After ``layer`` layers: the mean squared entry of the difference between the tokens of the network and of the
    recovered algorithm, each run from the same prompts (after the last layer of (C, D) alone, as A and B are not read
    again), and of the error D_l - D of the network's read-out.

    ``difference``: with the coefficients fitted all together to the predictions (refit), which tokens in between have
    no say in; ``layerwise``: with those of every layer fitted to what that layer puts out (output)."""

    layer: int
    difference: float | None
    difference_stderr: float | None
    layerwise: float | None
    layerwise_stderr: float | None
    error: float | None
    error_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class SketchLayer:
    """``spectrum``: singular values of the weight of G_yx in the label's update, relative to the largest. ``same`` is
    the share of this layer's subspace that lies in the first layer's.

    ``written_rank`` is the rank of Pi', what the update of x changes, and ``read_by[k]`` the share of Pi' that layer k
    reads, tr(Pi' Pi_k) / min(r', r_k): 1 for k = layer in EAGLE, max(r', r_k) / n for subspaces at random.
    """

    layer: int
    rank: int
    spectrum: tuple[float, ...]
    same: float | None
    written_rank: int | None = None
    read_by: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MachineTraffic:
    """``inputs``: the positions in x that each machine holds. ``cross``: by layer, the share of the weight energy of
    the update of x that moves data between machines (None where x is not read again). ``numbers``: what a machine has
    to send per round, (d + d') n' if only C and D are shared."""

    inputs: tuple[tuple[int, ...], ...]
    cross: tuple[float | None, ...]
    numbers: int | None


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """The paper's extraction: one head a layer (or one a machine), weights below 1.5 times the mean set to 0, the rest
    at one level in Q and two in P. ``layers[l]``: levels "a1", "a2", "a3" and the shares "kept Q", "kept P". Fidelity
    is the R^2 of its predictions against the network's. It depends on the gauge, which our projection does not."""

    layers: tuple[Mapping[str, float | None], ...]
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Completion(Tabular):
    regime: str | None  # "full", "sketch" or "machines"; None when no form of gd++ explains the network
    laws: tuple[ScalingLaw, ...]
    agreement: tuple[Agreement, ...]
    sketch: tuple[SketchLayer, ...]
    machines: MachineTraffic | None
    extraction: Extraction

    @property
    def law(self) -> ScalingLaw | None:
        """The law that holds, the paper's statistic first, or the one that explains most; None when there are no steps
        to look at."""
        holding = next((law for law in self.laws if law.holds), None)
        return holding or max(self.laws, key=lambda law: law.explained or 0.0, default=None)
