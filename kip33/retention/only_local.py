"""What only the local tier has of the logs whose remote segments are judged.

The leader of a partition deletes its remote segments, oldest first, by `retention.ms`,
`retention.bytes` and the log start offset (`RemoteLogManager.RLMExpirationTask`). The size of the
log is that of the remote segments in the leader's lineage, and of the local segments that begin
after the highest offset in the remote tier (`UnifiedLog.onlyLocalLogSegmentsSize`; up to Kafka 4.3
also of one that begins there). The remote tier has no active segment: all of it may go.

Which broker leads is in no log directory. Of the replicas with the latest leader epoch the one that
goes farthest is taken; of several, the one with the most bytes that were not uploaded, because a
leader begins a segment where its uploads end, and a follower need not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog_columns import CatalogColumns
from kip33.catalog.logs import IS_REMOTE, OUTSIDE_FROM
from kip33.catalog.tiers import (
    LATEST_EPOCH,
    OF_UNION,
    CatalogSnapshot,
    Tiers,
    is_outside,
    united,
)
from kip33.errors import counted
from kip33.retention.uploaded import same_topics, with_log_dirs
from kip33.rules.retention import Codes, Int64Column, RetentionReason, reason_codes
from kip33.rules.search import NEWEST_KAFKA
from kip33.stores.locations import Location

_LOG: Final = ["topic", "partition", "log_dir"]
_READ: Final = (*OF_UNION, "size_bytes")
_COUNTS_ONCE: Final = (4, 4)  # the first Kafka that does not count the last uploaded segment again


class LocalLog(NamedTuple):
    """What the local tier adds to a partition's remote segments."""

    bytes_after: int  # in segments that were not uploaded
    log_start_offset: int | None


@dataclass(frozen=True)
class OnlyLocal:
    """The logs of the local tier, beside a remote one that is judged; sent to every task."""

    catalog: Location  # of the local tier
    logs: Mapping[tuple[str, int], LocalLog]
    unreferenced: frozenset[str]  # logs in the remote tier that are not of a partition's log
    kafka_version: tuple[int, int]  # whose rule it is
    warnings: tuple[str, ...] = ()  # about partitions whose size is not known

    def of_segments(self, columns: CatalogColumns) -> tuple[Codes, Int64Column]:
        """Return which remote segments are unreferenced, and the offset after each segment."""
        unreferenced, none = reason_codes([RetentionReason.UNREFERENCED, None])
        last = columns.int64("last_offset")
        codes = np.full(columns.size, none)
        if self.unreferenced:
            uris = columns.log_uris(np.arange(columns.size))
            codes[[uri in self.unreferenced for uri in uris]] = unreferenced
        known = last.known & (last.values < 2**63 - 1)
        return codes, Int64Column(np.where(known, last.values + 1, 0), known)


def only_local(
    judged: CatalogSnapshot,
    local: CatalogSnapshot,
    log_starts_file: str | None = None,
    kafka_version: tuple[int, int] = NEWEST_KAFKA,
) -> OnlyLocal:
    """Return what only `local` has of the logs in `judged`, a snapshot of the remote tier.

    The log start offsets are those of the brokers' checkpoints, or in the CSV `log_starts_file`.
    CatalogError, one line, if the two are not such catalogs or a part is damaged.
    """
    tiers = Tiers.of(judged, local)
    here, every = local.rows(_READ), judged.rows(_READ)
    there, warnings = same_topics(tiers, here, every)
    rows = united(here, there)
    leaders = _leaders(rows, counts_last=kafka_version < _COUNTS_ONCE)
    log_dirs: set[Any] = {*here["log_dir"].unique().to_pylist()} - {None}
    starts = log_start_offsets(Location.of(local.snapshot.source), log_dirs, log_starts_file)
    logs = {
        (row["topic"], row["partition"]): LocalLog(
            row["beyond_sum"], starts.get((row["log_dir"], row["topic"], row["partition"]))
        )
        for row in leaders.to_pylist()
    }
    unreferenced = _uris_beside(every, leaders) | _uris_of_others(every, there, here)
    unreferenced -= _uris_in_logs(rows, leaders)
    alone = there.select(_LOG[:2]).join(leaders.select(_LOG[:2]), _LOG[:2], join_type="left anti")
    if alone.num_rows:
        warnings = (*warnings, _alone(alone, local))
    place = local.catalog.location
    return OnlyLocal(place, logs, frozenset(unreferenced), kafka_version, warnings)


