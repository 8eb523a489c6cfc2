"""Partitions that `--emit delete-records` leaves out, for the reasons that apply to a plan.

`--emit delete-records` deletes on a cluster what `--plan` deletes in an archive. So it leaves out
each partition for which a plan would leave out a segment, in any log directory, and says why.
"""

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.retention.judging import JudgedPartition
from kip33.retention.plan import Basis
from kip33.rules.retention import RetentionMode, RetentionReason


class DeletionDoubts(NamedTuple):
    """Partitions and directories about which a snapshot is not certain."""

    partitions: dict[tuple[str, int], str]  # the reason why each is left out
    unlistable_uris: list[str]  # directories whose topics are unknown: they may contain replicas


def find_doubts(
    basis: Basis, judged_partitions: Iterable[JudgedPartition], catalog: Catalog, snapshot: Snapshot
) -> DeletionDoubts:
    """Return the partitions for which a plan would not contain all deletable segments.

    `judged_partitions` are the snapshot's partitions in the selected topics, judged by `basis`.

    Raises PlanError if the policies keep everything, or if a topic with deletable segments has no
    cleanup.policy; CatalogError for a damaged snapshot.
    """
    doubts: dict[tuple[str, int], str] = {}
    losing: set[str] = set()
    for judged in judged_partitions:
        if judged.limits.mode != RetentionMode.DELETE:
            continue
        why = _doubt(judged, trust_last_modified=basis.trust_last_modified)
        if why:
            doubts.setdefault((judged.topic, judged.partition), why)
        if judged.deletable_segments:
            losing.add(judged.topic)
    basis.require_policies(losing)
    return DeletionDoubts(doubts, _unlistable(catalog, snapshot))


def _doubt(judged: JudgedPartition, *, trust_last_modified: bool) -> str | None:
    """Return why a plan would stop before the last deletable segment; None if it would not."""
    if judged.first.base_offset is None:
        return f"{judged.first.log_uri} could not be listed, so segments may be missing"
    if judged.has(RetentionReason.TWO_DIRECTORIES):
        names = sorted({row.directory_uri for row in judged.rows})
        return f"{names[0]} and {names[1]} are directories of the same partition"
    whys = (
        judged.why_unplannable(row, trust_last_modified=trust_last_modified)
        for row, _ in judged.deletable()
    )
    return next(filter(None, whys), None)


def _unlistable(catalog: Catalog, snapshot: Snapshot) -> list[str]:
    found: list[str] = []
    for rows in catalog.read_pieces(snapshot, ["topic", "base_offset", "status", "log_uri"]):
        unknown = pc.and_(pc.is_null(rows["topic"]), pc.is_null(rows["base_offset"]))
        found += [str(uri) for uri in rows.filter(unknown)["log_uri"].to_pylist()]
    return sorted(found)
