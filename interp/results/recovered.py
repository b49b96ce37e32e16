"""The recovered algorithm, complete enough to be run, and how far it agrees with its network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from interp.errors import LayoutError
from interp.results.document import CheckpointInfo
from interp.results.notation import equation
from interp.results.plain_data import to_plain
from interp.results.update import (
    Factor,
    RecoveredArray,
    RecoveredCoefficient,
    Term,
    Update,
    moved,
    omega_terms,
    preconditioned,
)

PromptKind = Literal["regression", "points", "completion", "states"]
Content = Literal["input", "label", "line", "zero", "current", "previous", "start"]


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A channel of the tokens, and what it holds before the first layer: "input" (x of the token), "label" (its y over
    the number ``value``; 0 of the query), "line" (1, x / ``value``); of a sequence "zero", "current" (s_t), "previous"
    (s_{t-1}, 0 at t = 0) or "start" (W_0 s_t with W_0 = ``value``, a number times the identity or a matrix)."""

    name: str
    content: Content
    size: int
    value: float | list[Any] = 1.0


@dataclass(frozen=True, kw_only=True)
class Law:
    """A coefficient that follows the inputs' norms through the layers: ``sign`` times the constant over |A|^2 (and over
    s), with the 95 % interval of the layers' mean."""

    coefficient: str
    constant: str
    sign: int
    value: float
    interval: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The recovered algorithm, complete: it can be run from these fields alone.

    ``prompt`` says which tokens there are, and ``tokens`` what they hold: "regression", the examples (x_j, y_j), j =
    1..n, and the query (x_t, 0), x of size d; "points", the same with x a number; "completion", the rows (A_i, C_i) and
    (B_j, 0) of [[A, C], [B, D]]; "states", one token for every s_0 .. s_t. Layer after layer all tokens are moved by
    ``updates``, with sums over the examples (``keys`` "context"), over the queries as well ("all"), or over the tokens
    so far ("causal"), and clipped to +-``clip`` (None: not at all). The prediction is ``sign`` times the channel
    ``reads`` after the last layer, of the queries, or of every token of "states"; times its unit where it has one.

    A kind of algorithm that has fields of its own says in ``derived`` what follows from them; a family of any other
    kind gives ``tokens`` and ``updates``.
    """

    family: str
    parameters: int
    context: int  # n of the task
    dim: int = 1  # of x
    equation: str = ""  # always made from the updates
    prompt: PromptKind = "regression"
    tokens: tuple[Channel, ...] = ()
    reads: str = "y"
    updates: tuple[tuple[Update, ...], ...] = ()  # of every layer
    keys: str = "context"
    scale: str | float | int = "1"  # s: "1", "1/n", "1/(n+1)" or a number
    residual: bool = True
    clip: float | None = None
    sign: int = 1
    fit: Literal["predictions", "weights", "none"] = "predictions"  # what the numbers were taken from
    laws: tuple[Law, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.derived().items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "equation", equation(self.updates, self.sizes))
        for _, term in self.terms():
            strange = {c for factor in term.factors for c in factor.of} - set(self.sizes)
            if strange or term.reads_array != (term.array is not None):
                raise LayoutError(
                    f"term {term.name} reads the channels {sorted(strange)} that no token has"
                    if strange
                    else f"term {term.name} has a coefficient that is {'no ' * term.reads_array}array; expected an "
                    "array exactly where a factor of it is the coefficient"
                )

    def derived(self) -> Mapping[str, Any]:
        """Fields of this class that follow from those of a kind, whatever they were given as."""
        return {}

    @property
    def title(self) -> str:
        return self.family

    def terms(self) -> Iterator[tuple[int, Term]]:
        """All terms, with the number of their layer."""
        for index, layer in enumerate(self.updates):
            yield from ((index, term) for update in layer for term in update.terms)

    @property
    def unit(self) -> float:
        """What the channel that is read was divided by."""
        values = (c.value for c in self.tokens if c.name == self.reads and c.content == "label")
        return next((value for value in values if not isinstance(value, list)), 1.0)

    @property
    def sizes(self) -> dict[str, int]:
        return {channel.name: channel.size for channel in self.tokens}


@dataclass(frozen=True, kw_only=True)
class RecoveredLayer:
    """``coefficients`` by name, "xx", "xy", "yx", "yy" and the traces "x:xx", "x:yy", "y:xx": destination first. Those
    that never reach the prediction are left out. ``matrix`` is Omega of preconditioned-gd, [source][destination];
    ``matrix_stderr`` is None where the data do not determine the entry."""

    index: int
    coefficients: Mapping[str, RecoveredCoefficient]
    matrix: list[Any] | None = None
    matrix_stderr: list[Any] | None = None

    def updates(self, kept: bool, **structure: Any) -> tuple[Update, ...]:
        """``structure``: see ``omega_terms``."""
        terms = omega_terms(self.coefficients, **structure)
        if self.matrix is not None:
            terms["y"].append(preconditioned("y", "x", self.matrix, self.matrix_stderr))
        return moved(terms, kept)


@dataclass(frozen=True, kw_only=True)
class RecoveredOmegas(Recovered):
    """The families of regression: with Sigma = s sum_j x_j x_j^T, alpha = s sum_j y_j x_j and lambda = s sum_j y_j^2 a
    few numbers for every layer, or a matrix."""

    layers: tuple[RecoveredLayer, ...]

    def derived(self) -> Mapping[str, Any]:
        return {"tokens": _pairs(self.dim, 1), "updates": tuple(layer.updates(self.residual) for layer in self.layers)}


def _pairs(dim: int, outputs: int) -> tuple[Channel, ...]:
    return Channel(name="x", content="input", size=dim), Channel(name="y", content="label", size=outputs)


@dataclass(frozen=True, kw_only=True)
class RecoveredCompletion(RecoveredOmegas):
    """The families of matrix completion: y is of size ``outputs``, alpha = s sum_j x_j y_j^T and lambda = s sum_j y_j
    y_j^T are matrices; there is one more trace, "y:yy".

    ``machines``: the positions in x that each machine holds; Sigma has the blocks within machines alone (none: all of
    it). ``sketches``: for every layer a matrix S with orthonormal columns, [x][column], or None where the layer sees
    all of x; with Pi = S S^T, x is Pi x in the update of y, and Sigma x is Pi' Sigma Pi x in that of x (none: no
    sketches). ``written``: for every layer S' with Pi' = S' S'^T, or None where Pi' = Pi.
    ``algorithm``: what the verdict calls it; ``eta`` and ``gamma`` are those of eagle, omega_xx = -eta / |A|^2 and
    omega_yx = -gamma / |A|^2 with the norms that A has on the task, each with its 95 % interval.
    """

    outputs: int
    algorithm: str
    prompt: PromptKind = "completion"
    machines: tuple[tuple[int, ...], ...] = ()
    sketches: tuple[list[Any] | None, ...] = ()
    written: tuple[list[Any] | None, ...] = ()
    eta: float | None = None
    eta_ci: tuple[float | None, float | None] = (None, None)
    gamma: float | None = None
    gamma_ci: tuple[float | None, float | None] = (None, None)

    def derived(self) -> Mapping[str, Any]:
        laws = (
            Law(coefficient=name, constant=constant, sign=-1, value=value, interval=interval)
            for name, constant, value, interval in (
                ("xx", "eta", self.eta, self.eta_ci),
                ("yx", "gamma", self.gamma, self.gamma_ci),
            )
            if value is not None
        )
        updates = tuple(layer.updates(self.residual, **self._structure(k)) for k, layer in enumerate(self.layers))
        return {"tokens": _pairs(self.dim, self.outputs), "updates": updates, "laws": tuple(laws)}

    def _structure(self, layer: int) -> dict[str, Any]:
        if not self.sketches:
            return {"machines": self.machines}
        read = Factor(name="projection", of=("x",), matrix=self.sketches[layer])
        if not any(matrix is not None for matrix in self.written):
            return {"read": read}
        other = self.written[layer] or self.sketches[layer]
        return {"read": read, "written": Factor(name="written", of=("x",), matrix=other)}

    @property
    def title(self) -> str:
        return self.family if self.family.startswith(self.algorithm) else f"{self.algorithm}, as {self.family}"


@dataclass(frozen=True, kw_only=True)
class _RecoveredSequences(Recovered):
    """``channels`` of the network's tokens, the ``contents`` of each, and ``start``, W_0."""

    prompt: PromptKind = "states"
    keys: str = "causal"
    channels: tuple[str, ...]
    contents: tuple[Content, ...]
    start: float | list[Any]


