"""A snapshot's segments, or those of a SOURCE, judged by the rule for rolling; results as tables.

The rows are columns (`catalog.catalog_columns`). A catalog is judged without opening a log. What it
does not have can be read from batch headers (`audits.roll_logs`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED, CatalogColumns, columns_of, int64_array, texts_at
from kip33.catalog.partitions import partitions
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION
from kip33.rules.retention import NO_CODE, Bools, Int64Column, Int64s
from kip33.rules.roll_verdicts import (
    EARLY_ROLLS,
    ROLL_DOUBTS,
    ROLL_REASONS,
    UNSEEN,
    ExplainingSettings,
    RollColumns,
    RollVerdicts,
    Ternary,
    explaining_settings,
    judge_rolls,
    limit_columns,
    status_doubts,
)
from kip33.rules.rolling import RollReading, RollReason, RollSettings

FIGURES: Final = (
    *("valid_bytes", "batch_count", "record_count", "first_batch_timestamp"),
    "smallest_timestamp",
)
"""The columns that the audit reads besides those of `catalog_columns`."""

SettingsOf = Callable[[str | None], RollSettings]
"""Returns a topic's settings; those of None are for directories with an unknown topic."""
_ROLL_ROWS_AT_ONCE: Final = 20_000
_OF_CATALOG: Final = (*PARTITION, "base_offset", "last_offset", "log_uri", "status")
_ROLL_FIELDS: list["pa.Field[Any]"] = [
    *(SEGMENTS.field(name) for name in (*_OF_CATALOG, "valid_bytes")),
    pa.field("segment_ms", pa.int64(), nullable=False),
    pa.field("segment_bytes", pa.int64(), nullable=False),
    pa.field("start_timestamp", pa.int64()),
    pa.field("max_timestamp", pa.int64()),
    pa.field("ended_by", pa.string(), nullable=False),
    pa.field("by_size", pa.bool_()),
    pa.field("by_time", pa.bool_()),
    pa.field("by_index", pa.bool_()),
    pa.field("by_offset_range", pa.bool_()),
    pa.field("doubt", pa.string()),
    pa.field("not_seen", pa.string()),
    pa.field("waited_ms", pa.int64()),
    pa.field("waited_by_file_time", pa.bool_(), nullable=False),
    pa.field("rolls_at_ms", pa.int64()),
    pa.field("overdue_ms", pa.int64()),
    pa.field("oversize_bytes", pa.int64()),
    pa.field("early", pa.string()),
    pa.field("early_ms", pa.int64()),
]

ROLL: Final = pa.schema(_ROLL_FIELDS)
"""One row per segment; also the columns of `kip33.spark.audit_roll`."""


class HeaderFacts(NamedTuple):
    """Input columns of the roll audit from batch headers, which a catalog does not have."""

    first_batch_bytes: Int64Column
    first_batch_last_offset: Int64Column
    first_message_timestamp: Int64Column
    offset_entries: Int64Column  # before the index is closed
    time_entries: Int64Column

    @classmethod
    def unknown(cls, rows: int) -> "HeaderFacts":
        """Return the facts of a catalog alone."""
        nothing = Int64Column(np.zeros(rows, np.int64), np.zeros(rows, bool))
        return cls(*[nothing] * len(cls._fields))


class Finding(NamedTuple):
    """A kind of finding: its name, and the rows that are one."""

    name: str
    rows: Bools


