"""A partition's replicas: the segments of each log directory."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np

from kip33.catalog.topic_totals import IS_OLDER
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import APART, UNKNOWN_OFFSET, Extent, most_complete_of, overlaps
from kip33.search.searched_segment import SearchedSegment, losses_of

SEARCH_THREADS: Final = 16  # per search: stores take most of its time

PartitionKey: TypeAlias = tuple[str, int | None]  # topic, number
ReplicaKey: TypeAlias = tuple[str | None, str, int | None]  # log_dir, topic, number


def replicas_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[SearchedSegment]]:
    """Return a partition's segments by log directory, oldest first."""
    replicas: dict[str, list[SearchedSegment]] = {}
    for row in rows:
        if row["base_offset"] is not None:
            replicas.setdefault(row["log_dir"], []).append(_segment(row))
    for segments in replicas.values():
        segments.sort(key=attrgetter("base_offset", "log_uri"))
    return replicas


def of_newest_topic(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the newest topic of their name; see `rules.offset_holes`."""
    return [row for row in rows if not row.get(IS_OLDER)]


def older_topic_note(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a note on the log directories with an older topic of the same name, else None."""
    log_dirs = sorted({row["log_dir"] or "" for row in rows if row.get(IS_OLDER)})
    if not log_dirs:
        return None
    return (
        f"log_dir {', '.join(map(repr, log_dirs))}: an older topic of this name, with another "
        "topic id; it is not searched unless the log_dir is given"
    )


def most_complete(replicas: Mapping[str, list[SearchedSegment]]) -> str | None:
    """Return the log directory of the replica to search, None without replicas."""
    extents = {
        log_dir: [
            Extent.of(one.status, one.size_bytes, one.valid_bytes, one.last_offset)
            for one in segments
        ]
        for log_dir, segments in replicas.items()
    }
    return most_complete_of(extents)


def _segment(row: Mapping[str, Any]) -> SearchedSegment:
    return SearchedSegment(**{name: row[name] for name in SearchedSegment._fields})


def overlapping(segments: Sequence[SearchedSegment]) -> list[SearchedSegment]:
    """Return the segments of one partition that share offsets with an earlier one.

    `segments` are in order of their base offsets.
    """
    bases = np.array([one.base_offset for one in segments], np.int64)
    lasts = [UNKNOWN_OFFSET if one.last_offset is None else one.last_offset for one in segments]
    kinds = overlaps(np.zeros(len(segments), np.int64), bases, np.array(lasts, np.int64))
    return [one for one, kind in zip(segments, kinds, strict=True) if kind != APART]


def overlap_note(offset: int, twice: Sequence[SearchedSegment]) -> str | None:
    """Return a note on an answer at an offset if segments overlap there, else None.

    `twice` are the segments that `overlapping` returns.
    """
    for one in twice:
        last = one.base_offset if one.last_offset is None else one.last_offset
        if one.base_offset <= offset <= last + 1:  # the next offset depends on it, too
            return f"{one.log_uri}: overlaps an earlier segment; their records may differ"
    return None


def two_directories_note(segments: Sequence[SearchedSegment]) -> str | None:
    """Return a note on a replica with two directories, else None."""
    pair = two_directories_in(one.log_uri.rpartition("/")[0] for one in segments)
    if pair is None:
        return None
    return (
        f"{pair[0]} and {pair[1]} are directories of the same partition; they may be different logs"
    )


def log_end(segments: Sequence[SearchedSegment]) -> tuple[int, str | None]:
    """Return the offset after the last known record, and a note if later records are unknown."""
    last, loss = segments[-1], losses_of(segments)[-1]
    is_known = last.is_bare or (last.last_offset is not None and not loss)
    note = (
        None if is_known else f"{last.log_uri}: {last.status}, so the end of the log is not known"
    )
    known = [one.last_offset + 1 for one in segments if one.last_offset is not None]
    return max([last.base_offset, *known]), note