@dataclass(frozen=True, kw_only=True)
class RecoveredHeads(_RecoveredSequences):
    """revalg, free of gauge: every layer updates the channels of all tokens by

        e_t[a] <- e_t[a] + s sum_{b, g, e} k[a][b][g][e] sum_{j <= t} e_j[b] <e_j[g], e_t[e]>.

    ``layers`` are the k of every layer, sums over heads of P[a][b] Q[e][g]; ``how`` they were recovered: "weights" (the
    block-scalar part of the network's weights) or "refit" (fitted to its predictions, with ``stderr`` the largest
    standard error of each layer, None where the data do not fix one). ``readout`` counts the channels."""

    readout: int
    how: str
    layers: tuple[list[Any], ...]
    stderr: tuple[float | None, ...] = ()
    reads: str = ""

    def derived(self) -> Mapping[str, Any]:
        tokens = tuple(
            Channel(name=name, content=content, size=self.dim, value=self.start if content == "start" else 1.0)
            for name, content in zip(self.channels, self.contents, strict=True)
        )
        updates = []
        for k, stderr in zip(self.layers, self.stderr or (None,) * len(self.layers), strict=True):
            coefficient = RecoveredArray(value=k, stderr=stderr)
            term = Term(name="k", factors=(Factor(name="products", of=self.channels),), coefficient=coefficient)
            updates.append((Update(channel=None, terms=(term,), kept=self.residual),))
        return {"tokens": tokens, "updates": tuple(updates), "reads": self.channels[self.readout]}


