"""Collect every text a user can see from the source, into the one file `messages.txt`.

A text is a string or an f-string of two or more words that is no docstring, or the docstring of a
click command, which is its help. Placeholders are shown as {}. `python -m tests.messages.collect`
writes the file.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

PROJECT = Path(__file__).parents[2]
MESSAGES = Path(__file__).with_name("messages.txt")
HAS_WORDS = re.compile(r"[A-Za-z]{2}\S* +\S*[A-Za-z{]|\} \S*[A-Za-z]{2}")
TABLES = {"print_table", "print_rows", "print_answers"}


def messages_of(source: str) -> set[str]:
    """Return the texts of a module, its docstrings left out except the help of commands."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    headings = {id(text) for node in nodes if _is_table(node) for text in ast.walk(node)}
    return {
        text
        for node, text in _texts_in(tree)
        if id(node) not in docstrings
        and (HAS_WORDS.search(text) or (id(node) in headings and any(c.isalpha() for c in text)))
    } | {ast.get_docstring(node) or "" for node in nodes if _is_command(node)}


def _texts_in(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node, node.value
        return
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
        yield node, "".join(parts)
        children = (v.value for v in node.values if isinstance(v, ast.FormattedValue))
    for child in children:
        yield from _texts_in(child)


def _is_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in TABLES


def _is_command(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else ()
    return any(re.search(r"\b(command|group)\(", ast.unparse(one)) for one in decorators)


def collected() -> str:
    """Return all texts, a section a module, sorted: what `messages.txt` holds."""
    lines = []
    for module in sorted([*PROJECT.glob("kip33/**/*.py"), *PROJECT.glob("jobs/**/*.py")]):
        texts = sorted(messages_of(module.read_text()))
        if texts:
            lines.append(f"\n# {module.relative_to(PROJECT)}")
            lines += ["- " + text.strip().replace("\n", "\n  ") for text in texts]
    return "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    MESSAGES.write_text(collected())
