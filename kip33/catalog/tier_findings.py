"""Which segments are in which tier, and what is wrong between the tiers.

A healthy pair of tiers has no finding but those of earlier leaders.

- A hole is one of `catalog.holes`, of the log that both tiers make up. One between the tiers ends
  where the local log begins: local retention took what was not uploaded. What compaction removed is
  no finding, nor what another replica has.
- A difference: two segments have the same offsets, but not the same records.
- Damage: a segment that is not valid, of which no other one has the records.
- An overlap: two segments share offsets, and their leader epochs do not tell which one is right.
- Unsure: no copy shows whether the log's leader had these records.
- Unknown epochs: leader epochs do not tell whether these records are of the log.
- An earlier leader: records that it wrote, perhaps uploaded, and that a later leader never had.
"""

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.holes import OF_HOLES, holes_of
from kip33.catalog.logs import (
    CERTAINTY,
    FROM,
    IS_REMOTE,
    IS_UNREAD,
    OUTSIDE_FROM,
    UNSURE_FROM,
    UNTIL,
)
from kip33.catalog.partitions import topics_with_several_ids
from kip33.catalog.schema import with_column
from kip33.catalog.segment_order import PARTITION, joined, runs_of
from kip33.catalog.tiers import IS_COPY, IS_DIFFERENT, Tiers
from kip33.rules.offset_holes import (
    APART,
    UNKNOWN_END,
    UNKNOWN_OFFSET,
    HoleKind,
    Int64s,
    Mask,
    Ranges,
    is_covered,
    overlaps,
)
from kip33.rules.policies import Policies
from kip33.rules.segment_summary import DAMAGED_STATUSES, SegmentStatus
from kip33.rules.tiers import NO_NEXT, next_bases
from kip33.rules.which_log import Certainty

OF_FINDINGS: Final = (*OF_HOLES, "size_bytes")
"""The columns of rows that are compared; `Tiers.rows` adds others."""


class TierFinding(StrEnum):
    """What is wrong, the worst first; each member is its own text."""

    BETWEEN_TIERS = "hole between tiers"
    HOLE = "hole"
    DIFFERENCE = "difference"
    DAMAGE = "damage"
    OVERLAP = "overlap"
    UNSURE = "unsure"
    UNKNOWN_EPOCHS = "unknown epochs"
    EARLIER_LEADER = "earlier leader"  # nothing is wrong


_ADVICE: Final = {
    TierFinding.BETWEEN_TIERS: (
        "these records are in neither tier: look for them in other replicas and backups"
    ),
    TierFinding.HOLE: (
        "these records are in neither tier: look for them in other replicas, in backups and in "
        "deleted objects of the bucket"
    ),
    TierFinding.DIFFERENCE: (
        "compare both logs with kip33 dump; a broker reads the local one while it has it"
    ),
    TierFinding.DAMAGE: (
        "no other segment has these records: kip33 dump shows where the log is damaged; look for "
        "them in other replicas, in backups and in earlier versions of the object"
    ),
    TierFinding.OVERLAP: (
        "which records are right is not known: compare both logs with kip33 dump, or build a "
        "catalog without leader epochs again"
    ),
    TierFinding.UNSURE: (
        "a later leader may never have had these records: copy the leader-epoch-checkpoint of the "
        "log directories, too, and build again, or look in other replicas"
    ),
    TierFinding.UNKNOWN_EPOCHS: (
        "a later leader may never have had these records: build both catalogs again, without "
        "--read tail"
    ),
    TierFinding.EARLIER_LEADER: (
        "nothing: an earlier leader wrote these records, and a later one never had them; they are "
        "not read"
    ),
}
_STALE: Final = (
    "the remote catalog is older than the local one, so these segments may have been uploaded "
    "since: build the remote catalog again"
)

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("finding", pa.string(), nullable=False),  # a TierFinding
    pa.field("log_dir", pa.string()),  # of the local replica; null: of the remote tier alone
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("first_offset", pa.int64(), nullable=False),
    pa.field("last_offset", pa.int64()),  # null: not known
    pa.field("segments", pa.list_(pa.string()), nullable=False),  # log_uris
    pa.field("advice", pa.string(), nullable=False),  # what to do
]
TIER_FINDINGS: Final = pa.schema(_FIELDS)

