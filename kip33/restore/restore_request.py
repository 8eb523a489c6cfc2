"""The request of a restore, the segments of its source, and its summary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

from kip33.catalog.catalog import Snapshot
from kip33.formats.names import partition_dir_name, segment_file_name
from kip33.rules.index_builder import TopicSettings
from kip33.stores.locations import Location

PartitionName = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """The source, the log directory, and the options of a restore."""

    source: Location
    log_dir: Location
    catalog: tuple[Location, Snapshot] | None = None  # of the source; None: it is listed
    topics: tuple[str, ...] = ()  # globs; empty: all
    partitions: frozenset[int] | None = None  # None: all
    layout: str = "kafka"
    replica: str | None = None  # the log directory of the source; None: the most complete one
    settings: TopicSettings = field(default_factory=TopicSettings)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    from_ms: int | None = None
    until_ms: int | None = None
    from_offsets: Mapping[PartitionName, int] = field(default_factory=dict)
    is_truncated: bool = False  # at `until_ms`, the last segment, too
    leader_epoch: int | None = None  # the largest that batches have in the result
    is_linked: bool = False
    allow_holes: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)  # of the command, for the journal

    @property
    def asked(self) -> dict[str, Any]:
        """Return the options for the journal, so that no other request continues this one."""
        return {"SOURCE": self.source.uri} | dict(self.options)


class SourceSegment(NamedTuple):
    """One segment to restore, as the source was listed."""

    log: Location
    topic: str
    partition: int
    base_offset: int
    size_bytes: int
    last_modified_ms: int | None
    is_last: bool = False  # of those that are restored of the partition
    cut_offset: int | None = None  # it is cut there, as Kafka truncates
    max_timestamp: int | None = None  # of a catalog; None: not known

    @property
    def directory_name(self) -> str:
        """Return the name of the partition's directory in a log directory."""
        return partition_dir_name(self.topic, self.partition)

    def file_name(self, kind: str) -> str:
        """Return the name of one of its files in a log directory."""
        return segment_file_name(self.base_offset, kind)


@dataclass(frozen=True)
class PartitionRestore:
    """One partition of a restore; `problem` says why it is refused."""

    topic: str
    partition: int
    replica: str  # the log directory of the source that was read
    replicas: int
    segments: int
    log_bytes: int  # in the source
    start_offset: int | None  # None: refused, or only planned; like the next two
    end_offset: int | None
    largest_leader_epoch: int | None
    topic_id: str | None
    problem: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RestoreSummary:
    """What a restore has done, or with `applied` false would do."""

    source: str
    log_dir: str
    applied: bool
    partitions_restored: int
    partitions_refused: int
    segments: int  # of the partitions that are restored, like the next
    log_bytes: int
    logs: int  # that were read or could not be
    unreadable_logs: int
    unreadable_example: str | None
    bytes_copied: int
    bytes_linked: int
    bytes_there: int  # copied by an earlier run
    clean_shutdown: bool  # a broker that starts recovers nothing
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    partitions: tuple[PartitionRestore, ...]
    free_bytes: int | None = None  # in the log directory; None: the restore was carried out

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the summary of a record, such as the one in a journal."""
        known = {one.name: record[one.name] for one in fields(cls) if one.name in record}
        rows = (row | {"notes": tuple(row["notes"])} for row in known["partitions"])
        known["partitions"] = tuple(PartitionRestore(**row) for row in rows)
        for name in ("notes", "problems"):
            known[name] = tuple(known[name])
        return cls(**known)

    def as_record(self) -> dict[str, Any]:
        """Return the fields as `kip33 restore` prints them."""
        record = asdict(self)
        if self.free_bytes is None:
            del record["free_bytes"]
        return record
