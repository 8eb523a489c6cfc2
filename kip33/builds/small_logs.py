"""The small logs of a bin, a group at a time: read, indexed and published together.

What a small segment costs is objects of Python and system calls, not bytes. So the logs of a group
are read one after another into one buffer, which one call of compiled code scans
(`rules.group_scan`), and their rows are made as columns. A log that is not plain, or that has an
index file already, is left to `builds.task.build_segments`, which gives the same file and row.
"""

from collections.abc import Iterator, Sequence
from itertools import compress, groupby
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import log_uris
from kip33.builds.build_options import BuildSpec
from kip33.builds.reuse import ours_column
from kip33.builds.segment_rows import BuiltRows, LogFigures, lists_of, rows_of
from kip33.formats.index_kinds import IndexKind
from kip33.formats.native import is_ready
from kip33.formats.scan import aligned
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.indexing.published_files import (
    IndexPublisher,
    PublishedFiles,
    SegmentFiles,
    TargetFile,
)
from kip33.rules.group_scan import SCANNED, GroupScan, ScannedLogs, scan_logs
from kip33.rules.index_entries import RECOVER
from kip33.rules.publication import Wanted
from kip33.rules.segment_summary import (
    SUMMARY_RECORD,
    SegmentStatus,
)
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.untimestamped import Untimestamped
from kip33.stores.files import read_small_files

GROUP_ROWS: Final = 1_024
LEAST_ROWS: Final = 256  # of a bin: for fewer, loading the code costs more than it saves
MOST_LOG_BYTES: Final = 2 << 20
SCAN_BYTES: Final = 512 << 10  # of the logs in one call: they stay in the CPU's cache
_LOG: Final = ".log"
_KINDS: Final = (IndexKind.TIME, IndexKind.OFFSET)
_MAGICS: Final = (0, 1, 2)


def groups_small_logs(build: BuildSpec, rows: int) -> bool:
    """Return whether the small logs of a bin are read as groups."""
    return (
        rows >= LEAST_ROWS
        and build.source.is_local
        and (build.index_dir.is_local or not build.kinds)
        and not (build.only_damaged or build.read_tail or build.by_topic)
        and build.settings.dialect == RECOVER.name
        and build.settings.untimestamped == Untimestamped.NONE
        and is_ready(scan_logs)
    )


