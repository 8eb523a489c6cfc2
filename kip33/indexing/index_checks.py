"""Checks of a segment's index files while its log is scanned, one per kind of file."""

from collections.abc import Callable
from typing import Final, Protocol

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexBytes,
    OffsetIndex,
    TimeIndex,
)
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.segment_verdict import OFFSET_INDEX, TIME_INDEX_KIND, IndexKind
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import DIALECTS, preallocated_bytes
from kip33.rules.index_truth import OffsetIndexTruth, TimeIndexTruth
from kip33.rules.index_verdict import (
    TRUE,
    IndexVerdict,
    Verdict,
    offset_index_verdict,
    time_index_verdict,
)

NO_BYTES: Final = IndexBytes(b"")


class IndexCheck(Protocol):
    """Verifies one index file while its log is scanned; one implementation per kind."""

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""

    def verdict(self, index: BuiltIndexes) -> Verdict | None:
        """Return the verdict after the pass that gave `index`; None: no file, none expected."""


class TimeIndexCheck:
    """A `.timeindex`."""

    def __init__(
        self, data: IndexBytes | None, *, base_offset: int, topic: str, settings: IndexSettings
    ) -> None:
        """Take the file's bytes, None if it is missing."""
        self._data, self._settings = data, settings
        asked = DIALECTS[settings.dialect]
        self._others = {  # dialects whose entries have the same meaning
            name: IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic)
            for name, dialect in DIALECTS.items()
            if dialect != asked and dialect.next_offset == asked.next_offset
        }
        held, repeats = (data or NO_BYTES).entries(TIME_ENTRY_BYTES)
        entries = TimeIndex.from_bytes(held, base_offset=base_offset)
        self.truth = TimeIndexTruth(
            entries.timestamps,
            entries.offsets,
            repeats,
            interval_bytes=settings.index_interval_bytes,
        )
        self.unseen_append_bytes = 0  # without an entry: see `rules.index_truth`

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""
        for builder in self._others.values():
            builder.append(batches, speed)
        self.truth.append(batches, speed)

    def verdict(self, index: BuiltIndexes) -> Verdict:
        """Return the verdict after the pass that gave `index`."""
        if self._data is None:
            return Verdict(IndexVerdict.MISSING, None, ("the .timeindex is missing",))
        return _judge(TIME_INDEX_KIND, self._data, self._settings, self._judge_entries(index))

    def _judge_entries(self, index: BuiltIndexes) -> "_Judge":
        def judge(data: IndexBytes, preallocated: tuple[int, ...]) -> Verdict:
            built = {
                name: self._bytes_in(name, index)
                for name in DIALECTS
                if name == self._settings.dialect or name in self._others
            }
            return time_index_verdict(
                data,
                self.truth,
                built,
                next_offset=DIALECTS[self._settings.dialect].next_offset,
                unseen_append_bytes=self.unseen_append_bytes,
                preallocated_bytes=preallocated,
            )

        return judge

    def _bytes_in(self, dialect: str, index: BuiltIndexes) -> bytes | None:
        """Return the bytes that the log gives in a dialect, None if Kafka writes no index."""
        if dialect == self._settings.dialect:
            return index.time_index_data
        builder = self._others[dialect]
        builder.close(index.valid_bytes)
        return None if index.time_index_data is None or builder.refusal else builder.time_index


class OffsetIndexCheck:
    """A `.index`."""

    def __init__(
        self, data: IndexBytes | None, *, base_offset: int, settings: IndexSettings
    ) -> None:
        """Take the file's bytes, None if it is missing."""
        self._data, self._settings = data, settings
        held, repeats = (data or NO_BYTES).entries(OFFSET_ENTRY_BYTES)
        entries = OffsetIndex.from_bytes(held, base_offset=base_offset)
        self.truth = OffsetIndexTruth(
            entries.offsets,
            entries.positions,
            repeats,
            base_offset=base_offset,
            interval_bytes=settings.index_interval_bytes,
        )

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""
        self.truth.append(batches, speed)

    def verdict(self, index: BuiltIndexes) -> Verdict | None:
        """Return the verdict after the pass that gave `index`, None if there is no file."""
        if self._data is None:
            return None

        def judge(data: IndexBytes, preallocated: tuple[int, ...]) -> Verdict:
            return offset_index_verdict(
                data, self.truth, index.offset_index_data, preallocated_bytes=preallocated
            )

        return _judge(OFFSET_INDEX, self._data, self._settings, judge)


_Judge = Callable[[IndexBytes, tuple[int, ...]], Verdict]


def _judge(kind: IndexKind, data: IndexBytes, settings: IndexSettings, judge: _Judge) -> Verdict:
    """Return an existing file's verdict; `judge` is called only if its entries are complete."""
    if len(data) % kind.entry_bytes:
        what = f"{len(data)} bytes found, expected a multiple of {kind.entry_bytes}"
        return Verdict(IndexVerdict.MALFORMED, None, (what,))
    return judge(data, preallocated_bytes(settings.segment_index_bytes, kind.entry_bytes))


class Verification:
    """The checks of a log's index files during one scan."""

    def __init__(
        self,
        time_index: bytes | IndexBytes | None,
        offset_index: bytes | IndexBytes | None,
        *,
        base_offset: int,
        topic: str,
        settings: IndexSettings,
    ) -> None:
        """Take the files' bytes, None for a missing file."""
        times = None if time_index is None else IndexBytes.of(time_index)
        offsets = None if offset_index is None else IndexBytes.of(offset_index)
        self._times = TimeIndexCheck(times, base_offset=base_offset, topic=topic, settings=settings)
        self._offsets = OffsetIndexCheck(offsets, base_offset=base_offset, settings=settings)
        self._checks: tuple[IndexCheck, ...] = (self._times, self._offsets)

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""
        for check in self._checks:
            check.append(batches, speed)

    def time_verdict(self, index: BuiltIndexes) -> Verdict:
        """Return the verdict on the `.timeindex`, after the pass that gave `index`."""
        append_bytes = self._offsets.truth.gaps.largest_append_bytes
        if append_bytes and not self._offsets.truth.untrue():
            self._times.unseen_append_bytes = 2 * append_bytes
        return self._times.verdict(index)

    def offset_verdict(self, index: BuiltIndexes) -> Verdict | None:
        """Return the verdict on the `.index`, None if the file is missing."""
        return self._offsets.verdict(index)

    def largest_gap(self, kind: IndexKind, verdict: Verdict | None) -> int | None:
        """Return the largest gap of a correct index in bytes, None for other indexes."""
        if verdict is None or verdict.verdict not in TRUE:
            return None
        check = self._times if kind == TIME_INDEX_KIND else self._offsets
        return check.truth.gaps.largest_bytes
