"""A snapshot of the catalog by itself: its name, its parts, what its commit file says."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

_NAME_DIGITS: Final = 20


class SnapshotPart(NamedTuple):
    """One Parquet file of a snapshot."""

    name: str
    rows: int
    size_bytes: int
    crc32: int  # zlib's, of the whole file


class OrphanList(NamedTuple):
    """What a commit says of its list of orphaned index files (`catalog.orphan_list`)."""

    rows: int
    index_bytes: int  # of the orphaned files together
    size_bytes: int  # of the list itself
    crc32: int

    @classmethod
    def of(cls, record: dict[str, Any] | None) -> Self | None:
        """Return what a commit file says, None where it says nothing."""
        return cls(*(int(record[name]) for name in cls._fields)) if record else None


@dataclass(frozen=True)
class Snapshot:
    """A committed snapshot, as its commit file has it."""

    sequence: int
    snapshot_id: str
    source: str
    created_ms: int
    parts: tuple[SnapshotPart, ...]
    settings: dict[str, Any]
    orphaned: OrphanList | None = None  # None: nothing is, or a build before 0.2 did not look

    @property
    def name(self) -> str:
        """Return the name of its folder and commit file: 20 digits of sequence, a dash, the id."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def layout(self) -> str:
        """Return the layout that its source was read by; before there were several it was Kafka's.

        As `kip33.archive.layouts.layout_of` takes it.
        """
        return str(self.settings.get("layout", "kafka"))

    @property
    def rows(self) -> int:
        """Return the number of segments."""
        return sum(part.rows for part in self.parts)


class Candidate(NamedTuple):
    """A commit file: its snapshot, or the `problem` for which it is ignored, one line."""

    name: str
    snapshot: Snapshot | None
    problem: str | None = None
    is_unreadable: bool = False  # now: the problem may pass


def snapshot_name(sequence: int, snapshot_id: str) -> str:
    """Return `00000000000000000007-<id>`: names sort as sequences do."""
    return f"{sequence:0{_NAME_DIGITS}d}-{snapshot_id}"


def sequence_of(name: str) -> int | None:
    """Return the sequence number in a snapshot's name, None for another name."""
    digits, dash, snapshot_id = name.partition("-")
    is_name = len(digits) == _NAME_DIGITS and digits.isdecimal() and dash and snapshot_id
    return int(digits) if is_name else None
