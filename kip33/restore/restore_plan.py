"""Plan a restore: the segments, the range and the topic id of each partition; nothing is written.

Whole segments are chosen: from the one that has the first record at or after `--from`, up to the
one before the first record at or after `--until`. Records before the start stay in the first
segment. The log start offset hides them from consumers, as after `kafka-delete-records.sh`.

A topic's id comes from the log directory, from a file, from a running cluster, or from the source.
"""

import importlib
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from kip33.archive.listing import topic_id_in
from kip33.archive.log_directory import names_text
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.archive.log_window import Meter
from kip33.archive.sources import OF_A_BROKER, RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import (
    FileReadError,
    Kip33Error,
    LocationError,
    RestoreError,
    is_of_the_machine,
)
from kip33.formats.names import (
    METADATA_TOPIC,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    TOPIC_IDS_EXPECTED,
    PartitionMetadata,
    parse_epoch_checkpoint,
    parse_topic_id,
    parse_topic_ids,
)
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.options import Path
from kip33.restore.restore_request import RestoreRequest, SourceSegment
from kip33.restore.restore_source import PartitionPlan, find_partitions
from kip33.restore.source_logs import with_end, with_parts
from kip33.rules.search import Exactness
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.offset_lookup import first_without_timestamp
from kip33.search.searched_segment import SearchedSegment
from kip33.search.segment_search import opened_search
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

HAS_DATA: Final = "the partition has data"
_MOST_BYTES: Final = 1 << 30
_MOST_RUN_BYTES: Final = 1 << 10
_TIMEOUT_MS: Final = 30_000
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
STAGED_PARTITIONS: Final = "partitions"
STAGED_FACTS: Final = "facts"
STAGED_RUN: Final = "run"
REPLACED: Final = "replaced"
_SMALL_FILES: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_FACTS: Final = re.compile(r"\.?[0-9]{20}\.json", re.ASCII)
_RUN: Final = re.compile("[0-9a-f]{16}")
_PIECE_BYTES: Final = 1 << 20


class _LogDirState(NamedTuple):
    """The partitions of a log directory, by the names of their directories."""

    place: Location
    partitions: tuple[str, ...]
    is_cleanly_shut: bool
    is_formatted: bool  # it has `meta.properties`
    free_bytes: int
    is_there: bool = True

    def others(self, names: set[str]) -> list[str]:
        """Return the partitions that are not among `names` and that a broker loads as logs."""
        metadata = f"{METADATA_TOPIC}-0"  # a broker recovers it each time
        return sorted(name for name in self.partitions if name not in names and name != metadata)


class RestorePlan(NamedTuple):
    """The partitions, those that cannot be restored included, and the log directory."""

    request: RestoreRequest
    partitions: tuple[PartitionPlan, ...]
    log_dir: _LogDirState
    problems: tuple[str, ...]  # of directories whose partition is not known
    notes: tuple[str, ...] = ()  # on what is left out of the source

    @property
    def wanted(self) -> tuple[PartitionPlan, ...]:
        """Return the partitions that can be restored, as far as is known."""
        return tuple(one for one in self.partitions if one.problem is None and one.there is None)

    @property
    def segments(self) -> tuple[SourceSegment, ...]:
        """Return the segments to restore."""
        return tuple(segment for one in self.wanted for segment in one.segments)


def plan_restore(request: RestoreRequest, on_progress: OnProgress = tell_nobody) -> RestorePlan:
    """How the source is restored into the log directory; nothing is written.

    Raises LocationError for a source or a log directory that cannot be used, RestoreError if there
    is no such partition.
    """
    place = request.log_dir
    for source in request.sources:
        if source.contains(place) or place.contains(source):
            raise LocationError(
                f"{place.uri}: the log directory and SOURCE {source.uri} contain one another; "
                "give another --to"
            )
    log_dir = read_log_dir(place)
    partitions, problems, notes = find_partitions(request, on_progress)
    starts = log_start_offsets(
        request.source, {one for plan in partitions for one in (plan.replica, *plan.copies)}
    )

    def planned(plan: PartitionPlan) -> PartitionPlan:
        if plan.problem is None:
            plan = _in_log_dir(request, plan, log_dir)
        if plan.problem is None:
            places = plan.copies if plan.replicas > 1 else (plan.replica,)
            of_copies = {starts.get((one, plan.topic, plan.partition)) for one in places}
            start = of_copies.pop() if len(of_copies) == 1 else None
            plan = with_parts(request, _in_range(request, plan, start))
        return with_end(plan, request)

    plans = tuple(map_in_order(request.slowest, partitions, planned))
    return RestorePlan(request, plans, log_dir, problems, notes)


