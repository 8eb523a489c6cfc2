"""The records that `--emit delete-records` would delete although they are new enough to keep."""

from collections.abc import Mapping, Sequence
from typing import Any

from kip33.cli.output import human_bytes, iso_time
from kip33.cli.search_ranges import replica_key
from kip33.cli.search_tables import Answer
from kip33.rules.search import MAX_TIMESTAMP
from kip33.search.log_window import newer_records
from kip33.search.replica_search import ReplicaKey


class NewerRecordCount:
    """Counts the records at or after each answer's time that are before its offset."""

    def __init__(
        self, rows: Mapping[ReplicaKey, Sequence[Mapping[str, Any]]], max_batch_bytes: int
    ) -> None:
        """Take the catalog's rows of each replica."""
        self._rows, self._max_batch_bytes = rows, max_batch_bytes
        self.partitions = self._records = self._bytes_read = 0  # counted so far
        self._is_exact = True

    def __call__(self, answer: Answer, offset: int) -> str | None:
        """Return how many records of one partition are lost and why, None without any.

        A search for the earliest or the latest offset has no time, so nothing is counted.
        """
        target_ms = answer["target_ms"]
        if target_ms == MAX_TIMESTAMP:
            target_ms = answer["timestamp"]
        if target_ms is None or target_ms < 0:
            return None
        rows = self._rows.get(replica_key(answer), ())
        found = newer_records(rows, offset, target_ms, max_batch_bytes=self._max_batch_bytes)
        self.partitions += 1
        self._records += found.records
        self._bytes_read += found.bytes_read
        self._is_exact &= found.is_exact
        if not found.records:
            return None
        bound = "" if found.is_exact else "at most "
        note = f" ({found.note})" if found.note else ""
        return (
            f"{bound}{found.records:,} records with timestamp {iso_time(target_ms)} or later are "
            f"before offset {offset}, and would be deleted{note}"
        )

    def summary(self) -> str:
        """Return the sum of all partitions as one line."""
        bound = "" if self._is_exact else "at most "
        return (
            f"Newer records before the offsets: {bound}{self._records:,}, in "
            f"{self.partitions:,} partitions; {human_bytes(self._bytes_read)} read to count them"
        )
