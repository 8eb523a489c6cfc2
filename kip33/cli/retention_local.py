"""`kip33 retention` without Spark: the rule on columns, and the output of its answer."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kip33.cli.output import csv_cell
from kip33.cli.retention_question import AskedRetention
from kip33.retention.evaluated_tables import (
    answer_columns,
    delete_records_of,
    freed_table,
    partitions_table,
    segment_tables,
    write_tables,
)
from kip33.retention.evaluation import EvaluatedCatalog
from kip33.stores.locations import Location

_QUOTED: Final = re.compile(r'[,"\r\n]')
_ESCAPED: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


class LocalAnswer:
    """The answer of the rule in this process (`cli.retention_question`)."""

    def __init__(self, asked: AskedRetention, evaluated: EvaluatedCatalog) -> None:
        """Take the question and the catalog that was evaluated for it."""
        self._asked = asked
        self.evaluated = evaluated
        self.totals = evaluated.totals()
        self.workers = 1
        self.tells_freed = bool(asked.moments_ms)

    def write(self, folder: Location) -> None:
        """Write the tables of --output."""
        write_tables(folder, "segments", self._segments())
        write_tables(folder, "partitions", [self._partitions])
        if self.tells_freed:
            write_tables(folder, "freed", [self._freed])

    def worst(self, most: int) -> list[dict[str, Any]]:
        """Return partitions; those with the most blocked bytes are first."""
        sums = self.evaluated.sums
        order = np.lexsort([-sums.number("deletable_bytes"), -sums.number("blocked_bytes")])
        return _rows(self._partitions.take(pa.array(order[:most])))

    def freed(self) -> list[dict[str, Any]]:
        """Return what becomes deletable at which time."""
        return _rows(self._freed)

    def broker_differences(self, most: int) -> list[dict[str, Any]]:
        """Return segments whose index differs from the log; those judged differently are first."""
        differs, columns = self.evaluated.broker_differs, self.evaluated.columns
        numbers = np.flatnonzero(differs | self.evaluated.misread)
        numbers = numbers[np.argsort(~differs[numbers], kind="stable")][:most]
        names = ("log_dir", "topic", "partition", "base_offset", "largest_timestamp")
        found = []
        for number in numbers.tolist():
            [row] = _rows(pa.table(answer_columns(self.evaluated, number, number + 1)))
            found.append(
                row | {name: one[0] for name, one in columns.rows(number, 1, names).items()}
            )
        return found

    def segment_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the segments as JSON, by partition, oldest first."""
        for table in self._segments():
            yield from json_lines(table, kind)

    def partition_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the partitions as JSON."""
        return json_lines(self._partitions, kind)

    def freed_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows of `freed` as JSON."""
        return json_lines(self._freed, kind) if self.tells_freed else iter(())

    def csv_lines(self) -> Iterator[str]:
        """Yield a header and the segments as CSV."""
        return csv_lines(self._segments())

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> dict[str, Any]:
        """Return the input of `kafka-delete-records.sh`."""
        rows = _rows(self._partitions)
        return delete_records_of(rows, trust_last_modified=trust_last_modified, left_out=left_out)

    @cached_property
    def _partitions(self) -> pa.Table:
        return partitions_table(self.evaluated)

    @cached_property
    def _freed(self) -> pa.Table:
        return freed_table(self.evaluated, self._asked.moments_ms)

    def _segments(self) -> Iterator[pa.Table]:
        asked = self._asked
        return segment_tables(self.evaluated, asked.catalog, asked.snapshot, asked.options.topics)


def json_lines(table: pa.Table, kind: str | None) -> Iterator[str]:
    """Yield the rows as JSON, with the same bytes as Spark's `to_json`."""
    first = {"kind": kind} if kind else {}
    for row in _rows(table):
        line = json.dumps(first | row, ensure_ascii=False, separators=(",", ":"))
        yield _ESCAPED.sub(_upper_case, line) if "\\u" in line else line


def _upper_case(escape: re.Match[str]) -> str:
    text = escape[0]
    return text if len(text) == 2 else text[:2] + text[2:].upper()


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table's rows; maps become dicts."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name in maps:
            row[name] = dict(row[name])
    return rows


def csv_lines(tables: Iterable[pa.Table]) -> Iterator[str]:
    """Yield the column names, then the rows as CSV in the form of Spark's `to_csv`."""
    for number, table in enumerate(tables):
        if not number:
            yield ",".join(table.column_names)
        yield from map(_csv_line, _rows(table))


def _csv_line(row: dict[str, Any]) -> str:
    return ",".join(map(_csv_text, row.values()))


def _csv_text(value: Any) -> str:
    """Return a cell in the form of Spark's `to_csv`, without formulas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = " ".join(str(one) for one in value if one is not None)
    text = str(csv_cell(value))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
