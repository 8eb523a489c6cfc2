"""List the segments below a SOURCE as one Arrow table; `archive.layouts` knows the names.

A row is a segment file, or a directory that could not be listed (then `error` says why). Files and
directories that Kafka would delete at load (`.deleted`, `-delete`, ...) are counted, not listed.
Directories are listed in parallel and rows become Arrow columns, so that a million segments are
listed in seconds and take a few hundred megabytes.

A directory that links lead to is listed once: by its own path if it is below SOURCE, otherwise by
the path of the first link. So links are followed last, one after another.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.directory import Directory, Segment, Visit, real_path
from kip33.archive.layouts import KAFKA, Layout
from kip33.formats.draft_indexes import TIME_INDEX_FILE
from kip33.stores.locations import Location

LISTED_BEFORE: Final = "links to directories that are listed by another path"
DIRECTORIES_AT_ONCE: Final = 16  # a store answers in tens of ms; harmless on a local disk
LISTING_ROWS_PER_BATCH: Final = 1 << 16  # limits the rows that are Python objects at one time

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
    pa.field("beside_time_index_bytes", pa.int64()),  # of the files beside the log
    pa.field("beside_offset_index_bytes", pa.int64()),
    pa.field("target_time_index_bytes", pa.int64()),  # of the files where a build would put them
    pa.field("target_offset_index_bytes", pa.int64()),
    pa.field("inside", pa.string()),  # the part of the file that is the log; null: the file itself
    pa.field("beside_time_index_modified_ms", pa.int64()),  # whole seconds on object stores
    pa.field("beside_offset_index_modified_ms", pa.int64()),
    pa.field("target_time_index_modified_ms", pa.int64()),
    pa.field("target_offset_index_modified_ms", pa.int64()),
    pa.field("target_transaction_index_bytes", pa.int64()),
    pa.field("target_transaction_index_modified_ms", pa.int64()),
    pa.field("topic_id", pa.string()),  # from names and manifests; `archive.topic_ids` reads others
    pa.field("partition_metadata_modified_ms", pa.int64()),  # of the file beside the log
    pa.field("target_producer_snapshot_bytes", pa.int64()),
    pa.field("target_producer_snapshot_modified_ms", pa.int64()),
]
LISTING: Final = pa.schema(_FIELDS)
"""Size and time are those at listing; a file may have changed before it is read."""


Listed = Callable[[int], None]
"""Called with the number of segments found so far, during a listing."""


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
    on_listed: Listed | None = None,
) -> Listing:
    """Return every segment below `source`, with its log's size and modification time.

    The sizes and times of index files are those of the files beside the logs and, if `index_dir` is
    given, of those at the same paths below it, where the names of time indexes end in a dot and
    `time_index`. A directory that cannot be listed is a row with an
    `error`; the others are listed all the same. `on_listed` is called with the number so far.
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
    under_way = 0
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
            rows.extend(directory.segments)
            if on_listed:
                on_listed(rows.count)
            passed_over.update(directory.passed_over)
            unfinished += (Unfinished(*file) for file in directory.unfinished)
    table = rows.table().sort_by("path")
    log_dirs = frozenset(pc.unique(table["log_dir"].drop_null()).to_pylist())
    table = with_neighbours(told_apart(table))
    return Listing(source, table, passed_over, log_dirs, tuple(unfinished), tuple(followed))


class _Rows:
    """Converts rows to Arrow columns while they arrive."""

    def __init__(self) -> None:
        self.count = 0
        self._pending: list[Segment] = []
        self._batches: list[pa.RecordBatch] = []

    def extend(self, segments: list[Segment]) -> None:
        self.count += len(segments)
        self._pending += segments
        if len(self._pending) >= LISTING_ROWS_PER_BATCH:
            self._flush()

    def table(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self._batches, LISTING)

    def _flush(self) -> None:
        if self._pending:
            columns = zip(LISTING, zip(*self._pending, strict=True), strict=False)  # without source
            arrays = [pa.array(values, kind.type) for kind, values in columns]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=LISTING))
            self._pending = []


def told_apart(table: pa.Table) -> pa.Table:
    """Return the table with another `log_dir` for topics of one name: the topic id is added to it.

    Topics that were deleted and created again have one name and several ids. In tiered storage
    their logs are beside each other. What has the same log_dir, topic and partition is one log, so
    these must differ. Rows without a topic id keep their log_dir.
    """
    names = table.select(["log_dir", "topic", "topic_id"])
    known = names.filter(pc.and_(pc.is_valid(names["topic_id"]), pc.is_valid(names["topic"])))
    each = known.group_by(["log_dir", "topic", "topic_id"]).aggregate([])
    seen = Counter(zip(each["log_dir"].to_pylist(), each["topic"].to_pylist(), strict=True))
    several = {key for key, ids in seen.items() if ids > 1}
    if not several:
        return table
    texts = (one.to_pylist() for one in names.columns)
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
    codes = [
        pc.index_in(column, value_set=pc.unique(column)).to_numpy()
        for column in (table["log_dir"], table["topic"], table["partition"])
    ]
    is_segment = pc.is_valid(table["base_offset"]).to_numpy()
    offsets = pc.fill_null(table["base_offset"], -1).to_numpy()
    order = np.lexsort((offsets, is_segment, *codes))  # equal offsets are sorted by path
    rows = len(order)
    in_order = offsets[order]
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
