"""The `leader-epoch-checkpoint` of a partition: where each leader's records begin.

    0            the version; there is only this one
    2            number of entries
    0 0          leader epoch, offset of its first record
    3 4711

Epochs and offsets grow. A broker compares them with those of the other replicas to find where two
logs part. Kafka: `LeaderEpochCheckpointFile`, `LeaderEpochFileCache` (0.11 to 4.x).
"""

import re
from typing import Final, NamedTuple

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
        if match is None:
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
