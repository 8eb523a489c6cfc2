"""Ranges of logs that a stream reads one after another, by a catalog's rows: no log is opened.

Where a stream stands is `{log: {partition: next offset}}`. A log is a topic, with its id where that
is known: `orders:pV8dTGzTSz2UkqBhcn1lWA`. A range is cut into shares by its offsets alone. So a
range that is read again has the same shares, whatever the catalog or the cluster is by then.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from kip33.catalog.catalog import Catalog, choose
from kip33.errors import CatalogError, FileReadError, Kip33Error
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.partitions import HeaderFigures, PartitionSegments, ReadSegment
from kip33.records.record_request import RecordRequest
from kip33.records.transaction_fates import begun_of
from kip33.rules.transaction_index import Open, open_as_json, open_from_json
from kip33.stores.files import opened

LogOffsets: TypeAlias = dict[str, dict[str, int]]
"""The next offset of each partition of each log."""
SHARE_OFFSETS: Final = 1_000_000
"""Offsets of a share: with 100 B each a task of a second; with half of it 85 % of the speed."""
_GROWN: Final = ("valid_bytes", "last_offset")
_NEW_TABLE: Final = "begin a new table with a new checkpoint"


class LogRangeError(Kip33Error):
    """Records of a range are lost, or are not those that were there before."""


class LogRange(NamedTuple):
    """Consecutive offsets of a partition, and the segments that tell what its records are."""

    segments: PartitionSegments
    first_offset: int
    end_offset: int  # exclusive

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes of logs it has."""
        return int(_bytes_until(self, self.end_offset))

    def needed(self) -> PartitionSegments:
        """Return the segments that have some of its offsets."""
        return self.segments[slice(*_needed(self.segments, self.first_offset, self.end_offset))]

    def require_unchanged(self) -> None:
        """Raise LogRangeError for a log that is shorter than its row of the catalog says."""
        for segment in self.needed():
            known = segment.figures.valid_bytes if segment.figures else None
            if known is None:
                continue
            with suppress(FileReadError), opened(segment.log) as (_, size_bytes):
                if size_bytes < known:
                    raise LogRangeError(
                        f"{segment.log.uri}: {size_bytes} bytes found, expected {known} or more: "
                        "it was compacted or cut since the catalog was built; run `kip33 build`"
                    )


def in_order(partitions: Sequence[PartitionSegments]) -> list[PartitionSegments]:
    """Return the partitions whose number is known, with the segments whose place is.

    A topic's id may be known of some of its partitions: then it is that of all of them.
    """
    placed = ([one for one in each if one.base_offset is not None] for each in partitions)
    named = [each for each in placed if each and None not in (each[0].topic, each[0].partition)]
    ids: defaultdict[str | None, set[str]] = defaultdict(set)
    for each in named:
        ids[each[0].topic] |= {one.topic_id for one in each if one.topic_id}
    return [_with_id(each, ids[each[0].topic]) for each in named]


def _with_id(partition: PartitionSegments, of_topic: set[str]) -> PartitionSegments:
    own = {one.topic_id for one in partition if one.topic_id} or of_topic
    if len(own) != 1:
        return partition
    (topic_id,) = own
    return [one._replace(topic_id=topic_id) for one in partition]


def first_offsets(partitions: Sequence[PartitionSegments]) -> LogOffsets:
    """Return where each log begins."""
    firsts: LogOffsets = {}
    for partition in partitions:
        firsts.setdefault(_log_of(partition), {})[_number_of(partition)] = _begin_of(partition)
    return firsts


def end_offsets(
    partitions: Sequence[PartitionSegments], start: LogOffsets, *, only_committed: bool
) -> LogOffsets:
    """Return where each log ends, at the last stable offset if asked; never before `start`.

    Logs of `start` that are no longer there stay as they are.
    """
    ends = _Offsets(start)
    for partition in partitions:
        end = _end_of(partition)
        if only_committed:
            end = min(end, _stable_end(partition, end))
        if end > ends.of(partition, _begin_of(partition)):
            ends.set(partition, end)
    return ends.as_offsets()