def _uris_beside(remote: pa.Table, leaders: pa.Table) -> set[str]:
    """Return the remote logs of the partitions that have a leader."""
    logs = remote.select([*_LOG[:2], "log_uri"])
    return _uris(logs.join(leaders.select(_LOG[:2]), _LOG[:2], join_type="left semi"))


def _uris_of_others(remote: pa.Table, matched: pa.Table, local: pa.Table) -> set[str]:
    """Return the remote logs of topics that are other ones in the local tier."""
    is_here, is_same = (
        pc.is_in(remote["topic"], pc.unique(rows["topic"])) for rows in (local, matched)
    )
    return _uris(remote.filter(pc.and_not(is_here, is_same)))


def _uris_in_logs(rows: pa.Table, leaders: pa.Table) -> set[str]:
    """Return the remote logs that are in the log of a leader, up to their last record."""
    is_in = pc.and_(rows[IS_REMOTE], pc.is_null(rows[OUTSIDE_FROM]))
    remote = with_log_dirs(rows.filter(is_in).select([*_LOG, "log_uri"]))
    return _uris(remote.join(leaders.select(_LOG), _LOG, join_type="left semi"))


def _uris(rows: pa.Table) -> set[str]:
    uris: list[Any] = rows["log_uri"].to_pylist()
    return set(uris)


def _leaders(rows: pa.Table, *, counts_last: bool) -> pa.Table:
    """Return for each partition with remote segments the replica that leads, as far as it shows.

    `beyond_sum` are the bytes of its segments that begin after the last offset of the remote tier,
    or with `counts_last` at it. A segment that begins where a remote one of unknown end does may be
    a copy of that one.
    """
    rows = with_log_dirs(rows)
    is_remote = rows[IS_REMOTE]
    open_bases = pc.if_else(pc.is_null(rows["last_offset"]), rows["base_offset"], None)
    lasts = pc.coalesce(pc.subtract(rows[OUTSIDE_FROM], 1), rows["last_offset"])
    rows = rows.append_column("last", lasts).append_column("open_base", open_bases)
    tiered = rows.filter(pc.and_not(is_remote, is_outside(rows)))
    ends: Any = [(name, "max") for name in ("last", "open_base", LATEST_EPOCH)]
    tiered = tiered.group_by(_LOG).aggregate(ends)
    local = rows.filter(pc.invert(is_remote))
    local = local.select([*_LOG, "base_offset", "last", "size_bytes", LATEST_EPOCH]).join(
        tiered, _LOG, join_type="inner"
    )
    base = local["base_offset"]
    highest, open_base, epoch = (pc.fill_null(local[f"{name}_max"], -1) for name, _ in ends)
    is_after = pc.greater_equal(base, highest) if counts_last else pc.greater(base, highest)
    is_beyond = pc.and_(is_after, pc.greater(base, open_base))
    sizes = pc.if_else(is_beyond, pc.fill_null(local["size_bytes"], 0), 0)
    ends_of = pc.fill_null(local["last"], base)
    epochs = pc.max_element_wise(local[LATEST_EPOCH], epoch)
    local = local.select(_LOG).append_column("beyond", sizes).append_column("end", ends_of)
    local = local.append_column("epoch", epochs)
    sums: Any = [("beyond", "sum"), ("end", "max"), ("epoch", "max")]
    replicas = local.group_by(_LOG).aggregate(sums)
    best_first: Any = [
        *(("topic", "ascending"), ("partition", "ascending"), ("epoch_max", "descending")),
        *(("end_max", "descending"), ("beyond_sum", "descending"), ("log_dir", "ascending")),
    ]
    replicas = replicas.sort_by(best_first)
    keys = list(zip(*(replicas[name].to_pylist() for name in _LOG[:2]), strict=True))
    first = [at for at, key in enumerate(keys) if at == 0 or key != keys[at - 1]]
    return replicas.take(pa.array(first, pa.int64()))


def _alone(rows: pa.Table, local: CatalogSnapshot) -> str:
    """Return a line about the partitions that the local tier does not have."""
    partitions = rows.group_by(_LOG[:2]).aggregate([]).sort_by("topic").to_pylist()
    first = f"{partitions[0]['topic']}-{partitions[0]['partition']}"
    return (
        f"{counted(len(partitions), 'partition')} without a log in {local.catalog.location.uri}, "
        f"such as {first}: judged by the remote segments alone; a broker that has the log counts "
        "more bytes for retention.bytes"
    )
