"""An index file held against its log, in one pass over the log."""

from dataclasses import asdict, dataclass
from typing import Any

from kip33.formats.batch import BatchColumns
from kip33.formats.index_bytes import IndexBytes
from kip33.formats.offset_index import OffsetIndex
from kip33.formats.time_index import TimeIndex
from kip33.rules import verdict as rule
from kip33.rules.entries import (
    DIALECTS,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    preallocated_bytes,
)
from kip33.rules.indexes import IndexBuilder, IndexSettings
from kip33.rules.speed import Speed
from kip33.rules.truth import OffsetIndexTruth, TimeIndexTruth
from kip33.rules.verdict import Verdict
from kip33.storage.files import read_index, reason, size_of
from kip33.storage.locations import Location
from kip33.storage.segment import SegmentIndex, index_file
from kip33.storage.segment_files import beside


@dataclass(frozen=True)
class SegmentVerdict:
    """The verdict on one segment's index files; `as_row` is what `kip33 verify` prints."""

    log_uri: str
    index_uri: str
    verdict: str
    dialect: str | None
    entries: int | None
    problems: tuple[str, ...]
    offset_index_verdict: str | None
    log_status: str
    log_error: str | None

    def as_row(self) -> dict[str, Any]:
        """Return the fields in order, problems as a list."""
        return asdict(self) | {"problems": list(self.problems)}


class Verification:
    """What one pass over a log must see to judge its index files."""

    def __init__(
        self,
        time_index: bytes | IndexBytes | None,
        offset_index: bytes | IndexBytes | None,
        *,
        base_offset: int,
        topic: str,
        settings: IndexSettings,
    ) -> None:
        """Take the files' bytes, None where a file is missing."""
        self._time_index = None if time_index is None else IndexBytes.of(time_index)
        self._offset_index = None if offset_index is None else IndexBytes.of(offset_index)
        self._settings = settings
        self._others = {
            name: IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic)
            for name, dialect in DIALECTS.items()
            if name != settings.dialect
        }
        entries, repeats = IndexBytes.of(time_index or b"").entries(TIME_ENTRY_BYTES)
        times = TimeIndex.from_bytes(entries, base_offset=base_offset)
        self._time_truth = TimeIndexTruth(times.timestamps, times.offsets, repeats)
        entries, repeats = IndexBytes.of(offset_index or b"").entries(OFFSET_ENTRY_BYTES)
        places = OffsetIndex.from_bytes(entries, base_offset=base_offset)
        self._offset_truth = OffsetIndexTruth(
            places.offsets, places.positions, repeats, base_offset=base_offset
        )

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""
        for builder in self._others.values():
            builder.append(batches, speed)
        self._time_truth.append(batches, speed)
        self._offset_truth.append(batches, speed)

    def time_verdict(self, index: SegmentIndex) -> Verdict:
        """Return the verdict on the `.timeindex`, after the pass that gave `index`."""
        data = self._time_index
        if data is None:
            return Verdict(rule.MISSING, None, ("there is no .timeindex",))
        if len(data) % TIME_ENTRY_BYTES:
            return _malformed(len(data), TIME_ENTRY_BYTES)
        built: dict[str, bytes | None] = {}
        for name in DIALECTS:
            if name == self._settings.dialect:
                built[name] = index.time_index
            else:
                self._others[name].close(index.valid_bytes)
                refused = index.time_index is None or self._others[name].refusal
                built[name] = None if refused else self._others[name].time_index
        size = self._settings.segment_index_bytes
        return rule.time_index_verdict(
            data,
            self._time_truth,
            built,
            preallocated_bytes=preallocated_bytes(size, TIME_ENTRY_BYTES),
        )

    def offset_verdict(self, index: SegmentIndex) -> Verdict | None:
        """Return the verdict on the `.index`, None where there is none."""
        data = self._offset_index
        if data is None:
            return None
        if len(data) % OFFSET_ENTRY_BYTES:
            return _malformed(len(data), OFFSET_ENTRY_BYTES)
        size = self._settings.segment_index_bytes
        return rule.offset_index_verdict(
            data,
            self._offset_truth,
            index.offset_index,
            preallocated_bytes=preallocated_bytes(size, OFFSET_ENTRY_BYTES),
        )


def _malformed(size: int, entry_bytes: int) -> Verdict:
    return Verdict(rule.MALFORMED, None, (f"{size} bytes, not a multiple of {entry_bytes}",))


def offset_index_of(log: Location, time_index: Location) -> Location:
    """Return where a segment's `.index` is: beside its `.timeindex`, else beside its log."""
    place = beside(time_index, "index")
    try:
        is_there = size_of(place) is not None
    except OSError:  # who reads it says why
        is_there = True
    return place if is_there else beside(log, "index")


def verify_file(
    log: Location,
    time_index: Location,
    offset_index: Location | None,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
) -> tuple[SegmentVerdict, SegmentIndex]:
    """Return the verdict on a segment's index files, and the index its log gives.

    A log or an index that cannot be read has the verdict `unreadable`; nothing is raised for it.
    """
    try:
        times, offsets = _index_bytes(time_index), _index_bytes(offset_index)
        failure = None
    except (OSError, ValueError) as error:
        times = offsets = None
        failure = f"the index file cannot be read: {reason(error)}"
    check = Verification(times, offsets, base_offset=base_offset, topic=topic, settings=settings)
    index = index_file(
        log,
        base_offset=base_offset,
        topic=topic,
        settings=settings,
        native=native,
        watcher=check.append,
    )
    if failure is None and index.status == "unreadable":
        failure = f"the log cannot be read: {index.error}"
    if failure:
        time, offset = Verdict(rule.UNREADABLE, None, (failure,)), None
    else:
        time, offset = check.time_verdict(index), check.offset_verdict(index)
    offset_problems = offset.problems if offset else ()
    problems = time.problems + tuple(f".index: {problem}" for problem in offset_problems)
    verdict = SegmentVerdict(
        log.uri,
        time_index.uri,
        time.verdict,
        time.dialect,
        None if times is None else len(times) // TIME_ENTRY_BYTES,
        problems,
        offset.verdict if offset else None,
        index.status,
        index.error,
    )
    return verdict, index


def _index_bytes(location: Location | None) -> IndexBytes | None:
    """Return a file's bytes, None where there is none."""
    if location is None or size_of(location) is None:
        return None
    return read_index(location)
