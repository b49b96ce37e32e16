"""The task of linear dynamics: its laws, its tokens, its document."""

from __future__ import annotations

import pytest
import torch

from interp.errors import LayoutError, UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics, task_of

FIELDS = {"name": "linear_dynamics", "dim": 3, "context": 7}
HUGE = 10**400  # a whole number that no float holds


def task(**fields: object) -> LinearDynamics:
    made = task_of({**FIELDS, **fields})
    assert isinstance(made, LinearDynamics)
    return made


def spec(*names: str, dim: int = 3) -> ModelSpec:
    return ModelSpec.from_dict({"tokens": [[name, dim] for name in names], "readout": {"channel": names[0]}})


def test_orthogonal_dynamics_follow_the_recursion() -> None:
    drawn = task(noise=0.0).sample(50, 1)
    torch.testing.assert_close(drawn.W @ drawn.W.mT, torch.eye(3, dtype=torch.float64).expand(50, 3, 3))
    torch.testing.assert_close(drawn.states[:, 1:], torch.einsum("nij,ntj->nti", drawn.W, drawn.states[:, :-1]))
    assert not torch.allclose(drawn.W[0], drawn.W[1])
    assert drawn.context == 7 and drawn.target.shape == (50, 7, 3)


def test_rotations_are_of_haar_measure() -> None:
    """E W = 0 and E tr(W)^2 = 1; without the signs of R the diagonal would lean to one side. 5 standard errors."""
    W = task().sample(4000, 2).W
    trace = torch.diagonal(W, dim1=1, dim2=2).sum(-1)
    assert float(W.mean(0).abs().max()) < 5 * (1 / 3 / 4000) ** 0.5
    assert abs(float((trace**2).mean()) - 1.0) < 5 * float((trace**2).std()) / 4000**0.5


def test_contracting_dynamics_have_the_spectrum_of_the_paper_and_stay_in_bounds() -> None:
    drawn = task(dynamics="contracting", dim=5, context=50).sample(200, 3)
    values = torch.linalg.eigvals(drawn.W)
    assert float(values.imag.abs().max()) < 1e-6  # eigenvalues of ill-conditioned matrices are not sharper
    top = values.real.max(-1).values
    torch.testing.assert_close(top, torch.full_like(top, 0.9), atol=1e-6, rtol=0)
    assert float(values.real.min()) > 0.3 - 1e-6
    assert float(drawn.states.abs().max()) <= 2.0


def test_a_fixed_teacher_is_one_matrix_whatever_the_seed() -> None:
    first, second = (task(dynamics="fixed", teacher=4).sample(5, seed) for seed in (1, 2))
    assert torch.equal(first.W[0], second.W[3]) and not torch.equal(first.states, second.states)
    assert not torch.equal(first.W[0], task(dynamics="fixed", teacher=5).sample(1, 1).W[0])


def test_both_laws_of_the_first_state() -> None:
    uniform = task(initial={"uniform": 0.5}).sample(3000, 1).states[:, 0]
    normal = task(initial={"normal": 2.0}).sample(3000, 1).states[:, 0]
    assert float(uniform.abs().max()) <= 0.5 and float(uniform.abs().max()) > 0.49
    assert float(normal.std()) == pytest.approx(2.0, rel=5 / (2 * 9000) ** 0.5)


def test_predicting_zero_has_the_published_loss() -> None:
    """Half of E|s|^2 of the 10 coordinates of U(-1, 1): 10/6, and 1.6749 in the authors' results."""
    drawn = task(dim=10, context=50).sample(2000, 5)
    assert float((drawn.target**2).sum(-1).mean()) / 2 == pytest.approx(10 / 6, rel=0.02)


def test_noise_has_the_stated_size() -> None:
    drawn = task(noise={"choice": [0.1, 0.3]}, context=40, dim=6).sample(300, 6)
    residual = drawn.states[:, 1:] - torch.einsum("nij,ntj->nti", drawn.W, drawn.states[:, :-1])
    assert set(drawn.sigma.tolist()) == {0.1, 0.3}
    ratio = residual.flatten(1).std(-1) / drawn.sigma
    assert float((ratio - 1).abs().max()) < 5 / (2 * 240) ** 0.5


