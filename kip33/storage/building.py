"""Building one segment's index files and its catalog row: what a task does for each file."""

import json
from typing import Any, Final, NamedTuple

from kip33.formats.time_index import ENTRY_BYTES
from kip33.rules.indexes import IndexSettings
from kip33.rules.summary import TIMESTAMP_TYPES, codec_names, largest_timestamp, names_of
from kip33.rules.verdict import GOOD
from kip33.storage.files import publish, read_whole, reason, remove_quietly, size_of
from kip33.storage.listing import Segment
from kip33.storage.locations import Location
from kip33.storage.segment import SegmentIndex, index_file, unreadable
from kip33.storage.verification import verify_file

WRITTEN: Final = "written"
KEPT: Final = "kept"
NOT_OURS: Final = "kip33 did not write it"


class Build(NamedTuple):
    """What one build does; small and picklable, for it travels to every task."""

    source: Location
    index_dir: Location  # the source itself when built in place
    settings: IndexSettings
    offset_index: bool = False
    overwrite: bool = False
    only_damaged: bool = False

    @property
    def build_settings(self) -> str:
        """Return the settings a row was built with, as JSON in one fixed order."""
        return json.dumps({**self.settings._asdict(), "offset_index": self.offset_index})

    def index_location(self, segment: Segment) -> Location:
        """Return where the segment's `.timeindex` goes: its path below SOURCE, kept."""
        return self.index_dir.child(segment.path.removesuffix(".log") + ".timeindex")


class Built(NamedTuple):
    """A catalog row and what it took."""

    row: dict[str, Any]
    index_bytes: int
    bytes_read: int


def build_segment(build: Build, segment: Segment, *, ours: bool, native: bool = True) -> Built:
    """Read one segment, publish its index files, return its catalog row.

    `ours`: this catalog's newest snapshot wrote the index files that are there, so they may be
    replaced; others only with `overwrite` (D10). Nothing that happens to the file is raised: a
    fault of the log or of publishing is the row's `status` and `error`.
    """
    log = build.source.child(segment.path)
    if segment.error or segment.base_offset is None or segment.topic is None:
        index = unreadable(segment.error or "not listed")
        return Built(_row(build, segment, log, index, _Published()), 0, 0)
    index, wanted = _indexes(build, segment, log, native=native)
    published = _Published()
    for file in wanted:
        published.add(build, file, ours=ours, proves_nothing=index.status == "unreadable")
    row = _row(build, segment, log, index, published)
    entries = wanted[0].good_entries
    if entries is not None:
        row["time_index_entries"] = entries
    return Built(row, published.index_bytes, index.bytes_read)


class _Wanted(NamedTuple):
    """One index file and the bytes it should have; `good_entries` if it is to be left as it is."""

    place: Location
    data: bytes | None  # None: the log gives no index
    good_entries: int | None = None


def _indexes(
    build: Build, segment: Segment, log: Location, *, native: bool
) -> tuple[SegmentIndex, list[_Wanted]]:
    """Return the segment's indexes and the files that are wanted, the `.timeindex` first."""
    target = build.index_location(segment)
    offset_target = target._replace(path=target.path.removesuffix(".timeindex") + ".index")
    base_offset, topic = segment.base_offset or 0, segment.topic or ""
    if not build.only_damaged:
        index = index_file(
            log, base_offset=base_offset, topic=topic, settings=build.settings, native=native
        )
        wanted = [_Wanted(target, index.time_index), _Wanted(offset_target, index.offset_index)]
        return index, wanted if build.offset_index else wanted[:1]
    verdict, index = verify_file(
        log,
        target,
        offset_target if build.offset_index else None,
        base_offset=base_offset,
        topic=topic,
        settings=build.settings,
        native=native,
    )
    good = verdict.entries if verdict.verdict in GOOD else None
    offset_good = 0 if verdict.offset_index_verdict in GOOD else None
    wanted = [
        _Wanted(target, index.time_index, good),
        _Wanted(offset_target, index.offset_index, offset_good),
    ]
    return index, wanted if build.offset_index else wanted[:1]


