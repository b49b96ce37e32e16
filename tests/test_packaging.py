"""The package as an installed thing: one importable name, whatever folder the user works in, and a quick command line.

These tests look at the environment they run in, where the package is expected to be installed as the README says.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("interp", "models", "checkpoints", "probes", "reports")
HEAVY = ("torch", "plotly", "transformer_lens", "pandas", "sklearn", "scipy", "numpy")


def run(folder: Path, *command: str) -> str:
    """Standard output of a command started in ``folder``, with nothing on Python's path but what is installed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def script() -> str:
    found = shutil.which("interp-probe", path=sysconfig.get_path("scripts"))
    assert found, "interp-probe is not installed beside this Python; run the README's installation first"
    return found


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    """A folder outside the repository with a ``models.py`` of the user's own."""
    (tmp_path / "models.py").write_text("OWNER = 'the user'\n", encoding="utf-8")
    return tmp_path


def test_interp_is_the_only_name_the_distribution_provides():
    providers = importlib.metadata.packages_distributions()
    assert {name for name, owners in providers.items() if "interp-probe" in owners} == {"interp"}


def test_a_users_own_models_win_and_the_rooms_have_no_name_of_their_own(user_folder):
    code = """
import importlib, json, models
import interp.models.specification, interp.checkpoints, interp.probes, interp.reports, interp.cli.main
found = []
for name in ("probes", "checkpoints", "reports"):
    try:
        found.append(importlib.import_module(name).__name__)
    except ModuleNotFoundError:
        pass
print(json.dumps([models.OWNER, found, interp.models.specification.__name__]))
"""
    assert json.loads(run(user_folder, sys.executable, "-c", code)) == [
        "the user",
        [],
        "interp.models.specification",
    ]


@pytest.mark.parametrize("inside", [True, False], ids=["in the repository root", "in a user's folder"])
def test_the_command_and_the_rooms_work_from_any_folder(inside, user_folder):
    folder = ROOT if inside else user_folder
    assert "CHECKPOINT" in run(folder, script(), "--help")
    zoo = json.loads(run(folder, script(), "zoo", "--json"))
    assert zoo
    rooms = "interp.errors, interp.checkpoints, interp.probes, interp.reports, interp.results, interp.cli"
    # an installation is of this very tree, and a module comes from where it is edited
    code = f"import {rooms}; print(interp.errors.__file__)"
    assert Path(run(folder, sys.executable, "-c", code).strip()).resolve() == ROOT / "interp" / "errors.py"


@pytest.mark.parametrize(
    "code",
    [
        "from interp.cli.main import main\ntry:\n main(['--help'])\nexcept SystemExit: pass",
        "import interp.pytest_plugin",
    ],
    ids=["interp-probe --help", "the pytest plugin"],
)
def test_what_starts_often_imports_nothing_heavy(code, tmp_path):
    report = f"\nimport sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert run(tmp_path, sys.executable, "-c", code + report).splitlines()[-1] == "[]"


def test_pytest_finds_the_plugin_of_the_installed_package(tmp_path):
    (tmp_path / "test_user.py").write_text("def test_user(recovered_algorithm): pass\n", encoding="utf-8")
    assert "1 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py")


def folders_and_files() -> tuple[set[str], list[PurePath]]:
    """Packages in the tree, by import name, and the files in them that are not Python, relative to the root."""
    packages, others = set(), []
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            relative = path.relative_to(ROOT)
            if (
                path.is_dir()
                or "__pycache__" in path.parts
                or path.suffix in (".md", ".ipynb")
                or "gallery" in path.parts
            ):
                continue  # what people read in the repository
            if path.suffix == ".py":
                packages.add(import_name(relative.parent))
            else:
                others.append(relative)
    return packages, others


def import_name(folder: PurePath) -> str:
    return ".".join(folder.parts if folder.parts[0] == "interp" else ("interp", *folder.parts))


def test_every_package_and_data_file_of_the_tree_is_part_of_the_distribution():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages, others = folders_and_files()
    declared = set(settings["packages"])
    assert packages <= declared, f"not in pyproject.toml: {sorted(packages - declared)}"
    patterns = settings["package-data"]
    left_out = [
        str(path)
        for path in others
        if not any(
            path.relative_to(folder).match(pattern)
            for folder in path.parents
            if folder.parts  # a pattern belongs to a package, and may reach into folders in it
            for pattern in patterns.get(import_name(folder), [])
        )
    ]
    assert not left_out, f"no pattern of package-data in pyproject.toml covers {left_out}"
    assert declared <= packages | {import_name(path.parent) for path in others}, "a declared package is empty"
