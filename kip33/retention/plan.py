"""A retention plan: the files to delete, their order, and their state when the plan was made.

`retention.make_plan` makes it, `retention.apply` compares it with the newest snapshot and carries
it out. Within a partition the order is Kafka's: oldest segment first. Within a segment it is the
log, the offset index, the time index, the transaction index; for each kind first the file beside
the log, then the one that a build put into the index directory.

The file of a plan (`archive.plans`, `catalog/FILES.md`) has a partition's line before those of its
segments.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from kip33.archive.layouts import layout_of
from kip33.archive.plans import (
    RETENTION_PLAN,
    PlanLines,
    file_record,
    is_plain_path,
    plan_file,
    planned_file,
    read_plan_file,
    require_plain_path,
)
from kip33.archive.segment_paths import PlannedFile
from kip33.catalog.catalog import Snapshot
from kip33.errors import PlanError
from kip33.formats.names import (
    SEGMENT_KINDS,
    SegmentFile,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kip33.rules.policies import Policies
from kip33.rules.retention import ActiveSegment, Boundary
from kip33.stores.locations import Location

PARTITION_KEY: Final = ("log_dir", "topic", "partition")
_MOST_NAMED: Final = 3  # topics or segments in a message


class PlannedSegment(NamedTuple):
    """One segment to delete: its files in order, the log first."""

    base_offset: int
    largest_timestamp: int
    largest_timestamp_source: str
    reason: str  # one of `rules.retention.DELETABLE_REASONS`
    expires_at_ms: int | None
    files: tuple[PlannedFile, ...]

    @property
    def log(self) -> PlannedFile:
        """Return the segment's log file."""
        return self.files[0]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files."""
        return sum(file.size_bytes for file in self.files)


class LeftOut(NamedTuple):
    """Deletable segments that are not in the plan, and why the first of them is not."""

    segments: int
    log_bytes: int
    why: str


class PlannedPartition(NamedTuple):
    """One partition's segments, oldest first; empty if all were left out."""

    log_dir: str
    topic: str
    partition: int
    directory: Location
    index_directory: Location | None  # None if the plan has no file there
    log_start_offset: int | None  # used for the judgement
    first_kept_base_offset: int | None  # of the next log in the directory
    segments: tuple[PlannedSegment, ...]
    left_out: LeftOut | None = None
    topic_id: str | None = None  # in its `partition.metadata`; None: not known

    @property
    def key(self) -> tuple[str, str, int]:
        """Return log_dir, topic and number."""
        return self.log_dir, self.topic, self.partition

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(segment.size_bytes for segment in self.segments)

    def log_uri(self, base_offset: int) -> str:
        """Return the URI of the log with a base offset, which need not be there."""
        return self.directory.child(segment_file_name(base_offset, "log")).uri

    def below(self, source: Location) -> str:
        """Return the path of its directory below SOURCE, empty if it is SOURCE itself."""
        return self.directory.path.removeprefix(source.path).strip("/")


@dataclass(frozen=True, kw_only=True)
class Basis:
    """The basis of a plan's decisions; the first line of its file has them in this order."""

    created_ms: int
    now_ms: int  # the time of the judgement
    catalog: Location
    snapshot: str
    source: Location
    index_dir: Location | None  # of the snapshot's build
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL
    trust_last_modified: bool = False
    remote: Location | None = None  # the catalog that proves what was uploaded
    policies: Policies

    def require_limits(self) -> None:
        """Raise PlanError unless there is a limit."""
        if self.policies.keeps_everything():
            raise PlanError(
                "the policies keep everything: neither retention.ms nor "
                "retention.bytes is set for any topic; set one in the policy file"
            )

    def require_policies(self, topics: Iterable[str]) -> None:
        """Raise PlanError unless each topic has a cleanup.policy."""
        silent = sorted(
            {topic for topic in topics if self.policies.of(topic).cleanup_policy is None}
        )
        if silent:
            raise PlanError(
                f"{first_names(silent)}: no cleanup.policy, so kip33 does not know "
                "whether segments may be deleted: set cleanup.policy for it in the "
                "policy file"
            )


