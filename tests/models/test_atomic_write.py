"""A reader, or a crash, never meets half a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from interp.errors import UsageError
from interp.models.atomic import write_atomically


def test_writes_bytes_and_text(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"\x00\xff")
    write_atomically(tmp_path / "b", "ω\n")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b").read_bytes() == "ω\n".encode()


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    target = tmp_path / "model.safetensors"
    target.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UsageError if isinstance(error, OSError) else KeyboardInterrupt):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_bytes(b"old")
    seen = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (seen.append(target.read_bytes()), real(number)))
    write_atomically(target, b"new")
    assert seen == [b"old"]
    assert target.read_bytes() == b"new"


def test_permissions_and_links_survive(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("n" * 255), b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"


@pytest.mark.parametrize("place", ["missing/file", "folder", "\0", "n" * 300])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write") as caught:
        write_atomically(tmp_path / place, b"x")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(UsageError, match="device"):
        write_atomically(os.devnull, b"x")
    assert not Path(os.devnull).is_file()
