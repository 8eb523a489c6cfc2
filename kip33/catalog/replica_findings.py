"""What is wrong between the replicas of partitions: notes on their logs."""

from collections.abc import Iterator
from typing import Final

from kip33.catalog.logs import REMOTE_TIER, LogNote
from kip33.catalog.partitions import TABLE_ROWS
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.rules.which_log import Kind

OF_REPLICAS: Final = (Kind.CONFLICT, Kind.UNKNOWN, Kind.UNSURE, Kind.DIFFER, Kind.BEHIND)
"""The kinds of notes that are findings, the worst first."""


def replica_notes(source: CatalogSnapshot | Tiers) -> Iterator[LogNote]:
    """The notes on replicas of the kinds OF_REPLICAS, by topic and partition.

    Holes are findings of their own, and so is what is wrong in the remote tier. Some topics are
    read at a time, so memory does not grow with the catalog. CatalogError if a part is damaged.
    """
    topics = source.topics()
    rows = sum(one.snapshot.rows for one in (source if isinstance(source, Tiers) else [source]))
    at_once = max(1, TABLE_ROWS * len(topics) // max(1, rows))
    for first in range(0, len(topics), at_once):
        for note in source.logs((), topics[first : first + at_once]).notes:
            if note.kind in OF_REPLICAS and note.copy != REMOTE_TIER:
                yield note