class _Offsets:
    """Next offsets, found by topic. A log without an id is any topic of its name."""

    def __init__(self, offsets: LogOffsets) -> None:
        self._topics: defaultdict[str, LogOffsets] = defaultdict(dict)
        for log, of_log in offsets.items():
            self._topics[_topic(log)][log] = dict(of_log)

    def same(self, log: str) -> list[str]:
        """Return the names under which a log may be known."""
        known = self._topics.get(_topic(log), {})
        return [name for name in known if name == log or not (":" in name and ":" in log)]

    def others(self, log: str) -> list[str]:
        """Return the logs of other topics of the name, by their ids."""
        return [name for name in self._topics.get(_topic(log), {}) if name not in self.same(log)]

    def next_offset(self, log: str, number: str) -> int | None:
        """Return up to where a partition was read, None if it was not."""
        known = (self._topics[_topic(log)][name].get(number) for name in self.same(log))
        return max((offset for offset in known if offset is not None), default=None)

    def of(self, partition: PartitionSegments, unread: int) -> int:
        """Return up to where a partition was read, `unread` if it was not."""
        known = self.next_offset(_log_of(partition), _number_of(partition))
        return unread if known is None else known

    def set(self, partition: PartitionSegments, offset: int) -> None:
        """Set the next offset of a partition, under the id of its topic if one is known."""
        log, number = _log_of(partition), _number_of(partition)
        of_topic, same = self._topics[_topic(log)], self.same(log)
        for name in same:
            of_topic[name].pop(number, None)
        with_id = (name for name in (log, *same) if ":" in name)
        of_topic.setdefault(next(with_id, log), {})[number] = offset
        for name in [name for name in same if not of_topic[name]]:
            del of_topic[name]

    def as_offsets(self) -> LogOffsets:
        """Return them as a stream keeps them."""
        return {
            log: dict(of_log) for known in self._topics.values() for log, of_log in known.items()
        }


def limited(
    partitions: Sequence[PartitionSegments],
    start: LogOffsets,
    end: LogOffsets,
    *,
    max_offsets: int | None,
    max_bytes: int | None,
) -> LogOffsets:
    """Return the ends of a part of each range, all within about these limits."""
    ranges = list(_ranges(partitions, start, end))
    offsets = sum(one.end_offset - one.first_offset for one in ranges)
    sizes = [_bytes_until(one, one.end_offset) for one in ranges]
    of_offsets = min(1.0, max_offsets / offsets) if max_offsets and offsets else 1.0
    of_bytes = min(1.0, max_bytes / sum(sizes, 0.0)) if max_bytes and any(sizes) else 1.0
    if min(of_offsets, of_bytes) == 1.0:
        return end
    ends = _Offsets(end)
    for one, size in zip(ranges, sizes, strict=True):
        count = max(1, int(of_offsets * (one.end_offset - one.first_offset)))
        by_bytes = _offset_at(one, of_bytes * size) if of_bytes < 1 else one.end_offset
        most = min(one.first_offset + count, max(by_bytes, one.first_offset + 1))
        ends.set(one.segments, most)
    return ends.as_offsets()


def ranges_between(
    partitions: Sequence[PartitionSegments],
    start: LogOffsets,
    end: LogOffsets,
    *,
    fail_on_data_loss: bool,
) -> list[LogRange]:
    """Return the ranges of the partitions, in order; LogRangeError if records of one are lost."""
    ranges = list(_ranges(partitions, start, end))
    if not fail_on_data_loss:
        return [
            one._replace(segments=[segment._replace(hole=None) for segment in one.segments])
            for one in ranges
        ]
    for loss in losses(partitions, start, end):
        remedy = "build the catalog of an archive that has them"
        remedy = _NEW_TABLE if loss.is_other_log else remedy
        raise LogRangeError(f"{loss.text}; {remedy}, or set failOnDataLoss to false")
    return ranges


class Loss(NamedTuple):
    """What is no longer there of what a range should have."""

    text: str
    is_other_log: bool = False  # what is there is not the log that was read before


def losses(
    partitions: Sequence[PartitionSegments], start: LogOffsets, end: LogOffsets
) -> Iterator[Loss]:
    """Yield what was lost of each log since it was read up to `start`."""
    begun, ends = _Offsets(start), _Offsets(end)
    yield from _shorter_logs(partitions, begun)
    found: dict[tuple[str, str], LogRange] = {}
    for one in _ranges(partitions, start, end):
        log, number = _log_of(one.segments), _number_of(one.segments)
        found |= dict.fromkeys(((name, number) for name in ends.same(log)), one)
        yield from map(Loss, _holes_in(one))
    for log, of_log in end.items():
        for number, stop in of_log.items():
            known = begun.next_offset(log, number)
            if known is None:
                yield from _other_topics(log, begun.others(log))
            if known != stop:
                yield from _missing(
                    f"{_topic(log)}-{number}", found.get((log, number)), known, stop
                )


