"""The log of each partition: the only place that chooses between replicas, tiers and uploads.

A partition may have a log in several brokers' directories, and remote segments of several leaders.
`rules.which_log` says which of them has the log at which offset. This module asks it about rows of
a catalog, or of a scan, and gives the same rows in the order in which they are read, with the
columns OF_READ:

- `from_offset`, `until_offset`: what is read of the segment; null: from its start, to its end
- `unsure_from`: its records from here on may not be of the log; `certainty` says why
- `outside_from`: its records from here on are not of the log

A partition with one copy leaves no choice: its rows are its log. A segment that cannot be read
stays in the log where no other copy has its offsets, so that readers can say what is lost.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.schema import with_column
from kip33.catalog.segment_order import PARTITION, Int64s, order_of, runs_of
from kip33.catalog.topics_by_name import (
    IS_AGE_UNSURE,
    IS_OLDER,
    OF_TOPICS,
    topics_by_name,
    with_older_topics,
)
from kip33.rules.offset_holes import Mask
from kip33.rules.retention import running_max
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.rules.topics_of_a_name import TopicsOfName
from kip33.rules.which_log import (
    NEVER,
    NOT_KNOWN,
    Certainty,
    ChosenLog,
    Copy,
    Kind,
    Segments,
    Slice,
    Status,
    which_log,
)

Row: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns."""

IS_REMOTE: Final = "is_remote"
"""Whether a segment is of the remote one of two tiers; null: there is one catalog."""
IS_UNREAD: Final = "is_unread"
"""Whether others have a segment's records, or they are not of the log."""
IS_UPLOAD: Final = "is_upload"
"""Whether brokers uploaded a segment, each perhaps another leader than the one before."""
FROM, UNTIL, UNSURE_FROM = "from_offset", "until_offset", "unsure_from"
CERTAINTY, OUTSIDE_FROM = "certainty", "outside_from"
_NUMBERS: Final = (FROM, UNTIL, UNSURE_FROM, CERTAINTY, OUTSIDE_FROM)
OF_READ: Final = (IS_REMOTE, *_NUMBERS)
OF_LOGS: Final = (
    *("log_dir", "topic", "partition", "topic_id", "base_offset", "last_offset", "record_count"),
    *("status", "batches_crc32", "leader_epochs", "leader_epoch_offsets", "epochs_fall", "log_uri"),
    *("checkpoint_epochs", "checkpoint_epoch_offsets", "checkpoint_log_start_offset"),
)
"""The columns of a catalog by which the log of one topic's partition is chosen."""
OF_COPIES: Final = (*OF_LOGS, *OF_TOPICS, IS_REMOTE, IS_UPLOAD)
"""The columns by which logs are chosen."""

REMOTE_TIER: Final = "remote tier"
"""The name of the remote tier as a copy."""
UNLISTED: Final = "unlisted"
"""The kind of a note on a log directory that cannot be listed."""
DAMAGED: Final = "damaged"
"""The kind of a note on the damaged last log of a copy: its end is not known."""
_WHY: Final = {
    Certainty.UNSURE: (
        "no copy shows whether the log's leader had the records from offset {} on; the "
        "leader-epoch-checkpoint beside its log may show it: copy it, too, and build again"
    ),
    Certainty.UNKNOWN: (
        "leader epochs are not known, so a later leader may never have had the records from offset "
        "{} on; a catalog that was built with --read tail must be built again without it"
    ),
    Certainty.DEAD: "a later leader never had the records from offset {} on",
}


def unsure_text(from_offset: int, certainty: int) -> str:
    """Why a segment's records from an offset on, UNSURE_FROM, may not be of the log."""
    return _WHY[Certainty(certainty)].format(from_offset)


class LogNote(NamedTuple):
    """What is said of a range of offsets of a copy of a partition; the end is exclusive."""

    topic: str
    partition: int
    kind: str  # a Kind, UNLISTED or DAMAGED
    copy: str | None  # a log directory or REMOTE_TIER; None: no copy in particular
    from_offset: int
    until_offset: int | None  # None: to the end of the copy
    other: str | None = None  # the copy that has these offsets; the URI of a DAMAGED log

    @property
    def text(self) -> str:
        """The note as one line."""
        last = "the end" if self.until_offset is None else self.until_offset - 1
        said = _TEXTS[self.kind].format(
            copy=_shown(self.copy), begin=self.from_offset, last=last, other=_shown(self.other)
        )
        return f"{self.topic}-{self.partition}: {said}"


