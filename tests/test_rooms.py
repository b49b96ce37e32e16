"""The rooms of the house: who may import whom, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# One direction: models -> checkpoints -> probes -> interp -> reports -> command line. A room may import itself and what
# stands here. Everybody may raise the errors of interp.errors, and read the version.
MAY_IMPORT = {
    "interp.models": ("interp.solvers", "interp.stats"),
    "interp.checkpoints": ("interp.models",),
    "interp.probes": ("interp.models", "interp.checkpoints", "interp.stats"),
    "interp.stats": (),
    "interp.solvers": ("interp.stats",),  # reference solvers know nothing of networks
    # takes results, never models; writes files
    "interp.reports": ("interp.results", "interp.models.atomic"),
    "interp.papers": ("interp",),
    "interp.api": ("interp",),  # what is public
    "interp.cli": ("interp",),
    "interp": ("interp.models", "interp.checkpoints", "interp.probes", "interp.solvers", "interp.stats"),
}
FOLDERS = ("models", "checkpoints", "probes", "reports", "interp")


def modules() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if folder == "interp" else ("interp", *parts)).removesuffix(".__init__")
            yield name, path


MODULES = dict(modules())
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(module: str) -> Iterator[str]:
    """Full names of all modules and members a module imports, also inside functions."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def room(name: str) -> str:
    """The longest entry of MAY_IMPORT that the module belongs to; the modules of interp/ itself are one room."""
    return max((candidate for candidate in MAY_IMPORT if within(name, candidate)), key=len)


def allowed(importer: str, imported: str) -> bool:
    own = room(importer)
    if imported in ("interp", "interp.__version__") or within(imported, "interp.errors"):
        return True
    if room(imported) == own:
        return True
    return any(within(imported, package) for package in MAY_IMPORT[own])


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    wrong = [imported for imported in imports(name) if within(imported, "interp") and not allowed(name, imported)]
    assert not wrong, f"{name} is in {room(name)} and may not import {wrong}"


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("interp.models.gram", "interp.models.transformer.LinearTransformer", True),
        ("interp.models.gram", "interp.results.Analysis", False),
        ("interp.models.gram", "interp.algebra.unrolling", False),
        ("interp.models.gram", "interp.__version__", True),
        ("interp.checkpoints.canonical", "interp.models.specification.ModelSpec", True),
        ("interp.checkpoints.canonical", "interp.analysis.analyse", False),
        ("interp.probes.ridge", "interp.algebra.unrolling.implicit_states", False),
        ("interp.algebra.unrolling", "interp.probes.ridge", True),
        ("interp.analysis", "interp.reports.html", False),
        ("interp.analysis", "interp.cli.main", False),
        ("interp.reports.html", "interp.results.Analysis", True),
        ("interp.reports.html", "interp.errors.UsageError", True),
        ("interp.reports.html", "interp.models.transformer", False),
        ("interp.reports.html", "interp.analysis", False),
        ("interp.solvers.ridge", "interp.models.gram", False),
        ("interp.cli.analyse", "interp.reports.html", True),
    ],
)
def test_the_rule_itself(importer, imported, expected):
    assert allowed(importer, imported) is expected


def importers(library: str) -> set[str]:
    return {name for name in MODULES if any(within(found, library) for found in imports(name))}


def test_transformer_lens_is_imported_in_one_module_alone():
    assert importers("transformer_lens") == {"interp.models.hook_points", "interp.models.hooked"}


def test_pickle_is_imported_nowhere():
    assert not importers("pickle") | importers("dill") | importers("cloudpickle") | importers("joblib")


def test_nothing_prints():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            printing = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not printing, f"{name} line {getattr(node, 'lineno', 0)} calls print"


def test_the_papers_are_imported_by_the_command_line_alone():
    users = importers("interp.papers")
    assert {room(name) for name in users} == {"interp.papers", "interp.cli"}
    used = [name for name in imports("interp.cli.reproduce") if within(name, "interp.papers")]
    assert {name.rpartition(".")[0] for name in used} == {"interp.papers.paper"}  # no paper is known to it by name


# Circles: of what is imported when the package runs (within functions too), not of what only type checkers read.


def runtime_imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported outside of ``if TYPE_CHECKING``."""
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    checked = isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test)
    for node in tree.orelse if checked else ast.iter_child_nodes(tree):
        yield from runtime_imports(node)


def module_of(name: str, known: Collection[str]) -> str | None:
    """The module that a name is or is taken from; none for what is not of this package, and for the ground floor: the
    errors, and the version."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return None if name in ("", "interp", "interp.errors") else name


def child(module: str) -> str:
    """The sub-package of ``interp`` that it belongs to; a module that lies in ``interp`` itself stands for itself."""
    return ".".join(module.split(".")[:2])


def graph(trees: Mapping[str, ast.AST], node: Mapping[str, str]) -> dict[str, set[str]]:
    """Who imports whom; ``node`` says what stands for a module."""
    edges: dict[str, set[str]] = {}
    for importer, tree in trees.items():
        if importer not in node:
            continue
        imported = {module_of(name, trees) for name in runtime_imports(tree)}
        edges.setdefault(node[importer], set()).update(node[m] for m in imported if m is not None)
    return {importer: found - {importer} for importer, found in edges.items()}


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle, its first node again at its end; empty where there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


NODES = {name: name for name in TREES if module_of(name, TREES) is not None}


def test_sub_packages_import_each_other_in_no_circle():
    assert not circle(graph(TREES, {name: child(name) for name in NODES}))


def test_modules_import_each_other_in_no_circle():
    assert not circle(graph(TREES, NODES))


def test_the_search_for_circles_finds_one():
    sources = {
        "interp.a.one": "from interp.b import two",
        "interp.b.two": "def f():\n    from interp.c.three import g",
        "interp.c.three": "import interp.errors\nfrom typing import TYPE_CHECKING",
        "interp.errors": "from interp.a.one import x",
    }

    def found(**changes: str) -> list[str]:
        trees = {name: ast.parse(changes.get(name.rpartition(".")[2], source)) for name, source in sources.items()}
        return circle(graph(trees, {name: child(name) for name in trees if module_of(name, trees) is not None}))

    assert not found()
    assert not found(three="if TYPE_CHECKING:\n    from interp.a.one import x")
    assert set(found(three="if TYPE_CHECKING:\n    pass\nelse:\n    import interp.a.one")) == {
        "interp.a",
        "interp.b",
        "interp.c",
    }
    assert set(found(three="def g():\n    from interp.b.two import f")) == {"interp.b", "interp.c"}
