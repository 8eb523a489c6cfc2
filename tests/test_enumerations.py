"""Statuses, verdicts, results and reasons are enumerations whose members are their own texts."""

import ast
import importlib
import json
import pickle
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pytest

from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.segment_summary import SegmentStatus
from kip33.spark.tasks import plain_row

ROOT = Path(__file__).parents[1]
TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text())
    for path in sorted((ROOT / "kip33").rglob("*.py"))
}


def enumerations() -> Iterator[type[StrEnum]]:
    for path, tree in TREES.items():
        module = path.removesuffix(".py").replace("/", ".")
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and "StrEnum" in map(ast.unparse, node.bases):
                yield getattr(importlib.import_module(module), node.name)


ENUMERATIONS = list(enumerations())


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