def _shown(copy: str | None) -> str:
    return copy if copy == REMOTE_TIER else f"replica {copy!r}"


_TEXTS: Final = {
    Kind.DIFFER: (
        "{copy} differs from the log from offset {begin} on: a later leader never had its records"
    ),
    Kind.UNSURE: (
        "{copy}: no copy shows whether the log's leader had its offsets {begin} to {last}"
    ),
    Kind.UNKNOWN: (
        "{copy}: leader epochs are not known, so a later leader may never have had its offsets "
        "{begin} to {last}"
    ),
    Kind.CONFLICT: (
        "two copies have other bytes in the same leader epoch from offset {begin} on: they are not "
        "of one topic, or a leader lost what it had written"
    ),
    Kind.BEHIND: "{copy} ends before the log and lacks offsets {begin} to {last}",
    Kind.ALONE: (
        "only {copy} has offsets {begin} to {last}: they are lost if a later leader, of which "
        "there is no copy, never had them"
    ),
    Kind.EARLIER: "offsets {begin} to {last} are read from {other}, because {copy} begins later",
    Kind.FILLED: "offsets {begin} to {last} are read from {other}, because {copy} lacks them",
    Kind.POSSIBLE: "{copy} lacks offsets {begin} to {last}, which compaction may have removed",
    Kind.HOLE: "no copy has offsets {begin} to {last}",
    UNLISTED: "{copy} cannot be listed; it may have the log of a later leader",
    DAMAGED: (
        "the last log of {copy} is damaged from offset {begin} on; if it had records after the end "
        "of the other copies, they are lost"
    ),
}
_SAID: Final = (Kind.DIFFER, Kind.CONFLICT, Kind.EARLIER, Kind.FILLED, UNLISTED, DAMAGED)


def replica_lines(notes: Iterable[LogNote], kinds: Sequence[str] = _SAID) -> Iterator[str]:
    """What a reader is told of replicas: a line for each kind, with the first of them.

    That the remote tier has earlier records, or those of earlier leaders, is no news.
    """
    each = [one for one in notes if REMOTE_TIER not in (one.copy, one.other)]
    for kind in kinds:
        of_kind = [one for one in each if one.kind == kind]
        if of_kind:
            more = f"; and {len(of_kind) - 1:,} more like this" if len(of_kind) > 1 else ""
            yield f"{of_kind[0].text}{more}"


class Log(NamedTuple):
    """The log of one partition."""

    rows: list[dict[str, Any]]  # in order, with the columns OF_READ
    unread: list[dict[str, Any]]  # the other segments of the copies that are read
    log_dir: str | None  # of the copy that is read first
    notes: tuple[LogNote, ...] = ()


class Logs(NamedTuple):
    """The logs of several partitions."""

    rows: pa.Table  # by topic, partition and offset; rows without a place in a partition are last
    notes: tuple[LogNote, ...]
    topics: Mapping[str, TopicsOfName]  # of the names that several topics have
    older: pa.Table  # the segments of older topics with the same names, which are not read
    warnings: tuple[str, ...] = ()  # on small files of an archive that could not be used


def log_of(rows: Sequence[Row], replica: str | None = None) -> Log:
    """The log of one partition of one topic; `rows` are those of all its copies, in any order.

    They have the columns OF_LOGS, and may have IS_REMOTE and IS_UPLOAD. With `replica` only this
    log directory and the remote tier are read; which of its records are of the log depends on all
    copies. There are no rows if it has no such directory.
    """
    names = sorted({row["log_dir"] or "" for row in rows if not row.get(IS_REMOTE)})
    is_tiered = any(row.get(IS_REMOTE) for row in rows)
    if replica is not None:
        if replica not in (names or [row["log_dir"] for row in rows]):
            return Log([], [], None)
        if not names:
            replica = None
        elif all(map(_is_upload, rows)):  # each log directory is a bucket
            rows, names = [row for row in rows if row["log_dir"] == replica], [replica]
    rows = sorted(rows, key=lambda row: (row["base_offset"], _is_upload(row), row["log_uri"]))
    is_alone = len(names) + is_tiered == 1
    if is_alone and not (_is_upload(rows[0]) and _is_mixed(rows)):
        return Log([_with(row, row["log_dir"]) for row in rows], [], rows[0]["log_dir"])
    plain = _plain_log(rows) if replica is None and names else None
    return plain or _chosen(rows, names, replica)


