"""A comparison with classical solvers made by hand, for the tests of what people see."""

from __future__ import annotations

from interp.results import Behaviour, Match, Shift, Solver

LABELS = {"gd": "gradient descent", "cg": "conjugate gradients", "ridge": "ridge path"}


def match(layer: int, solver: str, distance: float, best: float | None = None) -> Match:
    best = float(layer) if best is None else best
    return Match(
        layer=layer, solver=solver, best=best, best_ci=(best, best + (solver == "cg")), distance=distance,
        distance_ci=(0.9 * distance, 1.1 * distance), at_budget=None if solver == "ridge" else distance,
        similarity=0.99, similarity_ci=(0.98, 1.0),
    )  # fmt: skip


def behaviour(closest: str | None = "gd", layers: int = 3) -> Behaviour:
    """Near gradient descent, farther from conjugate gradients and from ridge regression; apart with more noise."""
    size = {"gd": 0.004, "cg": 0.2, "ridge": 0.07} if closest else {"gd": 0.3, "cg": 0.6, "ridge": 0.5}
    nothing: tuple[None, None] = (None, None)
    return Behaviour(
        weights="unrolling",
        linearity_r2=(1.0,) * (layers + 1),
        solvers=tuple(
            Solver(
                name=name, label=label, unit="penalty" if name == "ridge" else "steps",
                parameters={"step": 0.03} if name == "gd" else {}, sensitivity=0.01, sensitivity_ci=(0.005, 0.02),
            )
            for name, label in LABELS.items()
        ),
        matches=tuple(
            match(layer, name, size[name], 12.5 if name == "ridge" else None)
            for name in LABELS
            for layer in range(1, layers + 1)
        ),
        null_similarity=(1.0, 0.9, 0.8, 0.7)[: layers + 1],
        shifts=(
            Shift(
                name="task", label="the task itself", disagreement=dict.fromkeys(LABELS, 0.004),
                disagreement_ci=dict.fromkeys(LABELS, (0.003, 0.005)), prompts=256,
            ),
            Shift(
                name="noise", label="twice as much noise", disagreement=dict.fromkeys(LABELS, 0.2),
                disagreement_ci=dict.fromkeys(LABELS, (0.1, 0.3)), prompts=256,
            ),
            Shift(
                name="inputs", label="inputs 1.5 times as large", disagreement=dict.fromkeys(LABELS),
                disagreement_ci=dict.fromkeys(LABELS, nothing), prompts=0, reason="skipped, because most diverge",
            ),
        ),
        solves_task=True,
        closest=closest,
        alike=("ridge",) if closest else (),
        named=0.05,
        prompts=256,
    )  # fmt: skip
