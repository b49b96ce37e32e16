"""A golden file names what moved, and only that."""

from __future__ import annotations

import dataclasses

import planting
import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.golden import compare_with_golden, read_golden, update_golden
from interp.models.errors import LayoutError, UnreadableFile
from interp.models.transformer import LinearTransformer

PROMPTS = 512


@pytest.fixture(scope="module")
def diag():
    return open_checkpoint("zoo:diag-l4-u5")


@pytest.fixture(scope="module")
def golden(diag, tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "diag.json"
    update_golden(diag, path, prompts=PROMPTS)
    return path


def changed(checkpoint, P, Q):
    model = LinearTransformer(spec=checkpoint.model.spec, P=P, Q=Q)
    return dataclasses.replace(checkpoint, model=model)


def test_the_same_checkpoint_has_not_moved(diag, golden):
    assert compare_with_golden(diag, golden)[1] == []


def test_scrambled_heads_are_no_difference(diag, golden):
    P, Q = planting.scramble(diag.model.P, diag.model.Q, 4, torch.Generator().manual_seed(1))
    assert compare_with_golden(changed(diag, P, Q), golden)[1] == []


def test_one_changed_omega_is_named_with_its_size(diag, golden):
    # A second head adds 5 % of omega_xy of layer 1 and nothing else.
    old = read_golden(golden)["coefficients"]["layer 1"]["xy"]["output"]
    dim = diag.model.spec.width - 1
    P, Q = torch.zeros(2, 4, 1, dim + 1, dim + 1, dtype=torch.float64)
    P[1, 0, range(dim), range(dim)] = 0.05 * old
    Q[1, 0, dim, dim] = 1.0
    moved = compare_with_golden(
        changed(diag, torch.cat([diag.model.P, P], 1), torch.cat([diag.model.Q, Q], 1)), golden
    )[1]
    assert len(moved) == 1
    assert moved[0].startswith("layer 1, omega_xy: ")
    assert f"{old:.6g} -> {1.05 * old:.6g}" in moved[0]
    assert "standard errors" in moved[0]


def test_tolerances_survive_an_update(diag, golden, tmp_path):
    path = tmp_path / "kept.json"
    path.write_text(golden.read_text().replace('"relative": 0.01', '"relative": 0.2'))
    update_golden(diag, path, prompts=PROMPTS)
    assert read_golden(path)["tolerance"]["relative"] == 0.2


@pytest.mark.parametrize(
    ("text", "error"),
    [("", UnreadableFile), ("{", UnreadableFile), ("[]", LayoutError), ('{"format": "other"}', LayoutError)],
)
def test_damaged_golden_files_are_refused(text, error, tmp_path):
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(error):
        read_golden(path)


def test_a_missing_golden_file_says_how_to_make_it(tmp_path):
    with pytest.raises(UnreadableFile, match="--update"):
        read_golden(tmp_path / "absent.json")
