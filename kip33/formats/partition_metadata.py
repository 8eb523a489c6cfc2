"""Small text files of a broker: topic ids, leader epochs and offset checkpoints.

`partition.metadata` of a partition's directory has the id of its topic, since Kafka 2.8:

    version: 0
    topic_id: bn9RMmT4REWVDFQzf3IUaQ          no line break follows

A topic that is deleted and created again has the same name and another id. A broker whose
controller knows another id moves the directory aside as `-stray`.
Source: `PartitionMetadata.encode`, `PartitionMetadataReadBuffer.read`, `Uuid` (3.1 to 4.4).

`leader-epoch-checkpoint` of a partition's directory has the offset where each leader's records
begin:

    0            the version; there is only this one
    2            number of entries
    0 0          leader epoch, offset of its first record
    3 4711

Epochs and offsets grow. A broker compares them with those of the other replicas to find where two
logs part. Kafka: `LeaderEpochCheckpointFile`, `LeaderEpochFileCache` (0.11 to 4.x).

Offset checkpoints are at the top of each log directory:

    0                        the version; there is only this one
    2                        number of entries
    orders 0 4711            topic, partition, offset
    orders.eu 12 0

`log-start-offset-checkpoint` has the partitions whose log starts after their first segment's base
offset, because of `DeleteRecords` or retention. The other checkpoints have the same form. Kafka
writes a temporary file and renames it, so only a copy can be torn.
Source: `CheckpointFile.read`, `OffsetCheckpointFile` (4.1).
"""

import base64
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from kip33.formats.names import is_topic

PARTITION_METADATA: Final = "partition.metadata"
MAX_PARTITION_METADATA_BYTES: Final = 4096  # Kafka writes 44
_LINE: Final = re.compile(r"(version|topic_id):\s+(\S.*)")
_VERSION: Final = re.compile(r"\+?[0-9]{1,10}")
_BASE64: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_DASHED: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ZERO: Final = bytes(16)


@dataclass(frozen=True)
class PartitionMetadata:
    """The id of the topic that a partition belongs to: 22 characters, as Kafka prints it."""

    topic_id: str

    def to_bytes(self) -> bytes:
        r"""Return the file as Kafka writes it.

        >>> PartitionMetadata("bn9RMmT4REWVDFQzf3IUaQ").to_bytes()
        b'version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ'
        """
        return f"version: 0\ntopic_id: {self.topic_id}".encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        r"""Return what the file says; what follows its second line is ignored, as in Kafka.

        Raises ValueError, one line, for bytes that Kafka does not read or never writes.

        >>> PartitionMetadata.from_bytes(b"version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ\n")
        PartitionMetadata(topic_id='bn9RMmT4REWVDFQzf3IUaQ')
        """
        lines = re.split("\r\n|\r|\n", data.decode("utf-8", errors="replace"))
        version = _value(lines, 1, "version")
        if not _VERSION.fullmatch(version):
            raise ValueError(f"line 1: version {version[:40]!r} found, expected 0")
        text = _value(lines, 2, "topic_id")
        topic_id = parse_topic_id(text)
        if topic_id is None or "==" in text or len(text) != len(topic_id):
            raise ValueError(
                f"line 2: topic id {text[:40]!r} found, expected 22 characters of URL-safe base64"
            )
        return cls(topic_id)


def parse_topic_id(text: str) -> str | None:
    """Return a topic id in Kafka's form, 22 characters; None for another text.

    It may be written with dashes, as Java prints a UUID. The id of zeros means no id.

    >>> parse_topic_id("6e7f5132-64f8-4445-950c-54337f721469")
    'bn9RMmT4REWVDFQzf3IUaQ'
    >>> parse_topic_id("bn9RMmT4REWVDFQzf3IUaQ")
    'bn9RMmT4REWVDFQzf3IUaQ'
    >>> parse_topic_id("AAAAAAAAAAAAAAAAAAAAAA") is None
    True
    """
    if _DASHED.fullmatch(text):
        data = uuid.UUID(text).bytes
    elif match := _BASE64.fullmatch(text):
        data = base64.urlsafe_b64decode(f"{match[1]}==")
    else:
        return None
    return None if data == _ZERO else base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _value(lines: list[str], number: int, key: str) -> str:
    """Return the value of line `number`, whose key must be `key`."""
    line = lines[number - 1] if len(lines) >= number else ""
    match = _LINE.fullmatch(line)
    if match is None or match[1] != key:
        raise ValueError(f"line {number}: {line[:80]!r} found, expected '{key}: VALUE'")
    return match[2]


LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
_ENTRY: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


def parse_epoch_checkpoint(text: str) -> tuple[EpochStart, ...]:
    """Return the entries in the file's order; an empty file has none.

    Raises ValueError for text that Kafka does not write: line, what was found, what was expected.

    >>> parse_epoch_checkpoint("0\\n1\\n3 4711\\n")
    (EpochStart(epoch=3, start_offset=4711),)
    """
    lines = text.splitlines()
    if not lines:
        return ()
    if lines[0] != "0":
        raise ValueError(f"line 1: {lines[0][:40]!r} found, expected the version 0")
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        found = lines[1][:40] if len(lines) > 1 else ""
        raise ValueError(f"line 2: {found!r} found, expected the number of entries")
    starts = []
    for number, line in enumerate(lines[2:], 3):
        match = _ENTRY.fullmatch(line)
        if match is None or int(match[1]) > _MAX_INT32 or int(match[2]) > _MAX_INT64:
            raise ValueError(f"line {number}: {line[:80]!r} found, expected EPOCH OFFSET")
        starts.append(EpochStart(int(match[1]), int(match[2])))
    if len(starts) != int(lines[1]):
        raise ValueError(f"{len(starts)} entries found, expected {lines[1]} as line 2 says")
    return tuple(starts)


def format_epoch_checkpoint(starts: tuple[EpochStart, ...]) -> str:
    """Return the text of the file, as Kafka writes it.

    >>> format_epoch_checkpoint((EpochStart(3, 4711),))
    '0\\n1\\n3 4711\\n'
    """
    lines = ["0", str(len(starts)), *(f"{epoch} {offset}" for epoch, offset in starts)]
    return "".join(f"{line}\n" for line in lines)


