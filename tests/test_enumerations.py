"""Statuses, verdicts, results and reasons are enumerations, and code names their members.

A text that stands in a comparison outside its enumeration can be misspelled without anyone
noticing: `verdict == "identcal"` is false for ever. So no such text may stand in a comparison, in
a `match`, or as a constant of its own.
"""

import ast
import importlib
import json
import pickle
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pytest

from kip33.indexing.segment_verdict import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.segment_status import SegmentStatus
from kip33.spark.tasks import plain_row

ROOT = Path(__file__).parents[1]
TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text())
    for path in sorted((ROOT / "kip33").rglob("*.py"))
}
# The same text with another meaning: module, text.
OTHER_MEANINGS = {
    ("kip33/cli/dump.py", "index"),  # the kind of a file
    ("kip33/cli/dump.py", "note"),  # a key of its rows
    ("kip33/cli/retention_tables.py", "blocked"),  # a column of the table
    ("kip33/cli/retention_tables.py", "log"),  # another one
    ("kip33/cli/retention_tables.py", "segments"),  # another one
    ("kip33/spark/retention/summary.py", "retention_bytes"),  # a column
    ("kip33/builds/build_options.py", "log"),  # what a build reads
    ("kip33/restore/cut_indexes.py", "index"),  # the kind of a file
    *((f"kip33/formats/{module}.py", "none") for module in ("codecs", "whole_bodies")),  # a codec
    ("kip33/cli/search.py", "kafka"),  # whose answer a search gives
    *(  # the dialect, and the command
        (f"kip33/{module}.py", "kip33")
        for module in ("builds/catalog_row", "cli/search", "rules/search")
    ),
    *(
        (f"kip33/records/avro_{module}.py", "record") for module in ("check", "schema", "values")
    ),  # a type of Avro
    *(  # the suffix of a log
        (f"kip33/{module}.py", "log")
        for module in (
            *("archive/layouts/hdfs_rsm", "archive/layouts/kafka", "archive/leftover_files"),
            "archive/partition_files",
            *("archive/segment_paths", "cli/dump", "stores/containers/aiven"),
            *("restore/log_dir_state", "restore/partition_state", "restore/truncate_apply"),
        )
    ),
}


def enumerations() -> Iterator[type[StrEnum]]:
    for path, tree in TREES.items():
        module = path.removesuffix(".py").replace("/", ".")
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and "StrEnum" in map(ast.unparse, node.bases):
                yield getattr(importlib.import_module(module), node.name)


ENUMERATIONS = list(enumerations())


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield a literal text, and those in a literal tuple, list or set."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from texts_in(element)


def texts_that_decide(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal of a comparison, a `match` or a module's constant."""
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif node in tree.body and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            names = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            operands = [node.value] * all(ast.unparse(name).isupper() for name in names)
            operands = [one for one in operands if isinstance(one, ast.Constant)]
        for operand in operands:
            for text in texts_in(operand):
                yield node.lineno, text


def strays(path: str, tree: ast.Module) -> list[str]:
    texts = {
        member.value: f"{kind.__name__}.{member.name}" for kind in ENUMERATIONS for member in kind
    }
    return [
        f"{path}:{line}: {text!r} is {texts[text]}"
        for line, text in texts_that_decide(tree)
        if text in texts and (path, text) not in OTHER_MEANINGS
    ]


@pytest.mark.parametrize("path", TREES)
def test_code_compares_with_members_not_with_texts(path: str) -> None:
    assert strays(path, TREES[path]) == []


@pytest.mark.parametrize(
    "source",
    [
        'if verdict == "identical": pass',
        'good = verdict in ("consistent", "sparse")',
        'while "stale" != state: pass',
        'match state:\n    case "kept": pass',
        'KEPT: Final = "kept"',
        'KEPT = "kept"',
    ],
)
def test_a_text_that_decides_would_be_seen(source: str) -> None:
    assert strays("kip33/new.py", ast.parse(source))


def test_every_other_meaning_is_still_there() -> None:
    found = {(path, text) for path, tree in TREES.items() for _, text in texts_that_decide(tree)}
    assert found >= OTHER_MEANINGS


def test_no_two_enumerations_have_the_same_texts() -> None:
    by_texts = defaultdict(list)
    for kind in ENUMERATIONS:
        by_texts[frozenset(kind)].append(kind.__name__)
    assert [names for names in by_texts.values() if len(names) > 1] == []


@pytest.mark.parametrize("kind", ENUMERATIONS, ids=lambda kind: kind.__name__)
def test_a_member_is_its_own_text(kind: type[StrEnum]) -> None:
    """Rows and JSON that were written before have the texts; a member must find them."""
    for member in kind:
        assert f"{member}" == member.value == member
        assert hash(member) == hash(member.value)
        assert kind(str(member)) is pickle.loads(pickle.dumps(member)) is member
        assert json.loads(json.dumps({member: [member]})) == {member.value: [member.value]}
        assert pa.array([member]).to_pylist() == [member.value]


def test_rows_for_spark_have_no_members() -> None:
    """Spark 3.5 cannot pickle them; `type`, because a member is equal to its text."""
    members = [member for kind in ENUMERATIONS for member in kind]
    row = plain_row([*members, 1, None, "text"])
    assert row == (*members, 1, None, "text")
    assert set(map(type, row)) == {str, int, type(None)}


def test_rows_of_verdicts_have_no_members() -> None:
    verdict = SegmentVerdict(
        *("a.log", "a.timeindex", IndexVerdict.WRONG, None, 1, ("entry 0",), IndexVerdict.SPARSE),
        *(SegmentStatus.OK, None, None, 7, IndexVerdict.UNKNOWN),
    )
    row = verdict.as_row()
    assert row["verdict"] == "wrong" and row["problems"] == ["entry 0"]
    assert set(map(type, row.values())) == {str, int, list, type(None)}
