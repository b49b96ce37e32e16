"""Training: it reaches known optima, and an interruption anywhere changes nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from repeats import repeats

from interp.errors import UnreadableFile, UsageError
from interp.models.tasks import task_of
from interp.models.training import Recipe, train
from interp.models.training import journal as journal_module
from interp.models.training.objective import descend
from interp.models.training.parametrisation import balanced
from interp.models.training.sample import fresh_sample
from interp.models.training.search import family_of
from interp.stats.levenberg_marquardt import Progress

# With many more context tokens than dimensions the spectrum of Sigma is narrow, and losses have light tails.
TASK = {"name": "noisy_regression", "dim": 3, "context": 24, "noise": {"uniform": [0, 5]}}


def recipe(parametrisation: str = "diag", layers: int = 2, task: dict | None = None, **optimiser) -> Recipe:
    settings = {"search_prompts": 512, "prompts": [2048], "iterations": [20], "evaluation_prompts": 20_000}
    settings["wander_steps"] = 200
    return Recipe.from_dict(
        {
            "name": "test",
            "task": task or TASK,
            "model": {"parametrisation": parametrisation, "layers": layers},
            "optimiser": {**settings, **optimiser},
        }
    )


def test_one_layer_reaches_the_closed_form_step():
    """One layer of any family is one gradient step: -omega_yx = E<alpha, w> / E|alpha|^2 = 1 / (n + d + 1)
    without noise, and the adjusted loss is d (1 - n / (n + d + 1)) / 2 = 1.774."""
    task = {"name": "noisy_regression", "dim": 10, "context": 20, "noise": {"fixed": 0}}
    trained = train(recipe("gd++", 1, task, prompts=[8192]))
    omega = float(trained.model.P[0, 0, -1, -1] * trained.model.Q[0, 0, 0, 0])
    assert omega == pytest.approx(-1 / 31, rel=0.02)
    assert abs(trained.loss - 10 * (1 - 20 / 31) / 2) < 4 * trained.stderr + 0.002


def test_families_are_nested():
    """On the same prompts a larger family is never worse (5 % for an early end and the sample it was fitted on)."""
    loss = {name: train(recipe(name, 2)).loss for name in ("gd++", "diag", "free", "full")}
    assert loss["diag"] < 0.5 * loss["gd++"]
    assert loss["full"] < 1.05 * loss["diag"]  # one head, as diag here; free has two
    assert loss["free"] < loss["diag"]


def test_deeper_is_better():
    losses = [train(recipe("gd++", layers, {**TASK, "noise": {"fixed": 0}})).loss for layers in (1, 2, 3)]
    assert losses[1] < 0.1 * losses[0]
    assert losses[2] < 0.1 * losses[1]


class _Stop(BaseException):
    """Stands for Ctrl-C."""


@pytest.mark.parametrize("parametrisation", repeats(["diag", "full"], 1))
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, parametrisation):
    plan = recipe(parametrisation, 2, keep=1, scan_iterations=3, search_iterations=6, tolerance=1e-6)
    whole_run: list[str] = []
    whole = train(plan, watch=lambda step: whole_run.append(f"{step.name} {step.iteration}"))
    seen: list[str] = []
    for stop_after in (1, 4, 11):

        def watch(step, stop=len(seen) + stop_after):  # noqa: B008
            seen.append(f"{step.name} {step.iteration}")
            if len(seen) == stop:
                raise _Stop

        with pytest.raises(_Stop):
            train(plan, record=tmp_path / "record", watch=watch)
        assert (tmp_path / "record").exists()
    resumed = train(plan, record=tmp_path / "record", watch=lambda step: seen.append(f"{step.name} {step.iteration}"))
    assert torch.equal(resumed.model.P, whole.model.P)
    assert torch.equal(resumed.model.Q, whole.model.Q)
    assert resumed.effort == whole.effort
    assert resumed.loss == whole.loss
    assert seen == whole_run  # nothing was left out, nothing done twice
    assert not list(tmp_path.iterdir())  # neither the record nor a temporary file is left


def test_networks_of_several_depths_share_a_record(tmp_path):
    """The deep network is the one it would have been without, and its cost includes what the shallow one searched."""
    steps: list[str] = []
    train(recipe("gd++", 1), record=tmp_path / "record", keep_record=True)
    shared = train(
        recipe("gd++", 2), record=tmp_path / "record", keep_record=True, watch=lambda s: steps.append(s.name)
    )
    alone = train(recipe("gd++", 2))
    assert torch.equal(shared.model.P, alone.model.P)
    assert shared.effort == alone.effort
    assert shared.effort["iterations"] > len(steps)
    assert not any(name.startswith("grow-1") for name in steps)


def test_the_state_is_saved_as_time_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "SAVE_EVERY", 0.0)
    seen = []
    train(recipe("gd++", 1), record=tmp_path / "record", watch=lambda step: seen.append((tmp_path / "record").exists()))
    assert any(seen)


def test_a_record_of_another_recipe_is_refused(tmp_path):
    def stop(step):
        raise _Stop

    with pytest.raises(_Stop):
        train(recipe(), record=tmp_path / "record", watch=stop)
    with pytest.raises(UsageError, match="another recipe"):
        train(recipe().with_seed(1), record=tmp_path / "record")


@pytest.mark.parametrize("content", [b"", b"not a record", b"\x80\x04N."])
def test_a_damaged_record_is_refused(tmp_path, content):
    (tmp_path / "record").write_bytes(content)
    with pytest.raises(UnreadableFile, match="delete it"):
        train(recipe(), record=tmp_path / "record")


def test_seeds_are_explicit():
    first, again, other = (train(recipe().with_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.model.P, again.model.P)
    assert not torch.equal(first.model.P, other.model.P)
    assert first.loss == pytest.approx(other.loss, rel=0.25)  # rare prompts dominate the error


def test_the_model_carries_its_task_and_provenance():
    trained = train(recipe())
    spec = trained.model.spec
    assert task_of(spec.task).to_dict() == task_of(TASK).to_dict()
    assert Recipe.from_dict(spec.provenance["recipe"]) == recipe()
    assert spec.provenance["adjusted_loss"]["mean"] == trained.loss
    assert trained.model.P.dtype == torch.float64


def test_steps_are_accepted_only_downhill_and_overflow_is_survived():
    plan = recipe("gd++", 3)
    family = family_of(plan)
    sample = fresh_sample(plan.task, plan.spec, 256, seed=3)
    losses: list[float] = []
    start = Progress(theta=torch.full((3, 2), -0.4, dtype=torch.float64))
    descend(family, sample, start, iterations=30, tolerance=1e-6, watch=lambda now: losses.append(now.loss))
    assert all(later <= earlier for earlier, later in pairwise(losses))
    huge = Progress(theta=torch.full((3, 2), -1e200, dtype=torch.float64))
    end = descend(family, sample, huge, iterations=30, tolerance=1e-6)
    assert end.done
    assert not end.loss < float("inf")


def test_balancing_changes_no_product():
    P, Q = torch.randn(2, 2, 3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P[1, 1] = 0
    p, q = balanced(P, Q)
    assert torch.allclose(torch.einsum("lhab,lhcd->labcd", p, q), torch.einsum("lhab,lhcd->labcd", P, Q))
    assert torch.allclose(torch.linalg.matrix_norm(p)[0], torch.linalg.matrix_norm(q)[0])