@dataclass(frozen=True, kw_only=True)
class RecoveredStep(_RecoveredSequences):
    """One step of gradient descent: s_{t+1} ~ H s_t + eta B_t s_t - M A_t s_t, with A_t = sum_{j < t} s_j s_j^T and
    B_t = sum_{j < t} s_{j+1} s_j^T. ``held`` is H, what the tokens hold before the first layer, and ``decay`` M = eta
    W_0; each a number times the identity, or a matrix."""

    eta: float
    eta_stderr: float | None
    held: float | list[Any]
    decay: float | list[Any]
    reads: str = "f"

    def derived(self) -> Mapping[str, Any]:
        # With s_{-1} = 0, the sums over j <= t of s_j s_{j-1}^T and s_{j-1} s_{j-1}^T are B_t and A_t.
        B, A = (Factor(name="moment", of=(channel, "q")) for channel in "pq")
        token = Factor(name="token", of=("p",))
        eta = RecoveredCoefficient(value=self.eta, stderr=self.eta_stderr)
        if isinstance(self.decay, list):
            inside, decay = (Factor(name="coefficient"),), RecoveredArray(value=self.decay)
        else:
            inside, decay = (), RecoveredCoefficient(value=self.decay)
        terms = (
            Term(name="eta", factors=(B, token), coefficient=eta),
            Term(name="M", factors=(*inside, A, token), coefficient=decay, sign=-1),
        )
        tokens = (
            Channel(name="f", content="start", size=self.dim, value=self.held),
            Channel(name="p", content="current", size=self.dim),
            Channel(name="q", content="previous", size=self.dim),
        )
        return {"tokens": tokens, "updates": ((Update(channel="f", terms=terms),),)}


