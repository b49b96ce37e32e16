"""The task of matrix completion: its laws, its tokens, its optimum, its document."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import Nystroem

from interp.errors import LayoutError, UsageError
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import MatrixCompletion, nystrom, task_of
from interp.models.transformer import LinearTransformer

FIELDS = {"name": "matrix_completion", "dim": 6, "context": 9, "spectrum": {"decay": 0.7, "rank": 4}}
HUGE = 10**400  # a whole number that no float holds


def task(**fields: object) -> MatrixCompletion:
    made = task_of({**FIELDS, **fields})
    assert isinstance(made, MatrixCompletion)
    return made


def spec(dim: int = 6, outputs: int = 2, **fields: object) -> ModelSpec:
    return ModelSpec.from_dict({"tokens": [["x", dim], ["y", outputs]], **fields})


def test_without_noise_the_matrix_has_its_rank_and_the_nystrom_estimate_is_exact() -> None:
    made = task(outputs=3, queries=2)
    drawn = made.sample(50, 1)
    whole = torch.cat([torch.cat([drawn.A, drawn.C], -1), torch.cat([drawn.B, drawn.D], -1)], 1)
    assert whole.shape == (50, 11, 9) and drawn.target.shape == (50, 2, 3)
    assert torch.linalg.matrix_rank(whole, rtol=1e-10).tolist() == [4] * 50
    torch.testing.assert_close(made.oracle(drawn), drawn.D, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(nystrom(drawn.A, drawn.B, drawn.C), drawn.D, rtol=1e-8, atol=1e-10)
    assert torch.equal(drawn.A, made.sample(50, 1).A) and not torch.equal(drawn.A, made.sample(50, 2).A)


def test_machines_hold_equal_blocks_of_columns() -> None:
    masks = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]).double()
    assert torch.equal(task(machines=3).machine_masks, masks)
    assert torch.equal(task().machine_masks, torch.ones(1, 6).double())


def test_entries_have_the_variance_of_the_spectrum() -> None:
    """E X_ij^2 = sum_k spectrum_k^2 / s; 5 standard errors."""
    squares = task(spectrum=[2.0, 1.0, 0.5]).sample(20_000, 3).D[:, 0, 0] ** 2
    assert abs(float(squares.mean()) - 5.25 / 3) < 5 * float(squares.std()) / 20_000**0.5


def test_noise_is_on_what_is_visible_and_the_optimum_beats_the_plain_estimate() -> None:
    made = task(noise=0.1)
    noisy, clean = made.sample(400, 4), task().sample(400, 4)
    assert made.penalty > 0 and task().penalty == 0
    torch.testing.assert_close(noisy.D, clean.D)
    assert abs(float((noisy.A - clean.A).std()) - 0.1) < 0.002
    errors = [
        float((guess - noisy.D).square().mean()) for guess in (made.oracle(noisy), nystrom(noisy.A, noisy.B, noisy.C))
    ]
    assert errors[0] < 0.5 * errors[1] and errors[0] < 0.5 * float(noisy.D.square().mean())


def test_scalar_prediction_is_least_squares() -> None:
    """d' = n' = 1: rows of A are inputs, C their labels, B the query."""
    drawn = task(outputs=1, queries=1).sample(8, 5)
    for A, B, C, best in zip(drawn.A, drawn.B, drawn.C, task(outputs=1, queries=1).oracle(drawn), strict=True):
        w = np.linalg.lstsq(A.numpy(), C[:, 0].numpy(), rcond=1e-10)[0]
        np.testing.assert_allclose(best[0, 0], B[0].numpy() @ w, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", [{"name": "rbf", "features": 3, "width": 2.0}, {"name": "linear", "features": 4}])
def test_a_kernel_matrix_is_extrapolated_from_its_landmarks_as_scikit_learn_does(kernel: dict[str, object]) -> None:
    made = task_of({"name": "matrix_completion", "dim": 7, "context": 7, "outputs": 5, "queries": 5, "kernel": kernel})
    assert isinstance(made, MatrixCompletion) and made.kernel is not None
    drawn, law = made.sample(4, 6), made.kernel
    torch.testing.assert_close(drawn.B, drawn.C.mT)
    whole = torch.cat([torch.cat([drawn.A, drawn.C], -1), torch.cat([drawn.B, drawn.D], -1)], 1)
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-12  # positive semidefinite
    generator = torch.Generator().manual_seed(6)
    made.noise.sample(4, generator)  # drawn first
    points = torch.randn(4, 12, law.features, generator=generator, dtype=torch.float64).numpy()
    for number, best in enumerate(made.oracle(drawn)):
        given = {"kernel": "rbf", "gamma": 1 / (2 * law.width**2)} if law.name == "rbf" else {"kernel": "linear"}
        theirs = Nystroem(n_components=7, random_state=0, **given).fit(points[number, :7])
        features = theirs.transform(points[number, 7:]) / (1.0 if law.name == "rbf" else law.features**0.5)
        # The kernel of 7 close points has condition numbers up to 1e8: its inverse keeps 1e-8 of float64.
        np.testing.assert_allclose(best.numpy(), features @ features.T, rtol=1e-6, atol=1e-7)


def test_tokens_are_rows_and_the_query_label_is_hidden() -> None:
    made = task()
    drawn = made.sample(3, 7)
    context, query = drawn.inputs(spec())
    torch.testing.assert_close(context, torch.cat([drawn.A, drawn.C], -1))
    torch.testing.assert_close(query, torch.cat([drawn.B, torch.zeros_like(drawn.D)], -1))
    swapped, _ = drawn.inputs(ModelSpec.from_dict({"tokens": [["y", 2], ["x", 6]]}))
    torch.testing.assert_close(swapped, torch.cat([drawn.C, drawn.A], -1))
    assert drawn[:2].count == 2 and drawn[:2].context == 9


@pytest.mark.parametrize("keys", ["context", "all"])
def test_the_gram_path_agrees_with_the_hooked_model_on_vector_labels(keys: str) -> None:
    drawn, generator = task().sample(5, 8), torch.Generator().manual_seed(0)
    P, Q = 0.1 * torch.randn(2, 3, 2, 8, 8, generator=generator, dtype=torch.float64)
    model = LinearTransformer(spec=spec(attention={"keys": keys}), P=P, Q=Q)
    grams = drawn.grams(model.spec)
    fast = -forward(head_layers(model, drawn.context), grams.gram, grams.query).queries[-1][..., 6:]
    torch.testing.assert_close(fast, HookedLinearTransformer(model)(*drawn.inputs(model.spec)), rtol=1e-10, atol=1e-12)


def test_documents_round_trip() -> None:
    for fields in (
        {},
        {"noise": 0.1, "outputs": 1},
        {"noise": {"choice": [0, 0.1]}, "machines": 3},
        {"spectrum": [3.0, 1.0]},
        {"spectrum": [1e140, 1.0, 1.0]},
        {"spectrum": None},
        {"context": 6, "spectrum": None, "kernel": {"width": 0.5}},
    ):
        made = task(**fields)
        assert task_of(made.to_dict()) == made
    assert task(spectrum=None).spectrum == tuple(0.7**i for i in range(1, 11))
    assert task().to_dict()["spectrum"] == {"decay": 0.7, "rank": 4}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 0}, "task.dim is 0"),
        ({"queries": 0}, "task.queries is 0"),
        ({"rank": 3}, "unknown field task.rank"),
        ({"spectrum": []}, "task.spectrum"),
        ({"spectrum": [1.0, -1.0]}, "task.spectrum"),
        ({"spectrum": {"decay": 0.7}}, "task.spectrum"),
        ({"spectrum": {"decay": 2, "rank": 1100}}, "leave the range of numbers"),
        ({"spectrum": {"decay": 0.1, "rank": 400}}, "leave the range of numbers"),
        ({"spectrum": {"decay": 1, "rank": 10**12}}, f"rank {10**12}, expected 1 to 10000"),
        ({"spectrum": [1.0] * 10_001}, "rank 10001, expected 1 to 10000"),
        ({"spectrum": [1e200, 1.0]}, "task.spectrum"),
        ({"spectrum": [HUGE, 1.0]}, "task.spectrum"),
        ({"spectrum": {"decay": HUGE, "rank": 2}}, "task.spectrum"),
        ({"noise": HUGE}, "task.noise"),
        ({"noise": {"fixed": 1e200}}, "task.noise"),
        ({"kernel": {"width": 1e200}, "context": 6, "spectrum": None}, "task.kernel.width"),
        ({"machines": 4}, "a divisor of dim = 6"),
        ({"kernel": {"name": "rbf"}, "spectrum": None}, "context = dim"),
        ({"kernel": {"name": "rbf"}, "context": 6}, "the kernel alone"),
        ({"kernel": {"name": "rbf"}, "context": 6, "spectrum": None, "noise": 1}, "the kernel alone"),
        ({"kernel": {"name": "cosine"}, "context": 6, "spectrum": None}, "'cosine'"),
        ({"kernel": {"width": 0}, "context": 6, "spectrum": None}, "task.kernel.width"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        task(**fields)


def test_other_entries() -> None:
    with pytest.raises(LayoutError, match="has no 'context'"):
        task_of({"name": "matrix_completion", "dim": 3})
    with pytest.raises(LayoutError, match="x: 6 and y: 2"):
        task().fits(LinearTransformer(spec=spec(5), Q=torch.zeros(1, 1, 7, 7), P=torch.zeros(1, 1, 7, 7)))
    with pytest.raises(UsageError, match="0 prompts"):
        task().sample(0, 1)
    with pytest.raises(UsageError, match="GiB"):
        task(context=100_000).sample(100_000, 1)
    assert task_of(task().to_dict()) == task()
