"""--csv and --parquet: one file a table, in folders that are made, or refused before the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]
FEW = "128"  # prompts


def test_tables_of_identify_hold_the_numbers_of_the_document(quick, call: Run, tiny: str, tmp_path: Path) -> None:
    csv, parquet = tmp_path / "new" / "csv", tmp_path / "parquet"
    ended = call("identify", tiny, "--prompts", FEW, "--json", "--csv", str(csv), "--parquet", str(parquet))
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    assert {path.stem for path in csv.iterdir()} == {path.stem for path in parquet.iterdir()}
    for frame in (pd.read_csv(csv / "coefficients.csv"), pd.read_parquet(parquet / "coefficients.parquet")):
        row = frame[(frame["kind"] == "omega") & (frame["layer"] == 1) & (frame["name"] == "yx")].iloc[0]
        assert row["output"] == pytest.approx(document["layers"][1]["omega"]["yx"]["output"], rel=1e-12)
        assert row["checkpoint"] == "tiny.safetensors"
    families = pd.read_csv(csv / "families.csv")
    assert families["fidelity_low"].iloc[0] == pytest.approx(document["families"][0]["fidelity_ci"][0])


def test_the_main_command_has_tables_of_its_evidence(quick, call: Run, tiny: str, tmp_path: Path) -> None:
    assert call(tiny, "--prompts", FEW, "--csv", str(tmp_path / "tables")).code == 0
    swaps = pd.read_csv(tmp_path / "tables" / "evidence_swaps.csv")
    assert swaps["layer"].tolist() == [0, 1] and "swapped_fidelity_low" in swaps


def test_tables_of_a_sweep_have_a_row_for_each_checkpoint(quick, call: Run, tiny: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no checkpoint")
    places = ("--out", str(tmp_path / "out"), "--csv", str(tmp_path / "tables"))
    assert call("sweep", tiny, str(broken), "--prompts", FEW, *places).code == 5
    frame = pd.read_csv(tmp_path / "tables" / "sweep.csv")
    assert frame["algorithm"].tolist()[0] == "diag" and frame["exit_code"].tolist() == [0, 3]


def test_tables_of_probe(call: Run, tiny: str, tmp_path: Path) -> None:
    ended = call("probe", tiny, "--prompts", FEW, "--target", "w", "--layers", "0,2", "--csv", str(tmp_path / "t"))
    assert (ended.code, ended.err) == (0, "")
    assert set(pd.read_csv(tmp_path / "t" / "probes.csv")["layer"]) == {0, 2}


@pytest.mark.parametrize("option", ["--csv", "--parquet"])
def test_what_cannot_be_written_is_refused_first(
    call: Run, tiny: str, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interp.cli.running.use_one_thread", None)  # nothing may be analysed
    file = tmp_path / "file"
    file.write_text("")
    ended = call("identify", tiny, option, str(file / "tables"))
    assert ended.code == 2 and option in ended.err and ended.err.count("\n") == 1


def test_parquet_without_pyarrow_is_refused_first(call: Run, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.cli.running.importlib.util.find_spec", lambda name: None)
    ended = call("identify", tiny, "--parquet", "tables")
    assert ended.code == 2 and "pyarrow" in ended.err and ended.err.count("\n") == 1
