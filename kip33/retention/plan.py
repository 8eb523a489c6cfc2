"""A retention plan: the files to delete, their order, and their state when the plan was made.

It is made by `retention.make_plan`, written to a file by `retention.plan_file`, and carried out by
`retention.apply`. Within a partition the order is Kafka's: oldest segment first. Within a segment
it is the log, the offset index, the time index, the transaction index; for each kind first the file
beside the log, then the one that a build put into the index directory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kip33.archive.layouts import layout_of
from kip33.archive.segment_paths import PlannedFile
from kip33.catalog.catalog import Snapshot
from kip33.errors import PlanError
from kip33.rules.policies import Policies
from kip33.rules.retention import ActiveSegment, Boundary
from kip33.rules.retention_rows import Limits
from kip33.stores.locations import Location


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

    @property
    def key(self) -> tuple[str, str, int]:
        """Return log_dir, topic and number."""
        return self.log_dir, self.topic, self.partition

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(segment.size_bytes for segment in self.segments)

    def place(self, file: PlannedFile) -> Location:
        """Return the location of a file."""
        index_directory = self.index_directory or self.directory
        return (index_directory if file.in_index_dir else self.directory).child(file.name)

    def below(self, source: Location) -> str:
        """Return the path of its directory below SOURCE, empty if it is SOURCE itself."""
        return self.directory.path.removeprefix(source.path).strip("/")


@dataclass(frozen=True)
class Basis:
    """The basis of a plan's decisions."""

    created_ms: int
    now_ms: int  # the time of the judgement
    catalog: Location
    snapshot: str
    source: Location
    index_dir: Location | None  # of the snapshot's build
    policies: Policies
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL
    trust_last_modified: bool = False

    def limits(self, topic: str, log_start_offset: int | None) -> Limits:
        """Return the limits for a partition of a topic."""
        policy = self.policies.of(topic)
        return Limits(
            policy.retention_ms,
            policy.retention_bytes,
            policy.mode,
            log_start_offset,
            self.active_segment,
            self.boundary,
        )

    def require_policies(self, topics: Iterable[str]) -> None:
        """Raise PlanError unless there is a limit, and each topic has a cleanup.policy."""
        if self.policies.keeps_everything():
            raise PlanError(
                "the policies keep everything: neither retention.ms nor "
                "retention.bytes is set for any topic; set one in the policy file"
            )
        silent = sorted(
            {topic for topic in topics if self.policies.of(topic).cleanup_policy is None}
        )
        if silent:
            raise PlanError(
                f"{first_names(silent)}: no cleanup.policy, so kip33 does not know "
                "whether segments may be deleted: set cleanup.policy for it in the "
                "policy file"
            )


@dataclass(frozen=True)
class RetentionPlan:
    """The segments to delete; `plan_id` is a checksum of everything else."""

    plan_id: str
    basis: Basis
    partitions: tuple[PlannedPartition, ...]

    @property
    def segments(self) -> int:
        """Return the number of segments."""
        return sum(len(partition.segments) for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(partition.size_bytes for partition in self.partitions)

    def totals(self) -> dict[str, Any]:
        """Return the numbers of partitions, segments and bytes, also of those left out."""
        left_out = [partition.left_out for partition in self.partitions if partition.left_out]
        return {
            "partitions": sum(1 for partition in self.partitions if partition.segments),
            "segments": self.segments,
            "bytes": self.size_bytes,
            "left_out_segments": sum(one.segments for one in left_out),
            "left_out_bytes": sum(one.log_bytes for one in left_out),
        }

    def with_segments(self) -> Iterator[PlannedPartition]:
        """Yield the partitions that lose segments."""
        return (partition for partition in self.partitions if partition.segments)


def first_names(names: list[str], most: int = 3) -> str:
    """Return the first names and the number of others."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def require_deletable(snapshot: Snapshot) -> None:
    """Raise PlanError if a plan must not delete the files of a snapshot."""
    why = layout_of(snapshot.layout).why_not_deleted
    if why:
        raise PlanError(
            f"snapshot {snapshot.name} has the layout {snapshot.layout!r}: kip33 does "
            f"not plan or delete there, because {why}; without --plan it shows what has "
            "expired"
        )