def unread(partitions: Sequence[PartitionSegments]) -> Iterator[str]:
    """Yield a line for each segment behind what the catalog knows of its log: it is not read."""
    for partition in partitions:
        end = _end_of([one for one in partition if one.base_offset is not None])
        for one in partition:
            if one.base_offset is not None and one.base_offset < end:
                continue
            if why := one.refused or one.error or one.damage:
                yield f"{one.log.uri}: {why}; its records are not read"
            elif one.figures is None:
                yield f"{one.log.uri}: no build has read it, so its records are not read"


def held_back(partitions: Sequence[PartitionSegments], ends: LogOffsets) -> Iterator[str]:
    """Yield a line for each partition that ends at an open transaction before its log does."""
    known = _Offsets(ends)
    for partition in partitions:
        end = known.of(partition, _begin_of(partition))
        if end < _end_of(partition):
            yield (
                f"{_name_of(partition)}: the transaction that begins at offset {end} is still open "
                "in the catalog; read_committed ends before it"
            )


def shares_of(found: LogRange, offsets: int, *, only_committed: bool) -> Iterator[LogRange]:
    """Yield a range in shares of `offsets` offsets, each with the segments that it needs."""
    states = [*_states(found.segments)] if only_committed else []
    for first in range(found.first_offset, found.end_offset, offsets):
        end = min(first + offsets, found.end_offset)
        begin, stop = _needed(found.segments, first, end)
        segments = found.segments[begin:stop]
        if only_committed and segments:
            segments = _with_fates(found.segments, states, begin, stop)
        yield LogRange(segments, first, end)


def require_same_segments(ranges: Sequence[LogRange], catalog: Catalog, snapshot: str) -> None:
    """Raise LogRangeError if a segment of a range had other records in a snapshot of its catalog.

    Nothing is known of a snapshot that was removed.
    """
    try:
        then = choose(catalog, snapshot).snapshot
    except CatalogError:
        return
    needed = {one.log.uri: one for found in ranges for one in found.needed()}
    topics = {one.topic for one in needed.values()}
    for piece in catalog.read_pieces(then, ["log_uri", "batches_crc32", *_GROWN], topics):
        for row in piece.to_pylist():
            now = needed.get(row["log_uri"])
            if now and now.figures and row["last_offset"] is not None and _is_other(now, row):
                raise LogRangeError(
                    f"{now.log.uri}: other records found than in snapshot {snapshot}: the segment "
                    "was compacted or cut, so the records of a batch that was planned then cannot "
                    f"be read again; {_NEW_TABLE}"
                )


def _is_other(now: ReadSegment, then: Mapping[str, int | None]) -> bool:
    figures = now.figures or HeaderFigures()
    is_grown = all((getattr(figures, name) or 0) > (then[name] or 0) for name in _GROWN)
    return not is_grown and now.batches_crc32 != then["batches_crc32"]


def _ranges(
    partitions: Sequence[PartitionSegments], start: LogOffsets, end: LogOffsets
) -> Iterator[LogRange]:
    """Yield the range of each partition, without what is not there."""
    begun, ends = _Offsets(start), _Offsets(end)
    for partition in partitions:
        first = max(begun.of(partition, 0), _begin_of(partition))
        stop = min(ends.of(partition, 0), _end_of(partition))
        if first < stop:
            yield LogRange(partition, first, stop)


def _shorter_logs(partitions: Sequence[PartitionSegments], begun: _Offsets) -> Iterator[Loss]:
    """Yield the logs that end before the offset up to which they were read."""
    for partition in partitions:
        end, begin = _end_of(partition), begun.of(partition, 0)
        is_known = all(one.is_checked for one in partition)
        if is_known and end < begin:
            text = f"{_name_of(partition)}: ends at offset {end}, expected {begin} or more"
            yield Loss(f"{text}: it was cut, or the topic was created again", True)


def _other_topics(log: str, others: Sequence[str]) -> Iterator[Loss]:
    for other in others:
        yield Loss(
            f"topic {_topic(log)}: the topic ids {other.partition(':')[2]} and "
            f"{log.partition(':')[2]} found, expected one: it was deleted and created again",
            is_other_log=True,
        )


def _missing(name: str, found: LogRange | None, begin: int | None, stop: int) -> Iterator[Loss]:
    if found and found.end_offset == stop and begin in (None, found.first_offset):
        return
    here = f"offsets {found.first_offset} to {found.end_offset - 1}" if found else "none"
    yield Loss(
        f"{name}: of offsets {begin or 0} to {stop - 1} {here} found, expected all: retention ran, "
        "or the topic was created again"
    )


def _log_of(partition: PartitionSegments) -> str:
    first = partition[0]
    return f"{first.topic}:{first.topic_id}" if first.topic_id else f"{first.topic}"