@dataclass(frozen=True)
class RollAudit:
    """The rows in order, and the verdict on each."""

    columns: CatalogColumns
    settings: Sequence[RollSettings]  # of each partition
    reading: RollReading
    rows: RollColumns
    verdicts: RollVerdicts

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Return the rows of each kind of finding."""
        verdicts = self.verdicts
        return (
            Finding("overdue", verdicts.overdue_ms.known | verdicts.oversize_bytes.known),
            Finding("early", verdicts.early != NO_CODE),
            Finding("unexplained", self.ended_by(RollReason.UNEXPLAINED)),
            Finding("unknown", self.ended_by(RollReason.UNKNOWN)),
            Finding("doubtful", verdicts.doubt != NO_CODE),
        )

    def ended_by(self, reason: RollReason) -> Bools:
        """Return which rows ended for this reason."""
        return np.equal(self.verdicts.ended_by, ROLL_REASONS.index(reason))

    def per_partition(self, values: Bools | Int64s) -> Int64s:
        """Return the sum of each partition's rows, of bools the number of those that are true."""
        if not self.columns.size:
            return np.zeros(0, np.int64)
        return np.add.reduceat(values, self.columns.starts, dtype=np.int64)

    @cached_property
    def sums(self) -> dict[str, Int64s]:
        """Return the sums of each partition, by column."""
        size = self.rows.valid_bytes
        sums = {
            "segments": self.columns.lengths,
            "bytes": self.per_partition(np.where(size.known, size.values, 0)),
        }
        for reason in ROLL_REASONS:
            sums[f"{reason}_segments"] = self.per_partition(self.ended_by(reason))
        for finding in self.findings:
            if finding.name not in ROLL_REASONS:
                sums[f"{finding.name}_segments"] = self.per_partition(finding.rows)
        return sums

    @cached_property
    def explaining(self) -> ExplainingSettings:
        """Return which other settings explain the ends of each partition."""
        return explaining_settings(self.rows, self.verdicts)

    def totals(self) -> dict[str, int | dict[str, int]]:
        """Return the sums over all partitions, as in the command's summary."""
        totals: dict[str, int | dict[str, int]] = {"partitions": self.columns.starts.size}
        totals |= {name: sum(one.tolist()) for name, one in self.sums.items()}
        counts = np.bincount(self.verdicts.early + 1, minlength=len(EARLY_ROLLS) + 1)[1:].tolist()
        totals["early"] = {
            kind.value: count for kind, count in zip(EARLY_ROLLS, counts, strict=True) if count
        }
        return totals

    def active_past_limit(self, now_ms: int) -> int:
        """Return how many active segments the next batch with the time `now_ms` would end."""
        at = self.verdicts.rolls_at_ms
        is_past = self.ended_by(RollReason.ACTIVE) & at.known & (at.values <= now_ms)
        return int(np.count_nonzero(is_past))


def columns_to_audit(
    catalog: Catalog, snapshot: Snapshot, topics: Sequence[str] = ()
) -> CatalogColumns:
    """Return the rows of a snapshot whose topics match; CatalogError for a damaged part."""
    rows = partitions(catalog, snapshot, [*JUDGED, *FIGURES], topics)
    return columns_of(pa.concat_tables(rows), more=FIGURES)


def audit_columns(
    columns: CatalogColumns,
    settings_of: SettingsOf,
    *,
    reading: RollReading = RollReading.KAFKA,
    facts: HeaderFacts | None = None,
) -> RollAudit:
    """Return the verdicts on rows of a catalog; `facts` are what was read of batch headers."""
    of_topic = {topic: settings_of(topic) for topic in {key[1] for key in columns.keys}}
    settings = [of_topic[topic] for _, topic, _ in columns.keys]
    rows = _roll_columns(columns, reading, facts or HeaderFacts.unknown(columns.size))
    verdicts = judge_rolls(rows, limit_columns(settings, columns.partition_numbers))
    return RollAudit(columns, settings, reading, rows, verdicts)


def _roll_columns(columns: CatalogColumns, reading: RollReading, facts: HeaderFacts) -> RollColumns:
    first = columns.int64("first_batch_timestamp")
    largest = columns.int64("max_timestamp")
    starts = {
        RollReading.KAFKA: first,
        RollReading.KIP33: facts.first_message_timestamp,
        RollReading.LARGEST: largest,
    }
    statuses = columns.texts("status")
    return RollColumns(
        starts=columns.starts,
        base_offset=columns.int64("base_offset"),
        last_offset=columns.int64("last_offset"),
        valid_bytes=columns.int64("valid_bytes"),
        batch_count=columns.int64("batch_count"),
        record_count=columns.int64("record_count"),
        start_timestamp=starts[reading],
        first_timestamp=first,
        max_timestamp=largest,
        smallest_timestamp=columns.int64("smallest_timestamp"),
        last_modified_ms=columns.int64("last_modified_ms"),
        doubt=status_doubts(statuses)[columns.codes("status")] if statuses else status_doubts([]),
        first_batch_bytes=facts.first_batch_bytes,
        first_batch_last_offset=facts.first_batch_last_offset,
        offset_entries=facts.offset_entries,
        time_entries=facts.time_entries,
        is_largest=reading == RollReading.LARGEST,
    )


