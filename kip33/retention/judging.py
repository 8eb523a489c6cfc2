"""A snapshot's segments with the retention decision for each, as columns and by partition.

`rules.retention` makes the decisions, on columns. This module groups the rows by partition and says
which deletable segments a plan may contain. Python objects are created only for the partitions that
a caller looks at, one after another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import CatalogColumns, read_columns
from kip33.rules.retention import (
    Decisions,
    LimitColumns,
    RetentionMode,
    RetentionReason,
    SegmentColumns,
    doubt_codes,
    is_reason,
    judge_columns,
)
from kip33.rules.retention_rows import Decision, Limits, decision_rows, limit_columns
from kip33.rules.segment_summary import SegmentStatus, TimestampSource

_PASSED_OVER = Limits(mode=RetentionMode.UNJUDGED)


class CatalogRow(NamedTuple):
    """What retention needs of a catalog row; `base_offset` is None for an unlistable directory."""

    log_dir: str
    topic: str
    partition: int
    base_offset: int | None
    directory_uri: str  # the directory with the log
    name: str
    index_directory_uri: str | None  # None: no build wrote index files, or beside the log
    largest_timestamp_source: str | None
    status: str
    size_bytes: int | None
    last_modified_ms: int | None
    largest_timestamp: int | None
    time_index_bytes: int | None
    offset_index_bytes: int | None
    transaction_index_bytes: int | None
    producer_snapshot_bytes: int | None

    @property
    def log_uri(self) -> str:
        """Return the URI of the log."""
        return f"{self.directory_uri}/{self.name}"


@dataclass(frozen=True)
class JudgedPartition:
    """One partition: its rows, oldest first, and a decision for each."""

    log_dir: str
    topic: str
    partition: int
    limits: Limits
    segments: int
    deletable_segments: int  # the first ones
    columns: CatalogColumns  # of all partitions, like the two below
    all_decisions: Decisions
    unlistable_uris: tuple[str, ...]  # directories of the snapshot that could not be listed
    first_row: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Return log_dir, topic and number."""
        return self.log_dir, self.topic, self.partition

    @cached_property
    def rows(self) -> list[CatalogRow]:
        """Return the rows, oldest first."""
        return self._rows(self.segments)

    @cached_property
    def decisions(self) -> list[Decision]:
        """Return a decision for each row."""
        return self._decisions(self.segments)

    @cached_property
    def unlistable_uri(self) -> str | None:
        """Return its directory, or one above it, if that could not be listed; else None."""
        return _above(self.rows, self.unlistable_uris) if self.unlistable_uris else None

    def has(self, reason: RetentionReason) -> bool:
        """Return whether this is the reason of any row."""
        rows = slice(self.first_row, self.first_row + self.segments)
        return bool(is_reason(self.all_decisions.reason[rows], reason).any())

    def deletable(self) -> list[tuple[CatalogRow, Decision]]:
        """Return the deletable rows, oldest first, with their decisions."""
        count = self.deletable_segments
        return list(zip(self._rows(count), self._decisions(count), strict=True))

    def deletable_bytes(self, first: int) -> int:
        """Return the size of the deletable logs from the given one on; unknown sizes count 0."""
        return sum(
            size or 0 for size in self._values("size_bytes", self.deletable_segments)[first:]
        )

    def index_directory_uris(self) -> list[str | None]:
        """Return the index directory of each deletable row."""
        return self._values("index_directory_uri", self.deletable_segments)

    @cached_property
    def first(self) -> CatalogRow:
        """Return the oldest row."""
        return self._rows(1)[0]

    def _rows(self, count: int) -> list[CatalogRow]:
        columns = self.columns.rows(self.first_row, count, CatalogRow._fields)
        return list(map(CatalogRow, *(columns[name] for name in CatalogRow._fields)))

    def _values(self, name: str, count: int) -> list[Any]:
        return self.columns.rows(self.first_row, count, [name])[name]

    def _decisions(self, count: int) -> list[Decision]:
        return decision_rows(self.all_decisions.part(slice(self.first_row, self.first_row + count)))

    def why_unplannable(self, row: CatalogRow, *, trust_last_modified: bool) -> str | None:
        """Return why a plan must not contain a deletable row; None if it may."""
        if self.unlistable_uri:
            return f"{self.unlistable_uri} could not be listed, so segments may be missing"
        if row.directory_uri != self.first.directory_uri:
            return f"{row.log_uri} and {self.first.log_uri} belong to the same partition"
        if row.status == SegmentStatus.UNVERIFIED:
            return f"{row.log_uri} is unverified: the build did not read its log"
        if (
            row.largest_timestamp_source == TimestampSource.LAST_MODIFIED
            and not trust_last_modified
        ):
            return (
                f"{row.log_uri} has no timestamps, only its file's modification time, which "
                "copying may change"
            )
        return None