@dataclass
class PlanTotals:
    """The sums of a plan's partitions."""

    partitions: int = 0  # that lose segments
    segments: int = 0
    size_bytes: int = 0
    log_bytes: int = 0  # of the logs alone
    left_out_partitions: int = 0  # of which some segments are left out
    left_out_segments: int = 0
    left_out_bytes: int = 0

    def add(self, partition: PlannedPartition) -> None:
        """Add a partition."""
        self.partitions += bool(partition.segments)
        self.segments += len(partition.segments)
        self.size_bytes += partition.size_bytes
        self.log_bytes += sum(one.log.size_bytes for one in partition.segments)
        if partition.left_out:
            self.left_out_partitions += 1
            self.left_out_segments += partition.left_out.segments
            self.left_out_bytes += partition.left_out.log_bytes

    def record(self) -> dict[str, int]:
        """Return the fields of a plan's last line."""
        return {
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.size_bytes,
            "left_out_segments": self.left_out_segments,
            "left_out_bytes": self.left_out_bytes,
        }


@dataclass(frozen=True)
class RetentionPlan:
    """The segments to delete; `plan_id` is a checksum of everything else."""

    plan_id: str
    basis: Basis
    partitions: tuple[PlannedPartition, ...]

    @property
    def segments(self) -> int:
        """Return the number of segments."""
        return self.totals.segments

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return self.totals.size_bytes

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the logs alone."""
        return self.totals.log_bytes

    @cached_property
    def totals(self) -> PlanTotals:
        """Return the sums of all partitions."""
        totals = PlanTotals()
        for partition in self.partitions:
            totals.add(partition)
        return totals

    def with_segments(self) -> list[PlannedPartition]:
        """Return the partitions that lose segments."""
        return [partition for partition in self.partitions if partition.segments]


def first_names(names: list[str]) -> str:
    """Return the first names and the number of others."""
    others = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {others} more" if others > 0 else "")


def require_deletable(snapshot: Snapshot) -> None:
    """Raise PlanError if a plan must not delete the files of a snapshot."""
    why = layout_of(snapshot.layout).why_not_deleted
    if why:
        raise PlanError(
            f"snapshot {snapshot.name} has the layout {snapshot.layout!r}: kip33 does "
            f"not plan or delete there, because {why}; without --plan it shows what has "
            "expired"
        )


def with_plan_id(basis: Basis, partitions: Iterable[PlannedPartition]) -> RetentionPlan:
    """Return the plan with its id."""
    plan = RetentionPlan("", basis, tuple(partitions))
    lines = PlanLines(len, RETENTION_PLAN, header_of(basis))
    return replace(plan, plan_id=_add_all(plan, lines))


def write_plan(plan: RetentionPlan, place: Location) -> None:
    """Publish a plan as `archive.plans.plan_file` does."""
    with plan_file(place, RETENTION_PLAN, header_of(plan.basis)) as lines:
        _add_all(plan, lines)


def _add_all(plan: RetentionPlan, lines: PlanLines) -> str:
    """Write all lines but the first; return the plan's id."""
    for record in chain.from_iterable(map(records_of, plan.partitions)):
        lines.add(record)
    return lines.end(plan.totals.record())


def read_plan(place: Location) -> RetentionPlan:
    """Return the plan in a file; PlanError, one line, if it is not exactly as it was written."""
    return read_plan_file(place, RETENTION_PLAN, _plan_of)


def _plan_of(header: dict[str, Any], records: list[dict[str, Any]]) -> RetentionPlan:
    basis = _basis(header)
    return RetentionPlan(header["plan_id"], basis, _partitions(basis, records))


def header_of(basis: Basis) -> dict[str, Any]:
    """Return the fields of a plan's first line."""
    values = vars(basis) | {"policies": basis.policies.to_record()}
    return {
        name: value.uri if isinstance(value, Location) else value for name, value in values.items()
    }


def records_of(partition: PlannedPartition) -> Iterator[dict[str, Any]]:
    """Yield the lines of a partition."""
    key = dict(zip(PARTITION_KEY, partition.key, strict=True))
    left_out, index_directory = partition.left_out, partition.index_directory
    yield {
        "kind": "partition",
        **key,
        "topic_id": partition.topic_id,
        "directory": partition.directory.uri,
        "index_directory": index_directory.uri if index_directory else None,
        "log_start_offset": partition.log_start_offset,
        "first_kept_base_offset": partition.first_kept_base_offset,
        "segments": len(partition.segments),
        "bytes": partition.size_bytes,
        "left_out": left_out._asdict() if left_out else None,
    }
    for segment in partition.segments:
        yield {
            "kind": "segment",
            **key,
            **dict(zip(PlannedSegment._fields[:-1], segment, strict=False)),
            "bytes": segment.size_bytes,
            "files": [file_record(file) for file in segment.files],
        }


