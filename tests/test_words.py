"""Words that readers of English stumble over do not come back into what kip33 says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "kip33"
NOT_SAID = re.compile(
    r"\bmend(s|ed)?\b|\bsets? (it |them |that |both )?right\b|\bseen to\b|\brun it again\b"
)
# Words of no technical page; `gone` and `whole` stand in too many names to be searched for in code.
ARCHAIC = re.compile(
    r"\bmend(s|ed)?\b|\bh(o|e)ld(s|ing)? ([`.\w]+ ){0,3}against\b|\bbears? out\b|\blest\b"
    r"|\b(is|are|as) none\b|\bso many\b|\bl(ie|ies|ying)\b|\bnobody\b|\bsomebody\b"
)
PLAIN = ("archive", "catalog", "indexing", "retention", "search", "builds")
TEXTS = [
    PROJECT / "README.md",
    *sorted(PACKAGE.rglob("*.md")),
    *(PROJECT / f"tests/{folder}/README.md" for folder in ("benchmarks", "faults", "golden")),
]


def strings_of(module: Path) -> Iterator[tuple[int, str]]:
    """Yield each string of a module with its line: messages, help and docstrings."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_message_has_words_that_were_replaced() -> None:
    found = [
        f"{module.relative_to(PROJECT)}:{line}: {match[0]}"
        for module in sorted(PACKAGE.rglob("*.py"))
        for line, text in strings_of(module)
        if (match := NOT_SAID.search(" ".join(text.split())))
    ]
    assert found == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_page_has_them(text: Path) -> None:
    words = " ".join(text.read_text().split())
    assert [found[0] for rule in (NOT_SAID, ARCHAIC) for found in rule.finditer(words)] == []


def test_no_message_is_archaic() -> None:
    lines = (PROJECT / "tests" / "messages" / "messages.txt").read_text().splitlines()
    archaic = re.compile(rf"{ARCHAIC.pattern}|\bgone\b|\bwhole\b|\bwent\b")
    assert [line for line in lines if archaic.search(line)] == []


@pytest.mark.parametrize("package", PLAIN)
def test_no_docstring_of_a_finished_package_is_archaic(package: str) -> None:
    found = [
        f"{module.relative_to(PROJECT)}:{line}: {match[0]}"
        for module in sorted((PACKAGE / package).rglob("*.py"))
        for line, text in strings_of(module)
        if (match := ARCHAIC.search(" ".join(text.split())))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "hold every .timeindex against its log",
        "there is none",
        "it lies in two directories",
        "nobody said so",
    ],
)
def test_an_archaic_sentence_is_found(text: str) -> None:
    assert ARCHAIC.search(text)
