"""Ranges of logs that a stream reads one after another, by the rows of a catalog.

Where a stream stands is `{log: {partition: next offset}}`. A log is a topic, with its id where that
is known: `orders:pV8dTGzTSz2UkqBhcn1lWA`. The leader epoch of the last record before each offset
tells whether another leader has written the log since (KIP-320). A task reads a share of a range,
of about as many records as others. Compaction leaves few records at many offsets, so a stream notes
where it has cut such a range: a range that is read again has the same shares, whatever the catalog
or the cluster is by then.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

from kip33.catalog.catalog import Catalog, choose, warn_caller
from kip33.errors import CatalogError, Kip33Error
from kip33.formats.partition_metadata import EpochStart
from kip33.records.partitions import HeaderFigures, PartitionSegments, ReadSegment
from kip33.records.transaction_fates import readable_size, with_open_transactions
from kip33.rules.leader_epochs import NO_EPOCH, EpochBounds, other_log_from
from kip33.rules.policies import MAX_INT64
from kip33.rules.transaction_index import Open, open_from_json
from kip33.stores.concurrently import map_in_order

LogOffsets: TypeAlias = dict[str, dict[str, int]]
"""The next offset of each partition of each log."""
LogEpochs: TypeAlias = LogOffsets
"""The leader epoch of the last record before it; NO_EPOCH if that is not known."""
SHARE_RECORDS: Final = 1_000_000
"""Records of a share: with 100 B each a task of a second; with half of it 85 % of the speed."""
_LEAST_RECORD_BYTES: Final = 8  # where the number of records is not known
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
        """About how many bytes of logs it has."""
        return sum(_bytes_in(one, self) for one in self.needed())

    @property
    def records(self) -> int:
        """About how many records it has; at most its offsets."""
        return sum(_records_in(one, self) for one in self.needed())

    def needed(self) -> PartitionSegments:
        """The segments that have some of its offsets."""
        return self.segments[_Places(self.segments).between(self.first_offset, self.end_offset)]

    def require_unchanged(self) -> None:
        """Raise LogRangeError for a log that is shorter than its row of the catalog says.

        UnreadableLogError for one that cannot be opened, also if it only tells transactions.
        """
        for segment in self.segments:
            known = segment.figures.valid_bytes if segment.figures else None
            if known is None:
                continue
            if (size_bytes := readable_size(segment)) < known:
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

    Logs of `start` that are no longer there stay as they are. The last stable offset is that of
    `with_transactions`.
    """
    ends = _Offsets(start)
    for partition in partitions:
        end = _end_of(partition)
        if only_committed:
            *_, open_at_end = _states(partition)
            end = min((end, *open_at_end.values()))
        if end > ends.of(partition, _begin_of(partition)):
            ends.set(partition, end)
    return ends.as_offsets()


def with_transactions(
    partitions: Sequence[PartitionSegments], start: LogOffsets
) -> list[PartitionSegments]:
    """The partitions with the transactions that are open at the end of each segment from `start`.

    Where the catalog does not know them, the batch headers of the logs are read; UnreadableLogError
    for a log that cannot be.
    """
    begun = _Offsets(start)

    def known(partition: PartitionSegments) -> PartitionSegments:
        first = begun.of(partition, _begin_of(partition))
        return with_open_transactions(partition, first, _end_of(partition))

    return [*map_in_order(partitions[0][0].log, partitions, known)] if partitions else []


def last_epochs(
    partitions: Sequence[PartitionSegments], start: LogOffsets, ends: LogOffsets, before: LogEpochs
) -> LogEpochs:
    """The leader epochs of the last records before `ends`, given those before `start`.

    That of a record that was read earlier stays: the log may have lost it since.
    """
    begun, stops, epochs = _Offsets(start), _Offsets(ends), _Offsets(before)
    for partition in partitions:
        end = stops.of(partition, 0)
        is_new = end > begun.of(partition, 0)
        if is_new or epochs.of(partition, NO_EPOCH) == NO_EPOCH:
            log, known_end = _epochs_of(partition)
            earlier = [one.epoch for one in log.since if one.start_offset < end <= known_end]
            epochs.set(partition, max(earlier, default=NO_EPOCH))
    return epochs.as_offsets()