def _in_log_dir(
    request: RestoreRequest, plan: PartitionPlan, log_dir: _LogDirState
) -> PartitionPlan:
    """Return the plan with the topic's id, and with a problem if the directory exists."""
    place = log_dir.place.child(plan.name)
    there = None
    try:
        if os.path.lexists(place.path):
            obstacle = obstacle_at(place)
            if obstacle:
                text = f"{place.uri}: {obstacle}; move it away, or choose other partitions"
                if not obstacle.startswith(HAS_DATA):
                    return replace(plan, problem=text)
                plan = replace(plan, obstacle=text)
            there = _topic_id_in(place)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        return replace(plan, problem=f"{place.uri}: cannot be read: {one_line(error)}")
    given = request.topic_ids.get(plan.topic)
    if there and given and given != there:
        return replace(
            plan,
            problem=f"{place.uri}: topic id {there} found, but {given} is given; use the id of the "
            "cluster that the broker belongs to",
        )
    source = plan.segments[0].log.parent
    try:
        own = plan.own_topic_id or _topic_id_in(source)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        return replace(plan, problem=f"{source.uri}: {one_line(error)}")
    return replace(plan, topic_id=there or given or own, own_topic_id=own)


def load_topic_ids(file: Path) -> dict[str, str]:
    """Return {topic: id} from a path or URI; LocationError, one line, if it is wrong."""
    place = Location.of(file)
    try:
        return parse_topic_ids(read_whole(place, most_bytes=_MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise LocationError(f"{place.uri}: cannot be read: {one_line(error)}") from error
    except (ValueError, RecursionError) as error:
        why = one_line(error)
        expected = "" if "expected" in why else f", expected {TOPIC_IDS_EXPECTED}"
        raise LocationError(f"{place.uri}: {why}{expected}") from error


def ask_topic_ids(bootstrap_server: str) -> dict[str, str]:
    """Return {topic: id} of a running cluster; RestoreError, one line, if it does not answer."""
    with warnings.catch_warnings():  # the client reads its protocol's files in an old way
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return _ids_in_cluster(
                importlib.import_module("kafka").KafkaAdminClient, bootstrap_server
            )
        except ModuleNotFoundError as error:
            raise RestoreError(
                "--bootstrap-server: the Python package kafka-python is not installed; install it "
                "with: pip install 'kip33[kafka]', or give --topic-ids"
            ) from error
        except Exception as error:  # the client's own classes, and OSError
            raise RestoreError(
                f"--bootstrap-server {bootstrap_server}: the cluster does not answer: "
                f"{one_line(error)}; give --topic-ids with the output of kafka-topics.sh --describe"
            ) from error


def _ids_in_cluster(admin: Any, bootstrap_server: str) -> dict[str, str]:
    client = admin(bootstrap_servers=bootstrap_server, request_timeout_ms=_TIMEOUT_MS)
    try:
        topics = client.describe_topics()
    finally:
        client.close()
    topic_ids = {}
    for topic in topics:
        topic_id = topic.get("topic_id")
        text = parse_topic_id(str(topic_id) if isinstance(topic_id, UUID) else topic_id or "")
        if text:
            topic_ids[topic["name"]] = text
    return topic_ids


def read_log_dir(place: Location) -> _LogDirState:
    """Return the state of a log directory; an absent one is empty.

    Raises LocationError if it is not on this machine, RestoreError if it cannot be read or has a
    foreign file where a restore has its own.
    """
    if not place.is_local:
        raise LocationError(
            f"{place.uri}: expected a log directory on this machine; restore on the broker's "
            "machine, or into a directory that you copy there"
        )
    above = place
    try:
        while not os.path.isdir(above.path):  # noqa: PTH112 - a path, as the filesystem has it
            if os.path.lexists(above.path):
                raise LocationError(f"{above.uri}: is a file, expected a directory")
            above = above.parent
        disk = os.statvfs(above.path)
        free_bytes = disk.f_bavail * disk.f_frsize
        if above != place:
            return _LogDirState(place, (), False, False, free_bytes, is_there=False)
        require_own_files(place)
        with os.scandir(place.path) as entries:
            names = sorted(entry.name for entry in entries)
        partitions = tuple(name for name in names if _is_partition(place, name))
        return _LogDirState(
            place,
            partitions,
            CLEAN_SHUTDOWN in names,
            OF_A_BROKER in names,
            free_bytes,
        )
    except OSError as error:
        raise RestoreError(
            f"{place.uri}: cannot be read: {one_line(error)}; fix it and run the command again"
        ) from error


def require_own_files(log_dir: Location) -> None:
    """Raise RestoreError for anything but a restore's own files at the places of its files."""
    staging = log_dir.child(RESTORE_STAGING)
    kinds = ((log_dir.child(RESTORE_JOURNAL), stat.S_ISREG), (staging, stat.S_ISDIR))
    for place, is_expected in kinds:
        with suppress(FileNotFoundError):
            if not is_expected(os.lstat(place.path).st_mode):
                what = "a file" if is_expected is stat.S_ISREG else "a directory"
                raise RestoreError(
                    f"{place.uri}: no restore made this, expected {what} of a restore or nothing; "
                    "move it away and run the command again"
                )
    with suppress(FileNotFoundError):
        foreign = sorted(_foreign_in(staging)) or _of_no_run(log_dir)
        if foreign:
            raise RestoreError(
                f"{staging.uri}: no restore made {names_text(foreign)}; move it away and run the "
                "command again"
            )


def _of_no_run(log_dir: Location) -> list[str]:
    """Return what is in the staging directory if no run wrote its id there.

    A run writes its id first and removes it last. A restore that has a journal needs none: the
    journal is believed by its checksum.
    """
    names = sorted(os.listdir(log_dir.child(RESTORE_STAGING).path))  # noqa: PTH208
    run = run_in(log_dir)
    is_ours = not run and names == [STAGED_RUN]  # killed before it wrote the id
    if is_ours or _RUN.fullmatch(run) or os.path.lexists(log_dir.child(RESTORE_JOURNAL).path):
        return []
    return names


def run_in(log_dir: Location) -> str:
    """Return the id of the run that staged the partitions, empty without its file."""
    place = log_dir.child(f"{RESTORE_STAGING}/{STAGED_RUN}")
    try:
        return read_whole(place, most_bytes=_MOST_RUN_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _foreign_in(folder: Location, above: tuple[str, ...] = ()) -> Iterator[str]:
    with os.scandir(folder.path) as entries:
        for entry in entries:
            path = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False) and _is_own_folder(*path):
                yield from _foreign_in(folder.child(entry.name), path)
            elif not entry.is_file(follow_symlinks=False) or not _is_own_file(*path):
                yield "/".join(path)


def _is_own_folder(kind: str, partition: str = "", *below: str) -> bool:
    is_kind = kind in (STAGED_PARTITIONS, STAGED_FACTS, REPLACED)
    return is_kind and not below and (not partition or _is_partition_name(partition))


def _is_own_file(kind: str, partition: str = "", name: str = "", *below: str) -> bool:
    if not name or below:
        return (kind, partition) == (STAGED_RUN, "")
    is_facts = kind == STAGED_FACTS
    return bool(_FACTS.fullmatch(name)) if is_facts else _is_file_of_a_partition(name)


def _is_partition_name(name: str) -> bool:
    """Return whether a broker loads a directory of this name as a partition."""
    named = parse_partition_dir(name)
    return named is not None and not named.kind


def _is_file_of_a_partition(name: str) -> bool:
    """Return whether a restore writes a file of this name into a partition."""
    parsed = parse_segment_file(name)
    return name in _SMALL_FILES or (
        parsed is not None and name == segment_file_name(parsed.base_offset, parsed.kind)
    )


def _is_partition(place: Location, name: str) -> bool:
    return _is_partition_name(name) and os.path.isdir(place.child(name).path)  # noqa: PTH112


def obstacle_at(place: Location) -> str | None:
    """Return why a restore does not replace what is at a partition's place, None if it does.

    It replaces a directory as a broker makes it for a new topic. OSError if it cannot be read.
    """
    if not stat.S_ISDIR(os.lstat(place.path).st_mode):
        return "this is a link or no directory, which a restore does not replace"
    with os.scandir(place.path) as entries:
        names = sorted(entry.name for entry in entries)
    others = [name for name in names if not _is_of_a_new_topic(place.child(name))]
    if not others:
        return None
    has_data = any(parsed and parsed.kind == "log" for parsed in map(parse_segment_file, others))
    what = HAS_DATA if has_data else "the partition has files that no broker makes for a new topic"
    return f"{what}, which a restore does not replace: {names_text(others)}"


def _is_of_a_new_topic(place: Location) -> bool:
    """Return whether a file is as a broker makes it for a new topic, before the first record."""
    status = os.lstat(place.path)
    parsed = parse_segment_file(place.name)
    if not stat.S_ISREG(status.st_mode):
        return False
    if parsed:
        is_first = place.name == segment_file_name(0, parsed.kind)
        may_be_allocated = parsed.kind in ("index", "timeindex")  # by a broker that was killed
        return is_first and (not status.st_size or (may_be_allocated and _is_zeros(place)))
    if place.name not in _SMALL_FILES:
        return False
    try:
        data = read_whole(place, most_bytes=MAX_PARTITION_METADATA_BYTES)
        if place.name == PARTITION_METADATA:
            PartitionMetadata.from_bytes(data)
            return True
        return not any(one.start_offset for one in parse_epoch_checkpoint(data.decode()))
    except ValueError:
        return False


def _is_zeros(place: Location) -> bool:
    with open(place.path, "rb") as file:  # noqa: PTH123 - a path, as the filesystem has it
        while piece := file.read(_PIECE_BYTES):
            if piece.count(0) != len(piece):
                return False
    return True


def _topic_id_in(directory: Location) -> str | None:
    """Return the id in a directory's `partition.metadata`; None without one, or a damaged one.

    Raises OSError if the file cannot be read.
    """
    try:
        return topic_id_in(directory)
    except (FileNotFoundError, ValueError):
        return None


class _RangeError(Exception):
    """The range cannot be found; the text says why."""

    is_unreadable = False


class _UnreadableError(_RangeError):
    """A log could not be read; the text has its URI."""

    is_unreadable = True


def _in_range(
    request: RestoreRequest, plan: PartitionPlan, start_offset: int | None
) -> PartitionPlan:
    """Return the plan with the segments that are restored, or the problem.

    `start_offset` is that of the source's `log-start-offset-checkpoint`. Logs are read only to find
    the offset of a time.
    """
    segments = plan.segments
    try:
        start, note = _start_of(request, segments)
        end = _first_offset(segments, request.until_ms) if request.until_ms is not None else None
    except _RangeError as error:
        return replace(plan, problem=str(error), is_unreadable=error.is_unreadable)
    chosen = [one for one in segments if end is None or one.base_offset < end]
    if not chosen:
        return replace(plan, problem=f"no record is before --until: the first is {end}")
    first = 0
    if start is not None:
        first = max((n for n, one in enumerate(chosen) if one.base_offset <= start), default=0)
    starts_at_end = start is None and request.from_ms is not None
    if starts_at_end:
        first = len(chosen) - 1
    kept = [one._replace(is_last=False) for one in chosen[first:]]
    cut_offset = end if request.is_truncated else None
    kept[-1] = kept[-1]._replace(is_last=True, cut_offset=cut_offset)
    return replace(
        plan,
        segments=tuple(kept),
        earlier=tuple(chosen[:first]),
        asked_start=max(
            (n for n in (start, start_offset, chosen[0].from_offset) if n is not None), default=None
        ),
        log_start=start_offset,
        starts_at_end=starts_at_end,
        notes=(*plan.notes, note) if note else plan.notes,
    )


def _start_of(
    request: RestoreRequest, segments: tuple[SourceSegment, ...]
) -> tuple[int | None, str | None]:
    """Return the first offset that is asked for, and a note if it is not that of `--from`."""
    if request.from_ms is not None:
        return _not_behind_untimed(segments, _first_offset(segments, request.from_ms))
    name = segments[0].topic, segments[0].partition
    return request.from_offsets.get(name), None


def _not_behind_untimed(
    segments: tuple[SourceSegment, ...], start: int | None
) -> tuple[int | None, str | None]:
    """Return the start, or the first record without a timestamp before it: it may be later."""
    rows = [_searched(one) for one in segments]
    untimed = first_without_timestamp(rows, start, Meter(DEFAULT_MAX_BATCH_BYTES))
    if untimed.note:
        raise _UnreadableError(untimed.note)
    if untimed.offset is None:
        return start, None
    where = "no record is at or after --from" if start is None else f"not at offset {start}"
    return untimed.offset, (
        f"it begins at offset {untimed.offset}, {where}: the record there has no timestamp, so it "
        "may be later than --from"
    )


def _searched(one: SourceSegment) -> SearchedSegment:
    return SearchedSegment(
        *(one.log.uri, one.source_base_offset),
        size_bytes=one.size_bytes,
        max_timestamp=one.max_timestamp,
        from_offset=one.from_offset,
        until_offset=one.until_offset,
        status=SegmentStatus.UNVERIFIED if one.max_timestamp is None else SegmentStatus.OK,
    )


def _first_offset(segments: tuple[SourceSegment, ...], time_ms: int) -> int | None:
    """Return the offset of the first record at or after a time, None without one.

    Index files beside the logs are used where the logs agree with them. Segments that a catalog
    shows to be older are not read.
    """
    for segment in segments:
        if segment.max_timestamp is not None and segment.max_timestamp < time_ms:
            continue
        row = _searched(segment)
        of_log, meter = row.between(segment.base_offset), Meter(DEFAULT_MAX_BATCH_BYTES)
        try:
            with opened_search(row, of_log, meter, check_crc=True) as search:
                hit = search.find(time_ms)
                damage = search.log.damage
        except (FileReadError, Kip33Error) as error:
            raise _UnreadableError(f"{segment.log.uri}: {one_line(error)}") from error
        if hit:
            if hit.exactness == Exactness.BATCH:
                raise _RangeError(f"{segment.log.uri}: {hit.note}")
            return hit.offset
        if damage and not segment.is_last:
            raise _RangeError(f"{segment.log.uri}: {damage}")
    return None
