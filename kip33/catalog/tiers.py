"""The catalogs of a cluster's local and remote tier, put together.

With tiered storage a partition lives twice: its closed segments in a bucket, the newest ones and
the active one on the brokers' disks. `Tiers` gives the rows of both where `CatalogSnapshot` gives
those of one catalog.

Topics are matched by topic id, and by name where one side has no id.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import matching
from kip33.catalog.schema import PARTS
from kip33.errors import CatalogError
from kip33.rules.segment_summary import SegmentStatus

LOG_DIRECTORIES: Final = "kafka"
"""The layout of brokers' log directories, the local tier; all others are of a remote tier."""

TopicIds: TypeAlias = Mapping[str, Collection[str]]
"""The known ids of each topic, by its name."""

PartitionOffsets: TypeAlias = dict[tuple[str, int], int]
"""Offsets by topic and partition."""

OF_REMOTE_OFFSETS: Final = ("topic", "partition", "last_offset", "status")
"""The columns that `highest_remote_offsets` needs."""


class CatalogSnapshot(NamedTuple):
    """A snapshot and its catalog, whose rows are read."""

    catalog: Catalog
    snapshot: Snapshot

    def rows(self, columns: Sequence[str], topics: Collection[str] | None = None) -> pa.Table:
        """Return the rows of some topics, None: of all; CatalogError if a part is damaged."""
        pieces = list(self.catalog.read_pieces(self.snapshot, list(columns)))
        if topics is not None:
            wanted = pa.array(sorted(topics), pa.string())
            pieces = [piece.filter(pc.is_in(piece["topic"], wanted)) for piece in pieces]
        return pa.concat_tables([PARTS.empty_table().select(list(columns)), *pieces])


class Tiers(NamedTuple):
    """The snapshots of a cluster's local tier and of its remote tier."""

    local: CatalogSnapshot
    remote: CatalogSnapshot

    @classmethod
    def of(cls, one: CatalogSnapshot, other: CatalogSnapshot) -> Self:
        """Return two snapshots, given in any order, as tiers.

        The layout of a snapshot says which tier it is. CatalogError if both are of one kind.
        """
        tiers = sorted((one, other), key=_is_remote)
        kinds = [_is_remote(tier) for tier in tiers]
        if kinds == [False, True]:
            return cls(*tiers)
        places = " and ".join(
            f"{tier.catalog.location.uri} (layout {tier.snapshot.layout})" for tier in (one, other)
        )
        raise CatalogError(
            f"{places}: two catalogs of {'the remote' if kinds[0] else 'the local'} tier found, "
            f"expected one of log directories (layout {LOG_DIRECTORIES}) and one of a bucket"
        )

    def read(self, columns: Sequence[str], topics: Sequence[str] = ()) -> tuple[pa.Table, pa.Table]:
        """Return the rows of the local tier, and those of the same topics in the remote tier.

        `topics` are globs. `columns` have `topic` and `topic_id`. Remote rows of a topic that was
        deleted and created again are left out, if the local tier has another one of its name.
        CatalogError if the tiers have different topics of one name, or a part is damaged.
        """
        local, remote = (matching(tier.rows(columns), topics) for tier in self)
        return local, self.of_same_topics(local, remote)

    def of_same_topics(self, local: pa.Table, remote: pa.Table) -> pa.Table:
        """Return the remote rows without those of other topics; errors as `read`."""
        ids, remote_ids = topic_ids_of(local), topic_ids_of(remote)
        if problem := mismatch(ids, remote_ids):
            places = (tier.catalog.location.uri for tier in self)
            raise CatalogError(f"{' and '.join(places)}: {problem}")
        other = {
            (name, topic_id)
            for name, known in remote_ids.items()
            for topic_id in set(known).difference(ids.get(name) or known)
        }
        if not other:
            return remote
        pairs = zip(remote["topic"].to_pylist(), remote["topic_id"].to_pylist(), strict=True)
        return remote.filter(pa.array([pair not in other for pair in pairs], pa.bool_()))


def _is_remote(tier: CatalogSnapshot) -> bool:
    return tier.snapshot.layout != LOG_DIRECTORIES


def topic_ids_of(rows: pa.Table) -> dict[str, set[str]]:
    """Return the known topic ids in rows, by the topic's name."""
    known = rows.select(["topic", "topic_id"]).drop_null()
    found: dict[str, set[str]] = {}
    for row in known.group_by(["topic", "topic_id"]).aggregate([]).to_pylist():
        found.setdefault(row["topic"], set()).add(row["topic_id"])
    return found


def mismatch(local: TopicIds, remote: TopicIds) -> str | None:
    """Return why two tiers are not of one cluster, None if their topics match.

    A tier may have several ids of one name: topics that were deleted and created again.

    >>> mismatch({"orders": {"A"}}, {"orders": {"A", "B"}, "clicks": {"C"}}) is None
    True
    >>> mismatch({"orders": {"A"}}, {"orders": {"B"}})
    'topic orders: topic id A in the local tier, B in the remote tier; expected the same topic, \
give the catalogs of one cluster'
    """
    for name in sorted(local.keys() & remote.keys()):
        if local[name] and remote[name] and set(local[name]).isdisjoint(remote[name]):
            ids, others = (", ".join(sorted(tier[name])) for tier in (local, remote))
            return (
                f"topic {name}: topic id {ids} in the local tier, {others} in the remote tier; "
                "expected the same topic, give the catalogs of one cluster"
            )
    names = {topic_id: name for name, known in local.items() for topic_id in known}
    for name, known in sorted(remote.items()):
        for topic_id in sorted(known):
            if names.get(topic_id, name) != name:
                return (
                    f"topic id {topic_id}: topic {names[topic_id]} in the local tier, {name} in "
                    "the remote tier; expected the same name, give the catalogs of one cluster"
                )
    return None


def highest_remote_offsets(remote: pa.Table) -> PartitionOffsets:
    """Return the highest offset in the remote tier of each partition that has one.

    `remote` has the columns OF_REMOTE_OFFSETS. Only whole segments count: a damaged or unreadable
    row, or one whose log was not read, proves nothing.
    """
    whole = remote.filter(pc.equal(remote["status"], SegmentStatus.OK.value))
    whole = whole.select(list(OF_REMOTE_OFFSETS)).drop_null()
    ends = whole.group_by(["topic", "partition"]).aggregate([("last_offset", "max")])
    return {(row["topic"], row["partition"]): row["last_offset_max"] for row in ends.to_pylist()}
