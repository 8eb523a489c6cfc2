"""Make a retention plan: the deletable segments of a snapshot, compared with the directories.

A plan contains the oldest segments of each partition, without a gap. It ends before the first
segment that must not be deleted, that has changed since the snapshot, or that has an older log
missing from the snapshot. Otherwise the remaining partition could have a gap.

`--emit delete-records` deletes on a cluster what `--plan` deletes in an archive. So it leaves out
each partition for which a plan would leave out a segment, in any log directory (`DeletionDoubts`).
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, Self

import pyarrow.compute as pc

from kip33.archive.listing import DIRECTORIES_AT_ONCE, topic_id_in
from kip33.archive.plans import RETENTION_PLAN, PlanLines, plan_file
from kip33.archive.removal import LINK
from kip33.archive.segment_paths import (
    NO_TIME,
    PartitionFiles,
    PlannedFile,
    in_deletion_order,
    is_link,
    is_log,
    link_in,
    list_partition,
)
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED, OF_FILES
from kip33.errors import PlanError, is_of_the_machine
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import segment_file_name
from kip33.retention.evaluation import JudgedRows, RetentionRequest, judged_tables
from kip33.retention.judged_partition import CatalogRow, JudgedPartition
from kip33.retention.plan import (
    Basis,
    LeftOut,
    PlannedPartition,
    PlannedSegment,
    PlanTotals,
    RetentionPlan,
    header_of,
    records_of,
    require_deletable,
    with_plan_id,
)
from kip33.rules.retention import RetentionMode, RetentionReason
from kip33.stores.files import one_line
from kip33.stores.locations import Location

MOST_NAMED: Final = 20  # partitions of which a plan leaves out segments; it has them all
BELOW_ALL_OFFSETS: Final = -1  # less than any base offset
HAS_A_SWAP: Final = "contains a .log.swap, which a broker must load first"
_LINKED_DIRECTORY: Final = (
    "is a link: its target may be outside SOURCE or have another name, so kip33 deletes nothing "
    "there; make it a directory, or delete by hand"
)


def plan_retention(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest, clock_ms: int
) -> RetentionPlan:
    """Return a plan of the segments that are deletable at the request's time; nothing is written.

    `clock_ms` is the current time; that of the request must not be later. Each directory with
    planned files is listed once. Raises PlanError if a topic has no cleanup.policy or the policies
    keep everything, and CatalogError if the snapshot is damaged.
    """
    basis = basis_of(catalog, snapshot, request, clock_ms)
    _require_plannable(basis, snapshot)
    unlistable = [*unlistable_directories(catalog, snapshot)]
    tables = judged_tables(catalog, snapshot, request, (*JUDGED, *OF_FILES))
    planned = [one for judged in tables for one in _planned_of(basis, judged, unlistable)]
    basis.require_policies(partition.topic for partition in planned)
    return with_plan_id(basis, planned)


class PlanInProgress:
    """A plan that is written while the partitions of a snapshot are judged by its basis.

    Their rows must have the columns of index files (`catalog_columns.OF_FILES`).
    """

    def __init__(self, basis: Basis, unlistable: Sequence[str], lines: PlanLines) -> None:
        """Begin; `unlistable` are the `unlistable_directories` of the snapshot."""
        self._basis, self._unlistable, self._lines = basis, unlistable, lines
        self._topics: set[str] = set()
        self.totals, self.plan_id = PlanTotals(), ""
        self.left_out: list[PlannedPartition] = []  # the first ones of which segments are left out

    def add(self, judged: JudgedRows) -> None:
        """Write the partitions that lose segments, in order."""
        for partition in _planned_of(self._basis, judged, self._unlistable):
            self.totals.add(partition)
            for record in records_of(partition):
                self._lines.add(record)
            self._topics.add(partition.topic)
            if partition.left_out and len(self.left_out) < MOST_NAMED:
                self.left_out.append(partition._replace(segments=()))

    def end(self) -> None:
        """Write the last line; PlanError if a topic has no cleanup.policy."""
        self._basis.require_policies(self._topics)
        self.plan_id = self._lines.end(self.totals.record())


@contextmanager
def planning(
    basis: Basis, catalog: Catalog, snapshot: Snapshot, place: Location | None
) -> Iterator[PlanInProgress | None]:
    """Yield a plan; it is published if the block ends without an error. None: without a `place`.

    Raises as `plan_retention` does, and PublishError if the file cannot be written.
    """
    if place is None:
        yield None
        return
    _require_plannable(basis, snapshot)
    unlistable = [*unlistable_directories(catalog, snapshot)]
    with plan_file(place, RETENTION_PLAN, header_of(basis)) as lines:
        yield PlanInProgress(basis, unlistable, lines)


def _require_plannable(basis: Basis, snapshot: Snapshot) -> None:
    """Raise PlanError for a time in the future, no limit, or files that are not deleted."""
    if basis.now_ms > basis.created_ms:
        raise PlanError(
            f"--now is {basis.now_ms}, {basis.now_ms - basis.created_ms} ms in the future: a plan "
            "may contain only segments that have already expired; give an earlier time"
        )
    require_deletable(snapshot)
    basis.require_limits()


def _planned_of(
    basis: Basis, judged: JudgedRows, unlistable: Sequence[str]
) -> Iterator[PlannedPartition]:
    """Yield what is planned of each partition that loses segments, or why nothing is, in order."""
    losing = [one for one in judged.partitions(unlistable) if one.deletable_segments]
    with ThreadPoolExecutor(DIRECTORIES_AT_ONCE) as pool:
        yield from pool.map(partial(_planned, basis), losing)


def unlistable_directories(catalog: Catalog, snapshot: Snapshot) -> dict[str, str | None]:
    """Return the directories of a snapshot that could not be listed, and each one's topic."""
    found: dict[str, str | None] = {}
    for rows in catalog.read_pieces(snapshot, ["topic", "base_offset", "log_uri"]):
        some = rows.filter(pc.is_null(rows["base_offset"]))
        uris: list[Any] = some["log_uri"].to_pylist()
        found |= zip(uris, some["topic"].to_pylist(), strict=True)
    return dict(sorted(found.items()))