def _epochs_of(partition: PartitionSegments) -> tuple[EpochBounds, int]:
    """What the segments show of leader epochs, and the offset after the last one with epochs."""
    log, end = EpochBounds([], []), 0
    for one in partition:
        figures, last = one.figures or HeaderFigures(), one.last_offset
        if last is None or figures.last_offset is None:
            continue
        base_offset, file_end = one.base_offset or 0, figures.last_offset + 1
        is_dense = figures.record_count == file_end - base_offset  # else compaction took records
        ends = [*(epoch.start_offset for epoch in one.leader_epochs[1:]), file_end]
        for (epoch, start), stop in zip(one.leader_epochs, ends, strict=False):
            first, final = max(start, one.slice.from_offset), min(stop - 1, last)
            if first > final:
                continue
            end = max(end, final + 1)
            log.since.append(EpochStart(epoch, first))
            if is_dense or final == figures.last_offset:
                log.until.append(EpochStart(epoch, final))
            elif first == start:
                log.until.append(EpochStart(epoch, start))
    return log, end


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
    sizes = [one.size_bytes for one in ranges]
    of_offsets = min(1.0, max_offsets / offsets) if max_offsets and offsets else 1.0
    of_bytes = min(1.0, max_bytes / sum(sizes)) if max_bytes and any(sizes) else 1.0
    if min(of_offsets, of_bytes) == 1.0:
        return end
    ends = _Offsets(end)
    for one, size in zip(ranges, sizes, strict=True):
        count = max(1, int(of_offsets * (one.end_offset - one.first_offset)))
        by_bytes = one.end_offset
        if of_bytes < 1:
            by_bytes = next(_cuts(one, _bytes_in, max(1, int(of_bytes * size))), by_bytes)
        most = min(one.first_offset + count, max(by_bytes, one.first_offset + 1))
        ends.set(one.segments, most)
    return ends.as_offsets()


def ranges_between(
    partitions: Sequence[PartitionSegments],
    start: LogOffsets,
    end: LogOffsets,
    epochs: LogEpochs | None = None,
    *,
    fail_on_data_loss: bool,
) -> list[LogRange]:
    """Return the ranges of the partitions, in order; LogRangeError if records of one are lost.

    `epochs` are those of the last records before `start`. A log that is only behind is a warning,
    and without `fail_on_data_loss` all losses are.
    """
    for loss in losses(partitions, start, end, epochs or {}):
        if loss.is_behind or not fail_on_data_loss:
            warn_caller(loss.text)
            continue
        remedy = "build the catalog of an archive that has them"
        remedy = _NEW_TABLE if loss.is_other_log else remedy
        raise LogRangeError(f"{loss.text}; {remedy}, or set failOnDataLoss to false")
    return ranges_that_are_there(partitions, start, end)


def ranges_that_are_there(
    partitions: Sequence[PartitionSegments], start: LogOffsets, end: LogOffsets
) -> list[LogRange]:
    """Return what there is of each range; who reads it is not told again of missing offsets."""
    return [
        one._replace(
            segments=[
                segment._replace(hole=None) if segment.missing_before else segment
                for segment in one.segments
            ]
        )
        for one in _ranges(partitions, start, end)
    ]


def require_all_logs(start: LogOffsets, end: LogOffsets) -> None:
    """Raise LogRangeError if an end lacks a partition of the start: it would be read again."""
    ends = _Offsets(end)
    for log, of_log in start.items():
        for number, offset in of_log.items():
            if ends.next_offset(log, number) is None:
                raise LogRangeError(
                    f"{_topic(log)}-{number}: read up to offset {offset}, and not in the range "
                    "that was planned: the next one would read it again from its first offset; "
                    f"{_NEW_TABLE}"
                )


