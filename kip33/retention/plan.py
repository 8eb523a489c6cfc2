"""A retention plan by itself: which files may go, in which order, as they were when it was made.

Made by `retention.make_plan`, kept as text by `retention.plan_file`, carried out by
`retention.apply`. Within a partition the order is Kafka's: oldest segment first, of a segment the
log, the offset index, the time index, the transaction index; of each kind the file beside the log,
then the one that a build put into the index directory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kip33.archive.layouts import layout_of
from kip33.archive.partition_files import PlannedFile
from kip33.catalog.snapshot import Snapshot
from kip33.errors import PlanError
from kip33.rules.policies import Policies
from kip33.rules.retention import Limits
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
    """What may expire and is not in the plan, and why the first of it is not."""

    segments: int
    log_bytes: int
    why: str


class PlannedPartition(NamedTuple):
    """One partition's segments, oldest first; none where all were left out."""

    log_dir: str
    topic: str
    partition: int
    directory: Location
    index_directory: Location | None  # None where no file of the plan is there
    log_start_offset: int | None  # that it was judged by
    first_kept_base_offset: int | None  # of the log that was next in the directory
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
        """Return where a file is."""
        index_directory = self.index_directory or self.directory
        return (index_directory if file.in_index_dir else self.directory).child(file.name)

    def below(self, source: Location) -> str:
        """Return the path of its directory below SOURCE, empty where it is SOURCE itself."""
        return self.directory.path.removeprefix(source.path).strip("/")


@dataclass(frozen=True)
class Basis:
    """What a plan was decided by."""

    created_ms: int
    now_ms: int  # the moment that it was judged at
    catalog: Location
    snapshot: str
    source: Location
    index_dir: Location | None  # of the snapshot's build
    policies: Policies
    active_segment: str = "keep"
    boundary: str = "local"
    trust_last_modified: bool = False

    def limits(self, topic: str, log_start_offset: int | None) -> Limits:
        """Return what a partition of a topic is judged by."""
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
    """What may be deleted, and nothing else; `plan_id` is a checksum of all the rest."""

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
        """Return how many partitions, segments and bytes, and how much was left out."""
        left_out = [partition.left_out for partition in self.partitions if partition.left_out]
        return {
            "partitions": sum(1 for partition in self.partitions if partition.segments),
            "segments": self.segments,
            "bytes": self.size_bytes,
            "left_out_segments": sum(one.segments for one in left_out),
            "left_out_bytes": sum(one.log_bytes for one in left_out),
        }

    def with_segments(self) -> Iterator[PlannedPartition]:
        """Yield the partitions that lose something."""
        return (partition for partition in self.partitions if partition.segments)


def first_names(names: list[str], most: int = 3) -> str:
    """Return the first names, and how many others there are."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def require_deletable(snapshot: Snapshot) -> None:
    """Raise PlanError where the files of a snapshot are not a plan's to delete."""
    why = layout_of(snapshot.layout).why_not_deleted
    if why:
        raise PlanError(
            f"snapshot {snapshot.name} has the layout {snapshot.layout!r}: kip33 does "
            f"not plan or delete there, because {why}; without --plan it shows what has "
            "expired"
        )
