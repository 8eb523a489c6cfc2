"""What the remote tier has of a broker's segments: the proof that local retention needs.

A broker lets a local segment go if its last offset is not above `highestOffsetInRemoteStorage`, the
highest end offset of a finished upload (`UnifiedLog.isSegmentEligibleForDeletion`). Here it is the
catalog of the remote tier that tells, and more is asked: the offsets of the segment, from first to
last, are in whole segments there. So a segment whose upload was cut, damaged, not read or has been
deleted since is no proof, although a broker would not look again. Nor is one with the offsets of a
local segment but not its records, as another cluster has under the same name, nor one with records
that a leader lost: a replica that was left behind may still have them. Where the topic's id is not
known in both tiers, or leader epochs are not, as in rows of before schema 4, only a copy of a local
segment is a proof.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog_columns import CatalogColumns, int64_column_of
from kip33.catalog.logs import IS_REMOTE, OUTSIDE_FROM
from kip33.catalog.partitions import topics_with_several_ids
from kip33.catalog.schema import lacks_epochs, with_column
from kip33.catalog.tiers import (
    IS_COPY,
    IS_DIFFERENT,
    OF_UNION,
    CatalogSnapshot,
    Tiers,
    of_same_topics,
    topic_ids_of,
    united,
)
from kip33.errors import CatalogError, FileReadError
from kip33.rules.policies import Policies
from kip33.rules.retention import (
    Bools,
    Codes,
    Int64Column,
    Int64s,
    RetentionReason,
    reason_codes,
    running_max,
)
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import is_as_listed, one_line
from kip33.stores.locations import Location

_ORDER: Final = ("topic", "partition", "base_offset")
_SEGMENT: Final = ("log_dir", *_ORDER, "last_offset")
_LISTED: Final = ("log_uri", "size_bytes", "last_modified_ms")
_READ: Final = tuple(dict.fromkeys((*OF_UNION, *_LISTED)))


@dataclass(frozen=True)
class Uploaded:
    """The offsets in whole segments of the remote tier; sent to every task."""

    catalog: Location  # of the remote tier
    ranges: Mapping[tuple[str, int], tuple[Int64s, Int64s]]
    """The first and the last offset of each range of a partition, rising, with gaps between."""
    different: Mapping[tuple[str, str, int], frozenset[int]]
    """The base offsets of segments of which the remote tier has other records, by log directory."""
    warnings: tuple[str, ...] = ()  # about topics of another id there

    def of_segments(self, columns: CatalogColumns) -> tuple[Codes, Int64Column]:
        """Return why each segment may not go, and the offsets after them: here unknown."""
        missing, other, none = reason_codes(
            [RetentionReason.NOT_UPLOADED, RetentionReason.OTHER_RECORDS, None]
        )
        codes = np.where(self.has(columns), none, missing)
        codes[(codes == missing) & self._differ(columns)] = other
        return codes, Int64Column(np.zeros(columns.size, np.int64), np.zeros(columns.size, bool))

    def _differ(self, columns: CatalogColumns) -> Bools:
        found, bases = np.zeros(columns.size, bool), columns.int64("base_offset").values
        for key, rows in _partitions_of(columns) if self.different else ():
            if offsets := self.different.get(key):
                found[rows] = np.isin(bases[rows], [*offsets])
        return found

    def has(self, columns: CatalogColumns) -> Bools:
        """Return which segments are whole in the remote tier."""
        base, last = columns.int64("base_offset"), columns.int64("last_offset")
        found = np.zeros(columns.size, bool)
        for (_, topic, number), rows in _partitions_of(columns):
            if ranges := self.ranges.get((topic, number)):
                begins, ends = ranges
                place = np.searchsorted(begins, base.values[rows], side="right") - 1
                found[rows] = (place >= 0) & (last.values[rows] <= ends[place])
        return found & base.known & last.known


def _partitions_of(columns: CatalogColumns) -> Iterator[tuple[tuple[str, str, int], slice]]:
    """Yield the log directory, topic and number of each partition, and its rows."""
    spans = zip(columns.keys, columns.starts.tolist(), columns.lengths.tolist(), strict=True)
    for (log_dir, topic, number), first, length in spans:
        key = log_dir or "", topic or "", -1 if number is None else number
        yield key, slice(first, first + length)


def uploaded_segments(
    judged: CatalogSnapshot,
    remote: CatalogSnapshot,
    policies: Policies,
    *,
    planned: Mapping[tuple[str, int], int] | None = None,
) -> Uploaded:
    """Return what `remote` has of the segments in `judged`, a snapshot of log directories.

    `planned` has an offset of each partition that is about to lose the segments before it. Their
    uploads are looked at: one that is not in its store, or has another size or time there than in
    the snapshot, proves nothing.

    Only topics that `policies` have in tiered storage are looked at. A topic with several ids, of
    which it is not known which one a segment has, proves nothing, nor does one of another id.
    CatalogError, one line, where the two are not such catalogs, or a part is damaged.
    """
    tiers = Tiers.of(judged, remote)
    if tiers.local.catalog != judged.catalog:
        raise CatalogError(
            f"{judged.catalog.location.uri}: a catalog of the remote tier found, expected one of "
            "brokers' log directories, which lose what was uploaded"
        )
    here = tiers.local.rows(_READ)
    names: list[Any] = here["topic"].unique().drop_null().to_pylist()
    tiered = [name for name in names if policies.of(name).is_tiered]
    there, warnings = same_topics(tiers, here, tiers.remote.rows(_READ, tiered))
    there = there.filter(pc.equal(there["status"], SegmentStatus.OK))
    several = topics_with_several_ids(here) | topics_with_several_ids(there)
    sure = pc.invert(pc.is_in(there["topic"], pa.array(sorted(several), pa.string())))
    whole = pc.and_(sure, pc.is_valid(there["last_offset"]))
    of_tiered = pc.is_in(here["topic"], pa.array(tiered, pa.string()))
    here, there = here.filter(of_tiered), there.filter(whole)
    rows = united(here, there)
    copies = _with_local_bounds(rows, IS_COPY)
    is_proof = pc.and_not(_has_id_of(there, topic_ids_of(here)), _lacks_epochs(there, here))
    is_proof = pc.or_(is_proof, pc.is_in(there["log_uri"], value_set=copies["log_uri"]))
    others = rows.filter(pc.or_kleene(rows[IS_DIFFERENT], pc.is_valid(rows[OUTSIDE_FROM])))
    is_proof = pc.and_not(is_proof, pc.is_in(there["log_uri"], value_set=others["log_uri"]))
    there = there.filter(is_proof)
    if planned:
        there = _still_there(there, planned)
    different = _offsets_of(_with_local_bounds(rows, IS_DIFFERENT))
    return Uploaded(remote.catalog.location, _ranges_of(there), different, warnings)


def same_topics(
    tiers: Tiers, local: pa.Table, remote: pa.Table
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the remote rows of topics that the local tier has, too, and a line for each other one.

    Those are topics of which both tiers have ids, but no common one: as after a topic was deleted
    and created again. CatalogError if a topic id has another name.
    """
    kept, others = of_same_topics(tiers, local, remote)
    warnings = tuple(
        f"{one.text(tiers)}; nothing of this one was uploaded, and its brokers delete nothing of "
        "the other"
        for one in others
    )
    return kept, warnings