class Loss(NamedTuple):
    """What is no longer there of what a range should have."""

    text: str
    is_other_log: bool = False  # what is there is not the log that was read before
    is_behind: bool = False  # nothing may be lost: another replica was read before


def losses(
    partitions: Sequence[PartitionSegments], start: LogOffsets, end: LogOffsets, epochs: LogEpochs
) -> Iterator[Loss]:
    """Yield what was lost of each log since it was read up to `start`.

    `epochs` are those of the last records before `start`.
    """
    begun, ends = _Offsets(start), _Offsets(end)
    yield from _cut_logs(partitions, begun, _Offsets(epochs))
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
            if one.begin_offset is not None and one.begin_offset < end:
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


def sparse_cuts(
    partitions: Sequence[PartitionSegments], start: LogOffsets, end: LogOffsets, records: int
) -> dict[str, list[int]]:
    """The cuts of the ranges with far fewer records than offsets, by the name of the partition."""
    ranges = _ranges(partitions, start, end)
    sparse = (one for one in ranges if 2 * one.records < one.end_offset - one.first_offset)
    return {_name_of(one.segments): [*_cuts(one, _records_in, records)] for one in sparse}


def stream_shares(
    found: LogRange, cuts: Mapping[str, Sequence[int]], offsets: int, *, only_committed: bool
) -> Iterator[LogRange]:
    """The shares of a range by the cuts that its stream has noted, else of `offsets` offsets."""
    noted = cuts.get(_name_of(found.segments))
    even = range(found.first_offset + offsets, found.end_offset, offsets)
    return _shares(found, even if noted is None else noted, only_committed)


def shares_of(found: LogRange, records: int, *, only_committed: bool) -> Iterator[LogRange]:
    """The shares of a range, of about `records` records, without those that have none."""
    shares = _shares(found, _cuts(found, _records_in, records), only_committed)
    return (share for share in shares if share.segments)


def _shares(found: LogRange, cuts: Iterable[int], only_committed: bool) -> Iterator[LogRange]:
    """Yield a range in shares, each with the segments that it needs."""
    places = _Places(found.segments)
    states = [*_states(found.segments)] if only_committed else []
    inside = sorted({cut for cut in cuts if found.first_offset < cut < found.end_offset})
    for first, end in pairwise((found.first_offset, *inside, found.end_offset)):
        place = places.between(first, end)
        if only_committed and place.start < place.stop:
            place = _with_fates(found.segments, states, place)
        yield LogRange(found.segments[place], first, end)


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


def _cut_logs(
    partitions: Sequence[PartitionSegments], begun: _Offsets, epochs: _Offsets
) -> Iterator[Loss]:
    """Yield the logs that no longer have the records before the offset up to which they were read.

    One that is only shorter may be of a replica that is behind.
    """
    for partition in partitions:
        name, end = _name_of(partition), _end_of(partition)
        begin, epoch = begun.of(partition, 0), epochs.of(partition, NO_EPOCH)
        log, _ = _epochs_of(partition)
        other = None
        if epoch != NO_EPOCH:
            other = other_log_from(log, read_until=begin, epoch=epoch)
        if other is not None:
            yield Loss(
                f"{name}: read up to offset {begin}, the last in leader epoch {epoch}; from offset "
                f"{other} on it now has other records: it was cut, and another leader wrote on",
                is_other_log=True,
            )
        elif end < begin and all(one.is_checked for one in partition):
            text = f"{name}: ends at offset {end}, expected {begin} or more"
            if log.since and epoch != NO_EPOCH:
                yield Loss(
                    f"{text}: it is of a replica that is behind, or its end was lost; nothing is "
                    "read until it goes on",
                    is_behind=True,
                )
            else:
                yield Loss(f"{text}: it was cut, or the topic was created again", is_other_log=True)


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
        missing = one.missing_before
        if missing and found.first_offset < (one.begin_offset or 0) < found.end_offset:
            yield missing


