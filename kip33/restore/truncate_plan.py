"""What a truncation changes: for the screen, the journal and the program that carries it out."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from kip33.restore.file_change import FileChange
from kip33.rules.truncation import TruncationCase
from kip33.stores.locations import Location


@dataclass(frozen=True)
class TruncationPlan:
    """What a truncation changes, in the order in which it is done."""

    directory: Location
    topic: str
    partition: int
    offset: int  # as asked
    case: TruncationCase
    log_end_offset: int  # before
    end_offset: int  # after, as a broker finds it in the files
    segments_deleted: int
    batches_cut: int
    records_cut: int  # of producers; a compressed message of v0 or v1 counts as one
    records_are_exact: bool
    log_bytes_cut: int
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]

    @property
    def plan_id(self) -> str:
        """Return 16 digits that are others if the plan, or a file it changes, is another."""
        text = json.dumps(self.as_record(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """Return the figures that `kip33 truncate` prints, without the files."""
        return {
            "partition_dir": self.directory.uri,
            "topic": self.topic,
            "partition": self.partition,
            "to": self.offset,
            "case": str(self.case),
            "log_end_offset": self.log_end_offset,
            "end_offset": self.end_offset,
            "segments_deleted": self.segments_deleted,
            "batches_cut": self.batches_cut,
            "records_cut": self.records_cut,
            "records_are_exact": self.records_are_exact,
            "log_bytes_cut": self.log_bytes_cut,
            "notes": list(self.notes),
        }

    def as_record(self) -> dict[str, Any]:
        """Return the plan for the journal."""
        return self.summary() | {"files": [change.as_record() for change in self.changes]}

    @classmethod
    def of_record(cls, directory: Location, record: dict[str, Any]) -> "TruncationPlan":
        """Return the plan that a journal has; KeyError, TypeError or ValueError for another."""
        return cls(
            directory,
            record["topic"],
            record["partition"],
            record["to"],
            TruncationCase(record["case"]),
            record["log_end_offset"],
            record["end_offset"],
            record["segments_deleted"],
            record["batches_cut"],
            record["records_cut"],
            record["records_are_exact"],
            record["log_bytes_cut"],
            tuple(FileChange.of_record(one) for one in record["files"]),
            tuple(record["notes"]),
        )
