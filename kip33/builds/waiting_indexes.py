"""In place, a new `.index` waits until the `.timeindex` beside it is on the disk.

A broker builds the index files of an old segment only while its `.index` is missing. If a power
failure kept only the `.index`, the broker would use an empty `.timeindex` from then on: retention
would use the file's modification time, and lookups would read the log. So the `.timeindex` files of
a group of segments are flushed first, then their folders, and then the `.index` files are renamed,
each flushed before its rename. On a remote store a file is safe once it is written.

A new `.index` also makes a broker trust the `.timeindex` beside it. So it is not written if another
program's `.timeindex` was kept that does not match the log.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from kip33.archive.directory import Segment
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import Published, Wanted, state_together
from kip33.builds.index_flusher import FLUSHING_THREADS, IndexFlusher
from kip33.builds.pending_rows import PendingRow
from kip33.catalog.schema import IndexFileState
from kip33.rules.broker_start import may_have_offset_index
from kip33.stores.locations import Location

MOST_SEGMENTS: Final = 1024  # of a group
MOST_BYTES: Final = 1 << 25  # of its `.index` files
LEFT_TO_THE_BROKER: Final = (
    "the .index is not written either: a broker rebuilds both if it finds no .index"
)


class WaitingIndex(NamedTuple):
    """An `.index` that waits for the file beside it."""

    wanted: Wanted
    is_first_right: bool  # whether the file beside it matches the log
    log_changed: Callable[[], bool]  # whether the log differs from its listing


class Built(NamedTuple):
    """A catalog row and the figures of its work."""

    row: dict[str, Any]
    bytes_read: int  # of the log
    pending: PendingRow | None = None  # the row, if it waits for its `.txnindex`
    waiting: WaitingIndex | None = None  # the `.index`, if it waits for the `.timeindex`


def waits_for_time_index(build: BuildSpec, segment: Segment, status: str) -> bool:
    """Return whether a segment's `.index` waits: a new one, in place."""
    is_new = segment.target_offset_index_bytes is None
    return build.in_place and build.offset_index and is_new and may_have_offset_index(status)


class WaitingIndexes:
    """The segments of a task whose `.index` files wait, in groups."""

    def __init__(self, build: BuildSpec, flusher: IndexFlusher) -> None:
        """Begin with none."""
        self._build, self._flusher = build, flusher
        self._group: list[Built] = []
        self._bytes = 0

    def complete(self, built: Built) -> Iterator[Built]:
        """Begin to flush a segment's files; yield the segments that are complete, in order."""
        self._flusher.add(built.row)
        if not self._group and built.waiting is None:
            yield built
            return
        self._group.append(built)
        self._bytes += len(built.waiting.wanted.data or b"") if built.waiting else 0
        if len(self._group) >= MOST_SEGMENTS or self._bytes >= MOST_BYTES:
            yield from self.complete_all()

    def complete_all(self) -> Iterator[Built]:
        """Write the `.index` files that wait; yield their segments. PublishError as the flusher."""
        if not self._group:
            return
        self._flusher.wait()
        group, self._group, self._bytes = self._group, [], 0
        with ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-index") as pool:
            for built in pool.map(partial(with_offset_index, self._build), group):
                self._flusher.add_folder(built.row)
                yield built


def with_offset_index(build: BuildSpec, built: Built) -> Built:
    """Return a segment after its `.index` was written, if it waited."""
    if built.waiting is None:
        return built
    row = built.row
    notes = publish_offset_index(build, row, built.waiting, ours=False)
    row["error"] = "; ".join(filter(None, (row["error"], *notes))) or None
    return built._replace(waiting=None)


def publish_offset_index(
    build: BuildSpec, row: dict[str, Any], waiting: WaitingIndex, *, ours: bool
) -> list[str]:
    """Write a new `.index` and add it to its row; return notes on it.

    It is not written if a file beside it is missing, stale or does not match the log.
    """
    is_there = row["index_file"] in (IndexFileState.WRITTEN, IndexFileState.KEPT)
    if not is_there or not waiting.is_first_right:
        return [LEFT_TO_THE_BROKER]
    log = Location.of(row["log_uri"]) if build.in_place else None
    published = Published(log, log_changed=waiting.log_changed)
    published.add(waiting.wanted, ours=ours, overwrite=build.overwrite, proves_nothing=False)
    left = published.files[0]
    if left:
        row["offset_index_bytes"] = left.size_bytes
        row["offset_index_modified_ms"] = left.modified_ms
        row["offset_index_settings"] = left.settings
        row["offset_index_crc32c"] = left.crc32c
    row["index_file"] = state_together((row["index_file"], published.state))
    return published.notes