def _is_upload(row: Row) -> bool:
    return bool(row.get(IS_UPLOAD) or row.get(IS_REMOTE))


def _is_mixed(ordered: Sequence[Row]) -> bool:
    """Whether uploads share offsets, or have an earlier leader epoch after a later one."""
    end, latest = 0, NOT_KNOWN
    for row in ordered:
        epochs = row["leader_epochs"] or [latest]
        if row["base_offset"] < end or epochs[0] < latest:
            return True
        end = 1 + max(row["base_offset"], row["last_offset"] or 0)
        latest = epochs[-1]
    return False


def _with(row: Row, log_dir: str | None, **numbers: int | None) -> dict[str, Any]:
    """A row with the columns OF_READ."""
    added = {IS_REMOTE: row.get(IS_REMOTE), **dict.fromkeys(_NUMBERS), **numbers}
    return {**row, **added, "log_dir": log_dir}


def _plain_log(rows: Sequence[Row]) -> Log | None:
    """The log where all copies have the same segments, as most have; None: the rule must say.

    One log directory has all segments. Of others the last one may be shorter, in the same leader
    epoch; remote segments may be before it, in the epoch in which it begins.
    """
    copies: dict[str | None, list[Row]] = {}
    for row in rows:
        copies.setdefault(None if row.get(IS_REMOTE) else row["log_dir"] or "", []).append(row)
    ends = {name: _plain_end(some) for name, some in copies.items()}
    if not all(ends.values()):
        return None
    known = {name: end for name, end in ends.items() if end}
    name = max((one for one in known if one is not None), key=lambda one: known[one].rank)
    first, end = copies[name], known[name]
    before: list[Row] = []
    own = {row["base_offset"]: row for row in first if row["status"] == SegmentStatus.OK}
    for other, some in copies.items():
        for row in some if other != name else ():
            mine = own.get(row["base_offset"])
            if other is None and row["base_offset"] < end.begin:
                before.append(row)
            elif row["status"] == SegmentStatus.EMPTY:
                if row["base_offset"] > end.end:
                    return None
            elif mine is None or not (
                _are_same(row, mine) or (row is some[-1] and _is_part(row, mine))
            ):
                return None
    if any(one.checkpoint > end.latest or one.log_start > one.begin for one in known.values()):
        return None
    if before and (before[-1]["last_offset"] + 1, before[-1]["leader_epochs"][-1]) != (
        end.begin,
        end.first,
    ):
        return None
    read = [*before, *first]
    numbers = {id(row) for row in read}
    place, log_dir = (rows[0]["topic"], rows[0]["partition"]), first[0]["log_dir"]
    notes = [
        LogNote(*place, Kind.BEHIND, other, one.end, end.end)
        for other, one in known.items()
        if other is not None and one.end < end.end
    ]
    others = max(one.end for other, one in known.items() if other != name)
    if others < end.end:
        notes.append(LogNote(*place, Kind.ALONE, name, others, end.end))
    return Log(
        [_with(row, log_dir) for row in read],
        [
            _with(row, log_dir if row.get(IS_REMOTE) else row["log_dir"])
            for row in rows
            if id(row) not in numbers
        ],
        log_dir,
        tuple(notes),
    )


class _PlainEnd(NamedTuple):
    """Where a copy without holes begins and ends, and what its leader epochs are."""

    begin: int
    end: int
    first: int
    latest: int
    checkpoint: int  # the latest epoch in it
    log_start: int

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.latest, self.end, -self.begin