_PARTITION_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("local_segments", pa.int64(), nullable=False),
    pa.field("local_bytes", pa.int64(), nullable=False),
    pa.field("local_first_offset", pa.int64()),
    pa.field("local_last_offset", pa.int64()),
    pa.field("remote_segments", pa.int64(), nullable=False),
    pa.field("remote_bytes", pa.int64(), nullable=False),
    pa.field("remote_first_offset", pa.int64()),
    pa.field("remote_last_offset", pa.int64()),
    pa.field("only_local", pa.int64(), nullable=False),  # segments that are not whole in the other
    pa.field("only_remote", pa.int64(), nullable=False),
    pa.field("copies", pa.int64(), nullable=False),
]
PARTITIONS: Final = pa.schema(_PARTITION_FIELDS)


class _Finding(NamedTuple):
    """A finding; `rows` are the numbers of its segments."""

    kind: TierFinding
    rows: tuple[int, ...]
    first_offset: int
    last_offset: int | None


class TierComparison(NamedTuple):
    """What is in which tier, as PARTITIONS, and what is wrong, as TIER_FINDINGS."""

    partitions: pa.Table
    findings: pa.Table


def compare_tiers(
    tiers: Tiers, policies: Policies | None = None, topics: Collection[str] | None = None
) -> TierComparison:
    """Return what two tiers have of some topics, None: of all; findings with the worst first.

    `policies` say which topics are compacted. CatalogError as `Tiers.tables`.
    """
    is_stale = tiers.remote.snapshot.created_ms < tiers.local.snapshot.created_ms
    partitions, findings = [], []
    for rows in tiers.tables(OF_FINDINGS, topics):
        partitions.append(tier_partitions(rows))
        findings += findings_in(rows, policies, is_remote_older=is_stale)
    return TierComparison(joined(partitions, PARTITION), worst_first(findings))


def findings_in(
    rows: pa.Table, policies: Policies | None = None, *, is_remote_older: bool = False
) -> list[dict[str, Any]]:
    """Return what is wrong between two tiers, rows of `Tiers.rows`.

    `is_remote_older`: the remote catalog does not know the newest uploads. What concerns remote
    segments alone is there once for all replicas.
    """
    segments = _Segments.of(rows)
    found = {
        (one.kind, segments.replica_of(one.rows), *one[2:], segments.uris_of(one.rows)): one
        for one in _found(rows, segments, policies)
    }
    return [
        {
            "finding": kind.value,
            **dict(zip(PARTITION, replica, strict=True)),
            "first_offset": first,
            "last_offset": last,
            "segments": list(uris),
            "advice": _STALE
            if is_remote_older and kind is TierFinding.BETWEEN_TIERS
            else _ADVICE[kind],
        }
        for kind, replica, first, last, uris in found
    ]


def worst_first(findings: list[dict[str, Any]]) -> pa.Table:
    """Return findings as TIER_FINDINGS, the worst first, then by partition."""
    kinds = list(TierFinding)
    findings.sort(
        key=lambda one: (
            kinds.index(TierFinding(one["finding"])),
            *(one["log_dir"] or "", one["topic"], one["partition"], one["first_offset"]),
        )
    )
    return pa.Table.from_pylist(findings, TIER_FINDINGS)


def _found(rows: pa.Table, segments: "_Segments", policies: Policies | None) -> Iterator[_Finding]:
    yield from _holes(rows, segments, policies)
    yield from _differences(segments)
    yield from _damage(segments)
    yield from _overlaps(segments)
    certainty = pc.fill_null(segments.table[CERTAINTY], 0).to_numpy()
    differ = np.isin(segments.replicas, segments.replicas[segments.is_different])
    for row, begin, end in _from_column(segments, UNSURE_FROM):
        if certainty[row] != Certainty.UNSURE:
            yield _Finding(TierFinding.UNKNOWN_EPOCHS, (row,), begin, end)
        elif not differ[row]:  # the difference is the reason
            yield _Finding(TierFinding.UNSURE, (row,), begin, end)
    for row, begin, end in _from_column(segments, OUTSIDE_FROM):
        yield _Finding(TierFinding.EARLIER_LEADER, (row,), begin, end)