LimitsOf: TypeAlias = Callable[[str, str, int], Limits | None]
"""Returns the limits for a log_dir, topic and partition number; None: the partition is skipped."""


class JudgedColumns(NamedTuple):
    """The rows of a snapshot, the limits of each partition, and a decision for each row."""

    columns: CatalogColumns
    limits: Sequence[Limits | None]  # of each partition; None: skipped
    segments: SegmentColumns
    limits_of_rows: LimitColumns
    decisions: Decisions

    @classmethod
    def of(
        cls, columns: CatalogColumns, limits: Sequence[Limits | None], *, now_ms: int
    ) -> "JudgedColumns":
        """Return the columns with decisions; `limits` has one value per partition."""
        segments = segments_of(columns)
        of_rows = np.repeat(np.arange(columns.starts.size), columns.lengths)
        limits_of_rows = limit_columns([one or _PASSED_OVER for one in limits], of_rows)
        decisions = judge_columns(segments, limits_of_rows, now_ms=now_ms)
        return cls(columns, limits, segments, limits_of_rows, decisions)

    def partitions(self) -> Iterator[JudgedPartition]:
        """Yield the partitions that are not skipped, by log directory, topic and number."""
        columns = self.columns
        if not columns.size:
            return
        unlistable = tuple(f"{uri}/" for uri in columns.unlistable_uris)
        counts = np.add.reduceat(self.decisions.deletable, columns.starts, dtype=np.int64)
        each = zip(
            columns.keys,
            self.limits,
            columns.lengths.tolist(),
            counts.tolist(),
            columns.starts.tolist(),
            strict=True,
        )
        for (log_dir, topic, number), limits, segments, deletable, first in each:
            if limits is None or topic is None or number is None:
                continue
            yield JudgedPartition(
                log_dir or "",
                topic,
                number,
                limits,
                segments,
                deletable,
                columns,
                self.decisions,
                unlistable,
                first,
            )


def judged_partitions(
    catalog: Catalog, snapshot: Snapshot, limits_of: LimitsOf, *, now_ms: int
) -> Iterator[JudgedPartition]:
    """Yield the partitions of a snapshot by log directory, topic and number.

    Raises CatalogError if a part is damaged.
    """
    columns = read_columns(catalog, snapshot, with_files=True)
    limits = [
        None if topic is None or number is None else limits_of(log_dir or "", topic, number)
        for log_dir, topic, number in columns.keys
    ]
    yield from JudgedColumns.of(columns, limits, now_ms=now_ms).partitions()


def segments_of(columns: CatalogColumns) -> SegmentColumns:
    """Return what the rule needs of a snapshot's rows."""
    size = columns.int64("size_bytes")
    statuses = columns.texts("status")
    return SegmentColumns(
        columns.starts,
        columns.int64("base_offset"),
        np.where(size.known, size.values, 0),
        columns.int64("largest_timestamp"),
        doubt_codes(statuses)[columns.codes("status")] if statuses else doubt_codes([]),
        columns.directory_names,
    )


def _above(rows: list[CatalogRow], unlistable: tuple[str, ...]) -> str | None:
    """Return the first directory in `unlistable` that is, or contains, the directory of a row."""
    if not unlistable:
        return None
    uris = [f"{row.log_uri}/" for row in rows]
    return next((uri[:-1] for uri in unlistable if any(u.startswith(uri) for u in uris)), None)
