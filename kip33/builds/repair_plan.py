"""The repairs of `kip33 repair` in a broker's log directory: plan them, then carry them out."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from os import cpu_count
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive import common_options as common
from kip33.archive.broker_locks import locked
from kip33.archive.directory import Segment
from kip33.archive.listing import Listing, Unfinished
from kip33.archive.log_directory import found_on_start
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.archive.segment_paths import beside, link_in
from kip33.archive.sources import OF_A_BROKER, partition_directories, require_segments
from kip33.builds.build_options import load_topic_settings
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.errors import CorruptIndexError, FileReadError, LocationError, PublishError
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import parse_partition_dir
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.published_files import IndexPublisher, SegmentFiles, TargetFile
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.verification import SegmentVerdict, verify_file
from kip33.rules.broker_directory import ON_START, Find, Found, start_beyond_end
from kip33.rules.broker_start import CUT, Repair, RepairAction, repair_of
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.rules.publication import Owner, Wanted
from kip33.rules.segment_summary import UNDAMAGED_STATUSES, SegmentStatus
from kip33.rules.transactions import BEGAN_HERE, FIRST_OFFSET, KNOWN_BY, LAST_OFFSET, PRODUCER_ID
from kip33.stores.files import MOST_INDEX_BYTES, read_whole, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import remove
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

REPAIRS_AT_ONCE = 256  # segments waiting for a thread
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("time_index_verdict", pa.string(), nullable=False),
    pa.field("offset_index_verdict", pa.string()),
    pa.field("time_index", pa.string(), nullable=False),
    pa.field("offset_index", pa.string(), nullable=False),
    pa.field("cut_bytes", pa.int64(), nullable=False),
    pa.field("why", pa.string(), nullable=False),
    pa.field("outcome", pa.string()),
]
REPAIRS: Final = pa.schema(_FIELDS)
"""The fields of `SegmentRepair.as_row`, in order; one row per segment that needs a repair."""


class RepairOptions(TypedDict, total=False):
    """Which index files are repaired, and whether that is done or only planned."""

    apply: Annotated[bool, "Carry out the plan. Without this option, only show it."]
    topics: common.TopicGlobList
    index_interval_bytes: common.IndexIntervalBytes
    segment_index_bytes: common.SegmentIndexBytes
    kafka_configs: common.TopicConfigsFile


class RepairRequest(RepairOptions):
    """What a repair is asked."""

    log_dir: str  # its path


class RepairFinding(StrEnum):
    """What a repair may leave to be done: a choice of `--fail-on`."""

    DAMAGED = "damaged"
    BY_HAND = "by-hand"
    FAILED = "failed"


class SegmentRepair(NamedTuple):
    """One segment, the verdict on its index files, and how to repair them."""

    segment: Segment
    verdict: SegmentVerdict
    repair: Repair
    cut_bytes: int  # bytes that a broker cuts from the log when it starts
    end_offset: int | None = None  # after that; None: not known
    outcome: str | None = None  # the result, after `--apply`

    def as_row(self) -> dict[str, Any]:
        """Return the fields that `kip33 repair` prints."""
        return {
            "log_uri": self.verdict.log_uri,
            "topic": self.segment.topic,
            "partition": self.segment.partition,
            "base_offset": self.segment.base_offset,
            "status": self.verdict.log_status,
            "time_index_verdict": self.verdict.verdict,
            "offset_index_verdict": self.verdict.offset_index_verdict,
            "time_index": self.repair.time_index,
            "offset_index": self.repair.offset_index,
            "cut_bytes": self.cut_bytes,
            "why": self.repair.why,
            "outcome": self.outcome,
        }


@dataclass
class RepairPlan:
    """The repairs below a log directory; only segments that need one are listed."""

    log_dir: Location
    settings: TopicSettings
    segments: int
    repairs: list[SegmentRepair]
    by_action: dict[str, dict[str, int]]  # `time_index` and `offset_index`: files by action
    passed_over: Counter[str] = field(default_factory=Counter)
    unfinished: tuple[Unfinished, ...] = ()  # temporary files beside the listed logs
    found: tuple[Found, ...] = ()  # what else a starting broker stumbles over

    @property
    def files_to_change(self) -> int:
        """Return how many index files `--apply` would write or remove."""
        return sum(
            counts.get(action, 0)
            for counts in self.by_action.values()
            for action in (RepairAction.WRITE, RepairAction.REMOVE)
        )

    @property
    def by_hand(self) -> int:
        """Return how many segments neither kip33 nor a broker can repair."""
        return sum(1 for one in self.repairs if RepairAction.BY_HAND in one.repair[:2])


def list_log_dir(
    log_dir: Location, topics: Sequence[str] = (), on_progress: OnProgress = tell_nobody
) -> Listing:
    """Return the segments of a broker's log directory; LocationError if it is remote."""
    if not log_dir.is_local:
        raise LocationError(
            f"{log_dir.uri}: expected a broker's log directory on this machine; for an "
            "archive use kip33 build --in-place"
        )
    return require_segments(log_dir, topics, index_dir=log_dir, on_progress=on_progress)


