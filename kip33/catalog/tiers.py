"""The catalogs of a cluster's local and remote tier, put together.

With tiered storage a partition lives twice: its closed segments in a bucket, the newest ones and
the active one on the brokers' disks. `Tiers` gives the rows of both where `CatalogSnapshot` gives
those of one catalog.

Topics are matched by topic id, and by name where one side has no id. `logs` gives the one log of a
partition. To compare the tiers, `rows` puts each local replica together with the remote segments of
its partition, so the rows of both have its `log_dir`; `rules.tiers` says which segments are equal.

A topic that was deleted and created again has another id. Where the tiers have no common id of a
name, the remote segments are those of another topic: they are left out, and `Tiers.warn` is told.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot, Warn, choose, warn_caller
from kip33.catalog.logs import (
    CERTAINTY,
    FROM,
    IS_REMOTE,
    IS_UNREAD,
    IS_UPLOAD,
    OF_LOGS,
    OUTSIDE_FROM,
    UNSURE_FROM,
    UNTIL,
    Logs,
    logs_of,
    with_remote_tier,
)
from kip33.catalog.partitions import TABLE_ROWS, names_in, topics_with_several_ids
from kip33.catalog.schema import PARTS, with_column
from kip33.catalog.segment_order import PARTITION, order_of, runs_of
from kip33.catalog.topic_totals import topics_of
from kip33.catalog.topics_by_name import OF_TOPICS
from kip33.errors import CatalogError
from kip33.rules.offset_holes import UNKNOWN_END, Int64s, Mask
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.tiers import UNKNOWN_FIGURE, TierSegments, compared

LOG_DIRECTORIES: Final = "kafka"
"""The layout of brokers' log directories, the local tier; all others are of a remote tier."""

Topics: TypeAlias = Collection[str | None] | None
"""Which topics are read: None all, None among them those of which no name is known."""

TopicIds: TypeAlias = Mapping[str, Collection[str]]
"""The known ids of each topic, by its name."""

COMPARED: Final = ("valid_bytes", "batch_count", "record_count", "max_timestamp", "batches_crc32")
"""What a segment and its copy have in common, besides their offsets and the magic of batches."""

OF_UNION: Final = tuple(dict.fromkeys((*OF_LOGS, *COMPARED, "magics")))
"""The columns that `united` needs."""

IS_COPY, IS_DIFFERENT = "is_copy", "is_different"
LATEST_EPOCH = "latest_epoch"
_FLAGS: Final = (IS_REMOTE, IS_UNREAD, IS_COPY, IS_DIFFERENT)
_OFFSETS: Final = (OUTSIDE_FROM, FROM, UNTIL, UNSURE_FROM, CERTAINTY)
ADDED: Final = (*_FLAGS, *_OFFSETS, LATEST_EPOCH)
"""The columns that `united` adds: those of `catalog.logs`, and by comparison of both tiers

- `is_copy`: the other tier has the same records
- `is_different`: it has other records at the same offsets
- `latest_epoch`: the latest leader epoch, null: not known
"""

