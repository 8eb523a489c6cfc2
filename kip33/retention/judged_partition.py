"""A partition of a catalog that was judged: its rows, the decisions, and what a plan may contain.

Python objects are made only for the partitions that a caller looks at, one after another.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from kip33.catalog.catalog_columns import CatalogColumns
from kip33.rules.retention import Decisions, RetentionReason, is_reason
from kip33.rules.retention_rows import Decision, Limits, decision_rows
from kip33.rules.segment_summary import SegmentStatus, TimestampSource


class CatalogRow(NamedTuple):
    """The columns of a catalog row that retention uses.

    `base_offset` is None for a directory that cannot be listed.
    """

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
    columns: CatalogColumns  # also of partitions beside it, like the next two
    all_decisions: Decisions
    first_row: int
    is_plain: bool  # one directory, and each row is of a log that was read and has timestamps
    unlistable_uris: tuple[str, ...]  # directories of the snapshot that could not be listed

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
        if not self.unlistable_uris:
            return None
        uris = [f"{row.log_uri}/" for row in self.rows]
        above = (one for one in self.unlistable_uris if any(uri.startswith(one) for uri in uris))
        return next((one.removesuffix("/") for one in above), None)

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
        if self.is_plain:
            return None
        if row.directory_uri != self.first.directory_uri:
            return f"{row.log_uri} and {self.first.log_uri} belong to the same partition"
        if row.status == SegmentStatus.UNVERIFIED:
            return f"{row.log_uri} is unverified: the build did not read its log"
        if (
            row.largest_timestamp_source == TimestampSource.LAST_MODIFIED
            and row.status != SegmentStatus.EMPTY
            and not trust_last_modified
        ):
            return (
                f"{row.log_uri} has no timestamps, only its file's modification time, which "
                "copying may change"
            )
        return None
