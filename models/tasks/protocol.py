"""What a task is: the law of its prompts, the best that can be done on them, and what can be varied.

This room is the only one that knows which task it is. Everything else asks a task, or its prompts, for what they offer:
a method of the protocols below, or an attribute such as ``states``, which only some prompts have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks.noise import NoiseLaw
from interp.models.tasks.target import Target
from interp.models.transformer import LinearTransformer
from interp.models.words import Words
from interp.solvers.line_descent import Points
from interp.solvers.tuning import TuningSet

__all__ = [
    "Blocks",
    "BlocksTask",
    "Examples",
    "GramPrompts",
    "LinePrompts",
    "LinearExamples",
    "LinearTask",
    "Noisy",
    "Prefixes",
    "Prompts",
    "References",
    "States",
    "StatesTask",
    "Task",
    "Variation",
    "Words",
]

# Not typing.Self, which the tests' runtime checks of single methods cannot follow.
Own = TypeVar("Own", bound="Prompts")
OwnLinear = TypeVar("OwnLinear", bound="LinearExamples")


@dataclass(frozen=True, eq=False)
class GramPrompts:
    """Prompts as the Gram pass reads them: the Gram matrix of the keys, and the query tokens."""

    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt query D"]
    context: int


@runtime_checkable
class Prompts(Protocol):
    """A batch of prompts, with what generated them."""

    @property
    def count(self) -> int: ...

    @property
    def context(self) -> int:
        """n in the scales "1/n" and "1/(n+1)": context tokens, or all tokens of a sequence."""
        ...

    @property
    def target(self) -> Float[Tensor, "prompt query output"]: ...

    def inputs(self, spec: ModelSpec) -> tuple[Tensor, ...]:
        """The arguments of the token-by-token pass: (context, query), or (sequence,) for causal keys."""
        ...

    def __getitem__(self: Own, index: slice | Tensor) -> Own: ...


@runtime_checkable
class Examples(Prompts, Protocol):
    """Prompts of context tokens and queries, which may share their keys."""

    @property
    def solution(self) -> tuple[str, Float[Tensor, "prompt dim output"]]:
        """The weights to be found, by name: the target is <weights, x> of the query."""
        ...

    def grams(self, spec: ModelSpec) -> GramPrompts: ...


@runtime_checkable
class Noisy(Protocol):
    """Prompts with noise of a level of their own."""

    sigma: Float[Tensor, " prompt"]


@runtime_checkable
class Prefixes(Protocol):
    """Prompts whose first tokens make a prompt, too."""

    def before(self, position: int) -> Prompts:
        """The first ``position`` tokens, with the next one as the query."""
        ...


@runtime_checkable
class Blocks(Examples, Protocol):
    """Examples and queries that are the rows of a matrix [[A, C], [B, ?]]."""

    A: Float[Tensor, "prompt d n"]
    B: Float[Tensor, "prompt query n"]
    C: Float[Tensor, "prompt d out"]


@runtime_checkable
class LinearExamples(Examples, Protocol):
    """Examples y_i = <w, x_i> + noise of level sigma, and one query x_t."""

    x: Float[Tensor, "prompt context dim"]
    y: Float[Tensor, "prompt context"]
    x_query: Float[Tensor, "prompt dim"]
    w: Float[Tensor, "prompt dim"]
    sigma: Float[Tensor, " prompt"]

    def asking(self: OwnLinear, x_query: Float[Tensor, "prompt dim"]) -> OwnLinear:
        """The same examples with another query."""
        ...


@runtime_checkable
class States(Prompts, Protocol):
    """Sequences s_0 .. s_T; the next state is to be predicted."""

    states: Float[Tensor, "prompt time dim"]


@runtime_checkable
class LinePrompts(Prompts, Points, Protocol):
    """Points (x_i, y_i) of a line, x and y being numbers, and one query."""

    def least_squares(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class References:
    """Predictors that a network stands beside: "null" (predicting zero), "oracle" (the best possible) and classical
    ones. ``labels`` by name for people; ``predict`` gives all predictions (prompt, output)."""

    labels: Mapping[str, str]
    predict: Callable[[Any], Mapping[str, Float[Tensor, "prompt output"]]]
    tuned: Any = None  # what was tuned for the task, for those who ask for more than predictions
    weights: Callable[[Any], Mapping[str, Float[Tensor, "prompt dim output"]]] | None = None  # of those that have some


@dataclass(frozen=True, kw_only=True)
class Variation:
    """A task that differs from another in one thing. On an ``axis`` it is one of several, at ``value``; ``trained``
    says whether the task itself holds such prompts."""

    label: str
    task: Task | Skipped
    axis: str | None = None
    value: float = 0.0
    trained: bool = False


@runtime_checkable
class Task(Protocol):
    """The law of prompts. Tasks are frozen dataclasses: ``to_dict`` gives the fields of the canonical checkpoint."""

    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int: ...

    @property
    def words(self) -> Words: ...

    @property
    def most_prompts(self) -> int:
        """How many prompts fit in memory at a time, in float64. 0: not one."""
        ...

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Task: ...

    def to_dict(self) -> dict[str, Any]: ...

    def fits(self, model: LinearTransformer) -> None:
        """Raise LayoutError when the tokens, the keys or the read-out of a model are not those of this task."""
        ...

    def sample(self, count: int, seed: int) -> Any:
        """``count`` fresh prompts in float64; the same seed gives the same."""
        ...

    def oracle(self, prompts: Any) -> Float[Tensor, "prompt query output"]:
        """The best possible prediction."""
        ...

    def references(self, tuning: Any, depth: int, keys: str) -> References:
        """Tuned on the prompts ``tuning``, for networks of ``depth`` layers with these ``keys``."""
        ...

    def variations(self, fixed_context: bool = False) -> Mapping[str, Variation]:
        """Tasks that differ from this one in one thing, by name; the task itself first. ``fixed_context``: the network
        has weights for just so many tokens."""
        ...

    def targets(self) -> tuple[Target, ...]:
        """What probes can look for in a network of this task; may be empty."""
        ...

    def telling(self) -> Task:
        """The task on which an algorithm can be told from a memory; mostly the task itself."""
        ...

    def errors(self, prediction: Float[Tensor, "prompt output"], prompts: Any) -> Float[Tensor, "prompt position"]:
        """The error of the task at every position that is scored: its mean is the loss."""
        ...


@runtime_checkable
class LinearTask(Task, Protocol):
    """The law of ``LinearExamples``: w of variance ``weight_std``^2, inputs of a covariance C, and noise."""

    @property
    def dim(self) -> int: ...

    @property
    def covariance(self) -> tuple[float, ...] | None:
        """The eigenvalues of C; None for C = I."""
        ...

    @property
    def weight_std(self) -> float: ...

    @property
    def noise(self) -> NoiseLaw: ...

    def with_noise(self, noise: NoiseLaw) -> LinearTask: ...

    def oracle_weights(self, prompts: Any) -> Float[Tensor, "prompt dim"]:
        """The weights of the best possible prediction."""
        ...

    def tuning(self, prompts: Any, target: Float[Tensor, "prompt dim"] | None = None) -> TuningSet:
        """What solvers are tuned on: to come close to ``target`` (None: the weights of the oracle)."""
        ...


@runtime_checkable
class BlocksTask(Task, Protocol):
    """The law of ``Blocks``, whose columns of x are split among ``machines``."""

    @property
    def queries(self) -> int: ...

    @property
    def machines(self) -> int: ...


@runtime_checkable
class StatesTask(Task, Protocol):
    """The law of ``States``, and what tokens are made of them."""

    @property
    def dim(self) -> int: ...

    @property
    def start(self) -> float | tuple[tuple[float, ...], ...]:
        """W_0 of the content "start", W_0 s_t: a number (times I) or rows."""
        ...

    def start_matrix(self) -> Float[Tensor, "dim dim"]: ...

    def contents(self, channels: int) -> tuple[str, ...] | None:
        """What each of so many channels of a token holds; None when the task says nothing that fits."""
        ...