def _with_local_bounds(rows: pa.Table, flag: str) -> pa.Table:
    """Return the flagged remote segments that have the offsets of a local one; both are whole."""
    rows = with_log_dirs(rows)
    local = rows.filter(pc.invert(rows[IS_REMOTE])).select([*_SEGMENT])
    remote = rows.filter(pc.and_(rows[IS_REMOTE], rows[flag])).select([*_SEGMENT, "log_uri"])
    return remote.join(local, [*_SEGMENT], join_type="left semi")


def with_log_dirs(rows: pa.Table) -> pa.Table:
    """Return rows with "" for the log directory of an archive that is one itself."""
    return with_column(rows, "log_dir", pc.fill_null(rows["log_dir"], ""))


def _has_id_of(rows: pa.Table, ids: Mapping[str, set[str]]) -> Any:
    """Return for each row whether its topic id is known and one of the topic's."""
    names: list[Any] = rows["topic"].to_pylist()
    own: list[Any] = rows["topic_id"].to_pylist()
    return pa.array(
        [topic_id in ids.get(name, ()) for name, topic_id in zip(names, own, strict=True)],
        pa.bool_(),
    )


def _lacks_epochs(there: pa.Table, here: pa.Table) -> Any:
    """Return which uploads may be of a leader whose records were lost, by epochs not known."""
    logs = here.filter(lacks_epochs(here)).select(list(_ORDER[:2])).to_pylist()
    unknown = {(row["topic"], row["partition"]) for row in logs}
    columns: list[list[Any]] = [there[name].to_pylist() for name in _ORDER[:2]]
    of_log = pa.array([key in unknown for key in zip(*columns, strict=True)], pa.bool_())
    return pc.or_(lacks_epochs(there), of_log)


