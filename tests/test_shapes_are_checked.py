"""Shape annotations are enforced while the suite runs: in the first calls of every function, and in every test anew."""

from __future__ import annotations

import first_calls
import pytest
import torch
from jaxtyping import TypeCheckError

from interp.algebra.channels import block_means
from interp.models.words import Words


def wrong_shape() -> None:
    block_means(torch.zeros(3, 4), 1)  # square matrices, says the annotation


@pytest.mark.parametrize("again", [False, True])
def test_a_function_is_checked_until_it_has_been_called_often(again: bool) -> None:
    right = torch.eye(4)
    for _ in range(first_calls.CALLS - 1):
        block_means(right, 2)
    with pytest.raises(TypeCheckError):
        wrong_shape()
    for _ in range(first_calls.CALLS):
        block_means(right, 2)
    with pytest.raises(Exception) as unchecked:
        wrong_shape()
    assert not isinstance(unchecked.value, TypeCheckError)
    first_calls.begin()
    with pytest.raises(TypeCheckError):
        wrong_shape()


def test_what_is_called_in_a_class_is_checked_too() -> None:
    with pytest.raises(TypeCheckError):
        Words(asked=3)  # type: ignore[arg-type]
