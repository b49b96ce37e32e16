"""A task, a family, a layer kind, a probe target and a question from outside the package, each one file that registers
itself: all are in the terminal, on the page and in JSON, and the algorithm is printed in every language."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from interp import analyse, emit, identify, open_checkpoint, probe, render
from interp.checkpoints.canonical import write_checkpoint
from interp.errors import LayoutError
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import AttentionSpec, ModelSpec
from interp.models.tasks import Task
from interp.models.transformer import LinearTransformer
from interp.reports import document
from interp.reports.terminal import print_analysis
from interp.results import Analysis

OMEGAS = (-0.3, -0.2)
DIM, CONTEXT = 3, 8
TOYS = ("heavy_tails", "centring", "centred-gd", "first-coordinate", "quantiles")


def planted(
    toys: SimpleNamespace, omegas: Sequence[float], layers: Sequence[Any] = (), noise: float = 0.0
) -> LinearTransformer:
    """Steps of gradient descent; ``noise`` is added to all weights."""
    spec = ModelSpec(
        tokens=(("x", DIM), ("y", 1)),
        attention=AttentionSpec(scale="1/n"),
        task=toys.toy_task.HeavyTails(dim=DIM, context=CONTEXT).to_dict(),
        added=tuple(layers),
    )
    Q = torch.zeros(len(omegas), 1, DIM + 1, DIM + 1, dtype=torch.float64)
    P = torch.zeros_like(Q)
    Q[:, 0] = torch.diag(torch.tensor([1.0] * DIM + [0.0], dtype=torch.float64))
    P[:, 0, DIM, DIM] = torch.tensor(omegas, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    Q, P = (v + noise * torch.randn(v.shape, generator=generator, dtype=torch.float64) for v in (Q, P))
    return LinearTransformer(spec=spec, Q=Q, P=P)


def saved(model: LinearTransformer, folder: Path) -> str:
    write_checkpoint(model, folder / "model.safetensors")
    return str(folder / "model.safetensors")


@pytest.fixture(scope="module")
def path(toys: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A network of the toy task with the toy layer in every block, which runs the toy family."""
    return saved(planted(toys, OMEGAS, [toys.toy_layer.Centring()]), tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def analysis(path: str) -> Analysis:
    return analyse(path, prompts=256)


def terminal(analysis: Analysis) -> str:
    stream = io.StringIO()
    print_analysis(analysis, Console(file=stream, width=200))
    return stream.getvalue()


def test_the_family_is_chosen_and_its_numbers_are_within_their_intervals(analysis: Analysis) -> None:
    assert analysis.verdict.algorithm == "centred-gd" and (analysis.verdict.fidelity or 0) > 1 - 1e-10
    assert analysis.recovered is not None
    numbers = [(term.number, term.stderr) for _, term in analysis.recovered.terms() if term.number is not None]
    for omega, (value, stderr) in zip(OMEGAS, numbers, strict=True):
        assert stderr is not None and 0 < stderr < 1e-9 and abs(value - omega) < 4 * stderr


def test_intervals_hold_the_numbers_of_a_network_that_is_not_quite_it(toys: SimpleNamespace, tmp_path: Path) -> None:
    """Random weights 1 % as large: they move predictions both ways, and the numbers by no more than errors allow."""
    result = identify(saved(planted(toys, OMEGAS, [toys.toy_layer.Centring()], noise=0.003), tmp_path), prompts=512)
    assert result.verdict.algorithm == "centred-gd" and 0.95 < (result.verdict.fidelity or 0) < 1 - 1e-6
    assert result.recovered is not None
    for omega, (_, term) in zip(OMEGAS, [e for e in result.recovered.terms() if e[1].number], strict=True):
        assert term.number is not None and term.stderr is not None
        assert 1e-6 < term.stderr < 0.05 and abs(term.number - omega) < 4 * term.stderr + 0.01


def test_each_is_in_the_terminal(analysis: Analysis) -> None:
    text = terminal(analysis)
    assert "heavy-tailed" in text and "How large are single errors?" in text
    assert all(name in text for name in ("centring", "centred-gd", "first-coordinate", "0.3000000", "0.2000000"))
    assert analysis.answers["quantiles"].table.rows[1][1] in text


def test_each_is_on_the_page(analysis: Analysis) -> None:
    page = render(analysis).text
    assert all(name.replace("_", " ") in page.replace("_", " ") for name in TOYS)
    assert 'id="quantiles"' in page and "quantiles-plot" in page  # with its plotly figure
    assert "degrees of freedom" in page  # what the task varies


def test_each_is_in_the_json_document(analysis: Analysis) -> None:
    made = json.loads(document.dumps(analysis))
    assert made["task"] == {"name": "heavy_tails", "dim": DIM, "context": CONTEXT, "freedom": 8, "sigma": 0.1}
    assert made["checkpoint"]["added"] == {"centring": {"strength": 1.0}}
    assert made["verdict"]["algorithm"] == made["recovered"]["family"] == "centred-gd"
    assert [f["chosen"] for f in made["families"] if f["name"] == "centred-gd"] == [True]
    (section,) = (s for s in made["sections"] if s["name"] == "quantiles")
    assert len(section["table"]["rows"]) == 3
    scores = {(p["layer"], p["target"]): p["r2"] for p in made["probes"] if p["kind"] == "token"}
    assert {target for _, target in scores} == {"label", "first-coordinate"}
    assert scores[0, "first-coordinate"] > 0.999 and scores[0, "label"] < 0.2 < scores[1, "label"]
    assert "degrees of freedom" in [e["label"] for e in made["evidence"]["stress"]]
    again = document.loads(document.dumps(analysis))
    assert again.answers == analysis.answers and again.recovered == analysis.recovered


def test_what_the_question_draws_survives_json(analysis: Analysis) -> None:
    figure = document.loads(document.dumps(analysis)).answers["quantiles"].figure
    assert figure is not None and figure.panels[0].data[0]["type"] == "scatter"


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_algorithm_is_emitted_as_code_that_checks_itself(path: str, library: str) -> None:
    made = ModuleType("made")
    exec(compile(emit(path, library, prompts=256), "made", "exec"), made.__dict__)
    with contextlib.redirect_stdout(io.StringIO()):
        assert made.check()


@pytest.mark.parametrize("language", ["latex", "text", "html"])
def test_the_algorithm_is_written_out(path: str, language: str) -> None:
    text = emit(path, language, prompts=256)
    assert "centred-gd" in text and "0.3" in text and "0.2" in text


def test_the_target_can_be_asked_for_by_name(path: str) -> None:
    report = probe(path, targets=["first-coordinate"], prompts=256)
    assert {score.target for score in report.probes} == {"first-coordinate"}
    assert [target.source for target in report.targets] == ["the toy"]
    assert "first-coordinate" in render(report).text


def test_the_layer_is_run_with_its_hook_point(path: str, toys: SimpleNamespace) -> None:
    model = open_checkpoint(path).model
    assert model.spec.find(toys.toy_layer.Centring) is not None
    prompts = toys.toy_task.HeavyTails(dim=DIM, context=CONTEXT).sample(5, 0)
    _, cache = HookedLinearTransformer(model).run_with_cache(*prompts.inputs(model.spec))
    first, second = (cache[f"blocks.{layer}.centring.hook_mean"][:, 0] for layer in range(2))
    torch.testing.assert_close(first, prompts.x.mean(1))
    assert float(second.abs().max()) < 1e-12  # centred already


def test_another_network_is_not_called_it(toys: SimpleNamespace, tmp_path: Path) -> None:
    """Without the layer it is gradient descent, though the toy family is tried; random heads are nothing known."""
    plain = identify(saved(planted(toys, OMEGAS), tmp_path), prompts=256)
    assert plain.verdict.algorithm == "gd"
    (toy,) = (family for family in plain.families if family.name == "centred-gd")
    assert not toy.chosen and toy.fidelity is not None and toy.fidelity < 1 - 1e-4  # its algorithm is another
    random = planted(toys, OMEGAS, [toys.toy_layer.Centring()], noise=0.5)
    assert identify(saved(random, tmp_path), prompts=256).verdict.algorithm == "unrecognized"


def test_every_question_is_asked_of_a_plain_network_of_the_task(toys: SimpleNamespace, tmp_path: Path) -> None:
    """What needs more of a task than the protocol has is skipped with a reason, and nothing fails."""
    assert isinstance(toys.toy_task.HeavyTails(dim=DIM, context=CONTEXT), Task)
    result = analyse(saved(planted(toys, OMEGAS), tmp_path), prompts=256)
    assert {"behaviour", "noise"} <= set(result.skipped) and result.evidence.swaps and result.layers
    assert "label" in {row.target for row in result.erasures}
    assert terminal(result) and render(result).text and emit(str(tmp_path / "model.safetensors"), "numpy", prompts=128)


def test_toys_are_unknown_where_nobody_imported_them(path: str) -> None:
    """In a process of its own the file names a layer that is not known, and is refused with a reason."""
    code = f"from interp import open_checkpoint; open_checkpoint({path!r})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)
    assert ran.returncode and LayoutError.__name__ in ran.stderr and "centring" in ran.stderr
