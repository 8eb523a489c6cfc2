"""List the segments below a SOURCE as one Arrow table, with their topic ids and URIs as columns.

A row is a segment file, or a directory that could not be listed (then `error` says why). Files and
directories that Kafka would delete at load (`.deleted`, `-delete`, ...) are counted, not listed.
Directories are listed in parallel and rows become Arrow columns, so that a million segments are
listed in seconds and take a few hundred megabytes. `archive.layouts` knows the names.

A directory that links lead to is listed once: by its own path if it is below SOURCE, otherwise by
the path of the first link. So links are followed last, one after another.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.directory import Directory, Segment, Visit, real_path
from kip33.archive.layouts import KAFKA, Layout
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.archive.segment_paths import uri_beside
from kip33.errors import FileReadError, LocationError, counted
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    EpochStart,
    PartitionMetadata,
    parse_epoch_checkpoint,
)
from kip33.rules.leader_epochs import with_later_epochs
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import INSIDES, UNQUOTED_PATH, Location
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

Column: TypeAlias = Any  # an Arrow chunked array, which the stubs type by element
LISTED_BEFORE: Final = "links to directories that are listed by another path"
DIRECTORIES_AT_ONCE: Final = 16  # a store answers in tens of ms; harmless on a local disk
LISTING_ROWS_PER_BATCH: Final = 1 << 16  # limits the rows that are Python objects at one time

_SMALL_FILES_AT_ONCE: Final = 16  # a local disk is read by one thread
_MOST_BYTES: Final = {
    PARTITION_METADATA: MAX_PARTITION_METADATA_BYTES,
    LEADER_EPOCH_CHECKPOINT: 1 << 20,
}
_END_OF_LOG: Final = rf"(?:\.log)?(?:#(?:{'|'.join(map(re.escape, sorted(INSIDES)))}))?$"

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.string()),  # below SOURCE
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("active_segment", pa.bool_()),  # the last segment of the partition, by name
    pa.field("next_base_offset", pa.int64()),  # of the partition's next segment
    pa.field("error", pa.string()),
    pa.field("inside", pa.string()),  # the part of the file that is the log; null: the file itself
    pa.field("topic_id", pa.string()),  # from names and manifests; `with_topic_ids` reads others
    pa.field("partition_metadata_modified_ms", pa.int64()),  # of the file beside the log
    pa.field("has_epoch_checkpoint", pa.bool_()),  # beside the log
]
# Index files beside the log, and where a build puts them; whole seconds on object stores.
for _where, _kinds in (("beside", (IndexKind.TIME, IndexKind.OFFSET)), ("target", IndexKind)):
    for _kind in _kinds:
        _FIELDS.append(pa.field(f"{_where}_{_kind}_bytes", pa.int64()))
        _FIELDS.append(pa.field(f"{_where}_{_kind}_modified_ms", pa.int64()))
_FIELDS.append(pa.field("producer_snapshot_modified_ms", pa.int64()))  # of the file beside the log
LISTING: Final = pa.schema(_FIELDS)
"""Size and time are those at listing; a file may have changed before it is read."""


class Unfinished(NamedTuple):
    """A temporary index file of a build that is running or was killed."""

    place: Location
    last_modified_ms: int


@dataclass
class Listing:
    """The segments below a source, sorted by path, and the number of ignored files by kind."""

    source: Location
    table: pa.Table
    passed_over: Counter[str] = field(default_factory=Counter)
    log_dirs: frozenset[str] = frozenset()  # of all segments, including those of other topics
    unfinished: tuple[Unfinished, ...] = ()
    links: tuple[str, ...] = ()  # a line for each link that was followed

    def segments(self) -> Iterator[Segment]:
        """Yield the rows as values."""
        return segments_of(self.table)


def segments_of(table: pa.Table) -> Iterator[Segment]:
    """Yield the rows of a table of LISTING."""
    for batch in table.select(LISTING.names).to_batches(max_chunksize=LISTING_ROWS_PER_BATCH):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Segment(*row)


def list_tree(
    source: Location,
    index_dir: Location | None = None,
    *,
    layout: Layout = KAFKA,
    time_index: str = TIME_INDEX_FILE,
    on_progress: OnProgress = tell_nobody,
) -> Listing:
    """Return every segment below `source`, with its log's size and modification time.

    The sizes and times of index files are those of the files beside the logs and, if `index_dir` is
    given, of those at the same paths below it, where the names of time indexes end in a dot and
    `time_index`. A directory that cannot be listed is a row with an `error`; the others are listed
    all the same. `on_progress` is called with the numbers so far.
    """
    rows = _Rows()
    passed_over: Counter[str] = Counter()
    unfinished: list[Unfinished] = []
    finished: SimpleQueue[Future[Directory]] = SimpleQueue()
    root = Visit(source, index_dir, "", (real_path(source, ""),), time_index)
    waiting: deque[Callable[[], Directory]] = deque([partial(layout.list_directory, root)])
    links: list[Visit] = []
    followed: list[str] = []
    real_paths = {root.above[-1]}  # of the directories that are listed; links only occur locally
    under_way = listed_so_far = 0
    with ThreadPoolExecutor(DIRECTORIES_AT_ONCE) as pool:
        while waiting or under_way or links:
            if not (waiting or under_way):
                links.sort(key=lambda visit: visit.below, reverse=True)
                link = links.pop()
                if link.above[-1] in real_paths:
                    passed_over[LISTED_BEFORE] += 1
                    continue
                real_paths.add(link.above[-1])
                followed.append(
                    f"{link.place.uri}: a link to {link.above[-1]}; its segments are listed, but "
                    "kip33 deletes and repairs nothing there"
                )
                waiting.append(partial(layout.list_directory, link))
            # The limit bounds memory: results are Python objects until they are taken here.
            while waiting and under_way < 2 * DIRECTORIES_AT_ONCE:
                listed = pool.submit(waiting.popleft())
                listed.add_done_callback(finished.put)
                under_way += 1
            directory = finished.get().result()
            under_way -= 1
            for visit in directory.inner:
                if visit.is_link:
                    links.append(visit)
                elif visit.above[-1] in real_paths:  # below a link, and listed by another path
                    passed_over[LISTED_BEFORE] += 1
                else:
                    if source.is_local:
                        real_paths.add(visit.above[-1])
                    waiting.append(partial(layout.list_directory, visit))
            waiting.extend(directory.more)
            rows.add(directory)
            listed_so_far += 1
            on_progress(Progress(Phase.LISTING, rows.count, directories=listed_so_far))
            passed_over.update(directory.passed_over)
            unfinished += (Unfinished(*file) for file in directory.unfinished)
    table = rows.table().sort_by("path")
    log_dirs = frozenset(pc.unique(table["log_dir"].drop_null()).to_pylist())
    table = with_neighbours(with_log_dirs_by_topic_id(table))
    return Listing(source, table, passed_over, log_dirs, tuple(unfinished), tuple(followed))


class _Rows:
    """Converts rows to Arrow columns while they arrive."""

    def __init__(self) -> None:
        self.count = self._pending = 0
        self._columns: list[list[Any]] = [[] for _ in LISTING]
        self._batches: list[pa.RecordBatch] = []

    def add(self, directory: Directory) -> None:
        self._add(zip(*directory.segments, strict=True), len(directory.segments))
        for columns in directory.logs:
            self._add(columns, len(columns[0]))

    def table(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self._batches, LISTING)

    def _add(self, columns: Iterable[Sequence[Any]], count: int) -> None:
        for column, values in zip(self._columns, columns, strict=False):  # without source
            column += values
        self.count += count
        self._pending += count
        if self._pending >= LISTING_ROWS_PER_BATCH:
            self._flush()

    def _flush(self) -> None:
        arrays = [
            pa.array(values, kind.type) for kind, values in zip(LISTING, self._columns, strict=True)
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=LISTING))
        self._columns, self._pending = [[] for _ in LISTING], 0


def with_log_dirs_by_topic_id(table: pa.Table) -> pa.Table:
    """Return the table with the topic id added to the `log_dir` of topics that were recreated.

    A topic that was deleted and created again has one name and several ids. In tiered storage the
    logs of both are beside each other. Rows with the same log_dir, topic and partition are one log,
    so their log_dir must differ. Rows without a topic id keep their log_dir.
    """
    names = table.select(["log_dir", "topic", "topic_id"])
    known = names.filter(pc.and_(pc.is_valid(names["topic_id"]), pc.is_valid(names["topic"])))
    pairs = pc.binary_join_element_wise(known["topic_id"], known["topic"], "/")
    if pc.count_distinct(pairs) == pc.count_distinct(known["topic"]):
        return table  # the usual case; `group_by` would import Arrow's engine for queries
    each = known.group_by(["log_dir", "topic", "topic_id"]).aggregate([])
    seen = Counter(zip(each["log_dir"].to_pylist(), each["topic"].to_pylist(), strict=True))
    several = {key for key, ids in seen.items() if ids > 1}
    if not several:
        return table
    texts = (column.to_pylist() for column in names.columns)
    log_dirs = [
        f"{log_dir or ''}/{topic_id}".lstrip("/")
        if topic_id and (log_dir, topic) in several
        else log_dir
        for log_dir, topic, topic_id in zip(*texts, strict=True)
    ]
    number = LISTING.get_field_index("log_dir")
    return table.set_column(number, LISTING.field(number), pa.array(log_dirs, pa.string()))


def with_neighbours(table: pa.Table) -> pa.Table:
    """Return the table, sorted by path, with the last segment of each partition marked as active
    and with the next base offset of the others."""
    is_segment = pc.is_valid(table["base_offset"]).to_numpy()
    codes = [
        pc.index_in(table[name], value_set=pc.unique(table[name])).to_numpy()
        for name in ("log_dir", "topic", "partition")
    ]
    base_offsets = pc.fill_null(table["base_offset"], -1).to_numpy()
    order = np.lexsort((base_offsets, *codes))  # equal offsets are sorted by path
    rows, in_order = len(order), base_offsets[order]
    goes_on = np.zeros(rows, bool)
    goes_on[:-1] = np.logical_and.reduce([np.diff(code[order]) == 0 for code in codes])
    following = np.zeros(rows, np.int64)
    following[:-1] = in_order[1:]
    is_known = goes_on & (following > in_order)
    active, next_base, no_next = np.zeros(rows, bool), np.zeros(rows, np.int64), np.ones(rows, bool)
    active[order], next_base[order], no_next[order] = ~goes_on, following, ~is_known
    columns = {
        "active_segment": pa.array(active, mask=~is_segment),
        "next_base_offset": pa.array(next_base, mask=no_next | ~is_segment),
    }
    for name, column in columns.items():
        number = LISTING.get_field_index(name)
        table = table.set_column(number, LISTING.field(number), column)
    return table


class _WithFiles(NamedTuple):
    """A LISTING with what small files say, and a line for each kind that cannot be read."""

    files: pa.Table
    warnings: tuple[str, ...]


def with_topic_ids(source: Location, files: pa.Table, known: Column | None = None) -> _WithFiles:
    """Return a LISTING below `source` with the topic ids from the files beside the logs.

    `known` has for each row an id that need not be read again, or null. A directory is read only
    if a row of it has none. A file that cannot be read gives no id.
    """
    ids = files["topic_id"] if known is None else pc.coalesce(files["topic_id"], known)
    is_there = pc.is_valid(files["partition_metadata_modified_ms"])
    unknown = pc.and_(is_there, pc.is_null(ids)).combine_chunks()
    directories = directories_of(files["path"].filter(unknown))
    warnings: list[str] = []
    if len(directories):
        each = pc.unique(directories)
        read, failed = _read_all(source, each.to_pylist(), PARTITION_METADATA, _topic_id)
        texts = pa.array(read, pa.string())
        found = texts.take(pc.index_in(directories, value_set=each).combine_chunks())
        ids = pc.replace_with_mask(pa.chunked_array([ids.combine_chunks()]), unknown, found)
        unknown_ids = "the topic ids of the logs beside them are not known"
        warnings += _warning(failed, PARTITION_METADATA, unknown_ids)
    number = files.schema.get_field_index("topic_id")
    return _WithFiles(files.set_column(number, files.schema.field(number), ids), tuple(warnings))


CHECKPOINTS: Final = (
    "checkpoint_epochs",
    "checkpoint_epoch_offsets",
    "checkpoint_log_start_offset",
)
"""What brokers' checkpoints say of a partition's log, in the row of its first segment."""


def with_checkpoints(source: Location, files: pa.Table, is_first: Any) -> _WithFiles:
    """A LISTING below `source` with CHECKPOINTS; `is_first` marks the first rows of partitions.

    The leader epochs are those of the file beside the log, the log start offset that of the file in
    the log directory. A file that is missing or cannot be read says nothing.
    """
    at = np.flatnonzero(is_first & pc.is_valid(files["base_offset"]).to_numpy())
    first = files.take(pa.array(at))
    has_epochs = pc.fill_null(first["has_epoch_checkpoint"], False)
    paths = directories_of(first["path"].filter(has_epochs)).to_pylist()
    read, failed = _read_all(source, paths, LEADER_EPOCH_CHECKPOINT, _epoch_starts)
    warnings = _warning(failed, LEADER_EPOCH_CHECKPOINT, "the leader epochs in them are not known")
    found = iter(read)
    starts = [next(found) if has else None for has in has_epochs.to_pylist()]
    log_dirs = pc.fill_null(first["log_dir"], "")
    offsets, damaged = _log_starts(source, pc.unique(log_dirs).to_pylist())
    keys = zip(
        log_dirs.to_pylist(),
        *(first[name].to_pylist() for name in ("topic", "partition")),
        strict=True,
    )
    columns: dict[str, Any] = {
        "checkpoint_epochs": pa.array(
            [one and [epoch for epoch, _ in one] for one in starts], pa.list_(pa.int32())
        ),
        "checkpoint_epoch_offsets": pa.array(
            [one and [offset for _, offset in one] for one in starts], pa.list_(pa.int64())
        ),
        "checkpoint_log_start_offset": pa.array([offsets.get(key) for key in keys], pa.int64()),
    }
    places = np.full(files.num_rows, -1)
    places[at] = np.arange(len(at))
    take = pa.array(places, mask=places < 0)
    for name in CHECKPOINTS:
        files = files.append_column(name, columns[name].take(take))
    return _WithFiles(files, (*warnings, *damaged))


def _epoch_starts(data: bytes) -> tuple[EpochStart, ...]:
    return with_later_epochs((), parse_epoch_checkpoint(data.decode()))


def _log_starts(source: Location, log_dirs: Iterable[str]) -> tuple[LogStartOffsets, list[str]]:
    """The log start offsets of these log directories, and a line for each damaged checkpoint."""
    offsets: LogStartOffsets = {}
    damaged = []
    for log_dir in log_dirs:
        try:
            offsets |= log_start_offsets(source, [log_dir])
        except LocationError as error:
            damaged.append(one_line(error))
    return offsets, damaged


def _warning(failed: Sequence[str], name: str, what_follows: str) -> list[str]:
    """At most one line about files of this name that cannot be read."""
    if not failed:
        return []
    files = counted(len(failed), f"{name} file")
    return [f"{files} cannot be used, for example {failed[0]}; {what_follows}"]


def topic_id_in(directory: Location) -> str:
    """Return the topic's id in a partition's directory; FileReadError or ValueError without one."""
    place = directory.child(PARTITION_METADATA)
    return _topic_id(read_whole(place, most_bytes=MAX_PARTITION_METADATA_BYTES))


def _topic_id(data: bytes) -> str:
    return PartitionMetadata.from_bytes(data).topic_id


def _read_all(
    source: Location, paths: list[str], name: str, parse: Callable[[bytes], Any]
) -> tuple[list[Any], list[str]]:
    """What a file in each directory says, None if it is damaged, and a line for each that is."""
    failed: list[str] = []
    most_bytes = _MOST_BYTES[name]

    def read(path: str) -> Any:
        place = (source.child(path) if path else source).child(name)
        try:
            return parse(read_whole(place, most_bytes=most_bytes))
        except (FileReadError, ValueError) as error:
            failed.append(f"{place.uri}: {one_line(error)}")
            return None

    if source.is_local:
        return [read(path) for path in paths], sorted(failed)
    with ThreadPoolExecutor(_SMALL_FILES_AT_ONCE) as pool:
        found = list(pool.map(read, paths))
    return found, sorted(failed)


def log_uris(source: Location, paths: Column, inside: Column) -> Column:
    """Return the URIs of logs from their paths below `source` and the parts of the files."""
    if source.is_local and not _are_unquoted(paths):
        chunks = [
            pa.array([source.child(path or "").uri for path in chunk.to_pylist()], pa.string())
            for batch in pa.table({"path": paths}).to_batches(max_chunksize=1 << 16)
            for chunk in batch.columns
        ]
        uris = pa.chunked_array(chunks, pa.string())
    else:
        uris = pc.binary_join_element_wise(_prefix(source), paths, "")
    if inside.null_count == len(inside):
        return uris
    return pc.coalesce(pc.binary_join_element_wise(uris, inside, "#"), uris)


def index_uris(
    log_uri: Column, source: Location, root: Location, time_index: str = TIME_INDEX_FILE
) -> Column:
    """Return the URIs below `root` of the time indexes of logs below `source`."""
    start = len(_prefix(source))
    if _are_plain(log_uri):
        below = pc.utf8_slice_codeunits(log_uri, start=start, stop=-len(".log"))
    else:
        whole = pc.utf8_slice_codeunits(log_uri, start=start)
        below = pc.replace_substring_regex(whole, _END_OF_LOG, "", max_replacements=1)
    return pc.binary_join_element_wise(_prefix(root), below, f".{time_index}", "")


def directories_of(paths: Column) -> Column:
    """Return the directory of each path of a file; empty: SOURCE itself."""
    return pc.replace_substring_regex(paths, r"/?[^/]*$", "")


def uris_beside(log_uri: Column) -> Column:
    """Return the URI of each log's own `.timeindex` in the archive."""
    if _are_plain(log_uri):
        stems = pc.utf8_slice_codeunits(log_uri, start=0, stop=-len(".log"))
        return pc.binary_join_element_wise(stems, ".timeindex", "")
    uris = [uri_beside(uri, "timeindex") for uri in log_uri.to_pylist()]
    return pa.chunked_array([uris], pa.string())


def _are_unquoted(paths: Column) -> bool:
    """Return whether all paths are the same in URIs. A local disk's are quoted, others' never."""
    if paths.null_count:
        return False
    return bool(pc.all(pc.match_substring_regex(paths, f"^{UNQUOTED_PATH}$"), min_count=0).as_py())


def _are_plain(log_uri: Column) -> bool:
    """Return whether every log is a separate file with Kafka's suffix."""
    return bool(pc.all(pc.ends_with(log_uri, ".log"), min_count=0).as_py()) and not bool(
        pc.any(pc.match_substring(log_uri, "#"), min_count=0).as_py()
    )


def _prefix(root: Location) -> str:
    return root.child("x").uri.removesuffix("x")
