"""What must not be deleted from brokers on the word of a catalog: the doubts that a plan has, too.

`--emit delete-records` deletes on a cluster what `--plan` deletes in an archive. So it leaves out
each partition of which a plan would leave out a segment, in any log directory, and says why.
"""

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog
from kip33.catalog.snapshot import Snapshot
from kip33.retention.judging import JudgedPartition
from kip33.retention.plan import Basis
from kip33.rules.retention import RetentionMode, RetentionReason


class DeletionDoubts(NamedTuple):
    """What a snapshot does not say for sure."""

    partitions: dict[tuple[str, int], str]  # why each of them is left out
    unlistable_uris: list[str]  # directories of which no topic is known: replicas may be there


def find_doubts(
    basis: Basis, judged_partitions: Iterable[JudgedPartition], catalog: Catalog, snapshot: Snapshot
) -> DeletionDoubts:
    """Return which partitions a plan would not take as far as they may expire.

    They are those of the snapshot that topics ask for, judged by `basis`.

    PlanError where the policies keep everything, or a topic that loses something has no
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
    """Return why a plan would stop before the last deletable segment, None if it would not."""
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
