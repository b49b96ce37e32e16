"""Sequences of a noisy linear dynamical system: the next state is to be predicted at every position.

    s_{t+1} = W s_t + eps_t,   eps_t ~ N(0, sigma^2 I),   t = 0 .. T - 1,   sigma ~ noise law (one per sequence)

W is drawn anew for every sequence ("orthogonal": Haar measure; "contracting": U diag(l) U^-1 with U standard normal,
l_i ~ U(0.3, 0.9) and one l = 0.9), or is one orthogonal matrix for all of them ("fixed": nothing is left to be learned
in context). Inputs are s_0 .. s_{T-1}, targets s_1 .. s_T.

Source: von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers", arXiv 2309.05858, section 3 and
appendix E. Where the paper and its code differ, both are offered: s_0 is standard normal in the paper and uniform on
(-1, 1) in the code, which the published losses need. States are clipped as in the code. Losses there are half of |f -
s|^2, summed over the coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError, did_you_mean
from interp.models.numbers import as_float, is_number
from interp.models.rules import COUNT, POSITIVE, Rule, one_of, ruled
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks.batch import Batch
from interp.models.tasks.dynamics_targets import dynamics_targets
from interp.models.tasks.fields import TaskFields, variations_of
from interp.models.tasks.memory import MEMORY, require_affordable
from interp.models.tasks.noise import NOISE_OR_LEVEL, NoiseLaw
from interp.models.tasks.protocol import Prompts, References, Task, Variation, Words
from interp.models.tasks.registry import register_task
from interp.models.tasks.target import Target
from interp.models.transformer import LinearTransformer
from interp.solvers.next_state import TunedSolvers

__all__ = ["CONTENTS", "DYNAMICS", "DynamicsPrompts", "InitialLaw", "LinearDynamics"]

STATE_CLIP = {"orthogonal": 10.0, "contracting": 2.0, "fixed": 10.0}  # of the authors' code
SPECTRUM = (0.3, 0.9)  # eigenvalues of contracting dynamics

DYNAMICS = {
    "orthogonal": "orthogonal, drawn anew for every sequence and never shown",
    "contracting": "a contraction, drawn anew for every sequence and never shown",
    "fixed": "the same for all sequences",
}

# What a channel can hold, and the tokens of so many channels when the task does not say.
CONTENTS = ("zero", "current", "previous", "start")
LAYOUTS: dict[int, tuple[str, ...]] = {
    1: ("current",),
    3: ("start", "current", "previous"),  # proposition 1
    4: ("start", "current", "current", "previous"),  # the constructed tokens of the experiments
}


@dataclass(frozen=True, kw_only=True)
class InitialLaw:
    """The law of the coordinates of s_0: "uniform" on (-value, value), or "normal" with standard deviation value."""

    kind: str
    value: float

    @classmethod
    def from_dict(cls, fields: Any) -> InitialLaw:
        kinds = ("uniform", "normal")
        if not isinstance(fields, Mapping) or len(fields) != 1:
            raise LayoutError(f'task.initial is {fields!r}, expected {{"uniform": r}} for (-r, r) or {{"normal": std}}')
        kind, value = next(iter(fields.items()))
        if kind not in kinds:
            raise LayoutError(f"task.initial has kind {kind!r}; {did_you_mean(str(kind), kinds)}")
        if not is_number(value) or value <= 0:
            raise LayoutError(f"task.initial.{kind} is {value!r}, expected a positive number")
        return cls(kind=kind, value=float(value))

    def to_dict(self) -> dict[str, Any]:
        return {self.kind: self.value}

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "*shape"]:
        if self.kind == "normal":
            return self.value * torch.randn(*shape, generator=generator, dtype=torch.float64)
        return self.value * (2.0 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1.0)


def _rows(value: Any) -> Any:
    """Numbers as floats and lists as tuples, so that equal tasks are equal; anything else is left for the checks."""
    return tuple(map(_rows, value)) if isinstance(value, (list, tuple)) else as_float(value)


def _tokens(value: Any) -> Any:
    for content in value if isinstance(value, (list, tuple)) else ():
        if content not in CONTENTS:
            raise LayoutError(f"task.tokens has {content!r}; {did_you_mean(str(content), CONTENTS)}")
    if value in ((), []):
        raise LayoutError(f"task.tokens is empty, expected one of {', '.join(CONTENTS)} for every channel")
    return tuple(value) if isinstance(value, list) else value


TOKENS = Rule(f"a list of {', '.join(CONTENTS)}", lambda v: isinstance(v, tuple), _tokens)
START = Rule("a number c (for W_0 = c I) or a matrix", lambda v: isinstance(v, (tuple, float)), _rows)
TEACHER = Rule(
    "a seed, a whole number of 0 or more", lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63
)
INITIAL = Rule(
    "a law", lambda v: isinstance(v, InitialLaw), lambda v: v if isinstance(v, InitialLaw) else InitialLaw.from_dict(v)
)


@dataclass(frozen=True, eq=False)
class DynamicsPrompts(Batch):
    """A batch of sequences s_0 .. s_T, with what generated them and how tokens are made of them."""

    states: Float[Tensor, "prompt time dim"]
    W: Float[Tensor, "prompt dim dim"]
    task: LinearDynamics

    given = ("states",)

    @property
    def context(self) -> int:
        """T, the number of tokens."""
        return self.states.shape[1] - 1

    @property
    def target(self) -> Float[Tensor, "prompt position dim"]:
        """s_{t+1}: every token is read out."""
        return self.states[:, 1:]

    @property
    def previous(self) -> Float[Tensor, "prompt position dim"]:
        """s_{t-1}, with s_{-1} = 0."""
        return torch.cat([torch.zeros_like(self.states[:, :1]), self.states[:, :-2]], dim=1)

    def inputs(self, spec: ModelSpec) -> tuple[Float[Tensor, "prompt position D"]]:
        """The arguments of the hooked forward pass: one tensor of tokens, whose channels hold, in order, what
        ``task.tokens`` names. Raises LayoutError when the model's channels are of another size or number."""
        sizes, dim = [size for _, size in spec.tokens], self.states.shape[2]
        contents = self.task.contents(len(sizes))
        if contents is None or sizes != [dim] * len(contents):
            known = LAYOUTS.values() if self.task.tokens is None else (self.task.tokens,)
            wanted = " or ".join(f"{len(names)} ({', '.join(names)})" for names in known)
            raise LayoutError(
                f"the model's channels are {dict(spec.tokens)}, but linear_dynamics of dimension {dim} makes tokens of "
                f"{wanted} channels of size {dim}; task.tokens says what each channel holds"
            )
        current = self.states[:, :-1]
        made = {
            "zero": lambda: torch.zeros_like(current),
            "current": lambda: current,
            "previous": lambda: self.previous,
            "start": lambda: current @ self.task.start_matrix().mT,
        }
        return (torch.cat([made[name]() for name in contents], dim=-1),)

    def rows(self) -> Float[Tensor, "prompt time dim"]:
        """The states that are given, s_0 .. s_{T-1}."""
        return self.states[:, :-1]


