"""The tables of "Linear Transformers Implicitly Discover Unified Numerical Algorithms" (Lutz et al. 2025): matrix
completion. Cells are layers (minutes), iterations, tail, distributed, sketched and timing.

Table 1, figures 3, 6, 7 and 8, and Table 2. Every cell has a list of rows, each a mapping with what was measured, the
paper's figure where it has one, and their ratio. No curve of the paper's figures was available, only what its text and
tables say.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import lsmr
from torch import Tensor

import interp
from interp.analysis import analyse
from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.papers.eagle_figures import eagle_sections
from interp.papers.paper import Paper, Progress
from interp.results import Section
from interp.solvers.completion import Completion, counts, curves, planted_completion
from interp.solvers.conjugate_gradients import one_by_one
from interp.solvers.eagle import diversity, eagle, estimate, machines, random_sketches

__all__ = ["PAPER"]

# Table 1: mean squared entry of (transformer - EAGLE) after 0..4 layers, 10 seeds.
PAPER_LAYERS = {
    "eagle-full": (0.0, 2.36e-4, 5.27e-4, 3.70e-4, 2.16e-4),
    "eagle-machines": (0.0, 0.62e-4, 1.40e-4, 1.28e-4, 1.32e-4),
    "eagle-sketch": (0.0, 0.01e-4, 0.02e-4, 0.13e-4, 0.14e-4),
    "eagle-sketch-l12": (None,) * 13,  # the paper has four layers
    "eagle-sketch-shared": (None,) * 21,
}
# eta = 1/3, gamma = 1, relative squared error 1e-18, n = d = 100: what the theory's step sizes need.
REFERENCE_ITERATIONS = {1: 10, 2: 16, 3: 21, 4: 27, 5: 32}
# Table 2, seconds to a residual of 1e-3 |B|_F^2: EAGLE, SVD, CG, LSMR. The matrices are of the SuiteSparse collection;
# ours are random ones of their shape and rank, of condition number 1e3: only the orders of magnitude compare.
SHAPES = {"dwt_1007": (1007, 1007, 1000), "Maragal_4": (1964, 1034, 801)}
PAPER_SECONDS = {"dwt_1007": (0.64, 0.902, 4.65, 9.73), "Maragal_4": (0.625, 0.849, 1.55, 2.34)}
TAIL, TAIL_ITERATIONS = (1, 3, 5), 36  # decades of the condition number; all solvers at the second
SOLVERS = {"newton-schulz": "Newton-Schulz", "cg": "CG", "gd": "GD"}
ROUNDING = 1e-25  # a relative squared error that is rounding
PROMPTS = 4096  # that a network is analysed on, as by default
TOO_LARGE = ("Maragal_5", "pf2177", "bcsstm13", "162bit", "N_pid")

Row = dict[str, Any]


def layers() -> list[Row]:
    """Table 1, and the error of D by depth, of the trained models that ship."""
    rows: list[Row] = []
    for name, paper in PAPER_LAYERS.items():
        if name not in zoo_names():
            rows.append({"model": name, "skipped": "skipped, because no such model ships"})
            continue
        found = analyse(open_checkpoint(f"zoo:{name}"), PROMPTS, 0, verdict_only=True)
        assert found.completion is not None
        law = found.completion.law
        steps = {point.layer: point for point in law.points} if law is not None else {}
        measured = {loss.name: (loss.mse, loss.stderr) for loss in found.evidence.depth_losses}
        zero = measured["layer-0"][0]
        for entry in found.completion.agreement:
            error, stderr = measured[f"layer-{entry.layer}"]
            point = steps.get(entry.layer)
            rows.append({
                "model": name, "verdict": found.verdict.algorithm, "layers run": entry.layer,
                "paper": paper[entry.layer], "difference": entry.difference, "± difference": entry.difference_stderr,
                "layer by layer": entry.layerwise, "± layer by layer": entry.layerwise_stderr,
                "error of D": error, "± error of D": stderr, "zero / error": zero / error if zero and error else None,
                "|A|²": point.norm if point else None,
                "η": point.eta if point else None, "η interval": point.eta_ci if point else (None, None),
                "γ": point.gamma if point else None, "γ interval": point.gamma_ci if point else (None, None),
            })  # fmt: skip
    return rows


def _reference(decade: int) -> Completion:
    return planted_completion(100, 100, outputs=2, queries=2, kappa=10.0**decade, seed=decade)


def iterations() -> list[Row]:
    """Iterations to a relative squared error of 1e-18 against the condition number (n = d = 100)."""
    rows: list[Row] = []
    for decade, paper in REFERENCE_ITERATIONS.items():
        found = counts(_reference(decade), 1e-18, 1500)
        ours = found["eagle"].iterations
        rows.append({
            "kappa": 10**decade, "reference": paper, "ours": ours, "ratio": None if ours is None else ours / paper,
            **{name: found[name].iterations for name in SOLVERS}, "cg's least error": found["cg"].least,
        })  # fmt: skip
    return rows


def tail() -> list[Row]:
    """Relative squared error after every iteration (n = d = 100; the condition number in the heading): its logarithm
    doubles in the last iterations of EAGLE."""
    found = {decade: curves(_reference(decade), TAIL_ITERATIONS) for decade in TAIL}
    columns = {f"EAGLE 1e{decade}": errors["eagle"] for decade, errors in found.items()}
    columns |= {f"{words} 1e{TAIL[1]}": found[TAIL[1]][solver] for solver, words in SOLVERS.items()}
    return [
        {"iteration": k, **{name: _before_rounding(errors, k) for name, errors in columns.items()}}
        for k in range(TAIL_ITERATIONS + 1)
    ]


def _before_rounding(errors: list[float], k: int) -> float | None:
    """None once an earlier error is rounding, and all that follow are."""
    return errors[k] if all(error > ROUNDING for error in errors[:k]) else None


def _blocks(count: int, overlap: float, seed: int) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
    """Thin blocks with ranges that share part of their directions, singular values from 1 to 1/10; noiseless."""
    d, each = 120, 20
    generator = torch.Generator().manual_seed(seed)
    W, shared = torch.randn(2, d, generator=generator, dtype=torch.float64), round(overlap * each)
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    s, blocks, start = 10.0 ** -torch.linspace(0, 1, each, dtype=torch.float64), [], shared
    for _ in range(count):
        own = list(range(shared)) + list(range(start, start + each - shared))
        start += each - shared
        right = torch.linalg.qr(torch.randn(each, each, generator=generator, dtype=torch.float64))[0]
        A = (basis[:, own] * s) @ right
        blocks.append((A, W @ A))
    C = basis[:, :start] @ torch.randn(start, 2, generator=generator, dtype=torch.float64)
    return blocks, C, W @ C


def _needed(errors: Iterable[float], bar: float, most: int) -> int | None:
    """Iterations until the error is below ``bar``; None if that takes ``most``."""
    return next((k for k, error in enumerate(islice(errors, most)) if error < bar), None)


def distributed() -> list[Row]:
    """Iterations to a relative squared error of 1e-12 against the diversity alpha."""
    rows: list[Row] = []
    for count, overlap in ((1, 0.0), (3, 1.0), (2, 0.0), (3, 0.0), (4, 0.0), (5, 0.0)):
        blocks, C, D = _blocks(count, overlap, seed=count)
        alpha, total = diversity([A for A, _ in blocks]), D.square().sum()
        needed = _needed((float((got - D).square().sum() / total) for got in machines(blocks, C)), 1e-12, 400)
        rows.append({"machines": count, "alpha": alpha, "ours": needed, "ours x alpha": needed and needed * alpha})
    return rows


def sketched() -> list[Row]:
    """Iterations to a relative squared error of 1e-2 with a new random sketch of r columns in every iteration."""
    n, rows = 60, []
    problem = planted_completion(n, n, outputs=2, queries=2, kappa=10.0, seed=0)
    for r in (60, 30, 15):
        states = eagle(problem.A, problem.B, problem.C, sketch=random_sketches(n, r, 1))
        rows.append({"n / r": n // r, "ours": _needed((float(problem.error(s.D)) for s in states), 1e-2, 1000)})
    return rows


def _solvers(A: Tensor, B: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Each gives a W with |B - W A|_F^2 <= 1e-3 |B|_F^2."""
    enough = 1e-3 * float(B.square().sum())

    def first(candidates: Iterable[Tensor]) -> Tensor:
        """That is near enough, or the last."""
        W = A.new_zeros(B.shape[0], A.shape[0])
        for W in candidates:
            if float((B - W @ A).square().sum()) <= enough:
                break
        return W

    def by_cg() -> Tensor:  # A A^T is never formed; its Frobenius norm is at most |A|_F^2
        steps = one_by_one(lambda V: (V @ A) @ A.mT, B @ A.mT, A.square().sum().reshape(1, 1))
        return first(islice(steps, 1, 1000))

    def by_lsmr() -> Tensor:
        return torch.from_numpy(np.stack([lsmr(A.mT.numpy(), row.numpy(), atol=1e-4, btol=1e-2)[0] for row in B]))

    return {
        "eagle": lambda: first(islice(estimate(A, B, power=2), 1, 60)),
        "svd": lambda: B @ torch.linalg.pinv(A, rtol=1e-10),
        "cg": by_cg,
        "lsmr": by_lsmr,
    }