def test_tokens_of_four_channels() -> None:
    drawn = task(start=0.5).sample(4, 7)
    (tokens,) = drawn.inputs(spec("out", "query", "state", "previous"))
    s = drawn.states
    assert torch.equal(tokens[:, 2, 6:9], s[:, 2]) and torch.equal(tokens[:, 2, 3:6], s[:, 2])
    assert torch.equal(tokens[:, 2, 9:], s[:, 1]) and torch.equal(tokens[:, 0, 9:], torch.zeros(4, 3).double())
    torch.testing.assert_close(tokens[:, 2, :3], 0.5 * s[:, 2])
    (zero,) = task().sample(4, 7).inputs(spec("out", "query", "state", "previous"))
    assert not zero[..., :3].any()


def test_the_task_says_what_channels_hold() -> None:
    drawn = task(tokens=["zero", "zero", "current", "previous"]).sample(2, 7)
    (tokens,) = drawn.inputs(spec("a", "b", "c", "d"))
    assert not tokens[..., :6].any() and torch.equal(tokens[..., 6:9], drawn.states[:, :-1])
    matrix = [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [3.0, 0.0, 0.0]]
    (tokens,) = task(start=matrix).sample(2, 7).inputs(spec("a", "b", "c"))
    torch.testing.assert_close(tokens[0, 0, :3], torch.tensor(matrix).double() @ tokens[0, 0, 3:6])


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "d", "e")])
def test_channels_that_do_not_fit_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(LayoutError, match=r"makes tokens of 1 .* or 3 .* or 4"):
        task().sample(1, 0).inputs(spec(*names))
    with pytest.raises(LayoutError, match="makes tokens of 2 "):
        task(tokens=["current", "previous"]).sample(1, 0).inputs(spec("a", "b", "c"))
    with pytest.raises(LayoutError, match="of size 3"):
        task().sample(1, 0).inputs(spec("a", dim=4))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dynamics": "fixed", "teacher": 3},
        {"noise": {"uniform": [0, 1]}, "initial": {"normal": 1}, "state_clip": 3},
        {"tokens": ["zero", "zero", "current", "previous"], "start": 0.5},
        {"start": [[1, 0, 0], [0, 1, 0], [0, 0, 2]]},
    ],
)
def test_the_document_comes_back(fields: dict[str, object]) -> None:
    made = task(**fields)
    again = task(**made.to_dict())
    assert again == made and torch.equal(again.sample(3, 1).states, made.sample(3, 1).states)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dynamic": "fixed"}, "unknown field task.dynamic; did you mean 'dynamics'"),
        ({"dynamics": "ortogonal"}, "did you mean 'orthogonal'"),
        ({"dim": 0}, "task.dim is 0"),
        ({"context": True}, "task.context is True"),
        ({"initial": {"unifrom": 1}}, "did you mean 'uniform'"),
        ({"initial": {"normal": -1}}, "expected a positive number"),
        ({"initial": 1}, "task.initial is 1"),
        ({"noise": {"fixd": 1}}, "did you mean 'fixed'"),
        ({"noise": -0.1}, "expected finite numbers of 0 or more"),
        ({"noise": {"fixed": HUGE}}, "task.noise"),
        ({"initial": {"normal": HUGE}}, "task.initial.normal"),
        ({"state_clip": HUGE}, "task.state_clip"),
        ({"start": HUGE}, "task.start"),
        ({"state_clip": "x"}, "task.state_clip"),
        ({"teacher": 3}, 'only dynamics "fixed" has a teacher'),
        ({"dynamics": "fixed", "teacher": -1}, "expected a seed"),
        ({"tokens": "current"}, "expected a list"),
        ({"tokens": ["curent"]}, "did you mean 'current'"),
        ({"tokens": []}, "task.tokens is empty"),
        ({"start": [[1.0]]}, "3 rows of 3"),
        ({"start": "I"}, "task.start is 'I'"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], said: str) -> None:
    with pytest.raises(LayoutError, match=said.replace("[", r"\[")):
        task(**fields)


def test_missing_fields_and_counts() -> None:
    with pytest.raises(LayoutError, match="no 'context'"):
        task_of({"name": "linear_dynamics", "dim": 3})
    with pytest.raises(UsageError, match="expected 1 or more"):
        task().sample(0, 1)
    with pytest.raises(LayoutError, match=r"a single prompt of task\.context 1000000000000 and task\.dim 3"):
        task(context=10**12).sample(1, 1)
    with pytest.raises(UsageError, match=f"expected {task().most_prompts} or fewer"):
        task().sample(task().most_prompts + 1, 1)
