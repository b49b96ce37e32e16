"""The networks of suite.py: each opens, says where it comes from, and is what it says, by the package's own pass."""

from __future__ import annotations

import argparse
import ast
import functools
import math
from pathlib import Path
from typing import Any

import pytest
import suite
import torch
import train

from interp.checkpoints.opening import open_checkpoint
from interp.models.tasks.registry import task_of
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer

PROMPTS = 2048
ERRORS = 5  # standard errors that the means of two samples may lie apart; squared errors have heavy tails
FILES = suite.files()

every_network = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@functools.cache
def opened(path: Path) -> LinearTransformer:
    return open_checkpoint(str(path)).model


def settings(path: Path) -> argparse.Namespace:
    return argparse.Namespace(**opened(path).spec.provenance["settings"])


@functools.cache
def drawn(path: Path) -> tuple[Any, torch.Tensor]:
    """Prompts of the task that the file names, and what the package's token-by-token pass predicts for them."""
    model = opened(path).to(torch.float64)
    prompts = task_of(model.spec.task).sample(PROMPTS, 0)
    return prompts, predict(model, *prompts.inputs(model.spec))[:, 0, 0]


def test_the_trainer_stands_alone():
    tree = ast.parse(Path(train.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} == {
        "__future__", "argparse", "collections", "json", "math", "os", "pathlib", "safetensors", "sys", "time", "torch"
    }  # fmt: skip


def test_there_are_few_bytes_and_every_file_belongs_to_a_run():
    assert sum(path.stat().st_size for path in FILES) < 1_000_000
    assert {path.stem.rsplit("-0", 1)[0] for path in FILES} == set(suite.RUNS)


@every_network
def test_a_file_says_how_it_was_made(path):
    model = opened(path)
    recorded = model.spec.provenance
    name = path.stem.rsplit("-0", 1)[0]
    given = suite.given(name)
    assert recorded["settings"] == {key: value for key, value in vars(given).items() if key != "out"}
    assert recorded["seed"] == given.seed and recorded["held_out"]["seed"] == train.HELD_OUT_SEED + given.seed
    assert recorded["step"] == (given.steps if path.stem == name else int(path.stem.rsplit("-", 1)[1]))
    assert model.Q.dtype == torch.float32
    assert model.Q.shape == (given.layers * given.loops, given.heads, given.dim + 1, given.dim + 1)
    assert (model.spec.attention.keys, model.spec.attention.scale) == (given.keys, given.scale)
    rank = torch.linalg.matrix_rank(model.P.double(), rtol=1e-5)
    assert int(rank.max()) <= (given.head_size or given.dim + 1)
    for start in range(given.layers, len(model.Q), given.layers):
        assert torch.equal(model.Q[start : start + given.layers], model.Q[: given.layers])


@every_network
def test_both_passes_agree_prompt_by_prompt(path):
    prompts, expected = drawn(path)
    given, model = settings(path), opened(path).to(torch.float64)
    identity = torch.eye(model.Q.shape[-1], dtype=torch.float64).expand_as(model.Q[0])
    layers = [(identity, q, p, identity) for q, p in zip(model.Q, model.P, strict=True)]
    tokens = train.tokens_of(
        {"x": prompts.x, "y": prompts.y, "query": prompts.x_query, "target": prompts.target[:, 0, 0]}
    )
    torch.testing.assert_close(train.predict(given, layers, tokens), expected, rtol=1e-9, atol=1e-9)


@every_network
def test_the_recorded_losses_are_those_of_the_package_within_their_sampling_error(path):
    prompts, prediction = drawn(path)
    recorded = opened(path).spec.provenance["held_out"]
    target = prompts.target[:, 0, 0]
    best = task_of(opened(path).spec.task).oracle(prompts)[:, 0, 0]
    for name, answer in (("loss", prediction), ("zero", torch.zeros_like(target)), ("ridge", best)):
        errors = (answer - target).square()
        here = float(errors.std()) / math.sqrt(len(errors))
        there = recorded["stderr"] if name == "loss" else here * math.sqrt(len(errors) / recorded["prompts"])
        error = math.hypot(here, there)
        assert float(errors.mean()) == pytest.approx(recorded[name], abs=ERRORS * error + 1e-12), name
    assert recorded["ridge"] <= recorded["loss"]


@pytest.mark.parametrize("name", suite.RUNS)
def test_those_that_did_not_learn_are_marked(name):
    recorded = opened(suite.path_of(name)).spec.provenance["held_out"]
    bar = suite.LEARNED * recorded["zero"]
    assert (recorded["loss"] >= bar) == (name in suite.UNTRAINED | suite.EXPLODING)
    assert (recorded["trimmed"] >= bar) == (name in suite.UNTRAINED)