@register_task
@dataclass(frozen=True, kw_only=True)
class LinearDynamics(TaskFields):
    """The task. ``context`` is T. ``tokens`` says what each channel of a token holds: "zero", "current" (s_t),
    "previous" (s_{t-1}, where s_{-1} = 0) or "start" (W_0 s_t); None: by the number of channels, 4 (start, current,
    current, previous), 3 (start, current, previous) or 1 (current). ``start`` is W_0, c for c I, or a matrix."""

    dim: int = ruled(COUNT)
    context: int = ruled(COUNT)
    noise: NoiseLaw = ruled(NOISE_OR_LEVEL, NoiseLaw(kind="fixed", values=(0.01,)))  # noqa: RUF009 - a field
    dynamics: str = ruled(one_of(DYNAMICS), "orthogonal")
    initial: InitialLaw = ruled(INITIAL, InitialLaw(kind="uniform", value=1.0))  # noqa: RUF009 - a field
    state_clip: float | None = ruled(POSITIVE, optional=True)  # None: 10, and 2 for contracting dynamics
    teacher: int | None = ruled(TEACHER, optional=True)  # seed of the one W of fixed dynamics
    tokens: tuple[str, ...] | None = ruled(TOKENS, optional=True)
    start: float | tuple[tuple[float, ...], ...] = ruled(START, 0.0)

    name = "linear_dynamics"
    always = ("noise", "dynamics", "initial")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None and self.dynamics != "fixed":
            raise LayoutError(
                f'task.teacher is {self.teacher!r} with dynamics {self.dynamics!r}; only dynamics "fixed" has a teacher'
            )
        rows = self.start if isinstance(self.start, tuple) else ()
        square = len(rows) == self.dim and all(isinstance(row, tuple) and len(row) == self.dim for row in rows)
        entries = [value for row in rows for value in row] if square else [self.start]
        if not all(is_number(value) for value in entries):
            raise LayoutError(
                f"task.start is {self.start!r}, expected a number c (for W_0 = c I) or {self.dim} rows of {self.dim}"
            )

    def contents(self, channels: int) -> tuple[str, ...] | None:
        """What each of so many channels holds; None when the task says nothing that fits."""
        found = LAYOUTS.get(channels) if self.tokens is None else self.tokens
        return found if found is not None and len(found) == channels else None

    def start_matrix(self) -> Float[Tensor, "dim dim"]:
        """W_0."""
        if isinstance(self.start, tuple):
            return torch.tensor(self.start, dtype=torch.float64)
        return float(self.start) * torch.eye(self.dim, dtype=torch.float64)

    @property
    def words(self) -> Words:
        return Words(
            asked="To predict, at every token, the next state of a system that moves by one matrix, s' = W s + noise, "
            f"from the states so far. A sequence has {self.context} states of {self.dim} numbers; W is "
            f"{DYNAMICS[self.dynamics]}.",
            error="half the squared error",
            factor=0.5,
            prompt="sequence",
        )

    def fits(self, model: LinearTransformer) -> None:
        if model.spec.attention.keys != "causal":
            raise LayoutError(
                f"attention.keys is {model.spec.attention.keys!r}, expected 'causal' for {self.name}, whose every "
                "token is read out"
            )
        self.sample(1, 0).inputs(model.spec)  # the channels are those of the task

    def telling(self) -> LinearDynamics:
        """With one W for all sequences W s may be learned from the states or known by heart, which looks the same: then
        the task with a fresh W for each."""
        return self if self.dynamics != "fixed" else replace(self, dynamics="orthogonal", teacher=None)

    def errors(self, prediction: Float[Tensor, "prompt output"], prompts: Prompts) -> Float[Tensor, "prompt position"]:
        """The squared error of every state, summed over its coordinates."""
        return (prediction.view_as(prompts.target) - prompts.target).square().sum(-1)

    def oracle(self, prompts: DynamicsPrompts) -> Float[Tensor, "prompt query output"]:
        """W s_t with the true W, clipped as states are."""
        moved = torch.einsum("nij,ntj->nti", prompts.W, prompts.states[:, :-1])
        return moved.clamp(-self.limit, self.limit)

    def references(self, tuning: DynamicsPrompts, depth: int, keys: str) -> References:
        """One gradient step, preconditioned steps (proposition 2) and exact ridge; ``tuned`` are ``TunedSolvers``."""
        solvers = TunedSolvers.of(tuning.states)

        def predict(prompts: DynamicsPrompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
            guesses = solvers.predict(prompts.states) | {"oracle": self.oracle(prompts)}
            return {name: guess.flatten(1) for name, guess in guesses.items()}

        labels = solvers.labels | {"oracle": "the true W of the sequence"}
        return References(labels=labels, predict=predict, tuned=solvers)

    def targets(self) -> tuple[Target, ...]:
        return dynamics_targets()

    def variations(self, fixed_context: bool = False) -> dict[str, Variation]:
        def begun(factor: float) -> LinearDynamics:
            return replace(self, initial=replace(self.initial, value=factor * self.initial.value))

        quiet, single = Skipped("the task has no noise"), Skipped("sequences have a single token")
        louder = replace(self, noise=self.noise.scaled(2.0)) if self.noise.largest > 0 else quiet
        shorter = replace(self, context=self.context // 2) if self.context > 1 else single

        rows: dict[str, tuple[str, Task | Skipped]] = {
            "noise x2": ("twice the noise", louder),
            "length x1/2": ("half the length", shorter),
            "length x2": ("twice the length", replace(self, context=2 * self.context)),
            "start x1/2": ("first states half as large", begun(0.5)),
            "start x2": ("first states twice as large", begun(2.0)),
        }
        for kind in ("orthogonal", "contracting"):
            if kind != self.dynamics:
                rows[f"dynamics {kind}"] = (f"a fresh {kind} W", replace(self, dynamics=kind, teacher=None))
        return variations_of(self, rows)

    @property
    def limit(self) -> float:
        """States are clipped to +-limit."""
        return STATE_CLIP[self.dynamics] if self.state_clip is None else self.state_clip

    @property
    def most_prompts(self) -> int:
        """How many sequences fit in ``MEMORY``: states, noise and tokens in float64, and temporaries. 0: not one."""
        return MEMORY // (8 * (6 * (self.context + 1) * self.dim + 4 * self.dim**2))

    def sample(self, count: int, seed: int) -> DynamicsPrompts:
        """``count`` fresh sequences in float64; the same seed gives the same. Raises as ``require_affordable`` does."""
        require_affordable(self, count)
        generator = torch.Generator().manual_seed(seed)
        sigma = self.noise.sample(count, generator)
        W = self._matrices(count, generator)
        states = torch.empty(count, self.context + 1, self.dim, dtype=torch.float64)
        states[:, 0] = self.initial.sample((count, self.dim), generator)
        noise = torch.randn(count, self.context, self.dim, generator=generator, dtype=torch.float64)
        noise *= sigma[:, None, None]
        for t in range(self.context):
            following = (W @ states[:, t, :, None]).squeeze(-1) + noise[:, t]
            states[:, t + 1] = following.clamp(-self.limit, self.limit)
        return DynamicsPrompts(states=states, W=W, sigma=sigma, task=self)

    def _matrices(self, count: int, generator: torch.Generator) -> Float[Tensor, "prompt dim dim"]:
        if self.dynamics == "fixed":
            teacher = torch.Generator().manual_seed(self.teacher or 0)
            return _orthogonal(1, self.dim, teacher).expand(count, -1, -1)
        if self.dynamics == "orthogonal":
            return _orthogonal(count, self.dim, generator)
        lo, hi = SPECTRUM
        basis = torch.randn(count, self.dim, self.dim, generator=generator, dtype=torch.float64)
        values = lo + (hi - lo) * torch.rand(count, self.dim, generator=generator, dtype=torch.float64)
        values[:, 0] = hi
        return torch.linalg.solve(basis, basis * values[:, None, :], left=False)


def _orthogonal(count: int, dim: int, generator: torch.Generator) -> Float[Tensor, "prompt dim dim"]:
    """Orthogonal matrices of Haar measure: the Q of a normal matrix, with the signs that make R's diagonal positive."""
    Q, R = torch.linalg.qr(torch.randn(count, dim, dim, generator=generator, dtype=torch.float64))
    return Q * torch.diagonal(R, dim1=-2, dim2=-1).sign()[:, None, :]
