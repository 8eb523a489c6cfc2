"""Words that readers of English stumble over do not come back into what kip33 says.

Every module is read once. A text is a help, a message, a docstring, a comment or a page.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.sources import nodes_of

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "kip33"
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = [
    PROJECT / "README.md",
    *sorted(PACKAGE.rglob("*.md")),
    *(PROJECT / f"tests/{folder}/README.md" for folder in ("benchmarks", "faults", "golden")),
]
REPLACED = re.compile(
    r"\bmend(s|ed)?\b|\bsets? (it |them |that |both )?right\b|\bseen to\b|\brun it again\b"
)
# Words of no technical page.
ARCHAIC = re.compile(
    r"\bmend(s|ed)?\b|\bh(o|e)ld(s|ing)? ([`.\w]+ ){0,3}against\b|\bbears? out\b|\blest\b"
    r"|\b(is|are|as) none\b|\bso many\b|\bl(ie|ies|ying)\b|\bnobody\b|\bsomebody\b"
)
# `gone` and `whole` stand in too many names to be searched for in docstrings.
ARCHAIC_MESSAGE = re.compile(rf"{ARCHAIC.pattern}|\bgone\b|\bwhole\b|\bwent\b")
# Private turns of speech.
RIDDLES = re.compile(
    rf"{ARCHAIC.pattern}|\b(is|are|was|were|be|has|have|had|already|just|now) gone\b"
    r"|(?<![Oo]ne )(?<!the )\bpass(es|ed|ing)? over\b|\b(as|is|what) none\b|\bof ours\b"
    r"|\bfor what is no\b|\bmay be had\b"
)


class Texts(NamedTuple):
    """What a module says, each text with its line."""

    messages: list[tuple[int, str]]
    prose: list[tuple[int, str]]


@cache
def texts_of(module: Path) -> Texts:
    source = module.read_text(encoding="utf-8")
    nodes = nodes_of(module)
    docstrings = [
        node.value
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    inside = {id(docstring) for docstring in docstrings}
    return Texts(
        messages=[
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in inside and " " in node.value.strip()
        ],
        prose=[(node.lineno, str(node.value)) for node in docstrings] + list(comments_of(source)),
    )


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def found_in(kind: str, words: re.Pattern[str]) -> list[str]:
    return [
        f"{module.relative_to(PROJECT)}:{line}: {match[0]}"
        for module in MODULES
        for line, text in getattr(texts_of(module), kind)
        if (match := words.search(" ".join(text.split())))
    ]


def test_no_module_has_such_words() -> None:
    assert found_in("messages", REPLACED) == found_in("prose", REPLACED) == []
    assert found_in("messages", ARCHAIC_MESSAGE) == found_in("prose", RIDDLES) == []


def test_no_page_has_such_words() -> None:
    found = [
        f"{page.relative_to(PROJECT)}: {match[0]}"
        for page in PAGES
        for words in (REPLACED, RIDDLES)
        for match in words.finditer(" ".join(page.read_text(encoding="utf-8").split()))
    ]
    assert found == []
