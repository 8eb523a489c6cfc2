"""What a broker that starts does with what it finds in a log directory.

Seen with brokers of 3.9.1 and 4.1.1 (`tests/integration/kafka/test_log_directory.py`) that have one
log directory. A broker that has several goes on without the one where a small file is damaged. Not
listed here is what a broker loads as it is, or ignores: files of other names, directories that
end in `-delete`, `-stray` or `-future`, `remote-log-index-cache`, an empty
`leader-epoch-checkpoint`, a clean-shutdown file with any content.

What it does with a segment is in `rules.broker_start`.
"""

from enum import StrEnum
from typing import Final, NamedTuple

INDEX_CACHE: Final = "remote-log-index-cache"  # of tiered storage: no partition, and allowed


class Find(StrEnum):
    """What a broker may find in a log directory; each member is its own text."""

    NO_PARTITION = "no partition"
    SAME_PARTITION = "same partition"
    DAMAGED_CHECKPOINT = "damaged checkpoint"
    DAMAGED_EPOCHS = "damaged epochs"
    DAMAGED_TOPIC_ID = "damaged topic id"
    NO_TOPIC_ID = "no topic id"
    START_BEYOND_END = "start beyond end"
    NOT_FORMATTED = "not formatted"
    DAMAGED_FORMAT = "damaged format"


class OnStart(NamedTuple):
    """What a broker does when it starts, and what to do before."""

    does: str
    remedy: str


_NO_START: Final = "a broker does not start"
STRAY: Final = (
    "a KRaft broker before 3.7.1 refuses to start, and a later one puts the partition aside as "
    "-stray without an error, so the topic is empty"
)
ON_START: Final = {
    Find.NO_PARTITION: OnStart(
        "this directory is no partition, and a broker does not start while it is here",
        "move it away; if it is of the disk, as lost+found is, let log.dirs name a directory on it",
    ),
    Find.SAME_PARTITION: OnStart(
        f"two directories are of one partition, and {_NO_START}", "move the wrong one away"
    ),
    Find.DAMAGED_CHECKPOINT: OnStart(
        _NO_START, "copy the file again, or remove it: a broker then writes a new one"
    ),
    Find.DAMAGED_EPOCHS: OnStart(
        _NO_START,
        "copy the file again, or remove it and each .index beside it: a broker then writes both",
    ),
    Find.DAMAGED_TOPIC_ID: OnStart(
        _NO_START, "write the topic's id into it: kafka-topics.sh --describe shows it"
    ),
    Find.NO_TOPIC_ID: OnStart(
        STRAY, "write the file: kafka-topics.sh --describe shows the topic's id"
    ),
    Find.START_BEYOND_END: OnStart(
        "a broker that starts deletes all segments of the partition",
        "copy the log again, or remove the partition's line from log-start-offset-checkpoint",
    ),
    Find.NOT_FORMATTED: OnStart(
        "there is no meta.properties, and a broker does not start without it",
        "run kafka-storage.sh format --ignore-formatted",
    ),
    Find.DAMAGED_FORMAT: OnStart(
        _NO_START, "copy the file again, or remove it and run kafka-storage.sh format"
    ),
}
"""The list: one line for everything that keeps a broker from starting or loses records."""


class Found(NamedTuple):
    """Something in a log directory, and where it is."""

    find: Find
    uri: str
    detail: str = ""  # what was found there
    partition: str | None = None  # the name of its directory; None: of the log directory

    @property
    def line(self) -> str:
        """Return the line for people.

        >>> Found(Find.NOT_FORMATTED, "file:///data").line[:48]
        'file:///data: there is no meta.properties, and a'
        """
        does, remedy = ON_START[self.find]
        what = f"{self.detail}; " if self.detail else ""
        return f"{self.uri}: {what}{does}: {remedy}"


def start_beyond_end(uri: str, end_offset: int, log_start: int, partition: str) -> Found:
    """Return what a partition's directory is whose log ends before its log start offset."""
    detail = f"the log ends at {end_offset}, before its log start offset {log_start}"
    return Found(Find.START_BEYOND_END, uri, detail, partition)