def _plain_end(rows: Sequence[Row]) -> _PlainEnd | None:
    """Where a copy ends whose segments follow each other with rising epochs; None: another one."""
    end: int | None = None
    epoch, checkpoint, log_start = NOT_KNOWN, NOT_KNOWN, 0
    for row in rows:
        base, last, epochs = row["base_offset"], row["last_offset"], row["leader_epochs"]
        if end is not None and base != end:
            return None
        checkpoint = max(checkpoint, *(row["checkpoint_epochs"] or [NOT_KNOWN]))
        log_start = max(log_start, row["checkpoint_log_start_offset"] or 0)
        if row["status"] == SegmentStatus.EMPTY and row is rows[-1] and end is not None:
            break
        is_known = last is not None and epochs and row["epochs_fall"] is False
        if row["status"] != SegmentStatus.OK or not is_known or epochs[0] < epoch:
            return None
        end, epoch = last + 1, epochs[-1]
    if end is None:
        return None
    begin, first = rows[0]["base_offset"], rows[0]["leader_epochs"][0]
    return _PlainEnd(begin, end, first, epoch, checkpoint, log_start)


def _are_same(one: Row, other: Row) -> bool:
    names = ("last_offset", "batches_crc32", "leader_epochs")
    return one["batches_crc32"] is not None and all(one[name] == other[name] for name in names)


def _is_part(one: Row, other: Row) -> bool:
    """Whether a segment has the first records of another one, of one leader."""
    is_shorter = one["last_offset"] < other["last_offset"]
    return (
        is_shorter
        and len(one["leader_epochs"]) == 1
        and one["leader_epochs"] == other["leader_epochs"]
    )


class _ReadPart(NamedTuple):
    """What is read of a segment, the number of its row."""

    row: int
    begin: int
    end: int
    unsure_from: int | None = None
    certainty: int | None = None  # of its last records


class _Copies(NamedTuple):
    """The rows of several copies, in order of their base offsets; one element for each row."""

    rows: Sequence[Row]
    copies: list[int]  # numbers; the last one is the remote tier's
    ends: list[int]  # after the last offset; the base offset without one
    nexts: list[int]  # where the next segment of the copy begins

    @classmethod
    def of(cls, rows: Sequence[Row], names: Sequence[str]) -> "_Copies":
        """A segment of which only the index was read ends where the next one begins."""
        numbers = {name: number for number, name in enumerate(names)}
        copies = [
            len(names) if row.get(IS_REMOTE) else numbers[row["log_dir"] or ""] for row in rows
        ]
        ends, nexts, following = [0] * len(rows), [0] * len(rows), dict[int, int]()
        for at in reversed(range(len(rows))):
            base, last = rows[at]["base_offset"], rows[at]["last_offset"]
            nexts[at] = max(following.get(copies[at], 0), min(base, _MOST_OFFSET) + 1)
            ends[at] = base if last is None else min(last, _MOST_OFFSET) + 1
            if rows[at]["status"] == SegmentStatus.UNVERIFIED:
                ends[at] = nexts[at]
            following[copies[at]] = base
        return cls(rows, copies, ends, nexts)

    def places(self, names: Sequence[str]) -> list[Copy]:
        """The copies, as the rule takes them."""
        of_copies: dict[int, list[Row]] = {}
        for copy, row in zip(self.copies, self.rows, strict=True):
            of_copies.setdefault(copy, []).append(row)
        places = [_copy_of(name, of_copies[number]) for number, name in enumerate(names)]
        if len({one.log_start for one in places}) == 1:
            # No copy tells of another that it lacks records. What all have deleted is still read
            # from the archive, as that of an only copy.
            places = [one._replace(log_start=0) for one in places]
        if len(names) in of_copies:
            start = max((one.log_start for one in places), default=0)
            places.append(Copy(REMOTE_TIER, is_remote=True, log_start=start))
        return places

    def columns(self) -> Segments:
        """The segments, as the rule takes them."""
        rows = self.rows
        known = [{} if one["epochs_fall"] else one for one in rows]
        epochs, starts = (
            [one.get(name) or () for one in known]
            for name in ("leader_epochs", "leader_epoch_offsets")
        )
        records, digests = (
            [NOT_KNOWN if one[name] is None else one[name] for one in rows]
            for name in ("record_count", "batches_crc32")
        )
        statuses = [_STATUSES.get(one["status"], Status.OK) for one in rows]
        bases = [one["base_offset"] for one in rows]
        columns = (
            *(self.copies, bases, self.ends, records, statuses, digests),
            np.cumsum([0, *map(len, epochs)]),
            *([one for some in of_rows for one in some] for of_rows in (epochs, starts)),
        )
        return Segments(*(np.array(column, np.int64) for column in columns))