def _basis(header: dict[str, Any]) -> Basis:
    basis = Basis(
        created_ms=int(header["created_ms"]),
        now_ms=int(header["now_ms"]),
        catalog=Location.of(header["catalog"]),
        snapshot=str(header["snapshot"]),
        source=Location.of(header["source"]),
        index_dir=Location.of(header["index_dir"]) if header["index_dir"] else None,
        policies=Policies.from_record(header["policies"]),
        active_segment=header["active_segment"],
        boundary=header["boundary"],
        trust_last_modified=bool(header["trust_last_modified"]),
        remote=Location.of(header["remote"]) if header.get("remote") else None,
    )
    if basis.active_segment not in tuple(ActiveSegment) or basis.boundary not in tuple(Boundary):
        raise ValueError(f"unknown choices {basis.active_segment!r} and {basis.boundary!r}")
    return basis


def _partitions(basis: Basis, records: list[dict[str, Any]]) -> tuple[PlannedPartition, ...]:
    """Return the partitions with their segments; ValueError for a wrong order or place."""
    partitions: list[tuple[PlannedPartition, list[PlannedSegment]]] = []
    for record in records:
        if record["kind"] == "partition":
            partitions.append((_partition(basis, record), []))
            continue
        partition, segments = partitions[-1] if partitions else (None, [])
        if not partition or partition.key != tuple(record[name] for name in PARTITION_KEY):
            raise ValueError(f"base offset {record['base_offset']} has no line of its partition")
        segments.append(_segment(partition, record))
        offsets = [segment.base_offset for segment in segments[-2:]]
        if len(offsets) == 2 and offsets[0] >= offsets[1]:
            raise ValueError(
                f"{partition.directory.uri}: the segments are not in order of their offsets"
            )
    directories = [partition.directory for partition, _ in partitions]
    if len(set(directories)) < len(directories):
        raise ValueError("a partition appears twice")
    return tuple(partition._replace(segments=tuple(segments)) for partition, segments in partitions)


def _partition(basis: Basis, record: dict[str, Any]) -> PlannedPartition:
    log_dir, topic, number = (record[name] for name in PARTITION_KEY)
    index_uri, left_out = record["index_directory"], record["left_out"]
    partition = PlannedPartition(
        log_dir=log_dir,
        topic=topic,
        partition=number,
        directory=Location.of(record["directory"]),
        index_directory=Location.of(index_uri) if index_uri else None,
        log_start_offset=record["log_start_offset"],
        first_kept_base_offset=record["first_kept_base_offset"],
        segments=(),
        left_out=LeftOut(**left_out) if left_out else None,
        topic_id=record.get("topic_id"),  # older plans have none
    )
    below = partition.below(basis.source)
    named = parse_partition_dir(partition.directory.name)
    if (
        partition.directory != (basis.source.child(below) if below else basis.source)
        or below.rpartition("/")[0] != log_dir
        or named != (topic, number, "")
    ):
        raise ValueError(f"{record['directory']}: not a directory of {topic}-{number} below SOURCE")
    if below:
        require_plain_path(partition.directory, [basis.source])
    index_directory = partition.index_directory
    if index_directory:
        has_its_path = not below or index_directory.path.endswith(f"/{below}")
        if not has_its_path or not is_plain_path(index_directory):
            raise ValueError(f"{index_uri}: not an index directory of {record['directory']}")
    return partition


def _segment(partition: PlannedPartition, record: dict[str, Any]) -> PlannedSegment:
    base_offset = int(record["base_offset"])
    files = tuple(_file(partition, base_offset, file) for file in record["files"])
    kinds = [SEGMENT_KINDS.index(file.name.rpartition(".")[2]) for file in files]
    is_in_order = kinds == sorted(kinds) and kinds[:1] == [0] and 0 not in kinds[1:]
    if not is_in_order or files[0].folder != partition.directory:
        raise ValueError(f"base offset {base_offset}: expected the log first, then its index files")
    return PlannedSegment(
        base_offset,
        int(record["largest_timestamp"]),
        str(record["largest_timestamp_source"]),
        str(record["reason"]),
        record["expires_at_ms"],
        files,
    )


def _file(partition: PlannedPartition, base_offset: int, record: dict[str, Any]) -> PlannedFile:
    folders = filter(None, (partition.directory, partition.index_directory))
    file = planned_file(record, folders)
    expected = [SegmentFile(base_offset, kind) for kind in SEGMENT_KINDS]
    if file is None or parse_segment_file(file.name) not in expected:
        raise ValueError(
            f"{record['uri']}: not a file of {partition.directory.uri}, base offset {base_offset}"
        )
    return file
