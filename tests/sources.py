"""The syntax trees of modules, for the tests that look at every module: each is parsed once."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


@cache
def nodes_of(module: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(module)))
