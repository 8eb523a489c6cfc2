"""The journal of a restore: one file in the log directory while partitions come to their places.

    LOG_DIR/.kip33-restore.json      there from the first rename to the end
    LOG_DIR/.kip33-restore/          there from the first copy to the end

While the directory is there a broker does not start: its name is not that of a partition. The
journal has all that is left to do, so any run of the same command completes it.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kip33.archive.broker_log_dirs import RESTORE_JOURNAL
from kip33.errors import RestoreError
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

RESTORE_JOURNAL_FORMAT: Final = 1
_MOST_BYTES: Final = 2**31


class RestoredPartition(NamedTuple):
    """A partition that is staged as a whole: its offsets for the log directory's checkpoints."""

    topic: str
    partition: int
    name: str  # of its directory
    first_base_offset: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class RestoreJournal:
    """What is left to do when all partitions are staged."""

    source: str
    partitions: tuple[RestoredPartition, ...]
    marks_clean_shutdown: bool
    summary: dict[str, Any]  # what the command prints

    def to_bytes(self) -> bytes:
        """Return the file."""
        record = {
            "format": RESTORE_JOURNAL_FORMAT,
            "source": self.source,
            "partitions": [one._asdict() for one in self.partitions],
            "marks_clean_shutdown": self.marks_clean_shutdown,
            "summary": self.summary,
        }
        return (json.dumps(record) + "\n").encode()


def read_restore_journal(log_dir: Location) -> RestoreJournal | None:
    """Return the journal of a restore that was interrupted, or None.

    Raises RestoreError for a file that is not such a journal.
    """
    place = log_dir.child(RESTORE_JOURNAL)
    try:
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != RESTORE_JOURNAL_FORMAT:
            raise ValueError(
                f"format {record['format']!r} found, expected {RESTORE_JOURNAL_FORMAT}"
            )
        return RestoreJournal(
            record["source"],
            tuple(RestoredPartition(**one) for one in record["partitions"]),
            record["marks_clean_shutdown"],
            record["summary"],
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        why = one_line(error)
    except (ValueError, KeyError, TypeError) as error:
        why = f"is not the journal of a restore: {one_line(error)}"
    raise RestoreError(
        f"{place.uri}: {why}; remove it together with the directory .kip33-restore, and run the "
        "command again"
    )


def begin_restore_journal(log_dir: Location, journal: RestoreJournal) -> None:
    """Publish the journal; PublishError if that fails, then no partition is in its place."""
    publish_or_raise(
        log_dir.child(RESTORE_JOURNAL),
        journal.to_bytes(),
        "no partition of the log directory was changed",
    )
