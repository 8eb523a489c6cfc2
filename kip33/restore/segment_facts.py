"""What is known of a restored segment after its log was read once, and the file that keeps it.

    LOG_DIR/.kip33-restore/facts/orders-0/00000000000000000042.json

The file is written when the segment's files are on the disk. A later run takes its word for a
source of the same size and time, and does not copy the segment again.
"""

import json
from typing import Any, Final, NamedTuple

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.partition_metadata import EpochStart
from kip33.restore.restore_request import SourceSegment
from kip33.rules.producer_state import ProducerChange, changes_as_json, changes_from_json
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transactions import TransactionSummary
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

FACTS_FORMAT: Final = 1
CHANGED: Final = (
    "the log changed after it was listed; run the same command again (for a catalog after a new "
    "build)"
)
_MOST_BYTES: Final = 1 << 30


class SegmentFacts(NamedTuple):
    """What the scan of one segment found; without `problem` its files are staged."""

    base_offset: int
    status: SegmentStatus
    problem: str | None  # why the segment cannot be restored; one line
    kept_bytes: int  # of the log: its valid prefix
    index_bytes: tuple[int, int]  # of the .index and of the .timeindex
    last_offset: int | None  # None: no batch
    record_count: int | None  # None: not known (compressed messages of v0 and v1)
    epochs: tuple[EpochStart, ...]  # of its batches alone, as they are in the result
    largest_epoch: int  # of its batches in the source; -1: none has one
    transactions: TransactionSummary
    producers: tuple[ProducerChange, ...]
    note: str | None = None  # the cut end, as a broker cuts it
    is_linked: bool = False
    was_there: bool = False  # an earlier run staged it

    @property
    def end_offset(self) -> int:
        """Return the offset after its last record, its base offset if it has none."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    @property
    def has_changed(self) -> bool:
        """Return whether the log changed after it was listed."""
        return self.problem is not None and self.problem.endswith(CHANGED)

    def to_bytes(self, identity: str) -> bytes:
        """Return the file; `identity` is that of the segment and of what was asked."""
        record = self._asdict() | {
            "format": FACTS_FORMAT,
            "identity": identity,
            "transactions": self.transactions.to_json(),
            "producers": changes_as_json(self.producers),
        }
        del record["was_there"]
        return (json.dumps(record) + "\n").encode()

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "SegmentFacts":
        """Return the facts of a file; KeyError, TypeError or ValueError for another object."""
        values = {name: record[name] for name in cls._fields if name != "was_there"}
        values["status"] = SegmentStatus(record["status"])
        values["index_bytes"] = tuple(record["index_bytes"])
        values["epochs"] = tuple(EpochStart(*one) for one in record["epochs"])
        values["transactions"] = TransactionSummary.from_json(record["transactions"])
        values["producers"] = changes_from_json(record["producers"])
        return cls(**values, was_there=True)


def read_facts(place: Location, identity: str) -> SegmentFacts | None:
    """Return the facts of an earlier run for the same segment; or None."""
    try:
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != FACTS_FORMAT or record["identity"] != identity:
            return None
        return SegmentFacts.of_record(record)
    except (FileReadError, ValueError, KeyError, TypeError, Kip33Error):
        return None


def identity_of(segment: SourceSegment, *asked: object) -> str:
    """Return a text that is another one if the source, or what was asked of it, is another."""
    fields = (segment.log.uri, *segment[1:])
    return json.dumps([*fields, *asked], default=str)