def _topic(log: str) -> str:
    return log.partition(":")[0]


def _number_of(partition: PartitionSegments) -> str:
    return str(partition[0].partition)


def _name_of(partition: PartitionSegments) -> str:
    return f"{partition[0].topic}-{partition[0].partition}"


def _holes_in(found: LogRange) -> Iterator[str]:
    """Yield the places inside of a range at which offsets are surely missing."""
    for one in found.segments:
        if one.hole and found.first_offset < (one.begin_offset or 0) < found.end_offset:
            yield f"{one.log.uri}: {one.hole}"


def _begin_of(partition: PartitionSegments) -> int:
    return partition[0].begin_offset or 0


def _end_of(partition: PartitionSegments) -> int:
    """Return the offset after the last one that the catalog knows, also of an empty segment."""
    ends = [one.last_offset + 1 for one in partition if one.last_offset is not None]
    ends += [one.base_offset or 0 for one in partition if one.figures is not None]
    return max(ends, default=partition[0].base_offset or 0 if partition else 0)


def _states(partition: PartitionSegments) -> Iterator[Open | None]:
    """Yield the transactions open at the end of each segment; None: not known.

    At a gap or damage the marker of a transaction may be lost: a reader then takes it as ended.
    """
    state: Open | None = {}
    end, lost = _begin_of(partition), 0
    for segment in partition:
        if segment.damage or segment.figures is None or (segment.begin_offset or 0) > end:
            lost = end
        state = open_from_json(segment.open_transactions, state)
        is_sure = state is not None and all(first >= lost for first in state.values())
        end = max(end, -1 if segment.last_offset is None else segment.last_offset + 1)
        if segment.damage or segment.figures is None:
            lost = max(end, segment.next_base_offset or 0)
        yield state if is_sure else None


def _stable_end(partition: PartitionSegments, end: int) -> int:
    """Return the last stable offset; LogRangeError if the builds looked for no transactions.

    Where they could not know it, as in a log that does not begin at 0, headers are read.
    """
    *_, state = _states(partition)
    if state is None and _begin_of(partition) == 0 and partition[0].open_transactions is None:
        raise LogRangeError(
            f"{_name_of(partition)}: open transactions are not in the catalog, expected them for "
            "read_committed: build it with --offset-index (not with --no-index-files), or read "
            "with isolation read_uncommitted"
        )
    if state is None:
        begun = begun_of(partition, RecordRequest(only_committed=True))
        return end if begun is None else min(end, begun.request.limits.last_offset + 1)
    return min(state.values(), default=end)


def _needed(partition: PartitionSegments, first: int, end: int) -> tuple[int, int]:
    """Return the numbers of the first segment with such offsets, and after the last one."""
    asked = RecordRequest(RecordLimits(first_offset=first, last_offset=end - 1))
    numbers = [number for number, one in enumerate(partition) if asked.needs(one)]
    return (numbers[0], numbers[-1] + 1) if numbers else (0, 0)


def _with_fates(
    partition: PartitionSegments, states: Sequence[Open | None], begin: int, stop: int
) -> PartitionSegments:
    """Return segments, and those around them that tell what becomes of their transactions."""
    last = stop
    while last < len(partition):
        state = states[last - 1]
        oldest = None if state is None else min(state.values(), default=None)
        is_decided = oldest is None or oldest >= (partition[stop].base_offset or 0)
        if state is not None and is_decided:
            break
        last += 1
    first = begin
    while first > 0 and states[first - 1] is None:
        first -= 1
    before = []
    if first > 0:
        known = open_as_json(states[first - 1] or {})
        before = [partition[first - 1]._replace(open_transactions=known)]
    return [*before, *partition[first:last]]


def _bytes_until(found: LogRange, offset: int) -> float:
    """Return about how many bytes a range has before an offset."""
    return sum(_bytes_between(one, found.first_offset, offset) for one in found.segments)


def _bytes_between(segment: ReadSegment, first: int, end: int) -> float:
    base, last = segment.base_offset or 0, segment.last_offset
    if last is None or last < base:
        return 0.0
    inside = min(end, last + 1) - max(first, base)
    return segment.listed_bytes * max(inside, 0) / (last + 1 - base)


def _offset_at(found: LogRange, size: float) -> int:
    """Return the offset before which a range has about `size` bytes."""
    for segment in found.segments:
        first = max(found.first_offset, segment.base_offset or 0)
        here = _bytes_between(segment, first, found.end_offset)
        if here > size:
            end = min(found.end_offset, (segment.last_offset or 0) + 1)
            return first + int((end - first) * size / here)
        size -= here
    return found.end_offset
