"""The options and the request of a restore, the segments of its source, and its summary."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Final, NamedTuple, Self, TypedDict

from kip33.archive import common_options as common
from kip33.archive.moments import time_ms
from kip33.catalog.logs import FROM, Row
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.batch import MAX_INT32
from kip33.formats.names import partition_dir_name, segment_file_name
from kip33.formats.times import Time
from kip33.options import Option, Path, declared, number_of
from kip33.rules.index_builder import TopicSettings
from kip33.rules.offset_holes import OffsetSpan
from kip33.rules.policies import MAX_INT64
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

PartitionName = tuple[str, int]
"""A topic and the number of a partition."""

_MOST_FILE_BYTES: Final = 1 << 30
_PART: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)  # of numbers of partitions
_MOST_NUMBERS: Final = 1_000_000


class Moment(NamedTuple):
    """A time as it was given, `now-7d` too, and in ms since 1970."""

    text: str
    ms: int

    @classmethod
    def of(cls, time: "Time | Moment") -> "Moment":
        """The time of a command or a program; ValueError for what is not one."""
        if isinstance(time, Moment):
            return time
        return cls(str(time), time_ms(time))


def _partition_numbers(given: str | Iterable[int]) -> frozenset[int]:
    """Return the numbers in a text such as 0,2-5; ValueError with what was found and expected."""
    if not isinstance(given, str):
        return frozenset(number_of("partition", one, most=MAX_INT32) for one in given)
    numbers: set[int] = set()
    for part in given.split(","):
        found = _PART.fullmatch(part.strip())
        first = int(found[1]) if found else -1
        last = int(found[2] or found[1]) if found else -1
        if found is None or not first <= last <= MAX_INT32 or last - first >= _MOST_NUMBERS:
            raise ValueError(f"{given[:80]!r} found, expected numbers such as 0,2-5")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


class RestoreOptions(TypedDict, total=False):
    """What is restored, and how."""

    topics: common.TopicGlobList
    partitions: Annotated[
        Collection[int] | None,
        Option("Only partitions with these numbers.", metavar="0,2-5", parse=_partition_numbers),
    ]
    replica: Annotated[
        str | None,
        Option(
            "Read only this log directory of SOURCE, such as broker-1, and the remote tier "
            "[default: all copies of a partition, as far as they are the log of its latest "
            "leader].",
            metavar="LOG_DIR",
        ),
    ]
    snapshot: Annotated[
        str | None,
        Option(
            "Of a catalog: a snapshot by name, number or id [default: the newest].", metavar="NAME"
        ),
    ]
    from_: Annotated[
        Time | Moment | None,
        Option(
            "Restore segments from the one with the first record at or after TIME. Consumers do "
            "not see the records before it.",
            flag="--from",
            metavar="TIME",
            parse=Moment.of,
        ),
    ]
    until: Annotated[
        Time | Moment | None,
        Option(
            "Restore segments that begin before the first record at or after TIME.",
            metavar="TIME",
            parse=Moment.of,
        ),
    ]
    truncate: Annotated[
        bool,
        "With --until: also cut the last segment there, as Kafka truncates a log.",
    ]
    from_offsets: Annotated[
        Path | None,
        Option(
            "Offsets to start at: CSV topic,partition,offset, or the output of "
            "kafka-consumer-groups.sh --describe. Other partitions are restored from their "
            "beginning.",
            metavar="FILE",
        ),
    ]
    topic_ids: Annotated[
        Path | None,
        Option(
            "Topic ids: the output of kafka-topics.sh --describe, or a JSON object. Not needed for "
            "partitions whose empty directories are in LOG_DIR, or whose source has them.",
            metavar="FILE",
        ),
    ]
    bootstrap_server: Annotated[
        str | None,
        Option(
            "Ask a running cluster for the topic ids (pip install 'kip33[kafka]').",
            metavar="HOST:PORT",
        ),
    ]
    leader_epoch: Annotated[
        int | None,
        Option(
            "Write N into batches with a later leader epoch. For a new cluster give 0: its epochs "
            "begin there, and replicas do not join a log with later ones.",
            metavar="N",
            least=0,
            most=MAX_INT32,
        ),
    ]
    link: Annotated[
        bool,
        Option(
            "Make hard links of the logs instead of copies, except of each partition's last log, "
            "to which a broker appends. Then a broker that truncates a log changes SOURCE, too.",
            flag="--link/--copy",
        ),
    ]
    allow_holes: Annotated[bool, "Restore partitions with missing offsets, too."]
    allow_unsure: Annotated[
        bool,
        "Restore records, too, of which it is not known, or not true, that they are of the log of "
        "a partition's latest leader. Without it the partition is refused.",
    ]
    allow_cut: Annotated[
        bool,
        "Cut a damaged end of a partition's last log that is more than a tenth of the log, "
        "too. Without it the partition is refused.",
    ]
    dry_run: Annotated[
        bool,
        "Show the plan and change nothing. An archive is read as the restore reads it. With a "
        "catalog only what --from and --until need is read.",
    ]
    layout: common.LayoutName
    index_interval_bytes: common.IndexIntervalBytes
    segment_index_bytes: common.SegmentIndexBytes
    kafka_configs: common.TopicConfigsFile


class RestoreQuestion(RestoreOptions):
    """What a restore is asked, before its files are read."""

    source: str | None  # a path or URI, like the next
    log_dir: str
    other_source: str | None  # the catalog of the other tier


def require_valid(asked: RestoreQuestion) -> None:
    """Raise ValueError for options that contradict each other."""
    if asked["source"] is None:
        raise ValueError("Missing argument 'SOURCE'")
    if asked["snapshot"] is not None and asked["other_source"] is not None:
        raise ValueError("--snapshot requires one SOURCE, two found")
    if asked["truncate"] and asked["until"] is None:
        raise ValueError("--truncate is for --until")
    first, until = asked["from_"], asked["until"]
    if isinstance(first, Moment) and isinstance(until, Moment) and until.ms <= first.ms:
        raise ValueError("--until must be later than --from")
    if asked["from_offsets"] is not None and asked["from_"] is not None:
        raise ValueError("give --from or --from-offsets, not both")
    if asked["topic_ids"] is not None and asked["bootstrap_server"] is not None:
        raise ValueError("give --topic-ids or --bootstrap-server, not both")


def journaled(asked: RestoreQuestion) -> dict[str, Any]:
    """Return what decides the result, as the journal has it: by the names of the options.

    A restore that was begun with these continues, whether a command or a program began it.
    """
    given = [asked["source"] or "", *filter(None, [asked["other_source"]])]
    sources = sorted(Location.of(one).uri for one in given)
    options: dict[str, Any] = {"SOURCE": sources if len(sources) > 1 else sources[0]}
    for one in declared(RestoreOptions):
        value: Any = dict(asked)[one.name]
        if one.type == Path | None:
            value = _with_checksum(value)
        elif isinstance(value, Moment):
            value = value.text
        elif isinstance(value, Collection) and not isinstance(value, str):
            value = sorted(value)
        options[one.flags.partition("/")[0]] = value
    options["--allow-cut"] = options["--allow-cut"] or None  # as an older kip33 wrote the journal
    del options["--dry-run"]
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """The source, the log directory, and the options of a restore."""

    source: Location  # of two tiers the local one
    log_dir: Location
    catalog: CatalogSnapshot | Tiers | None = None  # of the source; None: it is listed
    topics: tuple[str, ...] = ()  # globs; empty: all
    partitions: frozenset[int] | None = None  # None: all
    layout: str = "kafka"
    replica: str | None = None  # the only log directory of the source that is read
    settings: TopicSettings = field(default_factory=TopicSettings)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    from_ms: int | None = None
    until_ms: int | None = None
    from_offsets: Mapping[PartitionName, int] = field(default_factory=dict)
    is_truncated: bool = False  # at `until_ms`, the last segment, too
    leader_epoch: int | None = None  # the largest that batches have in the result
    is_linked: bool = False
    allow_holes: bool = False
    allow_unsure: bool = False  # of records that may not be of the log
    allow_cut: bool = False  # of more than a tenth of a last log
    options: Mapping[str, Any] = field(default_factory=dict)  # of the command, for the journal
    to_split: frozenset[str] = frozenset()  # logs whose offsets span 2^31 or more, by a scan

    @property
    def sources(self) -> tuple[Location, ...]:
        """Return the archive, or those of the local and of the remote tier."""
        if not isinstance(self.catalog, Tiers):
            return (self.source,)
        return self.source, Location.of(self.catalog.remote.snapshot.source)

    @property
    def slowest(self) -> Location:
        """Return the source whose store decides how many files are read at once."""
        return max(self.sources, key=lambda one: (one.is_object_store, not one.is_local))

    @property
    def asked(self) -> dict[str, Any]:
        """Return the options for the journal, so that no other request continues this one."""
        return {"SOURCE": self.source.uri} | dict(self.options)


class LogEnd(NamedTuple):
    """How a log ends, as a scan found it."""

    size_bytes: int
    valid_bytes: int
    is_damaged: bool
    end_offset: int
    error: str | None  # or a note


class LogPart(NamedTuple):
    """The bytes of a log that are one segment: of a log that Kafka splits."""

    start: int
    log_bytes: int  # of the whole log
    next_base_offset: int | None  # of the log's next part


class SourceSegment(NamedTuple):
    """One segment of the source; of a listing the columns from `status` on are not known."""

    log: Location
    topic: str
    partition: int
    base_offset: int
    size_bytes: int
    last_modified_ms: int | None
    log_dir: str | None
    topic_id: str | None
    error: str | None
    status: str
    valid_bytes: int | None = None
    last_offset: int | None = None
    record_count: int | None = None
    max_timestamp: int | None = None  # -1: no batch has one
    source_base_offset: int = 0  # of the log that is read
    from_offset: int | None = None  # earlier records are of other segments, or were deleted
    until_offset: int | None = None  # from there on another segment has the log's records
    unsure_from: int | None = None  # see `catalog.logs`, like the next two
    certainty: int | None = None
    outside_from: int | None = None
    is_remote: bool | None = None  # null: there is one catalog
    is_last: bool = False  # of those that are restored of the partition
    cut_offset: int | None = None  # it is cut there, as Kafka truncates
    next_base_offset: int | None = None  # of the partition's next segment; None: it is the last
    part: LogPart | None = None  # None: the whole log

    @classmethod
    def of(cls, row: Row, *, is_first: bool) -> Self:
        """The segment of a row of `catalog.logs` whose place in a partition is known.

        A segment whose first records are not of the log begins where its first record of the log
        is. The first one of a partition begins as it does: then the log starts inside of it.
        """
        known = {name: row[name] for name in cls._fields if name in row}
        known["source_base_offset"] = row["base_offset"]
        if row["size_bytes"] is None:
            error = row["error"] or "its size is not known"
            known |= {"size_bytes": 0, "status": SegmentStatus.UNREADABLE, "error": error}
        if row[FROM] is not None and not is_first:
            known["base_offset"] = row[FROM]
            if row["record_count"] is not None:
                known["record_count"] = row["record_count"] - (row[FROM] - row["base_offset"])
        return cls(log=Location.of(row["log_uri"]), **known)

    @property
    def is_cut_before(self) -> bool:
        """Whether its first batches are of other segments."""
        return self.base_offset > self.source_base_offset and self.part is None

    @property
    def span(self) -> OffsetSpan:
        """Return what is read of it; it ends where it begins if its end is not known."""
        row = self.base_offset, self.last_offset, self.until_offset, self.record_count
        return OffsetSpan.of(*row, is_empty=True)

    @property
    def is_split(self) -> bool:
        """Return whether a catalog shows that Kafka splits its log."""
        is_invalid = self.status == SegmentStatus.INVALID and self.last_offset is not None
        return is_invalid and not self.is_cut_before

    @property
    def end(self) -> LogEnd | None:
        """Return how its log ends; None if no build has read it, or Kafka splits it."""
        is_part = self.is_split or self.part or self.is_cut_before or self.until_offset is not None
        if is_part or self.valid_bytes is None:
            return None
        is_damaged = self.status == SegmentStatus.TRUNCATED
        return LogEnd(self.size_bytes, self.valid_bytes, is_damaged, self.span.end, self.error)

    @property
    def problem(self) -> str | None:
        """Return why it cannot be restored wherever it is in its partition, as far as is known."""
        if self.is_split:
            return None
        if self.status in (SegmentStatus.INVALID, *NOT_READ):
            return self.error or self.status
        return self.error if self.status == SegmentStatus.UNVERIFIED else None

    @property
    def log_bytes(self) -> int:
        """Return the size of the whole log."""
        return self.part.log_bytes if self.part else self.size_bytes

    @property
    def cut_from(self) -> int:
        """Return the offset from which on it is cut off; MAX_INT64 if it is not."""
        cuts = (self.cut_offset, self.until_offset, MAX_INT64)
        return min(one for one in cuts if one is not None)

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
    remote_segments: int = 0  # of two tiers
    is_there: bool = False  # already, exactly as it would be written


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
    remote_source: str | None = None  # of two tiers; `source` is the local one
    partitions_there: int = 0  # already, exactly as they would be written

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


def _with_checksum(file: Path | None) -> str | None:
    """Return the URI of a file and the checksum of its bytes."""
    if file is None:
        return None
    place = Location.of(file)
    try:
        data = read_whole(place, most_bytes=_MOST_FILE_BYTES)
    except OSError:  # reported where the file is used
        data = b""
    return f"{place.uri} (SHA-256 {hashlib.sha256(data).hexdigest()[:16]})"
