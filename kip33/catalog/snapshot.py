"""One snapshot of the catalog: its name, its parts and its commit file."""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

_NAME_DIGITS: Final = 20


class SnapshotPart(NamedTuple):
    """One Parquet file of a snapshot."""

    name: str
    rows: int
    size_bytes: int
    crc32: int  # zlib's, over the file


class OrphanList(NamedTuple):
    """A commit's entry for its list of orphaned index files (`catalog.orphan_list`)."""

    rows: int
    index_bytes: int  # total size of the orphaned files
    size_bytes: int  # of the list itself
    crc32: int

    @classmethod
    def of(cls, record: dict[str, Any] | None) -> Self | None:
        """Return the entry of a commit file, None if it has none."""
        return cls(*(int(record[name]) for name in cls._fields)) if record else None


@dataclass(frozen=True)
class Snapshot:
    """A committed snapshot, as described by its commit file."""

    sequence: int
    snapshot_id: str
    source: str
    created_ms: int
    parts: tuple[SnapshotPart, ...]
    settings: dict[str, Any]
    orphaned: OrphanList | None = None  # None: no orphans, or a build before 0.2

    @property
    def name(self) -> str:
        """Return the name of its folder and commit file: 20 digits of sequence, a dash, the id."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def layout(self) -> str:
        """Return the layout of its source, as `kip33.archive.layouts.layout_of` takes it.

        Early snapshots have no layout in their commit; it was Kafka's.
        """
        return str(self.settings.get("layout", "kafka"))

    @property
    def dialect(self) -> str | None:
        """Return the dialect of its build, None if the commit does not say it."""
        try:
            settings = json.loads(self.settings.get("build", "{}"))
            return str(settings["dialect"])
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def rows(self) -> int:
        """Return the number of segments."""
        return sum(part.rows for part in self.parts)


class Candidate(NamedTuple):
    """A commit file: its snapshot, or one line with the `problem` why it is ignored."""

    name: str
    snapshot: Snapshot | None
    problem: str | None = None
    is_unreadable: bool = False  # the problem may be temporary


def snapshot_name(sequence: int, snapshot_id: str) -> str:
    """Return `00000000000000000007-<id>`: names sort by sequence number."""
    return f"{sequence:0{_NAME_DIGITS}d}-{snapshot_id}"


def sequence_of(name: str) -> int | None:
    """Return the sequence number in a snapshot's name, None for another name."""
    digits, dash, snapshot_id = name.partition("-")
    is_name = len(digits) == _NAME_DIGITS and digits.isdecimal() and dash and snapshot_id
    return int(digits) if is_name else None
