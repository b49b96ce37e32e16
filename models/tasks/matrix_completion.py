"""Matrix completion: a partly visible matrix, whose hidden block is to be filled in.

    X = [[A, C], [B, D]],   A: d x n,  C: d x n',  B: d' x n,  D: d' x n' hidden

Rows are tokens (x: n, y: n'): the d context tokens are the rows (A_i, C_i), the d' query tokens (B_j, 0). Without noise
the best answer is the Nystrom estimate B A^+ C, exact when rank A = rank X. Two laws of X:

- low rank: X = R_1 R_2^T / sqrt(s) + noise, rows of R_1, R_2 iid N(0, diag(spectrum)) in R^s; the noise is sigma times
  standard normal numbers, on what is visible (the target D has none);
- kernel: X_ij = k(p_i, p_j) for random points p_i ~ N(0, I), the first n of them the landmarks: A is their kernel
  matrix, C = B^T the values between landmarks and the other points, D those among the others.

With d' = n' = 1 the low-rank task is in-context linear regression: the rows of A are inputs, C their labels, B the
query. Source: Lutz et al., "Linear Transformers Implicitly Discover Unified Numerical Algorithms", arXiv 2509.19702,
section 3 and appendix B, with n = d = 18, n' = d' = 2, s = 10 and spectrum 0.7^i. The paper does not say whether i
starts at 0 or 1; here at 1. There the noise, of variance 0.01, is on D as well, which adds that much to every loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.rules import COUNT, SCALE, Rule, Table, one_of, ruled
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks.batch import Batch
from interp.models.tasks.fields import TaskFields, variations_of
from interp.models.tasks.memory import MEMORY, require_affordable
from interp.models.tasks.noise import NOISE_OR_LEVEL, NoiseLaw, normal
from interp.models.tasks.protocol import GramPrompts, References, Variation, Words
from interp.models.tasks.registry import register_task
from interp.models.tasks.shared_keys import example_tokens, grams_of, require_example_model
from interp.models.transformer import LinearTransformer
from interp.solvers.eagle import fixed_iterations
from interp.solvers.ridge import damped

__all__ = ["CompletionPrompts", "KernelLaw", "MatrixCompletion", "nystrom"]

RCOND = 1e-10  # singular values of A below this share of the largest count as 0: float64 leaves 1e-16 times some 1e3
PENALTY_PROMPTS, PENALTY_SEED = 512, 733  # on which the penalty of noisy tasks is chosen
SPECTRUM = tuple(0.7**i for i in range(1, 11))  # of the paper
MOST_RANK = 10_000  # variances of a spectrum


def nystrom(
    A: Float[Tensor, "prompt d n"], B: Float[Tensor, "prompt query n"], C: Float[Tensor, "prompt d out"]
) -> Float[Tensor, "prompt query out"]:
    """B A^+ C."""
    return B @ (torch.linalg.pinv(A, rtol=RCOND) @ C)


@dataclass(frozen=True, kw_only=True)
class KernelLaw(Table):
    """k(p, q) = exp(-|p - q|^2 / (2 width^2)) for points in R^features; with the name "linear", <p, q> / features."""

    title = "task.kernel"

    name: str = ruled(one_of(("rbf", "linear")), "rbf")
    features: int = ruled(COUNT, 2)
    width: float = ruled(SCALE, 1.0)

    def matrix(self, points: Float[Tensor, "prompt point features"]) -> Float[Tensor, "prompt point point"]:
        if self.name == "linear":
            return points @ points.mT / self.features
        return torch.exp(-torch.cdist(points, points).square() / (2.0 * self.width**2))


def _spectrum(value: Any) -> tuple[float, ...]:
    """Of a list of variances, or of {"decay": a, "rank": s}: a^i for i = 1..s."""
    if isinstance(value, Mapping) and set(value) == {"decay", "rank"} and SCALE.holds(value["decay"]):
        rank = COUNT.checked(value["rank"], "task.spectrum.rank")
        _require_rank(rank)
        powers = _powers(float(value["decay"]), rank)
        if not powers or not all(map(SCALE.holds, powers)):
            raise LayoutError(
                f"task.spectrum is {dict(value)!r}, whose variances a^i leave the range of numbers; expected a smaller "
                "rank, or a decay nearer to 1"
            )
        return powers
    if not isinstance(value, (list, tuple)) or not all(map(SCALE.holds, value)):
        raise LayoutError(f'task.spectrum is {value!r}, expected a list of variances or {{"decay": a, "rank": s}}')
    _require_rank(len(value))
    return tuple(float(v) for v in value)


def _require_rank(rank: int) -> None:
    if rank > MOST_RANK:
        raise LayoutError(f"task.spectrum is of rank {rank}, expected 1 to {MOST_RANK}")


def _powers(base: float, count: int) -> tuple[float, ...]:
    """base^i for i = 1 .. count; nothing where one of them overflows."""
    try:
        return tuple(base**i for i in range(1, count + 1))
    except OverflowError:
        return ()


def _kernel(value: Any) -> KernelLaw:
    if not isinstance(value, (Mapping, KernelLaw)):
        raise LayoutError(f'task.kernel is {value!r}, expected e.g. {{"name": "rbf", "features": 2, "width": 1}}')
    return KernelLaw.read(value) if isinstance(value, Mapping) else value


VARIANCES = Rule("one positive variance up to 1e150 per rank", lambda v: len(v) > 0, _spectrum)
KERNEL = Rule("a kernel", lambda v: isinstance(v, KernelLaw), _kernel)


@dataclass(frozen=True, eq=False)
class CompletionPrompts(Batch):
    """A batch of matrices in blocks; ``D`` is the target, ``sigma`` the noise level of each."""

    A: Float[Tensor, "prompt d n"]
    B: Float[Tensor, "prompt query n"]
    C: Float[Tensor, "prompt d out"]
    D: Float[Tensor, "prompt query out"]

    given = ("A", "B", "C")

    @property
    def context(self) -> int:
        """d, the number of complete rows."""
        return self.A.shape[1]

    @property
    def target(self) -> Float[Tensor, "prompt query output"]:
        return self.D

    @property
    def solution(self) -> tuple[str, Float[Tensor, "prompt dim output"]]:
        """A^+ C."""
        return "Nystrom", torch.linalg.pinv(self.A, rtol=RCOND) @ self.C

    def inputs(self, spec: ModelSpec) -> tuple[Float[Tensor, "prompt context D"], Float[Tensor, "prompt query D"]]:
        """The rows (A_i, C_i) and (B_j, 0), laid out as ``spec`` names its channels."""
        return example_tokens(spec, self.A, self.C, self.B)

    def grams(self, spec: ModelSpec) -> GramPrompts:
        """Gram matrices of the keys; with keys = "all" the incomplete rows are among them."""
        return grams_of(spec, *self.inputs(spec))

    def rows(self) -> Float[Tensor, "prompt token channel"]:
        """(x, y) of every token, the queries last."""
        hidden = self.C.new_zeros(self.count, self.B.shape[1], self.C.shape[2])
        return torch.cat([torch.cat([self.A, self.C], -1), torch.cat([self.B, hidden], -1)], 1)


@register_task
@dataclass(frozen=True, kw_only=True)
class MatrixCompletion(TaskFields):
    """The task. ``dim`` is n, ``context`` d, ``outputs`` n', ``queries`` d'. ``spectrum`` holds the s variances of the
    factors; ``kernel`` replaces the low-rank law, and needs d = n and d' = n'. ``machines``
    splits the n columns of x into that many equal blocks; it changes no prompt, only who holds what."""

    dim: int = ruled(COUNT)
    context: int = ruled(COUNT)
    outputs: int = ruled(COUNT, 2)
    queries: int = ruled(COUNT, 2)
    spectrum: tuple[float, ...] = ruled(VARIANCES, SPECTRUM)
    noise: NoiseLaw = ruled(NOISE_OR_LEVEL, NoiseLaw(kind="fixed", values=(0.0,)))  # noqa: RUF009 - a field
    kernel: KernelLaw | None = ruled(KERNEL, optional=True)  # noqa: RUF009 - a field
    machines: int = ruled(COUNT, 1)

    name = "matrix_completion"
    always = ("outputs", "queries", "spectrum", "noise")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.machines:
            raise LayoutError(f"task.machines is {self.machines}, expected a divisor of dim = {self.dim}")
        if self.kernel is not None:
            if self.context != self.dim or self.queries != self.outputs:
                raise LayoutError(
                    f"a kernel matrix has context = dim and queries = outputs, not context {self.context}, dim "
                    f"{self.dim}, queries {self.queries}, outputs {self.outputs}"
                )
            if self.spectrum != SPECTRUM or self.noise.largest > 0:
                raise LayoutError("task.kernel stands with a spectrum or noise, expected the kernel alone")

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        first, rank = self.spectrum[0], len(self.spectrum)
        if self.kernel is not None:
            del out["spectrum"], out["noise"]
        elif self.spectrum == _powers(first, rank):
            out["spectrum"] = {"decay": first, "rank": rank}
        return out

    @property
    def words(self) -> Words:
        return Words(
            asked=f"To fill in the hidden block D of a matrix of rows (A, C) and (B, D), from A ({self.context} x "
            f"{self.dim}), B ({self.queries} rows) and C ({self.outputs} columns). The rows are the tokens; the matrix "
            "is drawn anew for every prompt."
        )

    def fits(self, model: LinearTransformer) -> None:
        require_example_model(model.spec, self.name, self.dim, self.outputs)

    @property
    def machine_masks(self) -> Float[Tensor, "machine dim"]:
        """1 where a machine holds a column of x, else 0."""
        return torch.eye(self.machines, dtype=torch.float64).repeat_interleave(self.dim // self.machines, 1)

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in ``MEMORY``, in float64 and with temporaries. 0: not one."""
        rows, columns = self.context + self.queries, self.dim + self.outputs
        inner = self.kernel.features if self.kernel is not None else len(self.spectrum)
        return MEMORY // (8 * (4 * rows * columns + 2 * inner * (rows + columns)))

    def sample(self, count: int, seed: int) -> CompletionPrompts:
        """``count`` fresh matrices in float64; the same seed gives the same. Raises as ``require_affordable`` does."""
        require_affordable(self, count)
        generator = torch.Generator().manual_seed(seed)
        if self.kernel is None:
            return self.assemble(*self.factors(count, generator), generator)
        sigma = self.noise.sample(count, generator)
        points = normal(generator)(count, self.dim + self.outputs, self.kernel.features)
        return self._blocks(self.kernel.matrix(points), sigma, generator)

    def factors(
        self, count: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "prompt row rank"], Float[Tensor, "prompt column rank"], Float[Tensor, " prompt"]]:
        """Standard normal factors of X in the low-rank law, and the noise levels."""
        sigma, drawn, rank = self.noise.sample(count, generator), normal(generator), len(self.spectrum)
        rows, columns = self.context + self.queries, self.dim + self.outputs
        return drawn(count, rows, rank), drawn(count, columns, rank), sigma

    def assemble(
        self,
        left: Float[Tensor, "prompt row rank"],
        right: Float[Tensor, "prompt column rank"],
        sigma: Float[Tensor, " prompt"],
        generator: torch.Generator,
    ) -> CompletionPrompts:
        """The prompts of given ``factors``; the noise is drawn here."""
        root = torch.tensor(self.spectrum, dtype=torch.float64).sqrt()
        X = (left * root) @ (right * root).mT / len(root) ** 0.5
        return self._blocks(X, sigma, generator)

    def _blocks(
        self, X: Float[Tensor, "prompt row column"], sigma: Float[Tensor, " prompt"], generator: torch.Generator
    ) -> CompletionPrompts:
        D = X[:, self.context :, self.dim :].clone()
        if self.noise.largest > 0:
            X = X + sigma[:, None, None] * normal(generator)(*X.shape)
        top, bottom, n = X[:, : self.context], X[:, self.context :], self.dim
        return CompletionPrompts(A=top[..., :n], B=bottom[..., :n], C=top[..., n:], D=D, sigma=sigma)

    @cached_property
    def penalty(self) -> float:
        """lambda of the best B (A^T A + lambda I)^-1 A^T C, on prompts of its own; 0 where B A^+ C is better: a small
        singular value of A makes that explode, with noise or, where A has less than the rank of X, without."""
        drawn = self.sample(min(PENALTY_PROMPTS, self.most_prompts), PENALTY_SEED)
        base = self.noise.largest**2 or float(drawn.A.square().sum((-1, -2)).mean()) / self.dim
        grid = [base * 2.0 ** (0.5 * k) for k in (range(-10, 21) if self.noise.largest > 0 else range(-40, 1))]
        guesses = {value: _ridge(drawn, value) for value in grid}
        if not self.noise.largest > 0:
            guesses[0.0] = nystrom(drawn.A, drawn.B, drawn.C)
        return min(guesses, key=lambda value: float((guesses[value] - drawn.D).square().mean()))

    def oracle(self, prompts: CompletionPrompts) -> Float[Tensor, "prompt query output"]:
        """The Nystrom estimate B A^+ C or, where A^+ amplifies too much, ridge regression B (A^T A + lambda I)^-1 A^T C
        with the one best ``penalty``."""
        return _ridge(prompts, self.penalty) if self.penalty else nystrom(prompts.A, prompts.B, prompts.C)

    def references(self, tuning: CompletionPrompts, depth: int, keys: str) -> References:
        """Gradient descent, and EAGLE with exact norms, in as many steps as there are layers."""

        def predict(drawn: CompletionPrompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
            blocks = (drawn.A, drawn.B, drawn.C)
            guesses = {
                "null": torch.zeros_like(drawn.D),
                "gd": fixed_iterations(*blocks, depth, eta=0.0),
                "eagle": fixed_iterations(*blocks, depth),
                "oracle": self.oracle(drawn),
            }
            return {name: guess.flatten(1) for name, guess in guesses.items()}

        def weights(drawn: CompletionPrompts) -> Mapping[str, Float[Tensor, "prompt dim output"]]:
            rho = torch.linalg.matrix_norm(drawn.A, 2)[:, None, None] ** -2
            return {"nystrom": drawn.solution[1], "gd-1": rho * (drawn.A.mT @ drawn.C)}

        best = f"ridge ({self.penalty:.3g}), the best one" if self.penalty else "Nystrom estimate B A⁺ C (optimal)"
        labels = {
            "null": "predict zero",
            "gd": f"{depth} GD step{'s' * (depth > 1)} (1/|A|² of each prompt)",
            "eagle": f"{depth} iterations of EAGLE (η = 1/3, γ = 1, exact |A|)",
            "oracle": best,
        }
        return References(labels=labels, predict=predict, weights=weights)

    def variations(self, fixed_context: bool = False) -> dict[str, Variation]:
        """Rank and spectrum change, the variance of an entry, (sum of the squared spectrum) / rank, does not."""
        if self.kernel is not None:
            kernel = Skipped("a kernel matrix has its own size, rank and scale")
            return variations_of(self, {"other matrices": ("other sizes, ranks and scales", kernel)})
        variance, rank = sum(v**2 for v in self.spectrum) / len(self.spectrum), len(self.spectrum)
        largest = tuple(sorted(self.spectrum, reverse=True))

        def scaled(factor: float) -> MatrixCompletion:
            return replace(self, spectrum=tuple(factor * v for v in self.spectrum), noise=self.noise.scaled(factor))

        def of_spectrum(values: tuple[float, ...]) -> MatrixCompletion:
            factor = (variance / (sum(v**2 for v in values) / len(values))) ** 0.5
            return replace(self, spectrum=tuple(factor * v for v in values))

        quiet, one_row = Skipped("the task has no noise"), Skipped("there is a single complete row")
        louder = replace(self, noise=self.noise.scaled(2.0)) if self.noise.largest > 0 else quiet
        fewer = replace(self, context=self.context // 2) if self.context > 1 else one_row
        half = of_spectrum(largest[: rank // 2]) if rank > 1 else Skipped("the matrices are of rank 1")
        flat = Skipped("the spectrum is flat") if len(set(self.spectrum)) == 1 else of_spectrum((1.0,) * rank)
        return variations_of(self, {
            "noise x2": ("twice the noise", louder),
            "rows x1/2": ("half the complete rows", fewer),
            "rows x2": ("twice the complete rows", replace(self, context=2 * self.context)),
            "entries x1/2": ("entries half as large", scaled(0.5)),
            "entries x5/4": ("entries a quarter larger", scaled(1.25)),
            "rank x1/2": ("half the rank", half),
            "rank x2": ("twice the rank", of_spectrum(tuple(v for v in largest for _ in range(2)))),
            "flat spectrum": ("a flat spectrum", flat),
        })  # fmt: skip


def _ridge(prompts: CompletionPrompts, penalty: float) -> Float[Tensor, "prompt query output"]:
    A = prompts.A
    return prompts.B @ torch.linalg.solve(damped(A.mT @ A, penalty), A.mT @ prompts.C)
