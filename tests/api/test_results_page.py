"""RESULTS.md lists the columns and fields of every result as the code has them."""

import re
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.audits.roll_audit import ROLL
from kip33.audits.roll_what_if import REPLAYED
from kip33.audits.timestamp_plan import TIMESTAMPS
from kip33.builds.leftovers import LEFTOVERS
from kip33.builds.repair_plan import REPAIRS
from kip33.catalog.difference import DIFFERENCE
from kip33.catalog.holes import HOLES
from kip33.catalog.schema import PARTS
from kip33.catalog.tier_findings import PARTITIONS, TIER_FINDINGS
from kip33.drafts.comparison import DIALECT_ROWS
from kip33.indexing.quick_verification import CHECKED_FILES
from kip33.indexing.verification import SEGMENT_VERDICTS
from kip33.records.columns import BATCHES, RECORDS, SEGMENT_TABLE
from kip33.records.counting import COUNTS
from kip33.restore.restore_request import PartitionRestore
from kip33.retention.answer import BROKER_VIEW, RETENTION, WHAT_IF
from kip33.retention.evaluated_tables import FREED
from kip33.search.time_search import ANSWERS, RANGE

PAGE = (Path(kip33.__file__).parent / "api" / "RESULTS.md").read_text()
RESULTS = {
    "segments": PARTS,
    "difference": DIFFERENCE,
    "holes": HOLES,
    "orphans": LEFTOVERS,
    "tier_partitions": PARTITIONS,
    "tier_findings": TIER_FINDINGS,
    "answers": ANSWERS,
    "ranges": RANGE,
    "emitted_offsets": kip33.EmittedOffsets,
    "retention": RETENTION,
    "what_if": WHAT_IF,
    "broker_view": BROKER_VIEW,
    "freed": FREED,
    "records_to_delete": kip33.RecordsToDelete,
    "roll": ROLL,
    "roll_what_if": REPLAYED,
    "verdicts": SEGMENT_VERDICTS,
    "not_identical": CHECKED_FILES,
    "build_summary": kip33.BuildSummary,
    "repair_summary": kip33.RepairSummary,
    "repairs": REPAIRS,
    "restore_summary": kip33.RestoreSummary,
    "restored_partitions": PartitionRestore,
    "timestamps": TIMESTAMPS,
    "dialects": DIALECT_ROWS,
    "topics": kip33.TopicTotals,
    "group_lags": kip33.GroupLag,
    "resume_points": kip33.ResumePoint,
    "applied_partitions": kip33.PartitionResult,
    "undone_partitions": kip33.PartitionUndone,
    "written_records": kip33.WrittenRecords,
    "counts": COUNTS,
    "selected_records": kip33.SelectedRecords,
    "records": RECORDS,
    "batches": BATCHES,
    "segment_table": SEGMENT_TABLE,
}
NUMBERS = {"int", "int64", "int32"}
UNITS = re.compile(r"\b(bytes|ms|offset|number|partition)")


def columns_of(result: Any) -> list[tuple[str, str]]:
    """Return the names and types of a schema's columns or of a record's fields."""
    if isinstance(result, pa.Schema):
        return [(field.name, _arrow_type(field)) for field in result]
    return [(name, _type(hint)) for name, hint in typing.get_type_hints(result).items()]


def _arrow_type(field: Any) -> str:
    name = str(field.type).replace("list<item: ", "list of ").replace("list<element: ", "list of ")
    name = name if "struct" in name else name.removesuffix(">")
    return name.replace(">>", ">") + (" or null" if field.nullable else "")


def _type(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, StrEnum):  # each member is its own text
        return "str"
    if isinstance(hint, types.UnionType):
        return " or ".join("None" if one is type(None) else one.__name__ for one in hint.__args__)
    return str(hint) if typing.get_origin(hint) else str(hint.__name__)


def table_of(name: str) -> list[list[str]]:
    """Return the cells of the rows below a heading of the page."""
    section = PAGE.partition(f"\n## `{name}`")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


def test_the_page_has_each_column_with_its_type(subtests: pytest.Subtests) -> None:
    for name in RESULTS:
        with subtests.test(name):
            told = [(column.strip("`"), kind) for column, kind, _ in table_of(name)]
            assert told == columns_of(RESULTS[name])


def test_every_number_has_a_unit(subtests: pytest.Subtests) -> None:
    for name in RESULTS:
        with subtests.test(name):
            without = [
                column
                for column, kind, meaning in table_of(name)
                if kind.split(" or ")[0] in NUMBERS and not UNITS.search(meaning)
            ]
            assert without == []


def test_the_page_has_no_other_table() -> None:
    assert re.findall(r"^## `(\w+)`", PAGE, re.MULTILINE) == list(RESULTS)