def truncate_epochs(starts: tuple[EpochStart, ...], offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs of a log that now ends at `offset`: `LeaderEpochFileCache.truncateFromEnd`.

    >>> truncate_epochs((EpochStart(0, 0), EpochStart(3, 40)), 40)
    (EpochStart(epoch=0, start_offset=0),)
    """
    return tuple(start for start in starts if start.start_offset < offset)


def epochs_from(starts: tuple[EpochStart, ...], offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs of a log that begins at `offset`: `LeaderEpochFileCache.truncateFromStart`.

    The epoch of the record at `offset` begins there; epochs before it are removed.

    >>> epochs_from((EpochStart(0, 0), EpochStart(3, 40), EpochStart(4, 90)), 50)
    (EpochStart(epoch=3, start_offset=50), EpochStart(epoch=4, start_offset=90))
    """
    before = [start for start in starts if start.start_offset <= offset]
    first = (EpochStart(before[-1].epoch, offset),) if before else ()
    return first + starts[len(before) :]


LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_CHECKPOINT_VERSION: Final = 0
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


def parse_offset_checkpoint(text: str) -> dict[tuple[str, int], int]:
    """Return {(topic, partition): offset}; the last one wins if a partition is repeated.

    As in Kafka, an empty file or one that ends after its version has no entries. Raises ValueError
    for text that Kafka does not read or never writes: line, what was found, what was expected.

    >>> parse_offset_checkpoint("0\\n1\\norders 0 4711\\n")
    {('orders', 0): 4711}
    """
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    if not lines:
        return {}
    if _integer(lines[0], _MAX_INT32) != _CHECKPOINT_VERSION:
        raise ValueError(
            f"line 1: {lines[0][:40]!r} found, expected the version {_CHECKPOINT_VERSION}"
        )
    if len(lines) == 1:
        return {}
    count = _integer(lines[1], _MAX_INT32)
    if count is None or count < 0:
        raise ValueError(f"line 2: {lines[1][:40]!r} found, expected the number of entries")
    offsets: dict[tuple[str, int], int] = {}
    for number, line in enumerate(lines[2:], 3):
        parts = line.split()
        partition = _integer(parts[1], _MAX_INT32) if len(parts) == 3 else None
        offset = _integer(parts[2], _MAX_INT64) if len(parts) == 3 else None
        if partition is None or offset is None or partition < 0 or line[0].isspace():
            raise ValueError(f"line {number}: {line[:80]!r} found, expected TOPIC PARTITION OFFSET")
        offsets[parts[0], partition] = offset
    if len(lines) - 2 != count:
        raise ValueError(f"{len(lines) - 2} entries found, expected {count} as line 2 says")
    return offsets


def with_offsets(text: str, changes: Mapping[tuple[str, int], int | None]) -> str:
    """Return a checkpoint with other offsets; None removes a partition, an unknown one is added.

    Raises ValueError as `parse_offset_checkpoint` does. Other partitions keep their places.

    >>> with_offsets("0\\n1\\norders 0 7\\n", {("orders", 0): None, ("orders", 1): 9})
    '0\\n1\\norders 1 9\\n'
    """
    offsets: dict[tuple[str, int], int] = dict(parse_offset_checkpoint(text))
    for key, offset in changes.items():
        if offset is None:
            offsets.pop(key, None)
        else:
            offsets[key] = offset
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "".join(f"{line}\n" for line in (str(_CHECKPOINT_VERSION), str(len(lines)), *lines))


def _integer(text: str, most: int) -> int | None:
    """Return the integer that Java's parser reads from `text`, None if it refuses."""
    value = int(text) if _INTEGER.fullmatch(text) else None
    return value if value is not None and -most - 1 <= value <= most else None


_DESCRIBED: Final = re.compile(r"\s*Topic:\s*(\S+)\s+TopicId:\s*(\S+)")
TOPIC_IDS_EXPECTED: Final = (
    'a JSON object such as {"orders": "ID"}, or the output of kafka-topics.sh --describe'
)


def parse_topic_ids(text: str) -> dict[str, str]:
    """Return {topic: id} of a user's file, ids as 22 characters; ValueError for other text.

    It is a JSON object, or the saved output of `kafka-topics.sh --describe`, which begins with
    `Topic: orders   TopicId: bn9RMmT4REWVDFQzf3IUaQ PartitionCount: 1 ...`. Kafka:
    `TopicCommand.TopicDescription.printDescription` (2.8 to 4.x).

    >>> parse_topic_ids('{"orders": "6e7f5132-64f8-4445-950c-54337f721469"}')
    {'orders': 'bn9RMmT4REWVDFQzf3IUaQ'}
    """
    if text.lstrip().startswith("{"):
        record = json.loads(text)
        pairs = [(topic, str(topic_id)) for topic, topic_id in record.items()]
    else:
        described = map(_DESCRIBED.match, text.splitlines())
        pairs = [(match[1], match[2]) for match in described if match]
    if not pairs:
        raise ValueError(f"no topic ids found, expected {TOPIC_IDS_EXPECTED}")
    ids: dict[str, str] = {}
    for topic, written in pairs:
        topic_id = parse_topic_id(written)
        if not is_topic(topic):
            raise ValueError(f"topic {topic[:80]!r} found, expected a name that Kafka allows")
        if topic_id is None:
            raise ValueError(
                f"topic {topic}: id {written[:80]!r} found, expected 22 characters of base64"
            )
        if ids.setdefault(topic, topic_id) != topic_id:
            both = f"{ids[topic]} and {topic_id}"
            raise ValueError(f"topic {topic}: ids {both} found, expected one")
    return ids
