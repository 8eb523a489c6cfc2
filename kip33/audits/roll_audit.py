"""A snapshot's segments, or those of a SOURCE, judged by the rule for rolling.

The rows are columns (`catalog.catalog_columns`). A catalog is judged without opening a log. What it
does not have can be read from batch headers (`audits.roll_logs`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import CatalogColumns, read_columns
from kip33.rules.retention import NO_CODE, Bools, Int64Column, Int64s
from kip33.rules.roll_verdicts import (
    EARLY_ROLLS,
    ROLL_REASONS,
    ExplainingSettings,
    RollColumns,
    RollVerdicts,
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


class HeaderFacts(NamedTuple):
    """What batch headers tell and a catalog does not have, in the order of its columns."""

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

    @property
    def of_rows(self) -> Int64s:
        """Return the number of each row's partition."""
        return np.repeat(np.arange(self.columns.starts.size), self.columns.lengths)

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

    def per_partition(self, which: Bools) -> Int64s:
        """Return the number of such rows in each partition."""
        if not self.columns.size:
            return np.zeros(0, np.int64)
        return np.add.reduceat(which, self.columns.starts, dtype=np.int64)

    @cached_property
    def sums(self) -> dict[str, Int64s]:
        """Return the sums of each partition, by column."""
        size = self.rows.valid_bytes
        of_size = np.where(size.known, size.values, 0)
        sums = {
            "segments": self.columns.lengths,
            "bytes": np.add.reduceat(of_size, self.columns.starts)
            if of_size.size
            else np.zeros(0, np.int64),
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


def audit_catalog(
    catalog: Catalog,
    snapshot: Snapshot,
    settings_of: SettingsOf,
    *,
    reading: RollReading = RollReading.KAFKA,
    topics: Sequence[str] = (),
) -> RollAudit:
    """Return the verdicts on a snapshot, without opening a log; CatalogError for damage."""
    columns = read_columns(catalog, snapshot, topics, more=FIGURES)
    return audit_columns(columns, settings_of, reading=reading)


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
    of_rows = np.repeat(np.arange(columns.starts.size), columns.lengths)
    verdicts = judge_rolls(rows, limit_columns(settings, of_rows))
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
        columns.starts,
        columns.int64("base_offset"),
        columns.int64("last_offset"),
        columns.int64("valid_bytes"),
        columns.int64("batch_count"),
        columns.int64("record_count"),
        starts[reading],
        first,
        largest,
        columns.int64("smallest_timestamp"),
        columns.int64("last_modified_ms"),
        status_doubts(statuses)[columns.codes("status")] if statuses else status_doubts([]),
        facts.first_batch_bytes,
        facts.first_batch_last_offset,
        facts.offset_entries,
        facts.time_entries,
        reading == RollReading.LARGEST,
    )