_MOST_OFFSET: Final = NEVER - 2
_STATUSES: Final = {
    SegmentStatus.TRUNCATED: Status.CUT,
    **dict.fromkeys((SegmentStatus.INVALID, *NOT_READ), Status.LOST),
}


def _copy_of(name: str, rows: Sequence[Row]) -> Copy:
    """A log directory, with what brokers wrote down of it in the row of its first segment."""
    checkpoint: tuple[tuple[int, int], ...] = ()
    log_start = 0
    for row in rows:
        if row["checkpoint_epochs"]:
            starts = row["checkpoint_epochs"], row["checkpoint_epoch_offsets"]
            checkpoint = tuple(zip(*starts, strict=True))
        log_start = max(log_start, row["checkpoint_log_start_offset"] or 0)
    return Copy(name, _is_upload(rows[0]), log_start=log_start, checkpoint=checkpoint)


def _chosen(rows: Sequence[Row], names: Sequence[str], replica: str | None) -> Log:
    """The log of copies in log directories with these names, and in the remote tier."""
    of_all = _Copies.of(rows, names)
    places, copies = of_all.places(names), of_all.copies
    found = which_log(places, of_all.columns(), replica=replica)
    taken = {at for at, one in enumerate(places) if replica in (None, one.name) or one.is_remote}
    is_read = [copy in taken for copy in copies]
    parts = [*_with_ends(of_all, _with_losses(of_all, found, is_read))]
    parts += _active(of_all, found, parts, is_read)
    log_dir = rows[copies.index(min(taken) if found.first == NOT_KNOWN else found.first)]["log_dir"]
    log_dirs = [log_dir if one.get(IS_REMOTE) else one["log_dir"] for one in rows]
    dead = [None if offset == NEVER else offset for offset in found.dead_from.tolist()]
    read = [
        _with(
            rows[row],
            log_dirs[row],
            from_offset=begin if begin > rows[row]["base_offset"] else None,
            until_offset=None if end == NEVER else end,
            unsure_from=unsure_from,
            certainty=certainty,
            outside_from=dead[row],
        )
        for row, begin, end, unsure_from, certainty in parts
    ]
    numbers = {part.row for part in parts}
    unread = [
        _with(rows[row], log_dirs[row], outside_from=dead[row])
        for row in range(len(rows))
        if is_read[row] and row not in numbers
    ]
    texts = [
        *(REMOTE_TIER if one.is_remote else one.name for one in places),
        None,
    ]  # the last one is NOT_KNOWN
    notes = (
        LogNote(
            *(rows[0]["topic"], rows[0]["partition"], note.kind, texts[note.copy]),
            *(note.from_offset, None if note.until_offset == NEVER else note.until_offset),
            texts[note.other],
        )
        for note in found.notes
    )
    return Log(read, unread, log_dir, (*notes, *_damaged_ends(of_all, found, parts, is_read)))


def _damaged_ends(
    of_all: _Copies, found: ChosenLog, parts: Sequence[_ReadPart], is_read: Sequence[bool]
) -> Iterator[LogNote]:
    """A note on each last log of a copy that is damaged and not read up to its damage."""
    lasts = {copy: row for row, copy in enumerate(of_all.copies)}
    seen = {part.row for part in parts if part.end == NEVER}
    for at in lasts.values():
        row = of_all.rows[at]
        is_damaged = row["status"] in _STATUSES and not row.get(IS_REMOTE)
        is_dead = found.dead_from[at] != NEVER or _is_left(of_all, found, at)
        if is_damaged and is_read[at] and at not in seen and not is_dead:
            where = row["topic"], row["partition"]
            name = row["log_dir"] or ""
            yield LogNote(*where, DAMAGED, name, of_all.ends[at], None, row["log_uri"])


def _joined(slices: Sequence[Slice]) -> Iterator[_ReadPart]:
    """What is read of segments: slices of one that follow each other are one."""
    part: _ReadPart | None = None
    for one in slices:
        unsure_from = one.from_offset if one.certainty > Certainty.COMPACTED else None
        if part and (part.row, part.end) == (one.segment, one.from_offset):
            known = part.unsure_from
            unsure_from = unsure_from if known is None else known
            part = part._replace(end=one.until_offset, unsure_from=unsure_from)
        else:
            if part:
                yield part
            part = _ReadPart(one.segment, one.from_offset, one.until_offset, unsure_from)
        part = part._replace(certainty=int(one.certainty))
    if part:
        yield part


