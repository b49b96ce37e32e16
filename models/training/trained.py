"""What a training run shows while it runs, and what it ends with."""

from __future__ import annotations

from dataclasses import dataclass

from interp.models.transformer import LinearTransformer

__all__ = ["EVALUATION_SEED", "Step", "Trained"]

EVALUATION_SEED = 902_417  # apart from every training seed


@dataclass(frozen=True, kw_only=True)
class Step:
    """One iteration of one minimisation, for people who watch."""

    name: str
    iteration: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model. ``adjusted_loss`` is 1/2 E (yhat - yhat_oracle)^2 on ``prompts`` fresh prompts; for matrix
    completion half of the mean squared entry of the error, above the optimum's."""

    model: LinearTransformer
    adjusted_loss: float
    stderr: float
    prompts: int
    iterations: int
    seconds: float
