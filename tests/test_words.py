"""Words that readers of English stumble over do not come back into what kip33 says."""

import ast
import io
import re
import tokenize
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
# Private turns of speech: of docstrings and comments in packages that were rewritten.
RIDDLES = re.compile(
    rf"{ARCHAIC.pattern}|\b(is|are|was|were|be|has|have|had|already|just|now) gone\b"
    r"|(?<![Oo]ne )(?<!the )\bpass(es|ed|ing)? over\b|\b(as|is|what) none\b|\bof ours\b"
    r"|\bfor what is no\b|\bmay be had\b"
)
PLAIN = ("archive", "catalog", "indexing", "retention", "search", "builds")
REWRITTEN = (
    *("stores", "formats", "rules", "archive", "catalog", "api", "indexing", "retention"),
    *("search", "builds", "local", "spark", "cli", "report"),
)
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


def prose_of(module: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring and each comment of a module with its line."""
    source = module.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


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
    assert [found[0] for rule in (NOT_SAID, RIDDLES) for found in rule.finditer(words)] == []


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


@pytest.mark.parametrize("package", REWRITTEN)
def test_a_rewritten_package_has_no_riddles(package: str) -> None:
    found = [
        f"{module.relative_to(PROJECT)}:{line}: {match[0]}"
        for module in sorted((PACKAGE / package).rglob("*.py"))
        for line, text in prose_of(module)
        if (match := RIDDLES.search(" ".join(text.split())))
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


@pytest.mark.parametrize(
    "text",
    ["a file that is gone", "it is passed over", "CorruptSegmentError for what is none"],
)
def test_a_riddle_is_found(text: str) -> None:
    assert RIDDLES.search(text)