class _Published:
    """What became of a segment's index files."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.index_bytes = 0
        self._states: list[str | None] = []

    @property
    def state(self) -> str | None:
        """Return WRITTEN if all are ours, KEPT if one is not, None if one is not there."""
        if not self._states or None in self._states:
            return None
        return WRITTEN if all(state == WRITTEN for state in self._states) else KEPT

    def add(self, build: Build, file: _Wanted, *, ours: bool, proves_nothing: bool) -> None:
        """Publish, leave or withdraw one file; a fault of the store is a note."""
        try:
            if file.data is None:
                state = _withdraw(file.place, ours=ours, unreadable=proves_nothing)
            elif file.good_entries is not None:
                state = WRITTEN if ours else KEPT
                self.index_bytes += size_of(file.place) or 0
            else:
                state = self._place(file.place, file.data, ours=ours, overwrite=build.overwrite)
                self.index_bytes += len(file.data)
        except OSError as error:
            state = None
            self.notes.append(f"{file.place.uri}: cannot be written: {reason(error)}")
        self._states.append(state)

    def _place(self, place: Location, data: bytes, *, ours: bool, overwrite: bool) -> str:
        """Publish `data` unless the same bytes, or somebody else's file, are there."""
        size = size_of(place)
        if size == len(data) and read_whole(place, most_bytes=size) == data:
            return WRITTEN if ours else KEPT
        if size is not None and not ours and not overwrite:
            self.notes.append(f"kept {place.uri}: {NOT_OURS}; --overwrite replaces it")
            return KEPT
        publish(place, data)
        return WRITTEN


def _withdraw(place: Location, *, ours: bool, unreadable: bool) -> str | None:
    """Delete an index of ours that the log no longer gives; an unreadable log proves nothing."""
    if ours and unreadable:
        return WRITTEN  # it stays, and stays ours
    if ours:
        remove_quietly(place)
    return None


def _row(
    build: Build,
    segment: Segment,
    log: Location,
    index: SegmentIndex,
    published: _Published,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "log_dir": segment.log_dir,
        "topic": segment.topic,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "log_uri": log.uri,
        "size_bytes": segment.size_bytes,
        "last_modified_ms": segment.last_modified_ms,
        "active_segment": segment.active_segment,
        "build_settings": build.build_settings,
        "status": index.status,
        "error": "; ".join(filter(None, (index.error, *published.notes))) or None,
        "index_file": published.state,
    }
    if published.state:
        row["index_uri"] = build.index_location(segment).uri
    if index.status == "invalid":  # what the other figures counted depends on where we stopped
        return row | {"size_bytes": index.size_bytes, "valid_bytes": index.valid_bytes}
    if index.status == "unreadable":
        return row
    summary = index.summary
    max_timestamp = int(summary["max_timestamp"])
    row |= {
        "size_bytes": index.size_bytes,
        "valid_bytes": index.valid_bytes,
        "batch_count": int(summary["batch_count"]),
        "out_of_order_batches": int(summary["out_of_order_batches"]),
        "record_count": None if summary["wrappers"] else int(summary["record_count"]),
        "max_timestamp": max_timestamp,
        "timestamp_types": names_of(int(summary["timestamp_types"]), TIMESTAMP_TYPES),
        "magics": list(index.magics),
        "codecs": codec_names(int(summary["codecs"])),
    }
    if summary["batch_count"]:
        row["last_offset"] = int(summary["last_offset"])
        row["first_batch_timestamp"] = int(summary["first_batch_timestamp"])
    if max_timestamp >= 0:
        row["offset_of_max_timestamp"] = int(summary["offset_of_max_timestamp"])
    if index.time_index is not None:
        row["largest_timestamp"], row["largest_timestamp_source"] = largest_timestamp(
            max_timestamp, segment.last_modified_ms or 0
        )
        row["time_index_entries"] = len(index.time_index) // ENTRY_BYTES
    return row