def _begin_of(partition: PartitionSegments) -> int:
    return partition[0].begin_offset or 0


def _end_of(partition: PartitionSegments) -> int:
    """Return the offset after the last one that the catalog knows, also of an empty segment."""
    ends = [one.last_offset + 1 for one in partition if one.last_offset is not None]
    ends += [one.begin_offset or 0 for one in partition if one.figures is not None]
    return max(ends, default=partition[0].begin_offset or 0 if partition else 0)


def _states(partition: PartitionSegments) -> Iterator[Open]:
    """Yield the transactions open at the end of each segment, as far as they are known."""
    state: Open = {}
    for segment in partition:
        known = open_from_json(segment.open_transactions, state)
        state = state if known is None else known
        yield state


class _Places:
    """Finds segments by offsets, by bisection: they are in order."""

    def __init__(self, partition: PartitionSegments) -> None:
        self._begins = [one.begin_offset or 0 for one in partition]
        self._ends = [_after(one) for one in partition]
        self._ends_so_far = [*accumulate(self._ends, max)]

    def between(self, first: int, end: int) -> slice:
        """From the first segment with such offsets to the last one."""
        stop = bisect_left(self._begins, end)
        begin = bisect_right(self._ends_so_far, first, hi=stop)
        while begin < stop and self._ends[stop - 1] <= first:
            stop -= 1
        return slice(begin, stop)


def _after(segment: ReadSegment) -> int:
    """The offset after the last one that a segment may have."""
    if segment.last_offset is not None and not segment.damage:
        return segment.last_offset + 1
    base, following = segment.begin_offset or 0, segment.next_base_offset
    return following if following is not None and following > base else MAX_INT64


def _cuts(
    found: LogRange, weigh: Callable[[ReadSegment, LogRange], int], step: int
) -> Iterator[int]:
    """The offsets that cut a range into parts of about `step` of what `weigh` gives."""
    have = 0
    for segment in found.needed():
        first, end = _inside(segment, found)
        weight, taken = weigh(segment, found), 0
        while have + weight - taken > step:
            taken += step - have
            have = 0
            yield first + (end - first) * taken // weight
        have += weight - taken


def _inside(segment: ReadSegment, found: LogRange) -> tuple[int, int]:
    """The first offset of a segment in a range, and the one after its last there."""
    first = max(found.first_offset, segment.begin_offset or 0)
    return first, max(first, min(found.end_offset, _after(segment)))


def _records_in(segment: ReadSegment, found: LogRange) -> int:
    """About how many records of a segment a range has; at most its offsets there."""
    first, end = _inside(segment, found)
    known = segment.figures.record_count if segment.figures and not segment.damage else None
    of_bytes = segment.listed_bytes // _LEAST_RECORD_BYTES
    return min(end - first, of_bytes if known is None else _part_in(segment, found, known))


def _bytes_in(segment: ReadSegment, found: LogRange) -> int:
    """About how many bytes of a segment a range has."""
    return _part_in(segment, found, segment.listed_bytes)


def _part_in(segment: ReadSegment, found: LogRange, whole: int) -> int:
    """The part of `whole`, which all offsets of a segment have, that a range has."""
    first, end = _inside(segment, found)
    last = segment.figures.last_offset if segment.figures else None
    offsets = (-1 if last is None else last) + 1 - (segment.base_offset or 0)
    return min(whole, whole * (end - first) // offsets) if offsets > 0 else 0


def _with_fates(partition: PartitionSegments, states: Sequence[Open], place: slice) -> slice:
    """Where segments are, with those behind them that tell what becomes of their transactions.

    No earlier one does: the next marker of a producer decides about its records.
    """
    stop = place.stop
    while stop < len(partition):
        oldest = min(states[stop - 1].values(), default=None)
        if oldest is None or oldest >= (partition[place.stop].begin_offset or 0):
            break
        stop += 1
    return slice(place.start, stop)