Row: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns."""


class CatalogSnapshot(NamedTuple):
    """A snapshot and its catalog, whose rows are read."""

    catalog: Catalog
    snapshot: Snapshot

    @property
    def local(self) -> Self:
        """Return itself: what a single catalog describes is searched as a local tier."""
        return self

    def topics(self) -> list[str]:
        """Return the topics, by name; CatalogError if a part is damaged."""
        return topics_of(self.catalog, self.snapshot)

    def rows(self, columns: Sequence[str], topics: Topics = None) -> pa.Table:
        """Return the rows of some topics, None: of all; CatalogError if a part is damaged."""
        none = PARTS.empty_table().select(list(columns))
        return pa.concat_tables([none, *self.pieces(columns, topics)])

    def pieces(self, columns: Sequence[str], topics: Topics = None) -> Iterator[pa.Table]:
        """Yield what `rows` returns, one row group at a time."""
        return self.catalog.read_pieces(self.snapshot, list(columns), topics)

    def copies(self, columns: Sequence[str], topics: Topics = None) -> pa.Table:
        """The rows of all copies of the logs, for `catalog.logs`."""
        rows = self.rows(_needed(columns), topics)
        is_remote = pa.nulls(rows.num_rows, pa.bool_())
        return _of_copies(rows, is_remote, pa.repeat(_is_remote(self), rows.num_rows))

    def logs(
        self, columns: Sequence[str], topics: Topics = None, replica: str | None = None
    ) -> Logs:
        """The logs of some topics, with these columns; CatalogError if a part is damaged."""
        return logs_of(self.copies(columns, topics), replica)


@dataclass(frozen=True)
class Tiers:
    """The snapshots of a cluster's local tier and of its remote tier.

    `warn` gets a line for each topic whose remote segments are left out, once.
    """

    local: CatalogSnapshot
    remote: CatalogSnapshot
    warn: Warn = field(default=warn_caller, compare=False)
    _told: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, one: CatalogSnapshot, other: CatalogSnapshot, warn: Warn = warn_caller) -> Self:
        """Return two snapshots, given in any order, as tiers.

        The layout of a snapshot says which tier it is. CatalogError if both are of one kind.
        """
        tiers = sorted((one, other), key=_is_remote)
        kinds = [_is_remote(tier) for tier in tiers]
        if kinds == [False, True]:
            return cls(tiers[0], tiers[1], warn)
        places = " and ".join(
            f"{tier.catalog.location.uri} (layout {tier.snapshot.layout})" for tier in (one, other)
        )
        raise CatalogError(
            f"{places}: two catalogs of {'the remote' if kinds[0] else 'the local'} tier found, "
            f"expected one of log directories (layout {LOG_DIRECTORIES}) and one of a bucket"
        )

    @classmethod
    def newest(
        cls, catalogs: tuple[Catalog, Catalog], warn: Warn = warn_caller, tell: Warn | None = None
    ) -> Self:
        """Return the newest snapshots of two catalogs as tiers; `warn` is told as by `choose`.

        `tell` becomes the `warn` of the tiers; None: they have the same one.
        """
        one, other = (CatalogSnapshot(one, choose(one, None, warn).snapshot) for one in catalogs)
        return cls.of(one, other, tell or warn)

    def __iter__(self) -> Iterator[CatalogSnapshot]:
        """Yield the local tier, then the remote one."""
        return iter((self.local, self.remote))

    def topics(self) -> list[str]:
        """Return the topics of both tiers, by name; CatalogError if a part is damaged."""
        return sorted({*self.local.topics(), *self.remote.topics()})

    def rows(self, columns: Sequence[str], topics: Topics = None) -> pa.Table:
        """Return the rows of both tiers as `united` does.

        CatalogError if a topic id has two names, or a part is damaged.
        """
        return united(*self._read(columns, topics)).select([*columns, *ADDED])

    def _read(self, columns: Sequence[str], topics: Topics) -> tuple[pa.Table, pa.Table]:
        needed = [*dict.fromkeys((*columns, *OF_UNION))]
        local, remote = (tier.rows(needed, topics) for tier in self)
        remote, others = of_same_topics(self, local, remote)
        for line in (one.left_out(self) for one in others):
            if line not in self._told:
                self._told.add(line)
                self.warn(line)
        return local, remote

    def copies(self, columns: Sequence[str], topics: Topics = None) -> pa.Table:
        """The rows of all copies of the logs, for `catalog.logs`; errors as of `rows`."""
        needed = _needed(columns)
        local, remote = (rows.select(needed) for rows in self._read(needed, topics))
        is_remote = np.arange(local.num_rows + remote.num_rows) >= local.num_rows
        return _of_copies(pa.concat_tables([local, remote]), *[pa.array(is_remote)] * 2)

    def logs(
        self, columns: Sequence[str], topics: Topics = None, replica: str | None = None
    ) -> Logs:
        """The logs that both tiers make up, with these columns; errors as of `rows`."""
        return logs_of(self.copies(columns, topics), replica)

    def tables(
        self, columns: Sequence[str], topics: Collection[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield what `rows` returns in one table at least, each with some topics, by name.

        Memory does not grow with the catalogs. Errors as in `rows`, before the first table.
        """
        names = [names_in(*tier) for tier in self]
        of_same_topics(self, *names)
        every: list[Any] = pa.concat_tables(names)["topic"].unique().drop_null().to_pylist()
        rows = sum(tier.snapshot.rows for tier in self)
        at_once = max(1, TABLE_ROWS * len(every) // max(1, rows))
        asked = sorted(every if topics is None else topics)
        for first in range(0, max(1, len(asked)), at_once):
            yield self.rows(columns, asked[first : first + at_once])


def _needed(columns: Sequence[str]) -> list[str]:
    return [*dict.fromkeys((*columns, *OF_LOGS, *OF_TOPICS))]


def _of_copies(rows: pa.Table, is_remote: Any, is_upload: Any) -> pa.Table:
    return rows.append_column(IS_REMOTE, is_remote).append_column(IS_UPLOAD, is_upload)


class OtherTopic(NamedTuple):
    """A topic of which both tiers know ids, but no common one."""

    name: str
    local_ids: str
    remote_ids: str

    def text(self, tiers: Tiers) -> str:
        """Return which ids are in which catalog, and why that may be."""
        local, remote = (tier.catalog.location.uri for tier in tiers)
        return (
            f"topic {self.name}: topic id {self.local_ids} in {local}, {self.remote_ids} in "
            f"{remote}: that is another topic of the name, deleted since or of another cluster"
        )

    def left_out(self, tiers: Tiers) -> str:
        """Return the line for who reads both tiers as one log."""
        return f"{self.text(tiers)}; its remote segments are left out"


def of_same_topics(
    tiers: Tiers, local: pa.Table, remote: pa.Table
) -> tuple[pa.Table, tuple[OtherTopic, ...]]:
    """Return the remote rows without those of other topics, and those that have no common id.

    Rows of a topic that was deleted and created again are left out, if the local tier has another
    one of its name. CatalogError if a topic id has two names: these are not of one cluster.
    """
    ids, remote_ids = topic_ids_of(local), topic_ids_of(remote)
    in_both = sorted(ids.keys() & remote_ids.keys())
    left_out = {(name, one) for name in in_both for one in remote_ids[name] - ids[name]}
    others = tuple(
        OtherTopic(name, *(", ".join(sorted(of[name])) for of in (ids, remote_ids)))
        for name in in_both
        if ids[name].isdisjoint(remote_ids[name])
    )
    same = remote_ids.keys() - {one.name for one in others}
    if problem := _two_names(ids, {name: remote_ids[name] for name in same}):
        places = (tier.catalog.location.uri for tier in tiers)
        raise CatalogError(f"{' and '.join(places)}: {problem}")
    if left_out:
        pairs = zip(remote["topic"].to_pylist(), remote["topic_id"].to_pylist(), strict=True)
        remote = remote.filter(pa.array([pair not in left_out for pair in pairs], pa.bool_()))
    return remote, others


def _is_remote(tier: CatalogSnapshot) -> bool:
    return tier.snapshot.layout != LOG_DIRECTORIES


def topic_ids_of(rows: pa.Table) -> dict[str, set[str]]:
    """Return the known topic ids in rows, by the topic's name."""
    known = rows.select(["topic", "topic_id"]).drop_null()
    found: dict[str, set[str]] = {}
    for row in known.group_by(["topic", "topic_id"]).aggregate([]).to_pylist():
        found.setdefault(row["topic"], set()).add(row["topic_id"])
    return found


def _two_names(local: TopicIds, remote: TopicIds) -> str | None:
    """Return a line if an id is of two names, None if not: an id is of one topic in one cluster."""
    names = {topic_id: name for name, known in local.items() for topic_id in known}
    for name, known in sorted(remote.items()):
        for topic_id in sorted(known):
            if names.get(topic_id, name) != name:
                return (
                    f"topic id {topic_id}: topic {names[topic_id]} in the local tier, {name} in "
                    "the remote tier; expected the same name, give the catalogs of one cluster"
                )
    return None


def united(local: pa.Table, remote: pa.Table) -> pa.Table:
    """Return the rows of both tiers with the columns ADDED.

    They are in order, local ones first. Both have the columns OF_UNION. The remote segments of a
    partition are repeated for each of its local replicas, with the replica's `log_dir`. What is
    read of each is judged by this replica and the remote tier.
    """
    local, remote = _placed(local), _of_replicas(local, _placed(remote))
    rows = pa.concat_tables([local, remote])
    is_remote = np.arange(rows.num_rows) >= local.num_rows
    rows = rows.append_column(IS_REMOTE, pa.array(is_remote))
    order = order_of(rows, rows[IS_REMOTE])
    rows = with_remote_tier(rows.take(pa.array(order))).combine_chunks()
    latest, knows_epochs = _latest_epochs(rows["leader_epochs"].combine_chunks())
    is_same, is_different = _compared(rows, latest)
    runs = runs_of(rows, PARTITION)
    doubtful = np.unique(runs[~knows_epochs & ~_are(rows, SegmentStatus.EMPTY)])
    is_outside_log = is_outside(rows).to_numpy()
    is_covered = rows[IS_UNREAD].to_numpy() & ~is_outside_log & ~is_different
    is_copy = is_same | (is_covered & ~np.isin(runs, doubtful))
    rows = rows.append_column(IS_COPY, pa.array(is_copy))
    rows = rows.append_column(IS_DIFFERENT, pa.array(is_different))
    return rows.append_column(LATEST_EPOCH, pa.array(latest, mask=latest == UNKNOWN_FIGURE))


def _compared(rows: pa.Table, latest: Int64s) -> tuple[Mask, Mask]:
    is_empty = pc.equal(rows["status"], SegmentStatus.EMPTY.value)
    ends = pc.if_else(is_empty, rows["base_offset"], pc.add(rows["last_offset"], 1))
    is_remote = rows[IS_REMOTE].to_numpy()
    is_whole = _are(rows, SegmentStatus.OK) | is_empty.to_numpy()
    columns = [pc.fill_null(rows[name], UNKNOWN_FIGURE).to_numpy() for name in COMPARED]
    segments = TierSegments(
        runs_of(rows, PARTITION),
        rows["base_offset"].to_numpy(),
        pc.fill_null(ends, UNKNOWN_END).to_numpy(),
        is_remote,
        is_whole | (_are(rows, SegmentStatus.TRUNCATED) & ~is_remote),
        np.stack([*columns, _magics_of(rows)], axis=1),
        latest,
    )
    return compared(segments)


def _are(rows: pa.Table, status: SegmentStatus) -> Mask:
    found: Mask = pc.equal(rows["status"], status.value).to_numpy()
    return found


def _latest_epochs(epochs: Any) -> tuple[Int64s, Mask]:
    """The latest leader epoch of each segment, and whether any is known."""
    counts = pc.fill_null(pc.list_value_length(epochs), 0).to_numpy()
    flat = np.append(pc.list_flatten(epochs).to_numpy().astype(np.int64), UNKNOWN_FIGURE)
    is_known = counts > 0
    return np.where(is_known, flat[np.cumsum(counts) - 1], UNKNOWN_FIGURE), is_known


def is_outside(rows: pa.Table) -> Any:
    """Return which segments of `united` rows have no record of the log, by their leader epochs."""
    return pc.fill_null(pc.less_equal(rows[OUTSIDE_FROM], rows["base_offset"]), False)


def _magics_of(rows: pa.Table) -> Int64s:
    """Return a number for the magics of each segment's batches, which no CRC covers."""
    texts = pc.binary_join(rows["magics"].combine_chunks().cast(pa.list_(pa.string())), ",")
    numbers = pc.dictionary_encode(texts).indices.cast(pa.int64())
    found: Int64s = pc.fill_null(numbers, UNKNOWN_FIGURE).to_numpy(zero_copy_only=False)
    return found


_HAS_NO_PLACE: Final = (
    pc.field("topic").is_null()
    | pc.field("partition").is_null()
    | pc.field("base_offset").is_null()
)


def _placed(rows: pa.Table) -> pa.Table:
    """Return the rows of segments: those whose place in a partition is known."""
    return rows.filter(~_HAS_NO_PLACE)


def _of_replicas(local: pa.Table, remote: pa.Table) -> pa.Table:
    """Return the remote rows, repeated for each local replica of the same topic.

    Rows without such a replica keep their own `log_dir`; where a local replica of another topic has
    it, too, their topic id is put after it. Without an id a log belongs to the only topic of its
    name, of several to none.
    """
    replicas: dict[tuple[str, int], list[tuple[str | None, str | None]]] = {}
    key = ["topic", "partition", "log_dir", "topic_id"]
    for row in local.group_by(key, use_threads=False).aggregate([]).to_pylist():
        one = row["log_dir"], row["topic_id"]
        replicas.setdefault((row["topic"], row["partition"]), []).append(one)
    names = [rows.select(["topic", "topic_id"]) for rows in (local, remote)]
    several = topics_with_several_ids(pa.concat_tables(names))
    runs = runs_of(remote, key)
    firsts = remote.select(key).take(pa.array(np.flatnonzero(np.diff(runs, prepend=-1))))
    log_dirs: list[list[str | None]] = []
    for row in firsts.to_pylist():
        topic, own, topic_id = row["topic"], row["log_dir"], row["topic_id"]
        of_partition = replicas.get((topic, row["partition"]), [])
        fits = (topic_id,) if topic in several else (topic_id, None)
        same = [
            log_dir
            for log_dir, known in of_partition
            if known in fits or (topic_id is None and topic not in several)
        ]
        if not same:
            is_taken = any(log_dir == own for log_dir, _ in of_partition)
            same = ["/".join(filter(None, (own, topic_id or "remote"))) if is_taken else own]
        log_dirs.append(same)
    of_rows = pa.array(log_dirs, pa.list_(pa.string())).take(pa.array(runs))
    rows = remote.take(pc.list_parent_indices(of_rows))
    return with_column(rows, "log_dir", pc.list_flatten(of_rows))