def _with_losses(of_all: _Copies, found: ChosenLog, is_read: Sequence[bool]) -> list[_ReadPart]:
    """What is read, in order, with segments that cannot be read where no other one is."""
    parts = list(_joined(found.slices))
    rows, copies = of_all.rows, of_all.copies
    lost = [
        row
        for row, status in enumerate(one["status"] for one in rows)
        if is_read[row]
        and (
            _STATUSES.get(status) == Status.LOST
            or (status == SegmentStatus.TRUNCATED and of_all.ends[row] == rows[row]["base_offset"])
        )
        and not _is_left(of_all, found, row)
    ]
    for row in sorted(lost, key=lambda row: copies[row] != found.first):
        base, end = rows[row]["base_offset"], of_all.nexts[row]
        at = max(bisect_right(parts, base, key=_begin) - 1, 0)
        while at < len(parts) and parts[at].begin <= base:
            base, at = max(base, parts[at].end), at + 1
        last = bisect_left(parts, end, key=_begin) - 1
        if last >= at and parts[last].end >= end:
            end = parts[last].begin
        if base < end:
            insort(parts, _ReadPart(row, base, end), key=_begin)
    return parts


def _begin(part: _ReadPart) -> int:
    return part.begin


def _is_left(of_all: _Copies, found: ChosenLog, row: int) -> bool:
    """Whether a log directory left the log before one of its segments that has no records."""
    base, copy = of_all.rows[row]["base_offset"], of_all.copies[row]
    return not _is_upload(of_all.rows[row]) and any(
        (note.kind, note.copy) == (Kind.DIFFER, copy) and note.from_offset <= base
        for note in found.notes
    )


def _with_ends(of_all: _Copies, parts: Sequence[_ReadPart]) -> Iterator[_ReadPart]:
    """What is read, without an end where that is the end of the file: damage there is then seen.

    Where another copy goes on, damage is not.
    """
    for part, after in zip(parts, [*parts[1:], None], strict=False):
        status = of_all.rows[part.row]["status"]
        is_lost = of_all.ends[part.row] == of_all.rows[part.row]["base_offset"]
        goes_on = after is not None and after.begin == part.end
        is_open = status in (SegmentStatus.TRUNCATED, SegmentStatus.UNVERIFIED)
        is_other = after is not None and of_all.copies[after.row] != of_all.copies[part.row]
        stop = of_all.nexts[part.row] if is_lost else of_all.ends[part.row]
        if part.end >= stop and not (is_open and goes_on and is_other):
            part = part._replace(end=NEVER)
        yield part


def _active(
    of_all: _Copies, found: ChosenLog, parts: Sequence[_ReadPart], is_read: Sequence[bool]
) -> list[_ReadPart]:
    """The segment without a batch with which the log ends, if there is one."""
    end = max((of_all.ends[one.row] if one.end == NEVER else one.end for one in parts), default=0)
    empty = [
        (row["base_offset"], of_all.copies[at] == found.first, -at)
        for at, row in enumerate(of_all.rows)
        if is_read[at]
        and row["status"] == SegmentStatus.EMPTY
        and row["base_offset"] >= end
        and not _is_left(of_all, found, at)
    ]
    return [_ReadPart(-at, base, NEVER) for base, _, at in [*sorted(empty)][-1:]]