def plan_repair(
    listing: Listing, settings: TopicSettings, on_progress: OnProgress = tell_nobody
) -> RepairPlan:
    """Return how to repair the index files of the listed segments; no file is changed.

    Every log is read, as many at once as there are cores. A log that cannot be read is a segment
    that must be repaired by hand.
    """
    total = listing.table.num_rows
    total_bytes = int(pc.sum(listing.table["size_bytes"]).as_py() or 0)
    counts: dict[str, Counter[str]] = {"time_index": Counter(), "offset_index": Counter()}
    repairs = []
    ends: dict[Location, int | None] = {}  # of each partition's last segment, by its directory

    def judge(segment: Segment) -> SegmentRepair:  # without the index files: they are large
        return _verified(listing.source, settings, segment)[0]

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        segments = listing.segments()
        done = done_bytes = 0
        while some := list(islice(segments, REPAIRS_AT_ONCE)):
            for one in pool.map(judge, some):
                done += 1
                done_bytes += one.segment.size_bytes or 0
                for name, count in counts.items():
                    count[getattr(one.repair, name)] += 1
                if one.repair.why:
                    repairs.append(one)
                if one.segment.active_segment:
                    ends[one.segment.log(listing.source).parent] = one.end_offset
            on_progress(Progress(Phase.READING_LOGS, done, total, done_bytes, total_bytes))
    by_action = {
        name: {str(action): count[action] for action in RepairAction if count[action]}
        for name, count in counts.items()
    }
    directories = set(partition_directories(listing))
    unfinished = tuple(
        one
        for one in listing.unfinished
        if one.place.parent in directories and not link_in(one.place, listing.source)
    )
    found = [*_found_on_start(directories), *_starts_beyond_ends(ends)]
    doomed = {one.uri for one in found if one.find == Find.START_BEYOND_END}
    return RepairPlan(
        listing.source,
        settings,
        total,
        [_without_promise(one, listing.source, doomed) for one in repairs],
        by_action,
        listing.passed_over,
        unfinished,
        tuple(found),
    )


def _found_on_start(directories: Collection[Location]) -> Iterator[Found]:
    """Yield what a broker finds in the log directories of partitions."""
    for log_dir in sorted({directory.parent for directory in directories}):
        with suppress(FileNotFoundError):
            yield from found_on_start(log_dir)