@dataclass(frozen=True, kw_only=True)
class RecoveredForm(Recovered):
    """The closed form of simple regression, with xbar, ybar the means of the examples, V the variance of x and C its
    covariance with y: ybar + (C / V)(u - xbar). ``shrunken``: times (1 - h)(n + 1) / n with the leverage of the query
    among the n + 1 points, h = 1 / (n + 1) + (u - m)^2 / sum (x - m)^2, m and the sum over all n + 1."""

    shrunken: bool
    parameters: int = 0
    prompt: PromptKind = "points"
    fit: Literal["predictions", "weights", "none"] = "none"

    def derived(self) -> Mapping[str, Any]:
        fitted = (Factor(name="fitted", of=("x",)),) if self.shrunken else ()
        products = {
            "mean": (Factor(name="mean", of=("y",)),),
            "slope": (Factor(name="slope", of=("y", "x")), Factor(name="deviation", of=("x",))),
        }
        terms = [Term(name=name, factors=(*fitted, *factors)) for name, factors in products.items()]
        return {"tokens": _pairs(1, 1), "updates": (moved({"y": terms}, True),)}


@dataclass(frozen=True, kw_only=True)
class RecoveredDescent(Recovered):
    """Steps of a gradient method for simple regression: with phi = (1, x / ``x_unit``), Sigma = mean phi phi^T and
    alpha = mean phi y / ``y_unit`` over the examples (``keys`` "context") or also the query with y = 0 ("all"),

        w <- w + A (alpha - Sigma w),    then phi <- (I + C Sigma) phi of all points, and y <- y - what the step
        explained,

    from w = 0; the prediction is ``y_unit`` times the sum over steps of <A (..), phi of the query>. ``steps`` are the
    pairs (A, C); C is 0 but for gd++."""

    x_unit: float
    y_unit: float
    steps: tuple[list[Any], ...]
    prompt: PromptKind = "points"
    scale: str | float | int = ""
    sign: int = -1  # y of the query becomes minus what the steps explained

    def derived(self) -> Mapping[str, Any]:
        conditions = any(value for _, C in self.steps for row in C for value in row)
        updates = []
        for A, C in self.steps:
            transposed = [list(column) for column in zip(*A, strict=True)]  # <A alpha, phi> is <alpha, A^T phi>
            moves = {"phi": [preconditioned("phi", "phi", C, name="C", first=True)] if conditions else []}
            moves["y"] = [preconditioned("y", "phi", transposed, sign=-1)]
            updates.append(moved(moves, True))
        tokens = (
            Channel(name="phi", content="line", size=2, value=self.x_unit),
            Channel(name="y", content="label", size=1, value=self.y_unit),
        )
        return {"tokens": tokens, "updates": tuple(updates), "scale": "1/(n+1)" if self.keys == "all" else "1/n"}


RecoveredAlgorithm = (
    RecoveredCompletion
    | RecoveredOmegas
    | RecoveredHeads
    | RecoveredStep
    | RecoveredForm
    | RecoveredDescent
    | Recovered
)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """The recovered algorithm against the network on fresh prompts of one kind.

    ``median`` to ``largest`` are quantiles of |algorithm - network| over all numbers predicted, in units of ``rms``,
    the root mean square of the network's predictions on the same prompts. Outside the task R^2 and ``rms`` may hang on
    a few prompts on which both explode; a quantile times ``rms`` does not. ``skipped`` says why there are no figures.
    """

    name: str  # "task", then what differs from it: "noise x2", "context x1/2", "inputs x2", "flat spectrum", …
    label: str
    task: Mapping[str, Any]
    seed: int
    prompts: int
    left_out: int  # prompts that diverge or meet the network's clip
    r2: float | None = None
    r2_ci: tuple[float | None, float | None] = (None, None)
    rms: float | None = None
    median: float | None = None
    q90: float | None = None
    q99: float | None = None
    largest: float | None = None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How far the recovered algorithm agrees with a network: in its task, and outside. ``examples`` are a few prompts
    of the task, [prompt][token][x, y] with the queries last, which a single-precision number holds exactly, with the
    predictions of both, [prompt], or [prompt][query][y] for matrix completion; of linear dynamics [prompt][time][dim],
    the states s_0 .. s_{T-1} and the predictions of s_1 .. s_T. The algorithm's are there to check another
    implementation of it."""

    checkpoint: CheckpointInfo
    provenance: Mapping[str, Any]
    recovered: RecoveredAlgorithm
    disagreements: tuple[Disagreement, ...]  # the task first
    examples: list[Any]
    network: list[Any]
    algorithm: list[Any]

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)
