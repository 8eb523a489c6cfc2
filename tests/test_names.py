"""Names of classes and constants stand once; functions take few parameters."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.sources import nodes_of, tree_of

PACKAGE = Path(__file__).parents[1] / "kip33"
MOST_PARAMETERS = 8
REASON = "# parameters: "  # and why, beside the few that take more
MODULES = sorted(PACKAGE.rglob("*.py"))


def classes(module: Path) -> Iterator[str]:
    return (node.name for node in nodes_of(module) if isinstance(node, ast.ClassDef))


def public_constants(module: Path) -> Iterator[str]:
    for node in tree_of(module).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if node.value and name.isupper() and not name.startswith("_"):
                yield name


def test_each_class_and_each_public_constant_stands_once() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for name in (*classes(path), *public_constants(path)):
            places[name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_functions_have_at_most_eight_parameters_or_a_reason() -> None:
    found = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for node in nodes_of(path):
            if not isinstance(node, ast.FunctionDef):
                continue
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            count = len([n for n in names if n not in ("self", "cls")]) + len(node.args.kwonlyargs)
            is_command = any("click.command" in ast.unparse(d) for d in node.decorator_list)
            if count > MOST_PARAMETERS and not is_command and REASON not in lines[node.lineno - 1]:
                found.append(f"{path.relative_to(PACKAGE)}: {node.name} has {count}")
    assert found == []