def logs_of(
    rows: pa.Table,
    replica: str | None = None,
    complete: Callable[[list[dict[str, Any]]], None] | None = None,
) -> Logs:
    """The logs of the newest topic of each name; with `replica` of the topic that it has.

    `rows` are those of all copies, in any order, with the columns OF_COPIES. With `replica` only
    what it has is read, as in `log_of`. `complete` fills in the rows of partitions with a choice.
    """
    topics = topics_by_name(rows)
    rows = with_older_topics(rows, topics)
    is_placed = pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"]))
    is_placed = pc.and_(is_placed, pc.is_valid(rows["partition"]))
    is_asked = _are_asked(rows, replica)
    asked = rows.filter(pc.and_(is_placed, is_asked))
    same = with_column(asked, "log_dir", pa.nulls(asked.num_rows, pa.string()))
    asked = asked.take(pa.array(order_of(same))).combine_chunks()
    found, notes = _judged(asked, ("topic", "partition"), replica, complete)
    found = found.filter(pc.invert(found[IS_UNREAD])).drop_columns([_ROW])
    unplaced = rows.filter(pc.and_not(is_asked, is_placed))
    if unplaced.num_rows:
        kept, unlisted = _unplaced(unplaced, found, replica)
        found, notes = pa.concat_tables([found, kept]), [*notes, *unlisted]
    older = rows.filter(pc.and_not(is_placed, is_asked)).select(OF_LOGS)
    added = [IS_UPLOAD, IS_OLDER, IS_AGE_UNSURE, IS_UNREAD]
    return Logs(found.drop_columns(added), tuple(notes), topics, older)


def with_remote_tier(rows: pa.Table) -> pa.Table:
    """Every segment with IS_UNREAD and OF_READ, of the log of its replica and remote segments.

    `rows`, with OF_LOGS and IS_REMOTE, are in the order of a catalog; remote segments are there for
    each replica, with its `log_dir`. A segment is one row, from the first to the last offset that
    is read of it. The rows are in order, of equal keys local ones first.
    """
    found, _ = _judged(rows, PARTITION, None, None)
    found = found.take(pa.array(order_of(found, found[IS_REMOTE])))
    at = found[_ROW].to_numpy()
    first, last = np.diff(at, prepend=-1) != 0, np.diff(at, append=-1) != 0
    untils = found[UNTIL].filter(pa.array(last))
    return with_column(found.filter(pa.array(first)), UNTIL, untils).drop_columns([_ROW])


def _judged(
    rows: pa.Table,
    key: Sequence[str],
    replica: str | None,
    complete: Callable[[list[dict[str, Any]]], None] | None,
) -> tuple[pa.Table, list[LogNote]]:
    """The rows with IS_UNREAD and OF_READ, without those of other copies; notes on the copies.

    `rows` are in order, those with one `key` together: they are all of one log.
    """
    groups = runs_of(rows, key)
    has_choice = _have_choice(rows, groups)
    is_simple = ~has_choice
    if replica is not None:
        is_simple &= pc.fill_null(pc.equal(rows["log_dir"], replica), False).to_numpy()
    simple, several = np.flatnonzero(is_simple), np.flatnonzero(has_choice)
    names = [name for name in (*OF_LOGS, IS_REMOTE, IS_UPLOAD) if name in rows.column_names]
    known = rows.take(pa.array(several)).select(names).to_pylist()
    numbered = [row | {_ROW: at} for at, row in zip(several.tolist(), known, strict=True)]
    if complete is not None:
        complete(numbered)
    of_logs: list[dict[str, Any]] = []
    notes: list[LogNote] = []
    for _, some in groupby(numbered, key=itemgetter(*key)):
        log = log_of([*some], replica)
        of_logs += [row | {IS_UNREAD: False} for row in log.rows]
        of_logs += [row | {IS_UNREAD: True} for row in log.unread]
        notes += log.notes
    at = np.concatenate([simple, np.array([row[_ROW] for row in of_logs], np.int64)])
    order = np.argsort(groups[at], kind="stable")
    found = rows.take(pa.array(at[order])).append_column(_ROW, pa.array(at[order]))
    own: list[Any] = rows["log_dir"].take(pa.array(simple)).to_pylist()
    log_dirs = pa.array([*own, *(row["log_dir"] for row in of_logs)], pa.string())
    found = with_column(found, "log_dir", log_dirs.take(pa.array(order)))
    kinds = dict.fromkeys(_NUMBERS, pa.int64()) | {IS_UNREAD: pa.bool_()}
    for name, kind in kinds.items():
        none = False if name == IS_UNREAD else None
        column = pa.array([*[none] * len(simple), *(row[name] for row in of_logs)], kind)
        found = found.append_column(name, column.take(pa.array(order)))
    return found, notes


_ROW: Final = "row"