def basis_of(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest, clock_ms: int
) -> Basis:
    """Return the settings by which a snapshot is judged; ValueError for an unknown choice."""
    request.require_valid()
    index_dir = snapshot.settings.get("index_dir")
    return Basis(
        created_ms=clock_ms,
        now_ms=request.now_ms,
        catalog=catalog.location,
        snapshot=snapshot.name,
        source=Location.of(snapshot.source),
        index_dir=Location.of(index_dir) if index_dir else None,
        policies=request.policies,
        active_segment=request.active_segment,
        boundary=request.boundary,
        trust_last_modified=request.trust_last_modified,
        remote=request.other_tier.catalog if request.other_tier else None,
    )


def _planned(basis: Basis, judged: JudgedPartition) -> PlannedPartition:
    """Return the planned part of a partition; its rows become Python objects only here."""
    first, trust = judged.first, basis.trust_last_modified
    directory = Location.of(first.directory_uri)
    start = judged.limits.log_start_offset
    nothing = PlannedPartition(*judged.key, directory, None, start, None, ())
    uri = next(filter(None, judged.index_directory_uris()), None)
    index_directory = Location.of(uri) if uri else None
    problem = judged.why_unplannable(first, trust_last_modified=trust)
    problem = problem or linked_directory(directory, index_directory, basis.source)
    if problem is None:
        try:
            there = _DirectoryNow.look(directory, index_directory)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            why = one_line(error)
            problem = f"{directory.uri} or its index directory cannot be listed: {why}"
    if problem:
        return nothing._replace(left_out=_left_out(judged, 0, problem))
    logs = there.files.logs()
    segments: list[PlannedSegment] = []
    for (row, decision), log in zip(judged.deletable(), chain(logs, repeat(None)), strict=False):
        problem = judged.why_unplannable(row, trust_last_modified=trust)
        problem = problem or there.problem(row, log)
        if problem:
            break
        segments.append(
            PlannedSegment(
                row.base_offset or 0,
                row.largest_timestamp or 0,
                row.largest_timestamp_source or "",
                decision.reason,
                decision.expires_at_ms,
                there.files_of(row),
            )
        )
    last = segments[-1].base_offset if segments else BELOW_ALL_OFFSETS
    return nothing._replace(
        index_directory=index_directory,
        first_kept_base_offset=next((log for log in logs if log > last), None),
        segments=tuple(segments),
        left_out=_left_out(judged, len(segments), problem) if problem else None,
        topic_id=_known_topic_id(directory),
    )


def _known_topic_id(directory: Location) -> str | None:
    """Return the topic's id in a partition's directory, None if it is not known."""
    try:
        return topic_id_in(directory)
    except (OSError, ValueError):
        return None


def _left_out(judged: JudgedPartition, planned: int, why: str) -> LeftOut:
    """Return the deletable segments that are not planned."""
    return LeftOut(judged.deletable_segments - planned, judged.deletable_bytes(planned), why)


