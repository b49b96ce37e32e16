"""Nothing outside of models/tasks asks which task it has: read from the source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import pytest
from test_rooms import MODULES, TREES, within

TASKS = "interp.models.tasks"

# Who may import a task or its prompts by their class, and why. None of them may ask whether something is one.
_TRAINS = "is how networks of one task are trained, registered for it by name"
_PLANTS = "builds networks for one task from a formula"
_PAPER = "reproduces what a paper did on its task"
MAY_IMPORT = {
    "interp.models.closed_form": _PLANTS,
    "interp.models.constructions": _PLANTS,
    "interp.models.training.completion": _TRAINS,
    "interp.models.training.completion_sample": _TRAINS,
    "interp.models.training.embedded": _TRAINS,
    "interp.models.training.factored": _TRAINS,
    "interp.models.training.sample": _TRAINS,
    "interp.models.training.search": _TRAINS,
    "interp.models.training.sequences": _TRAINS,
    "interp.models.training.sparse": _TRAINS,
    "interp.papers.closed_form_law": _PAPER,
    "interp.papers.mesa_losses": _PAPER,
    "interp.papers.mesa_networks": _PAPER,
    "interp.papers.mesa_training": _PAPER,
    "interp.papers.versatile": _PAPER,
}


def _registers(node: ast.ClassDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "register_task" for d in node.decorator_list)


def concrete() -> tuple[set[str], set[str]]:
    """The classes of the files that register a task, and the names of those tasks."""
    classes, names = set(), set()
    for module, tree in TREES.items():
        made = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        tasks = [node for node in made if within(module, TASKS) and _registers(node)]
        if tasks:
            classes |= {node.name for node in made}
        for node in (statement for task in tasks for statement in task.body if isinstance(statement, ast.Assign)):
            if any(isinstance(target, ast.Name) and target.id == "name" for target in node.targets):
                names.add(ast.literal_eval(node.value))
    return classes, names


CLASSES, NAMES = concrete()


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body[0] for node in ast.walk(tree) if isinstance(node, holders) and node.body]
    return {first.value for first in bodies if isinstance(first, ast.Expr)}


def _is_task_name(node: ast.AST) -> bool:
    """task.name, run.task.name, spec.task["name"], task.get("name")."""
    if isinstance(node, ast.Attribute):
        return node.attr == "name" and ast.unparse(node.value).endswith("task")
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.slice) == "'name'" and ast.unparse(node.value).endswith("task")
    return isinstance(node, ast.Call) and ast.unparse(node).endswith("task.get('name')")


def asks(tree: ast.AST, may_import: bool = False, classes: Collection[str] = CLASSES) -> Iterator[str]:
    """Where a module asks which task it has."""
    docstrings = _docstrings(tree)
    for node in ast.walk(tree):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not may_import:
            taken = {alias.name.rpartition(".")[2] for alias in node.names} & set(classes)
            if taken:
                yield f"{where} imports {', '.join(sorted(taken))}"
        elif isinstance(node, ast.Attribute) and node.attr in classes and not may_import:
            yield f"{where} reads {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            named = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)} | {
                n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)
            }
            if named & set(classes):
                yield f"{where} asks for {', '.join(sorted(named & set(classes)))}"
        elif isinstance(node, ast.MatchClass) and ast.unparse(node.cls).rpartition(".")[2] in classes:
            yield f"{where} matches {ast.unparse(node.cls)}"
        elif isinstance(node, ast.Constant) and node.value in NAMES and node not in docstrings:
            yield f"{where} names {node.value!r}"
        elif isinstance(node, ast.Compare) and any(_is_task_name(side) for side in (node.left, *node.comparators)):
            sides = (node.left, *node.comparators)
            if any(isinstance(n, ast.Constant) and not _is_task_name(s) for s in sides for n in ast.walk(s)):
                yield f"{where} compares {ast.unparse(node)}"
        elif isinstance(node, ast.Match) and _is_task_name(node.subject):
            yield f"{where} matches {ast.unparse(node.subject)}"


def test_the_tasks_are_known_to_this_test() -> None:
    assert {"NoisyRegression", "RegressionPrompts", "LinearDynamics", "MatrixCompletion", "SimpleRegression"} <= CLASSES
    assert {"noisy_regression", "linear_dynamics", "matrix_completion", "simple_regression"} == NAMES


@pytest.mark.parametrize("name", [name for name in MODULES if not within(name, TASKS)])
def test_nothing_asks_which_task_it_is(name: str) -> None:
    found = list(asks(TREES[name], name in MAY_IMPORT))
    assert not found, f"{name}: {found}; ask the task or its prompts for what they offer (interp.models.tasks.protocol)"


def test_the_list_of_who_may_import_a_task_has_no_entry_too_many() -> None:
    assert not [name for name in MAY_IMPORT if name not in TREES or not list(asks(TREES[name]))]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from interp.models.tasks import NoisyRegression", 1),
        ("from interp.models.tasks.simple_regression import SimplePrompts as P", 1),
        ("from interp.models import tasks\nx = tasks.LinearDynamics", 1),
        ("isinstance(task, (A, NoisyRegression))", 1),
        ("issubclass(kind, tasks.MatrixCompletion)", 2),
        ("match task:\n    case SimpleRegression(): pass", 1),
        ('run.task.name == "toy"', 1),
        ('spec.task["name"] in ("toy", "other")', 1),
        ('match spec.task["name"]:\n    case "toy": pass', 1),
        ('kinds = {"linear_dynamics": 1}', 1),
        ('"""About noisy_regression."""\ndef f():\n    """noisy_regression"""', 0),
        ("from interp.models.tasks import Examples, task_of\nisinstance(drawn, Examples)\nother.name == task.name", 0),
        ('layer.name == "task"', 0),
    ],
)
def test_the_rule_itself(source: str, count: int) -> None:
    assert len(list(asks(ast.parse(source)))) == count


def test_who_may_import_may_still_not_ask() -> None:
    source = "from interp.models.tasks import NoisyRegression\nx = isinstance(task, NoisyRegression)"
    assert len(list(asks(ast.parse(source), may_import=True))) == 1