def _starts_beyond_ends(ends: Mapping[Location, int | None]) -> Iterator[Found]:
    """Yield the partitions whose logs end before their log start offsets; see ON_START."""
    starts: dict[Location, LogStartOffsets] = {}
    for directory, end_offset in sorted(ends.items()):
        log_dir, named = directory.parent, parse_partition_dir(directory.name)
        if log_dir not in starts:
            starts[log_dir] = {}
            with suppress(LocationError):  # a damaged file is a finding of its own
                starts[log_dir] = log_start_offsets(log_dir, [""])
        start = starts[log_dir].get(("", named.topic, named.partition)) if named else None
        if start is not None and end_offset is not None and end_offset < start:
            yield start_beyond_end(directory.uri, end_offset, start, directory.name)


def _without_promise(
    one: SegmentRepair, log_dir: Location, doomed: Collection[str]
) -> SegmentRepair:
    """Return a repair that does not leave a file to a broker that deletes the segment."""
    directory = one.segment.log(log_dir).parent
    if directory.uri not in doomed or RepairAction.BROKER not in one.repair[:2]:
        return one
    why = f"{ON_START[Find.START_BEYOND_END].does}: its log ends before its log start offset"
    return one._replace(repair=one.repair._replace(why=why))


def _verified(
    log_dir: Location, settings: TopicSettings, segment: Segment
) -> tuple[SegmentRepair, BuiltIndexes | None]:
    """Return how to repair a segment's index files, and the files that its log gives."""
    log = segment.log(log_dir)
    time_index = beside(log, "timeindex")
    index, cut_bytes, lost, error = None, 0, False, segment.error
    end_offset: int | None = None
    if link := link_in(log.parent, log_dir):
        error = f"{link.uri} is a link: repair its target by its own path"
    if error or segment.base_offset is None or segment.topic is None:
        verdict = SegmentVerdict.unreadable(log.uri, time_index.uri, f"cannot be read: {error}")
    else:
        verdict, index = verify_file(
            log,
            time_index,
            beside(log, "index"),
            base_offset=segment.base_offset,
            topic=segment.topic,
            settings=settings.of(segment.topic),
            native=True,
        )
        is_known = verdict.log_status in (*UNDAMAGED_STATUSES, CUT) or index.is_split
        end_offset = index.end_offset if is_known else None
        is_cut = verdict.log_status == SegmentStatus.TRUNCATED
        cut_bytes = index.size_bytes - index.valid_bytes if is_cut else 0
        lost, error = _aborts_lost(log, index), verdict.log_error
    repair = repair_of(
        verdict.log_status,
        verdict.verdict,
        verdict.offset_index_verdict,
        time_dialect=verdict.dialect,
        error=error,
        cut_bytes=cut_bytes,
        aborts_lost=lost,
        is_split=index is not None and index.is_split,
    )
    return SegmentRepair(segment, verdict, repair, cut_bytes, end_offset), index


def _aborts_lost(log: Location, index: BuiltIndexes) -> bool:
    """Return whether the `.txnindex` lacks an aborted transaction of the log, or has too many.

    Transactions that began in an earlier segment are checked only if there is no entry at all; last
    stable offsets are not compared. An unreadable file is treated as good.
    """
    if index.transactions is None or not len(index.transactions.aborts):
        return False
    aborts = index.transactions.aborts
    place = beside(log, "txnindex")
    try:
        data = read_whole(place, most_bytes=MOST_INDEX_BYTES) if size_of(place) else b""
        entries = TransactionIndex.from_bytes(data, base_offset=0).entries
    except CorruptIndexError:
        return True
    except FileReadError:
        return False
    if not 0 < len(entries) <= len(aborts):
        return True
    begun_here = aborts[aborts[:, KNOWN_BY] & BEGAN_HERE > 0]
    names = ("producer_id", "first_offset", "last_offset")
    there = set(zip(*(entries[name].tolist() for name in names), strict=True))
    columns = (PRODUCER_ID, FIRST_OFFSET, LAST_OFFSET)
    return not set(zip(*(begun_here[:, one].tolist() for one in columns), strict=True)) <= there