def _are_asked(rows: pa.Table, replica: str | None) -> Any:
    """Which rows are of the newest topic, or of that of a log directory."""
    is_newest = pc.invert(rows[IS_OLDER])
    if replica is None or not pc.any(rows[IS_OLDER]).as_py():
        return is_newest
    is_mine = pc.fill_null(pc.equal(rows["log_dir"], replica), False)
    key = ("topic", "partition", "topic_id", "log_dir")
    mine = rows.filter(pc.and_(is_mine, rows[IS_OLDER])).select(key).to_pylist()
    ids = {(row["topic"], row["partition"]): row["topic_id"] for row in mine}
    columns: list[list[Any]] = [rows[name].to_pylist() for name in key]
    is_same = [
        (of_log == replica if topic_id is None else topic_id == ids[topic, number])
        if (topic, number) in ids
        else is_new
        for topic, number, topic_id, of_log, is_new in zip(
            *columns, is_newest.to_pylist(), strict=True
        )
    ]
    return pa.chunked_array([pa.array(is_same, pa.bool_())])


def _have_choice(rows: pa.Table, groups: Int64s) -> Mask:
    """Which rows, which are in order, are of a partition with several copies or mixed uploads."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    if not len(starts):
        return np.zeros(0, bool)
    is_remote = pc.fill_null(rows[IS_REMOTE], False).to_numpy()
    log_dirs = pc.fill_null(rows["log_dir"], "").combine_chunks().dictionary_encode()
    copies = np.where(is_remote, -1, log_dirs.indices.to_numpy())
    is_one = np.minimum.reduceat(copies, starts) == np.maximum.reduceat(copies, starts)
    is_mixed = is_remote
    if IS_UPLOAD in rows.column_names:
        is_mixed = is_remote | pc.fill_null(rows[IS_UPLOAD], False).to_numpy()
    if is_mixed.any():
        bases = rows["base_offset"].to_numpy()
        ends = 1 + np.maximum(pc.fill_null(rows["last_offset"], -1).to_numpy(), bases)
        first, latest = _first_and_latest(rows["leader_epochs"].combine_chunks())
        is_behind = bases < _before(ends, starts)
        is_behind |= (first != NOT_KNOWN) & (first < _before(latest, starts))
        is_mixed &= is_behind
    found: Mask = (~is_one | np.logical_or.reduceat(is_mixed, starts))[groups]
    return found


def _before(values: Int64s, starts: Int64s) -> Int64s:
    """The largest value of the rows of a group before each row; the least number without one."""
    found = np.roll(running_max(values, starts), 1)
    found[starts] = -NEVER
    return found


def _first_and_latest(epochs: Any) -> tuple[Int64s, Int64s]:
    """The first and the last leader epoch of each segment; NOT_KNOWN without any."""
    counts = pc.fill_null(pc.list_value_length(epochs), 0).to_numpy()
    ends = np.cumsum(counts, dtype=np.int64)
    flat = np.append(pc.list_flatten(epochs).to_numpy().astype(np.int64), NOT_KNOWN)
    has_any = counts > 0
    first, latest = (np.where(has_any, flat[at], NOT_KNOWN) for at in (ends - counts, ends - 1))
    return first, latest


def _unplaced(
    rows: pa.Table, found: pa.Table, replica: str | None
) -> tuple[pa.Table, list[LogNote]]:
    """What could not be listed of the logs that were found, and notes on other copies of them."""
    of_logs: dict[Any, Any] = {}
    for row in found.select(["topic", "partition", "log_dir"]).to_pylist():
        of_logs.setdefault((row["topic"], row["partition"]), row["log_dir"])
    kept, notes = [], []
    for row in rows.to_pylist():
        log_dir = of_logs.get((row["topic"], row["partition"]), row["log_dir"])
        if row[IS_REMOTE] or replica is not None or log_dir == row["log_dir"]:
            if replica in (None, log_dir):
                kept.append(row | {"log_dir": log_dir})
        else:
            place = row["topic"], row["partition"]
            notes.append(LogNote(*place, UNLISTED, row["log_dir"] or "", 0, None))
    table = pa.Table.from_pylist(kept, rows.schema)
    for name in _NUMBERS:
        table = table.append_column(name, pa.nulls(table.num_rows, pa.int64()))
    is_unread = pa.repeat(pa.scalar(False), table.num_rows)
    return table.append_column(IS_UNREAD, is_unread), notes
