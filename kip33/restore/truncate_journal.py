"""The journal of a truncation: one file in the partition's directory, there while it is under way.

    orders-0/.kip33-truncate.json

It is published before the first change and removed after the last one is on the disk. It has the
plan with the new bytes of all small files, so the truncation can be continued after any
interruption. A broker ignores it.
"""

import json
from typing import Final

from kip33.errors import TruncationError
from kip33.restore.truncate_plan import TruncationPlan
from kip33.stores.durable_files import flush
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise, remove

JOURNAL: Final = ".kip33-truncate.json"
JOURNAL_FORMAT: Final = 1
_MOST_BYTES: Final = 2**31


def journal_of(directory: Location) -> Location:
    """Return the place of a partition's journal."""
    return directory.child(JOURNAL)


def read_journal(directory: Location) -> TruncationPlan | None:
    """Return the plan of a truncation that was interrupted, or None.

    Raises TruncationError for a file that is not such a journal.
    """
    place = journal_of(directory)
    try:
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != JOURNAL_FORMAT:
            raise ValueError(f"format {record['format']!r} found, expected {JOURNAL_FORMAT}")
        return TruncationPlan.of_record(directory, record)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = one_line(error)
    except (ValueError, KeyError, TypeError) as error:
        why = f"is not the journal of a truncation: {one_line(error)}"
    raise TruncationError(
        f"{place.uri}: {why}; copy the partition again, or remove the file to plan anew"
    )


def begin_journal(plan: TruncationPlan) -> None:
    """Publish the journal of a plan; PublishError if that fails, then nothing was changed."""
    record = {"format": JOURNAL_FORMAT} | plan.as_record()
    data = (json.dumps(record) + "\n").encode()
    publish_or_raise(journal_of(plan.directory), data, "nothing was changed")


def end_journal(directory: Location) -> None:
    """Remove the journal: the truncation is done and on the disk."""
    flush(directory.path)
    remove(journal_of(directory))
    flush(directory.path)