class _DirectoryNow(NamedTuple):
    """The current content of a partition's directory and of its index directory."""

    directory: Location
    files: PartitionFiles
    index_directory: Location | None
    index_files: PartitionFiles

    @classmethod
    def look(cls, directory: Location, index_directory: Location | None) -> Self:
        """List both; OSError if that fails."""
        files, index_files = list_partition(directory), PartitionFiles({}, frozenset())
        if index_directory:
            index_files = list_partition(index_directory, may_be_absent=True)
        return cls(directory, files, index_directory, index_files)

    def problem(self, row: CatalogRow, next_log: int | None) -> str | None:
        """Return why a row must not be planned, or None; `next_log` is from the listing."""
        base_offset = row.base_offset or 0
        if next_log is None or next_log > base_offset:
            return f"{row.log_uri} was deleted after the snapshot"
        if next_log < base_offset:
            before = self.directory.child(segment_file_name(next_log, "log")).uri
            return f"{before} is not in the snapshot, but older than {row.log_uri}"
        if any(swap <= base_offset for swap in self.files.swaps):
            return f"{self.directory.uri} {HAS_A_SWAP}"
        uri = row.index_directory_uri
        expected = self.index_directory.uri if self.index_directory else uri
        if uri and uri != expected:
            return f"the index files of {row.log_uri} are in {uri}, not in {expected}"
        return next(self._changes(row), None)

    def files_of(self, row: CatalogRow) -> tuple[PlannedFile, ...]:
        """Return all files of the segment, and those that builds wrote to the index directory."""
        base_offset, sizes = row.base_offset or 0, self._sizes_of_ours(row)
        built = self.index_files.segments.get(base_offset, [])
        ours = [file for file in built if file.name in sizes]
        return tuple(in_deletion_order(self.files.segments[base_offset] + ours))

    def _sizes_of_ours(self, row: CatalogRow) -> dict[str, int | None]:
        """Return the files that builds wrote to the index directory, with their sizes then."""
        if not row.index_directory_uri:
            return {}
        stem = row.name.removesuffix(".log")
        sizes = {f"{stem}{kind.suffix}": getattr(row, f"{kind}_bytes") for kind in IndexKind}
        return {name: size for name, size in sizes.items() if size is not None}

    def _changes(self, row: CatalogRow) -> Iterator[str]:
        """Yield the differences between a segment's files and the snapshot."""
        sizes = self._sizes_of_ours(row)
        for file in self.files_of(row):
            uri = file.place.uri
            if is_link(file.place):
                yield f"{uri} {LINK}"
            elif file.last_modified_ns == NO_TIME:
                yield f"{uri} has no modification time"
            elif file.folder != self.directory and file.size_bytes != sizes[file.name]:
                yield f"{uri} has changed since the build"
            elif is_log(file) and (
                uri != row.log_uri
                or file.size_bytes != row.size_bytes
                or file.last_modified_ns // 1_000_000 != row.last_modified_ms
            ):
                yield f"{uri} differs from the snapshot"


class DeletionDoubts:
    """The partitions for which a plan would not contain all deletable segments."""

    def __init__(self, basis: Basis, unlistable: Mapping[str, str | None]) -> None:
        """Begin without any; `unlistable` are the `unlistable_directories` of the snapshot."""
        self.basis, self._unlistable = basis, [*unlistable]
        self._losing: set[str] = set()
        self.partitions: dict[tuple[str, int], str] = {}  # why each is left out
        self.of_any_topic = [uri for uri, topic in unlistable.items() if topic is None]
        """Directories that may have replicas of any partition."""

    @classmethod
    def of(cls, basis: Basis, catalog: Catalog, snapshot: Snapshot) -> Self:
        """Begin with what could not be listed; PlanError if the policies keep everything."""
        basis.require_limits()
        return cls(basis, unlistable_directories(catalog, snapshot))

    def add(self, judged: JudgedRows) -> None:
        """Look at the partitions of a table, which were judged by the basis."""
        for one in judged.partitions(self._unlistable):
            if one.limits.mode != RetentionMode.DELETE:
                continue
            why = _doubt(one, trust_last_modified=self.basis.trust_last_modified)
            if why:
                self.partitions.setdefault((one.topic, one.partition), why)
            if one.deletable_segments:
                self._losing.add(one.topic)

    def require_policies(self) -> None:
        """Raise PlanError if a topic with deletable segments has no cleanup.policy."""
        self.basis.require_policies(self._losing)


def _doubt(judged: JudgedPartition, *, trust_last_modified: bool) -> str | None:
    """Return why a plan would stop before the last deletable segment; None if it would not."""
    if judged.is_plain and not judged.unlistable_uris:
        return None
    if judged.first.base_offset is None:
        return f"{judged.first.log_uri} could not be listed, so segments may be missing"
    if judged.has(RetentionReason.TWO_DIRECTORIES):
        names = sorted({row.directory_uri for row in judged.rows})
        return f"{names[0]} and {names[1]} are directories of the same partition"
    whys = (
        judged.why_unplannable(row, trust_last_modified=trust_last_modified)
        for row, _ in judged.deletable()
    )
    return next(filter(None, whys), None)


def linked_directory(
    directory: Location, index_directory: Location | None, source: Location
) -> str | None:
    """Return why nothing is deleted in a partition whose directory is reached by a link.

    This is true of both directories; a link above SOURCE or above the index directory is no reason.
    """
    link = link_in(directory, source)
    if link is None and index_directory is not None:
        below = directory.path.removeprefix(source.path).strip("/")
        root = index_directory.path.removesuffix(below)
        link = link_in(index_directory, index_directory._replace(path=root))
    return f"{link.uri} {_LINKED_DIRECTORY}" if link else None