class _Segments(NamedTuple):
    """The segments of both tiers; one element for each in a column."""

    table: pa.Table
    replicas: Int64s  # numbers
    base_offsets: Int64s  # of what is read
    ends: Int64s  # exclusive, of what is read; UNKNOWN_END
    is_remote: Mask
    is_copy: Mask
    is_of_log: Mask  # they are read
    is_different: Mask
    is_damaged: Mask
    is_truncated: Mask

    @classmethod
    def of(cls, rows: pa.Table) -> "_Segments":
        status = rows["status"]
        damaged = pa.array([one.value for one in DAMAGED_STATUSES])
        last = _clipped(rows)["last_offset"]
        return cls(
            rows,
            runs_of(rows, PARTITION),
            pc.coalesce(rows[FROM], rows["base_offset"]).to_numpy(),
            pc.fill_null(pc.add(last, 1), UNKNOWN_END).to_numpy(),
            rows[IS_REMOTE].to_numpy(),
            rows[IS_COPY].to_numpy(),
            pc.invert(rows[IS_UNREAD]).to_numpy(),
            rows[IS_DIFFERENT].to_numpy(),
            pc.is_in(status, value_set=damaged).to_numpy(),
            pc.equal(status, SegmentStatus.TRUNCATED.value).to_numpy(),
        )

    @property
    def is_sound(self) -> Mask:
        """Return which are read, and end where a build found their end."""
        found: Mask = self.is_of_log & ~self.is_damaged & (self.ends != UNKNOWN_END)
        return found

    def ranges(self, which: Mask) -> Ranges:
        return Ranges(self.replicas[which], self.base_offsets[which], self.ends[which])

    def uris_of(self, rows: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.table["log_uri"][row].as_py() for row in rows)

    def replica_of(self, rows: tuple[int, ...]) -> tuple[Any, ...]:
        """Return log_dir, topic and partition; no log_dir if the segments are all remote."""
        log_dir, topic, partition = (self.table[name][rows[-1]].as_py() for name in PARTITION)
        return (None if self.is_remote[list(rows)].all() else log_dir), topic, partition


def _clipped(rows: pa.Table) -> pa.Table:
    """Return rows of `Tiers` with the last offset that is read of each segment's."""
    last = pc.if_else(
        pc.is_valid(rows["last_offset"]),
        pc.min_element_wise(rows["last_offset"], pc.subtract(rows[UNTIL], 1)),
        None,
    )
    return with_column(rows, "last_offset", last)


def holes_of_log(rows: pa.Table, policies: Policies | None = None) -> pa.Table:
    """Return the holes of the logs that both tiers make up, as `catalog.holes` has them.

    `rows` are those of `Tiers.rows`.
    """
    log = _clipped(rows.filter(pa.array(_Segments.of(rows).is_of_log)))
    return holes_of(log, policies, reborn=topics_with_several_ids(rows))


def _holes(rows: pa.Table, segments: _Segments, policies: Policies | None) -> Iterator[_Finding]:
    """Yield the holes without those behind damage, which `_damage` has."""
    holes = holes_of_log(rows, policies)
    holes = holes.filter(pc.equal(holes["hole"], HoleKind.CERTAIN.value))
    if not holes.num_rows:
        return
    uris = pa.chunked_array([*holes["after"].chunks, *holes["before"].chunks])
    some = np.flatnonzero(pc.is_in(rows["log_uri"], value_set=uris))
    ends = rows.select(["log_dir", "log_uri"]).take(pa.array(some)).to_pylist()
    number = {(*end.values(),): row for row, end in zip(some.tolist(), ends, strict=True)}
    local = np.flatnonzero(~segments.is_remote)
    begins = local[np.flatnonzero(np.diff(segments.replicas[local], prepend=-1))].tolist()
    for hole in holes.to_pylist():
        pair = tuple(number[hole["log_dir"], hole[name]] for name in ("after", "before"))
        kind = TierFinding.BETWEEN_TIERS if pair[1] in begins else TierFinding.HOLE
        yield _Finding(kind, pair, hole["first_offset"], hole["last_offset"])


def _differences(segments: _Segments) -> Iterator[_Finding]:
    if not segments.is_different.any():
        return
    last = pc.fill_null(segments.table["last_offset"], UNKNOWN_OFFSET).to_numpy()
    replicas, bases = segments.replicas, segments.base_offsets
    begins = np.append(True, (np.diff(replicas) != 0) | (np.diff(bases) != 0))
    firsts = np.maximum.accumulate(np.where(begins, np.arange(len(bases)), 0))
    for row in np.flatnonzero(segments.is_different).tolist():
        pair = next(one for one in range(firsts[row], row + 1) if last[one] == last[row]), row
        yield _Finding(
            TierFinding.DIFFERENCE, pair, int(segments.base_offsets[row]), int(last[row])
        )


