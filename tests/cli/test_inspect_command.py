"""``interp-probe inspect``: what a file holds, from its header only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interp.checkpoints.zoo import zoo_names
from interp.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", *arguments])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def matrix(path: Path, size: int = 11) -> str:
    np.save(path, np.eye(size, dtype=np.float32))
    return str(path)


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, matrix(tmp_path / "W.npy"), "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "interp-probe-inspect/1"
    assert document["layout"] == "spin-glass" and document["problem"] is None
    assert document["arrays"] == [{"name": "W", "shape": [11, 11], "dtype": "float32"}]
    assert document["model"]["attention"] == {"keys": "all", "scale": "1/(n+1)"}
    assert (document["layers"], document["heads"], document["dtype"]) == (1, 1, "float32")


def test_text_names_the_essentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, matrix(tmp_path / "W.npy"))
    assert code == 0
    for part in ("W.npy", "spin-glass", "1 layer, 1 head, float32", "x: 10, y: 1", "no residual", "11 x 11", "assumed"):
        assert part in out


def test_markup_in_a_file_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]a\x1b[2J[/red]"
    np.savez(tmp_path / "m.npz", **{name: np.eye(3)})
    code, out, _ = run(capsys, str(tmp_path / "m.npz"))
    assert code == 0
    assert "[red]a" in out and "\x1b[2J" not in out


def test_an_unknown_layout_is_shown_with_its_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "m.npz", A=np.zeros((3, 4)), B=np.zeros(7))
    code, out, _ = run(capsys, str(tmp_path / "m.npz"), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["layout"] is None and document["model"] is None and "--spec" in document["problem"]
    code, out, _ = run(capsys, str(tmp_path / "m.npz"))
    assert code == 0 and "not known" in out and "3 x 4" in out


def test_zoo_models(capsys: pytest.CaptureFixture[str]) -> None:
    for name in zoo_names():
        code, out, _ = run(capsys, f"zoo:{name}")
        assert code == 0 and "canonical" in out


@pytest.mark.parametrize(
    ("content", "spec", "code", "message"),
    [
        (b"", None, 3, "is empty"),
        (b"\x80\x04N.", None, 3, "never unpickled"),
        (None, None, 3, "No such file"),
        ("matrix", "spin-gloss", 2, "did you mean 'spin-glass'"),
        ("matrix", "ahn", 4, "'ahn' is for"),
    ],
)
def test_failures_are_one_line_and_an_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | str | None,
    spec: str | None,
    code: int,
    message: str,
) -> None:
    path = tmp_path / "f.npy"
    if content == "matrix":
        matrix(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    status, out, err = run(capsys, str(path), *(["--spec", spec] if spec else []), "--json")
    assert (status, out) == (code, "")
    assert message in err and err.count("\n") == 1


def test_a_header_is_read_without_torch():
    """Of a canonical file: its header says all there is to say. A process of its own, as this one has torch already."""
    code = (
        "import sys\nfrom interp.cli.main import main\n"
        "try:\n    main(['inspect', 'zoo:closed-form-context', *sys.argv[1:]])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'plotly', 'transformer_lens'} & set(sys.modules), sorted(sys.modules)"
    )
    for options in ([], ["--json"]):
        result = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
