"""The language of weights and of numbers: against numpy, and against anything a person may type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.checkpoints.expressions import parse_weights
from interp.checkpoints.grammar import number
from interp.errors import LayoutError

D = 3
_random = np.random.default_rng(0)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "W": _random.normal(size=(D, D)),
    "layers.0.W_q": _random.normal(size=(D, D)),
    "net/~/k.T": _random.normal(size=(D, D)),
    "stack": _random.normal(size=(2, D, D)),
}
TENSORS = {name: torch.tensor(value) for name, value in ARRAYS.items()}


def evaluate(text: str, tensors: dict[str, torch.Tensor] | None = None) -> torch.Tensor | float:
    tensors = TENSORS if tensors is None else tensors
    bound = parse_weights(text, "weights.Q").bind({name: tuple(value.shape) for name, value in tensors.items()})
    return bound.evaluate(tensors)


def matrix(text: str, tensors: dict[str, torch.Tensor] | None = None) -> np.ndarray[Any, Any]:
    value = evaluate(text, tensors)
    assert isinstance(value, torch.Tensor) and value.ndim == 4
    return value.numpy()


# Pairs of a text and what it must give, built side by side: the second half never goes through our parser.
leaves = st.sampled_from(
    [
        ("W", ARRAYS["W"]),
        ("'W'", ARRAYS["W"]),
        ("layers.0.W_q", ARRAYS["layers.0.W_q"]),
        ("'net/~/k.T'", ARRAYS["net/~/k.T"]),
        ('"net/~/k.T"', ARRAYS["net/~/k.T"]),
        ("stack[1]", ARRAYS["stack"][1]),
        ("stack[-2]", ARRAYS["stack"][0]),
    ]
)
numbers = st.sampled_from(["2", "0.5", "1e-1", "3.", "-2", "(-0.25)"])


def grow(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        inner.map(lambda e: (f"({e[0]}).T", e[1].T)),
        inner.map(lambda e: (f"-({e[0]})", -e[1])),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}) @ ({p[1][0]})", p[0][1] @ p[1][1])),
        st.tuples(numbers, inner).map(lambda p: (f"{p[0]} * ({p[1][0]})", float(p[0].strip("()")) * p[1][1])),
        st.tuples(inner, numbers).map(lambda p: (f"({p[0][0]})*{p[1]}", p[0][1] * float(p[1].strip("()")))),
        inner.map(lambda e: (f"I @ ({e[0]}) @ I.T", e[1])),
    )


@settings(max_examples=200)
@given(pair=st.recursive(leaves, grow, max_leaves=6))
def test_agrees_with_numpy(pair: tuple[str, Any]) -> None:
    text, expected = pair
    # A few products of well-scaled 3 x 3 matrices in float64, in the same order: rounding alone.
    np.testing.assert_allclose(matrix(text)[0, 0], expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("W.T @ layers.0.W_q", ARRAYS["W"].T @ ARRAYS["layers.0.W_q"]),
        ("-W.T", -ARRAYS["W"].T),
        ("W.T.T", ARRAYS["W"]),
        ("2*W@W", 2 * ARRAYS["W"] @ ARRAYS["W"]),
        ("--W", ARRAYS["W"]),
    ],
)
def test_precedence(text: str, expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(matrix(text)[0, 0], expected, rtol=1e-14)


@pytest.mark.parametrize(("text", "value"), [("I", 1.0), ("-I", -1.0), ("2 * I", 2.0), ("I.T @ I * 3 * 0.5", 1.5)])
def test_multiples_of_the_identity_have_no_size(text: str, value: float) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize("corner", ["1", "0", "-2.5"])
def test_pad_appends_a_diagonal_entry(corner: str) -> None:
    expected = np.zeros((D + 1, D + 1))
    expected[:D, :D] = ARRAYS["W"].T
    expected[D, D] = float(corner)
    np.testing.assert_array_equal(matrix(f"pad(W.T, {corner})")[0, 0], expected)
    assert (matrix("pad(stack, 1)")[..., -1, -1] == 1).all()


def test_layers_and_heads_by_name() -> None:
    tensors = {f"blocks.{a}.h{b}.Q": torch.full((2, 2), 10.0 * a + b) for a in range(12) for b in range(3)}
    value = matrix("blocks.{l}.h{h}.Q", tensors)
    assert value.shape == (12, 3, 2, 2)
    np.testing.assert_array_equal(value[..., 0, 0], 10 * np.arange(12)[:, None] + np.arange(3))
    one = {f"b{a}": torch.full((2, 2), float(a)) for a in (1, 2, 3)}
    np.testing.assert_array_equal(matrix("b{l}", one)[:, 0, 0, 0], [1, 2, 3])  # counted from 1
    assert matrix("b{h}", one).shape == (1, 3, 2, 2)


def test_layers_and_heads_by_index() -> None:
    stack = torch.arange(2 * 3 * 2 * 4, dtype=torch.float64).reshape(2, 3, 2, 2, 2)
    np.testing.assert_array_equal(matrix("A[l,h,1]", {"A": stack}), stack[:, :, 1].numpy())
    np.testing.assert_array_equal(matrix("A[h, l, 0].T", {"A": stack}), stack[:, :, 0].permute(1, 0, 3, 2).numpy())
    np.testing.assert_array_equal(matrix("A[l]", {"A": stack[0]}), stack[0].numpy())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("W[1:, :2].T @ W[1:, :2]", ARRAYS["W"][1:, :2].T @ ARRAYS["W"][1:, :2]),
        ("W[:, -2:] @ W[:-1, :]", ARRAYS["W"][:, -2:] @ ARRAYS["W"][:-1]),
        ("stack[1, 0:3]", ARRAYS["stack"][1]),
        ("stack[-1, :, 0:2].T @ W", ARRAYS["stack"][1][:, :2].T @ ARRAYS["W"]),
    ],
)
def test_slices_are_those_of_numpy(text: str, expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(matrix(text)[0, 0], expected, rtol=1e-14)


def test_heads_side_by_side() -> None:
    """Four heads of key size 2 in one 8 x 5 matrix, against einsum over an axis of heads."""
    q, k, v, o = _random.normal(size=(4, 2, 8, 5))
    tensors = {
        f"{name}{layer}": torch.tensor(value[layer])
        for name, value in zip("qkvo", (q, k, v, o), strict=True)
        for layer in range(2)
    }
    split = [value.reshape(2, 4, 2, 5) for value in (q, k, v, o)]
    made = matrix("heads(q{l}, 4).T @ heads(k{l}, 4)", tensors)
    np.testing.assert_allclose(made, np.einsum("lhka,lhkb->lhab", split[0], split[1]), rtol=1e-13)
    columns = matrix("heads(o{l}.T.T, 4).T @ heads(v{l}, 4)", tensors)
    np.testing.assert_allclose(columns, np.einsum("lhka,lhkb->lhab", split[3], split[2]), rtol=1e-13)
    for layout, axes in (("heads", "lhkd"), ("interleaved", "lkhd")):
        q_of, k_of = (f"{layout}(q{{l}}, 4).T", f"{layout}(k{{l}}, 4)")
        expected = np.einsum(
            f"{axes[:-1]}a,{axes[:-1]}b->lhab",
            q.reshape(2, *(4 if a == "h" else 2 for a in axes[1:3]), 5),
            k.reshape(2, *(4 if a == "h" else 2 for a in axes[1:3]), 5),
        )
        np.testing.assert_allclose(matrix(f"{q_of} @ {k_of}", tensors), expected, rtol=1e-13)
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        for text in ("q{l}.T @ k{l}", "heads(q{l}, 2).T @ heads(k{l}, 2)", "2 * (q{l}.T @ (0.5 * k{l}))"):
            said = parse_weights(text, "weights.Q").with_heads(layout, 4).bind(shapes).evaluate(tensors)
            assert isinstance(said, torch.Tensor)
            np.testing.assert_allclose(said.numpy(), expected, rtol=1e-13)
    np.testing.assert_allclose(made.sum(1), matrix("q{l}.T @ k{l}", tensors)[:, 0], rtol=1e-12)


@pytest.mark.parametrize(("shape", "expected"), [((D, D), (1, 1)), ((5, D, D), (5, 1)), ((5, 2, D, D), (5, 2))])
def test_axes_in_front_are_layers_then_heads(shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    value = matrix("A", {"A": torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)})
    assert value.shape == (*expected, D, D)
    assert (value.ravel() == np.arange(math.prod(shape))).all()


def test_a_stack_of_heads_in_each_layer() -> None:
    tensors = {f"l{a}": torch.full((2, D, D), float(a)) for a in range(3)}
    value = matrix("l{l}", tensors)
    assert value.shape == (3, 2, D, D)
    np.testing.assert_array_equal(value[:, :, 0, 0], [[0, 0], [1, 1], [2, 2]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("W_", "did you mean 'W'"),
        ("layers.{l}.W_k", "did you mean 'layers.0.W_q'"),
        ("W @", "it ends too early"),
        ("", "it ends too early"),
        ("W W", "'W' is not expected there"),
        ("(W", r"'\)' is missing"),
        ("W + W", r"'\+' is not expected there"),
        ("W ** 2", r"'\*' is not expected there"),
        ("W * W", "the matrix product is @"),
        ("2 @ W", "a number multiplies with"),
        ("W @ 2 * I", "a number multiplies with"),  # read from the left
        ("3", "it is a number"),
        ("stack[2]", r"index 2 is outside 'stack' of shape \(2, 3, 3\)"),
        ("stack[0,0,0,0]", "4 indices"),
        ("stack[0.5]", "no index"),
        ("stack[l,l]", "no index"),
        ("stack[x]", "no index"),
        ("W.T[0]", r"'\[' is not expected"),
        ("W[0]", r"shape \(3,\), expected a matrix"),
        ("W[0].T", ".T needs a matrix"),
        ("W[0] @ W", "@ needs a matrix"),
        ("stack[l] @ stack.T[0]", r"'\[' is not expected"),
        ("pad(W)", "',' is missing"),
        ("pad(W, W)", "not a number"),
        ("pad(I, 1)", "pad needs a tensor"),
        ("pad(W, 1) @ W", r"\(4, 4\) and \(3, 3\) do not multiply"),
        ("heads(W, 0)", "no number of heads"),
        ("heads(W, 1.5)", "no number of heads"),
        ("heads(W, W)", "not a number"),
        ("heads(I, 2)", "heads needs a tensor"),
        ("heads(W, 2)", "3 rows are not those of 2 heads"),
        ("heads(heads(W, 3), 1)", "the number of heads differs"),
        ("W[1:-]", "no index"),
        ("W[2:1, :]", "expected a matrix"),
        ("W[::2]", "':' is not expected|is missing"),
        ("__import__('os')", r"'\(' is not expected|names the tensor"),
        ("W; W", "makes no sense"),
        ("W.__class__", "names the tensor 'W.__class__'"),
        ("lambda: W", "':' is not expected"),
        ("1e999 * W", "too large"),
        ("(" * 5000 + "W" + ")" * 5000, "expected at most 1000"),
        ("(" * 400 + "W" + ")" * 400, "nests deeper"),
        ("-" * 900 + "W", "nests deeper"),
    ],
)
def test_errors_say_what_is_wrong_in_one_line(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as caught:
        evaluate(text)
    assert "\n" not in str(caught.value)


def test_a_missing_layer_is_an_error_not_a_smaller_model() -> None:
    tensors = {f"b{a}": torch.eye(2) for a in (0, 1, 3)}
    with pytest.raises(LayoutError, match="3 such tensors, but not 'b2'"):
        evaluate("b{l}", tensors)
    heads = {name: torch.eye(2) for name in ("b0h0", "b0h1", "b1h0")}
    with pytest.raises(LayoutError, match="not 'b1h1'"):
        evaluate("b{l}h{h}", heads)
    with pytest.raises(LayoutError, match=r"the number of layers differs: 3 in 'b{l}', 2 in 'c{l}'"):
        evaluate("b{l} @ c{l}", {f"{n}{a}": torch.eye(2) for n, count in (("b", 3), ("c", 2)) for a in range(count)})
    with pytest.raises(LayoutError, match="different shapes"):
        evaluate("b{l}", {"b0": torch.eye(2), "b1": torch.eye(3)})


@settings(max_examples=300)
@given(text=st.text(alphabet="W stack.T@*-+()[],:lhI01.5e'\"{}padehs_D/sqrt", max_size=30) | st.text(max_size=20))
def test_whatever_is_typed_gives_a_value_or_a_layout_error(text: str) -> None:
    for read in (lambda: evaluate(text), lambda: number(text, "task.dim", 5)):
        try:
            read()
        except LayoutError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D", 11), ("D-1", 10), ("(D-1)/2", 5), ("2*D - 1", 21), ("1/sqrt(D-2)", 1 / 3), ("-D+1", -10), ("0.5", 0.5),
        ("D - 1 - 1", 9), ("100/D/2", 100 / 11 / 2), ("sqrt(D*D)", 11), ("1e2", 100), ("--1", 1),
    ],
)  # fmt: skip
def test_numbers(text: str, expected: float) -> None:
    value = number(text, "task.dim", 11)
    assert value == pytest.approx(expected, rel=1e-15)
    assert isinstance(value, int) == float(expected).is_integer()


@pytest.mark.parametrize(
    "text", ["1/(D-11)", "sqrt(10-D)", "1e999", "1e300*1e300", "d", "D^2", "", "D D", "W", "sqrt D", "()"]
)
def test_numbers_without_value(text: str) -> None:
    with pytest.raises(LayoutError, match=r"task\.dim"):
        number(text, "task.dim", 11)
