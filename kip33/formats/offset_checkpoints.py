"""A broker's offset checkpoints: text files at the top of each of its log directories.

    0                        the version; there is only this one
    2                        number of entries
    orders 0 4711            topic, partition, offset
    orders.eu 12 0

`log-start-offset-checkpoint` has the partitions whose log starts after their first segment's base
offset, because of `DeleteRecords` or retention. The other checkpoints have the same form. Kafka
writes a temporary file and renames it, so only a copy can be torn.
Source: `CheckpointFile.read`, `OffsetCheckpointFile` (4.1).
"""

import re
from collections.abc import Mapping
from typing import Final

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
CHECKPOINT_VERSION: Final = 0
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
    if _integer(lines[0], _MAX_INT32) != CHECKPOINT_VERSION:
        raise ValueError(
            f"line 1: {lines[0][:40]!r} found, expected the version {CHECKPOINT_VERSION}"
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


def with_offset(text: str, topic: str, partition: int, offset: int) -> str:
    """Return a checkpoint with another offset for one partition; all other lines are unchanged.

    Raises ValueError as `parse_offset_checkpoint` does. A partition that is not in it is not added.

    >>> with_offset("0\\n1\\norders 0 4711\\n", "orders", 0, 42)
    '0\\n1\\norders 0 42\\n'
    """
    parse_offset_checkpoint(text)
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines[2:], 2):
        name, said, _ = line.split()
        if (name, int(said)) == (topic, partition):
            lines[number] = f"{topic} {partition} {offset}\n"
    return "".join(lines)


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
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(lines)), *lines))


def _integer(text: str, most: int) -> int | None:
    """Return the integer that Java's parser reads from `text`, None if it refuses."""
    value = int(text) if _INTEGER.fullmatch(text) else None
    return value if value is not None and -most - 1 <= value <= most else None