def timing() -> list[Row]:
    """CPU seconds to |B - W A|_F^2 <= 1e-3 |B|_F^2, on random matrices of the published shapes."""
    rows: list[Row] = []
    for name, (d, n, rank) in SHAPES.items():
        problem = planted_completion(d, n, outputs=2, queries=2, kappa=1e3, seed=0, rank=rank, even=False)
        for (solver, run), paper in zip(_solvers(problem.A, problem.B).items(), PAPER_SECONDS[name], strict=True):
            started = time.process_time()
            W = run()
            seconds = time.process_time() - started
            left = float((problem.B - W @ problem.A).square().sum() / problem.B.square().sum())
            rows.append({
                "matrix": name, "solver": solver, "paper": paper, "ours": seconds, "ratio": seconds / paper,
                "residual": left,
            })  # fmt: skip
    why = "skipped, because it takes minutes on two cores"
    return [*rows, *({"matrix": name, "skipped": why} for name in TOO_LARGE)]


PARTS: Mapping[str, Callable[[], list[Row]]] = {
    part.__name__: part for part in (layers, iterations, tail, distributed, sketched, timing)
}


class Eagle(Paper):
    name = "eagle"
    title = "EAGLE: the solver and the trained networks"
    source = "Lutz et al., arXiv 2509.19702 (NeurIPS 2025)"
    cells = tuple(PARTS)

    def measure(self, cell: str, out: Path, progress: Progress) -> Row:
        """What the cell is, its rows, what they cost and what they were measured with."""
        started = time.process_time()
        rows = PARTS[cell]()
        return {
            "title": " ".join((PARTS[cell].__doc__ or "").split()),
            "rows": rows,
            "cpu_seconds": round(time.process_time() - started, 1),
            "provenance": {
                "interp-probe": interp.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "processor": platform.machine(),
            },
        }

    def document(self, results: Mapping[str, Any]) -> Row:
        return {"tables": dict(results)}

    def sections(self, results: Mapping[str, Any]) -> list[Section]:
        return eagle_sections(results)


PAPER = Eagle()