def _damage(segments: _Segments) -> Iterator[_Finding]:
    """Yield segments of which records are lost; of the newest local one that is not known."""
    order = np.flatnonzero(segments.is_of_log)
    replicas, bases = segments.replicas[order], segments.base_offsets[order]
    nexts = next_bases(replicas, bases)
    ends = segments.ends[order]
    has_part = segments.is_truncated[order] & (ends != UNKNOWN_END)
    lost_from = np.where(has_part, ends, bases)
    lost_to = np.where(nexts == NO_NEXT, lost_from + 1, nexts)
    is_lost = segments.is_damaged[order] & (lost_from < lost_to)
    is_lost &= segments.is_remote[order] | (nexts != NO_NEXT)
    at = np.flatnonzero(is_lost)
    asked = Ranges(replicas[at], lost_from[at], lost_to[at])
    at = at[~is_covered(asked, segments.ranges(segments.is_sound))]
    for place in at.tolist():
        last = None if nexts[place] == NO_NEXT else int(nexts[place]) - 1
        yield _Finding(TierFinding.DAMAGE, (int(order[place]),), int(lost_from[place]), last)


def _overlaps(segments: _Segments) -> Iterator[_Finding]:
    order = np.flatnonzero(segments.is_sound & ~segments.is_different)
    last = segments.ends[order] - 1
    kinds = overlaps(segments.replicas[order], segments.base_offsets[order], last)
    for place in np.flatnonzero(kinds != APART).tolist():
        before, row = int(order[place - 1]), int(order[place])
        shared = min(int(last[place]), int(last[place - 1]))
        base = int(segments.base_offsets[row])
        yield _Finding(TierFinding.OVERLAP, (before, row), base, max(shared, base))


def _from_column(segments: _Segments, column: str) -> Iterator[tuple[int, int, int | None]]:
    """Yield the segments whose column has an offset before their end: row, offset, last offset."""
    columns = (segments.table[name] for name in (column, "last_offset"))
    first, last = (pc.fill_null(column, UNKNOWN_OFFSET).to_numpy() for column in columns)
    for row in np.flatnonzero(first != UNKNOWN_OFFSET).tolist():
        begin = max(int(first[row]), int(segments.base_offsets[row]))
        end = None if last[row] == UNKNOWN_OFFSET else int(last[row])
        if end is None or begin <= end:
            yield row, begin, end


def tier_partitions(rows: pa.Table) -> pa.Table:
    """Return which segments of each replica are in which tier, as PARTITIONS, by replica."""
    segments = _Segments.of(rows)
    bases, remote = segments.base_offsets, segments.is_remote
    whole = remote & ~segments.is_damaged & (segments.ends != UNKNOWN_END)
    ends = pc.fill_null(pc.add(rows["last_offset"], 1), UNKNOWN_END).to_numpy()
    reached = np.maximum(ends, bases)
    everywhere = Ranges(segments.replicas, bases, reached)
    there = Ranges(*(column[whole] for column in (*everywhere[:2], ends)))
    is_there = is_covered(everywhere, there) & (reached > bases)
    columns: dict[str, Any] = {name: rows[name] for name in PARTITION}
    for tier, is_in in (("local", pa.array(~remote)), ("remote", pa.array(remote))):
        columns[f"{tier}_segments"] = is_in
        columns[f"{tier}_bytes"] = pc.if_else(is_in, pc.fill_null(rows["size_bytes"], 0), 0)
        columns[f"{tier}_first_offset"] = pc.if_else(is_in, rows["base_offset"], None)
        columns[f"{tier}_last_offset"] = pc.if_else(is_in, rows["last_offset"], None)
    columns["only_local"] = ~remote & ~is_there
    columns["only_remote"] = remote & segments.is_of_log
    columns["copies"] = segments.is_copy
    how = {"first_offset": "min", "last_offset": "max"}
    names = [*columns][len(PARTITION) :]
    asked: Any = [(name, how.get(name.partition("_")[2], "sum")) for name in names]
    sums = pa.table(columns).group_by([*PARTITION], use_threads=False).aggregate(asked)
    sums = sums.select([*PARTITION, *("_".join(one) for one in asked)])
    return sums.rename_columns(PARTITIONS.names).cast(PARTITIONS)