class RepairOutcome(StrEnum):
    """How a repair ended: the beginning of `SegmentRepair.outcome`."""

    DONE = "done"
    FAILED = "failed"


def apply_repair(plan: RepairPlan, on_progress: OnProgress = tell_nobody) -> list[SegmentRepair]:
    """Carry out the plan; return its segments with their outcome, in the same order.

    Every segment is read again before it is changed, and again afterwards. `outcome` is `done`,
    `failed: ...` with the reason, or None if there was nothing to do. The caller holds the locks of
    the log directories.
    """
    to_change = [one for one in plan.repairs if one.repair.changes_files]
    results = {}
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        done = pool.map(partial(_repair_one, plan), to_change)
        for number, one in enumerate(done, 1):
            results[one.verdict.log_uri] = one
            on_progress(Progress(Phase.REPAIRING, number, len(to_change)))
    return [results.get(one.verdict.log_uri, one) for one in plan.repairs]


@dataclass(frozen=True)
class RepairSummary:
    """What a repair would do, or with `applied` has done.

    `repairs` are the segments that need one; `table` has a row for each.
    """

    log_dir: str
    applied: bool
    segments: int
    by_action: dict[str, dict[str, int]]  # `time_index` and `offset_index`: files by action
    segments_done: int
    segments_failed: int
    segments_by_hand: int
    cut_bytes: int  # a starting broker cuts them from damaged logs
    unfinished_removed: int  # temporary files of killed runs
    passed_over: dict[str, int]
    findings: tuple[RepairFinding, ...]
    on_start: tuple[str, ...]  # lines: what keeps a broker from starting, or loses records
    notes: tuple[str, ...]  # what to do where no broker will open the directory
    repairs: tuple[SegmentRepair, ...] = field(repr=False)

    def as_record(self) -> dict[str, Any]:
        """Return all fields but `repairs`."""
        record = asdict(replace(self, repairs=()))
        record |= {name: list(record[name]) for name in ("findings", "on_start", "notes")}
        del record["repairs"]
        return record

    def table(self) -> pa.Table:
        """Return the segments that need a repair, as a table of REPAIRS."""
        return pa.Table.from_pylist([one.as_row() for one in self.repairs], REPAIRS)


def run_repair(
    request: RepairRequest,
    *,
    now_ms: int,
    on_progress: OnProgress = tell_nobody,
) -> RepairSummary:
    """Plan a repair and, if that is asked for, carry it out, with the log directories locked.

    `now_ms` is the time now. Raises LocationError for a directory that is remote, missing or
    without segments, LockedError while a broker or another run uses it, PolicyError or ValueError
    for wrong settings.
    """
    settings = load_topic_settings(IndexSettings.of(request), request["kafka_configs"])
    listing = list_log_dir(Location.of(request["log_dir"]), request["topics"], on_progress)
    with locked(partition_directories(listing), make=request["apply"]):
        plan = plan_repair(listing, settings, on_progress)
        if not request["apply"]:
            return _summary(plan, plan.repairs, is_applied=False)
        unfinished = remove_unfinished(plan, now_ms=now_ms)
        repairs = apply_repair(plan, on_progress)
    return _summary(plan, repairs, unfinished, is_applied=True)


def _summary(
    plan: RepairPlan, repairs: list[SegmentRepair], unfinished: int = 0, *, is_applied: bool
) -> RepairSummary:
    outcomes = Counter((one.outcome or "").partition(":")[0].partition(";")[0] for one in repairs)
    found = {
        RepairFinding.DAMAGED: not is_applied and plan.files_to_change,
        RepairFinding.BY_HAND: plan.by_hand,
        RepairFinding.FAILED: outcomes[RepairOutcome.FAILED],
    }
    return RepairSummary(
        log_dir=plan.log_dir.uri,
        applied=is_applied,
        segments=plan.segments,
        by_action=plan.by_action,
        segments_done=outcomes[RepairOutcome.DONE],
        segments_failed=outcomes[RepairOutcome.FAILED],
        segments_by_hand=plan.by_hand,
        cut_bytes=sum(one.cut_bytes for one in repairs),
        unfinished_removed=unfinished,
        passed_over=dict(plan.passed_over),
        findings=tuple(name for name, is_there in found.items() if is_there),
        on_start=tuple(one.line for one in plan.found),
        notes=tuple(_notes(plan)),
        repairs=tuple(repairs),
    )