class SmallLogs:
    """Reads, indexes and publishes the plain logs of one group after another."""

    def __init__(self, build: BuildSpec) -> None:
        """Take a build for which `groups_small_logs` is true."""
        self._build = build
        self._scan = GroupScan(build.settings)
        self._buffer = aligned(2 * SCAN_BYTES + MOST_LOG_BYTES + 1)

    def done_of(
        self, group: pa.Table, publisher: IndexPublisher
    ) -> tuple[npt.NDArray[np.bool_], BuiltRows]:
        """Return which segments of a group are done, and their rows.

        `group` has rows of the listing, consecutive, at most GROUP_ROWS.
        """
        group = group.combine_chunks()
        paths: list[Any] = group["path"].to_pylist()
        sizes: list[Any] = group["size_bytes"].to_pylist()
        bases = np.asarray(pc.fill_null(group["base_offset"], 0).to_numpy())
        files = _IndexFiles(self._build, group)
        done = [_PlainLogs.none()]
        published: list[PublishedFiles] = []
        for held, starts in self._read(paths, sizes, _may_be_plain(group)):
            rows, size_bytes = np.array(held), np.array([sizes[row] for row in held], np.int64)
            places = np.array(starts, np.int64)
            scanned = self._scan.scan(self._buffer, places, size_bytes, bases[rows])
            logs = _PlainLogs.of(rows, scanned)
            if self._build.kinds:
                published += publisher.publish(files.of(logs, scanned))
            done.append(logs)
        logs = _PlainLogs(*map(np.concatenate, zip(*done, strict=True)))
        is_done = np.zeros(group.num_rows, bool)
        is_done[logs.rows] = True
        listed = group.take(pa.array(logs.rows))
        uris = log_uris(self._build.source, listed["path"], listed["inside"])
        columns = {"open_transactions": pa.repeat(UNCHANGED, len(logs.rows))}
        table = rows_of(
            self._build,
            listed,
            logs.figures(listed),
            published or [PublishedFiles() for _ in logs.rows],
            log_uri=uris,
            index_uri=self._build.index_uris(uris),
            time_index_entries=pa.array(logs.index_bytes // TIME_ENTRY_BYTES),
            **(columns if IndexKind.TRANSACTION in self._build.kinds else {}),
        )
        written = sum(one.written for one in published)
        return is_done, BuiltRows(table, pc.sum(table["size_bytes"]).as_py() or 0, written)

    def _read(
        self, paths: Sequence[str], sizes: Sequence[int], may_be_plain: Sequence[bool]
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Yield rows whose logs are in the buffer, and where each begins."""
        held: list[int] = []
        starts: list[int] = []
        at = 0
        for folder, rows in _by_folder(paths, may_be_plain):
            source = self._build.source.child(folder) if folder else self._build.source
            for some in _of_one_call(rows, sizes, at):
                names = [paths[row].rpartition("/")[2] for row in some]
                rooms = [sizes[row] for row in some]
                are_whole = read_small_files(source, names, rooms, self._buffer, at)
                for row, is_whole in zip(some, are_whole, strict=True):
                    if is_whole:
                        held.append(row)
                        starts.append(at)
                        at += sizes[row]
                if at >= SCAN_BYTES:
                    yield held, starts
                    held, starts, at = [], [], 0
        if held:
            yield held, starts


class _PlainLogs(NamedTuple):
    """The plain logs of a group, an element for each."""

    rows: npt.NDArray[np.int64]  # their numbers in the group
    found: npt.NDArray[np.void]  # SCANNED
    summaries: npt.NDArray[np.void]  # SUMMARY_RECORD
    index_bytes: npt.NDArray[np.int64]  # of the time index

    @classmethod
    def none(cls) -> Self:
        numbers = np.zeros(0, np.int64)
        return cls(numbers, np.zeros(0, SCANNED), np.zeros(0, SUMMARY_RECORD), numbers)

    @classmethod
    def of(cls, rows: npt.NDArray[np.int64], scanned: ScannedLogs) -> Self:
        """Return those of some logs that are plain."""
        which = scanned.found["is_plain"] == 1
        index_bytes = np.array([len(data) for data in scanned.time_indexes], np.int64)
        return cls(rows[which], scanned.found[which], scanned.summaries[which], index_bytes[which])

    def figures(self, listed: pa.Table) -> LogFigures:
        """Return what a catalog says of them; `listed` has their rows of a listing."""
        count = len(self.rows)
        has_epoch = self.found["epoch"] >= 0
        ends: Any = pa.array(np.concatenate(([0], np.cumsum(has_epoch))), pa.int32())
        epochs, offsets = (self.found[name][has_epoch] for name in ("epoch", "epoch_offset"))
        return LogFigures(
            [SegmentStatus.OK] * count,
            pa.nulls(count, pa.string()),
            listed["size_bytes"],
            listed["size_bytes"],
            self.summaries,
            lists_of(self.found["magics"], _MAGICS, pa.int32()),
            pa.ListArray.from_arrays(ends, pa.array(epochs, pa.int32())),
            pa.ListArray.from_arrays(ends, pa.array(offsets)),
            pa.array(np.ascontiguousarray(self.found["batches_crc32"])),
            np.zeros(count, bool),
        )


class _IndexFiles:
    """The index files of the plain logs of a group."""

    def __init__(self, build: BuildSpec, group: pa.Table) -> None:
        columns = ["path", "size_bytes", "last_modified_ms", "log_is_new"]
        columns.append(ours_column(IndexKind.TIME))
        self._build = build
        self._listed = [*zip(*(group[name].to_pylist() for name in columns), strict=True)]

    def of(self, logs: _PlainLogs, scanned: ScannedLogs) -> list[SegmentFiles]:
        """Return the files of each log."""
        is_plain = scanned.found["is_plain"].tolist()
        listed = [self._listed[row] for row in logs.rows.tolist()]
        data = {IndexKind.TIME: scanned.time_indexes, IndexKind.OFFSET: scanned.offset_indexes}
        of_kinds = [
            zip(compress(data[kind], is_plain), logs.found[f"{kind}_crc32c"].tolist(), strict=True)
            for kind in _KINDS
            if kind in self._build.kinds
        ]
        return [*map(self._of, listed, zip(*of_kinds, strict=True))]

    def _of(self, listed: Sequence[Any], files: Sequence[tuple[bytes, int]]) -> SegmentFiles:
        path, size_bytes, modified_ms, is_new, ours = listed
        stem: str = path.removesuffix(_LOG)
        targets: list[TargetFile] = []
        for kind, (data, crc32c) in zip(_KINDS, files, strict=False):
            place = self._build.index_dir.child(stem + kind.suffix)
            file = TargetFile(kind, place, Wanted.BYTES, data, ours, crc32c=crc32c)
            targets.append(file)
        waits = self._build.in_place and len(targets) > 1
        return SegmentFiles(
            self._build.source.child(path),
            targets[:1] if waits else targets,
            new_index=targets[1] if waits else None,
            size_bytes=size_bytes,
            last_modified_ms=modified_ms,
            before_log=is_new,
        )


def _may_be_plain(group: pa.Table) -> list[bool]:
    """Return which rows are of small logs in files of their own, without index files."""
    flags = pc.ends_with(group["path"], _LOG)
    for name in ("error", "inside", *(f"target_{kind}_bytes" for kind in IndexKind)):
        flags = pc.and_(flags, pc.is_null(group[name]))
    for name in ("base_offset", "last_modified_ms"):
        flags = pc.and_(flags, pc.is_valid(group[name]))
    size = pc.fill_null(group["size_bytes"], 0)
    flags = pc.and_(flags, pc.and_(pc.greater(size, 0), pc.less_equal(size, MOST_LOG_BYTES)))
    answer: list[bool] = flags.to_pylist()
    return answer


def _by_folder(paths: Sequence[str], chosen: Sequence[bool]) -> Iterator[tuple[str, list[int]]]:
    """Yield each folder below the root, with the numbers of its chosen paths that follow."""
    numbers = [number for number, is_chosen in enumerate(chosen) if is_chosen]
    for folder, rows in groupby(numbers, lambda number: paths[number].rpartition("/")[0]):
        yield folder, list(rows)


def _of_one_call(rows: Sequence[int], sizes: Sequence[int], at: int) -> Iterator[list[int]]:
    """Yield consecutive rows whose logs reach SCAN_BYTES, the first ones from `at` on."""
    some: list[int] = []
    for row in rows:
        some.append(row)
        at += sizes[row]
        if at >= SCAN_BYTES:
            yield some
            some, at = [], 0
    if some:
        yield some