def roll_table(audit: RollAudit) -> pa.Table:
    """Return all rows as one table of ROLL."""
    return pa.concat_tables(roll_tables(audit))


def roll_tables(audit: RollAudit) -> Iterator[pa.Table]:
    """Yield the rows in order as tables of ROLL, some at a time."""
    columns, verdicts = audit.columns, audit.verdicts
    named: dict[str, Any] = {name: columns.column(name) for name in _OF_CATALOG}
    segment_ms = np.array([one.segment_ms for one in audit.settings], np.int64)
    segment_bytes = np.array([one.segment_bytes for one in audit.settings], np.int64)
    for first in range(0, max(1, columns.size), _ROLL_ROWS_AT_ONCE):
        part = slice(first, first + _ROLL_ROWS_AT_ONCE)
        found = {name: one[part] for name, one in named.items()} | {
            "valid_bytes": int64_array(audit.rows.valid_bytes.take(part)),
            "segment_ms": pa.array(segment_ms[columns.partition_numbers[part]]),
            "segment_bytes": pa.array(segment_bytes[columns.partition_numbers[part]]),
            "start_timestamp": int64_array(audit.rows.start_timestamp.take(part)),
            "max_timestamp": int64_array(audit.rows.max_timestamp.take(part)),
            "ended_by": texts_at(verdicts.ended_by[part], ROLL_REASONS),
            "by_size": _bools(verdicts.by_size[part]),
            "by_time": _bools(verdicts.by_time[part]),
            "by_index": _bools(verdicts.by_index[part]),
            "by_offset_range": _bools(verdicts.by_offset_range[part]),
            "doubt": texts_at(verdicts.doubt[part], ROLL_DOUBTS),
            "not_seen": texts_at(verdicts.not_seen[part], UNSEEN),
            "waited_ms": int64_array(verdicts.waited_ms.take(part)),
            "waited_by_file_time": pa.array(verdicts.is_by_file_time[part]),
            "rolls_at_ms": int64_array(verdicts.rolls_at_ms.take(part)),
            "overdue_ms": int64_array(verdicts.overdue_ms.take(part)),
            "oversize_bytes": int64_array(verdicts.oversize_bytes.take(part)),
            "early": texts_at(verdicts.early[part], EARLY_ROLLS),
            "early_ms": int64_array(verdicts.early_ms.take(part)),
        }
        yield pa.table({name: found[name] for name in ROLL.names}).cast(ROLL)


def roll_partitions(audit: RollAudit) -> pa.Table:
    """Return one row per partition: its settings, and how many segments ended for each reason.

    The last columns are the least and the largest value of `segment.bytes` and of `segment.ms` that
    explains all ends; null without such a value, or if a figure is unknown.
    """
    keys = audit.columns.keys
    table: dict[str, Any] = {
        "log_dir": pa.array([key[0] for key in keys], pa.string()),
        "topic": pa.array([key[1] for key in keys], pa.string()),
        "partition": pa.array([key[2] for key in keys], pa.int32()),
        "segment_ms": pa.array([one.segment_ms for one in audit.settings], pa.int64()),
        "segment_bytes": pa.array([one.segment_bytes for one in audit.settings], pa.int64()),
    }
    table |= {name: pa.array(one) for name, one in audit.sums.items()}
    explaining = audit.explaining._asdict()
    return pa.table(
        table | {f"explained_by_{name}": int64_array(one) for name, one in explaining.items()}
    )


def _bools(values: Ternary) -> Any:
    return pa.array(values == 1, mask=values == -1)
