"""Partitions for searches: segments on disk, their index files, and their catalog rows."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kip33.drafts.designs import design_of
from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.rules.search import SearchResult
from kip33.rules.segment_summary import largest_timestamp
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.locations import Location
from tests.builders.generated_segments import Written, record_pairs, segments, wire_of


def write_segment(
    folder: Path,
    base_offset: int,
    log: bytes,
    *,
    dialect: str = "recover",
    interval_bytes: int = 4096,
    time_index: bool = True,
    offset_index: bool = True,
    ours: bool = True,
    modified_ms: int = 0,
) -> SearchedSegment:
    """Write one segment and its indexes like a build; return its row.

    `ours`: the row says that a build wrote the indexes, so their dialect and sizes are known.
    """
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(log)
    os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
    place = Location.of(path)
    settings = IndexSettings(dialect, interval_bytes)
    index = index_file(place, base_offset=base_offset, topic="t", settings=settings)
    time_index_file = path.with_suffix(f".{design_of(dialect).file}")
    if time_index and index.time_index_data is not None:
        time_index_file.write_bytes(index.time_index_data)
    if offset_index and index.offset_index_data is not None:
        path.with_suffix(".index").write_bytes(index.offset_index_data)
    known = index.status not in ("invalid", "unreadable")
    max_timestamp = int(index.summary["max_timestamp"])
    return SearchedSegment(
        log_uri=place.uri,
        base_offset=base_offset,
        last_offset=int(index.summary["last_offset"]) if index.summary["batch_count"] else None,
        size_bytes=index.size_bytes,
        valid_bytes=index.valid_bytes,
        max_timestamp=max_timestamp if known else None,
        largest_timestamp=int(largest_timestamp(max_timestamp, modified_ms)[0]) if known else None,
        status=index.status,
        record_count=None if index.summary["wrappers"] else int(index.summary["record_count"]),
        index_uri=Location.of(time_index_file).uri if time_index else None,
        offset_of_max_timestamp=int(index.summary["offset_of_max_timestamp"]) if known else None,
        out_of_order_batches=int(index.summary["out_of_order_batches"]) if known else None,
        **(_as_built(path, settings, time_index, offset_index) if ours else {}),
    )


def _as_built(path: Path, settings: IndexSettings, *are_there: bool) -> dict[str, Any]:
    """Return the columns of a row about the index files that one pass wrote."""
    columns: dict[str, Any] = {}
    for name, suffix, is_there in zip(
        ("time_index", "offset_index"),
        (f".{design_of(settings.dialect).file}", ".index"),
        are_there,
        strict=True,
    ):
        if is_there:
            columns |= of_file(name, path.with_suffix(suffix), settings)
    return columns


def of_file(name: str, path: Path, settings: IndexSettings) -> dict[str, Any]:
    """Return the columns about one index file in its current state; empty if it is missing."""
    if not path.exists():
        return {}
    status = path.stat()
    return {
        f"{name}_matches": True,
        "dialect": settings.dialect,
        f"{name}_bytes": status.st_size,
        f"{name}_modified_ms": status.st_mtime_ns // 1_000_000,
    }


@dataclass(frozen=True)
class Partition:
    """The entries of a partition's segments, with which answers are compared."""

    segments: tuple[tuple[int, tuple[Written, ...]], ...]

    @property
    def records(self) -> list[tuple[int, int]]:
        return [pair for _, entries in self.segments for pair in record_pairs(entries)]

    @property
    def targets(self) -> list[int]:
        """Return every time at which an answer may change, and 0."""
        times = {time for _, time in self.records}
        times |= {entry.max_timestamp for _, entries in self.segments for entry in entries}
        near = {time + step for time in times for step in (-1, 0, 1)} | {0}
        return sorted(time for time in near if 0 <= time < 2**63)

    def write_to(self, folder: Path, **how: Any) -> list[SearchedSegment]:
        """Write the segments to `folder` and remove everything else; return their rows."""
        for file in folder.glob("*"):
            file.unlink()
        return [write_segment(folder, base, wire_of(e), **how) for base, e in self.segments]

    def expected(self, target: int, start_offset: int = 0) -> tuple[int | None, int | None, str]:
        """Return offset, timestamp and result for a time.

        A batch that compaction emptied has a time; the result after it is `after_end`. Batches
        before `start_offset` do not count.
        """
        offset, time, result = brute(self.records, target, start_offset)
        if offset is None:
            left = [entries for _, entries in self.segments if ends_behind(entries, start_offset)]
            claims = [
                entry.max_timestamp
                for entries in left
                for entry in entries
                if entry.last_offset >= start_offset
            ]
            is_untimed = any(map(record_pairs, left)) and max(claims) < 0
            result = SearchResult.NO_TIMESTAMPS if is_untimed else SearchResult.AFTER_END
        return offset, time, result


def ends_behind(entries: Sequence[Written], offset: int) -> bool:
    return bool(entries) and entries[-1].last_offset >= offset


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """Draw some segments one after the other, some of them empty."""
    base, drawn = draw(st.sampled_from((0, 77))), []
    for _ in range(draw(st.integers(1, 4))):
        entries = draw(segments(base_offset=base, max_size=8))
        drawn.append((base, tuple(entries)))
        base = entries[-1].last_offset + 1 if entries else base + 1
    return Partition(tuple(drawn))


def brute(
    records: Sequence[tuple[int, int]], target: int, start_offset: int = 0
) -> tuple[int | None, int | None, str]:
    """Return offset, timestamp and result of the first record at or after a time."""
    counted = [(offset, time) for offset, time in records if offset >= start_offset]
    for place, (offset, time) in enumerate(counted):
        if time >= target:
            return (
                offset,
                time,
                SearchResult.BEFORE_START if place == 0 and time > target else SearchResult.FOUND,
            )
    return (
        None,
        None,
        SearchResult.AFTER_END
        if not counted or any(time >= 0 for _, time in counted)
        else SearchResult.NO_TIMESTAMPS,
    )