def _offsets_of(rows: pa.Table) -> dict[tuple[str, str, int], frozenset[int]]:
    """Return the base offsets of rows by log directory, topic and partition."""
    found: dict[tuple[str, str, int], set[int]] = {}
    columns: list[Sequence[Any]] = [rows[name].to_pylist() for name in _SEGMENT[:4]]
    for log_dir, topic, number, base in zip(*columns, strict=True):
        found.setdefault((log_dir or "", topic, number), set()).add(base)
    return {key: frozenset(bases) for key, bases in found.items()}


def _still_there(rows: pa.Table, planned: Mapping[tuple[str, int], int]) -> pa.Table:
    """Return the rows without those before a planned offset whose log is not as it was listed.

    CatalogError if a store does not say.
    """
    columns: list[list[Any]] = [rows[name].to_pylist() for name in _ORDER]
    asked = [
        at
        for at, (topic, number, base) in enumerate(zip(*columns, strict=True))
        if base < planned.get((topic, number), base)
    ]
    if not asked:
        return rows
    listed: list[Any] = rows.take(asked).select(list(_LISTED)).to_pylist()
    looked = map_in_order(Location.of(listed[0]["log_uri"]), listed, _is_as_listed)
    gone = [at for at, is_there in zip(asked, looked, strict=True) if not is_there]
    kept = np.ones(rows.num_rows, bool)
    kept[gone] = False
    return rows.filter(pa.array(kept))


def _is_as_listed(row: Mapping[str, Any]) -> bool:
    place = Location.of(row["log_uri"])
    try:
        return is_as_listed(place, row["size_bytes"], row["last_modified_ms"])
    except FileReadError as error:
        raise CatalogError(
            f"{place.uri}: it is not known whether this upload is still there: {one_line(error)}; "
            "nothing was deleted"
        ) from error


def _ranges_of(rows: pa.Table) -> dict[tuple[str, int], tuple[Int64s, Int64s]]:
    """Return the offsets of the rows, those of neighbouring segments as one range."""
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    topics: list[Any] = rows["topic"].to_pylist()
    numbers: list[Any] = rows["partition"].to_pylist()
    keys = list(zip(topics, numbers, strict=True))
    changes = [at for at in range(1, len(keys)) if keys[at] != keys[at - 1]]
    starts = np.array([0, *changes], np.int64)
    base, last = (int64_column_of(rows[name]).values for name in ("base_offset", "last_offset"))
    ends = running_max(last, starts)
    begins = np.ones(base.size, bool)
    begins[1:] = base[1:] - 1 > ends[:-1]
    begins[starts] = True
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], base.size) - 1
    found = {}
    bounds = np.searchsorted(firsts, np.append(starts, base.size)).tolist()
    for start, first, end in zip(starts.tolist(), bounds, bounds[1:], strict=False):
        found[keys[start]] = (base[firsts[first:end]], ends[lasts[first:end]])
    return found