def _notes(plan: RepairPlan) -> Iterator[str]:
    """Yield what to do with files that are left to a broker in a directory that is no broker's."""
    left = [one for one in plan.repairs if RepairAction.BROKER in one.repair[:2]]
    log_dirs = {one.segment.log(plan.log_dir).parent.parent for one in left}
    if left and not any(size_of(one.child(OF_A_BROKER)) is not None for one in log_dirs):
        place = shlex.quote(plan.log_dir.path)
        yield (
            f"{plan.log_dir.uri}: has no {OF_A_BROKER}, so it may be an archive; if no broker will "
            f"open it, kip33 build {place} --in-place --offset-index --overwrite --catalog CATALOG "
            "writes the index files of its sound logs"
        )


def remove_unfinished(plan: RepairPlan, *, now_ms: int) -> int:
    """Remove temporary index files of killed runs; return how many.

    The caller holds the locks of brokers' log directories, so no other run writes there. Elsewhere
    there is no lock, and only files of a day ago are removed, as builds do. A file that cannot be
    removed stays.
    """
    removed = 0
    for place, last_modified_ms in plan.unfinished:
        is_locked = size_of(place.parent.parent.child(OF_A_BROKER)) is not None
        if is_locked or now_ms - last_modified_ms >= DEAD_AFTER_MS:
            with suppress(OSError):
                remove(place)
                removed += 1
    return removed


def _repair_one(plan: RepairPlan, planned: SegmentRepair) -> SegmentRepair:
    segment = planned.segment
    now, index = _verified(plan.log_dir, plan.settings, segment)

    def failed(why: str) -> SegmentRepair:
        return now._replace(outcome=f"{RepairOutcome.FAILED}: {why}")

    if now.repair[:2] != planned.repair[:2] or index is None:
        return failed("the segment changed after the plan was made; run the command again")
    publisher = IndexPublisher(plan.log_dir, in_place=True, others=Owner.REPAIRED)
    try:
        [done] = publisher.publish([_files_of(now, index, plan.log_dir)])
        publisher.finish()
    except PublishError as error:
        return failed(str(error))
    if not done.is_right:
        why = "; ".join(done.problems) or "the log changed meanwhile"
        return failed(f"{why}; fix it and run the command again")
    after, _ = _verified(plan.log_dir, plan.settings, segment)
    if after.repair.changes_files:
        return failed(f"after the repair, {after.repair.why}; run the command again")
    return now._replace(outcome="; ".join((RepairOutcome.DONE, *done.problems)))


def _files_of(now: SegmentRepair, index: BuiltIndexes, log_dir: Location) -> SegmentFiles:
    """Return the index files that a repair changes, as it wants them."""
    segment, log = now.segment, now.segment.log(log_dir)
    data = {IndexKind.TIME: index.time_index_data, IndexKind.OFFSET: index.offset_index_data}
    wanted = {RepairAction.WRITE: Wanted.BYTES, RepairAction.REMOVE: Wanted.LEFT}
    files = [
        TargetFile(
            kind,
            beside(log, kind.file),
            wanted[action],
            data[kind] if action == RepairAction.WRITE else None,
            seen=segment.index_file(kind),
        )
        for kind, action in zip(data, now.repair[:2], strict=True)
        if action in wanted
    ]
    return SegmentFiles(
        log,
        files,
        size_bytes=segment.size_bytes,
        last_modified_ms=segment.last_modified_ms,
    )
