"""Facts of a snapshot that do not depend on retention: its evidence, what changed, its topics."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import MOST_COMMIT_BYTES, Catalog, Snapshot
from kip33.catalog.difference import SegmentChange, count_changes, difference
from kip33.catalog.topic_totals import TopicTotals
from kip33.report.facts import ChangedSegment, Changes, Evidence, TopicFacts
from kip33.stores.files import read_whole

MOST_TOPICS: Final = 30
MOST_CHANGED: Final = 12
_SIZES: Final = ("size_bytes_before", "size_bytes_after")
_WORTH_LISTING: Final = (SegmentChange.SHRUNK, SegmentChange.STATUS_CHANGED, SegmentChange.MODIFIED)


def evidence_of(catalog: Catalog, snapshot: Snapshot) -> Evidence:
    """Return the snapshot's name and the SHA-256 of its commit file.

    Raises CatalogError if the snapshot was removed meanwhile, OSError if the file is unreadable.
    """
    place = catalog.commit_place(snapshot.name)
    try:
        commit = read_whole(place, most_bytes=MOST_COMMIT_BYTES)
    except FileNotFoundError as error:
        raise catalog.removed(snapshot) from error
    sha256 = hashlib.sha256(commit).hexdigest()
    return Evidence(snapshot.name, snapshot.created_ms, snapshot.rows, place.uri, sha256)


def changes_since(catalog: Catalog, snapshot: Snapshot) -> Changes | None:
    """Return what changed since the complete snapshot before this one; None for the first.

    Raises CatalogError if a part of either is damaged.
    """
    before = _before(catalog, snapshot)
    if before is None:
        return None
    changed = difference(catalog, before, snapshot)
    has = _rows_by_change(changed)
    sizes = [pc.fill_null(changed[name], 0).to_numpy() for name in _SIZES]
    grown = sizes[1] - sizes[0]
    worth = np.logical_or.reduce([has[change] for change in _WORTH_LISTING])
    listed = changed.filter(pa.array(worth))
    counts = count_changes(changed)
    return Changes(
        before.name,
        before.created_ms,
        {str(change): count for change, count in counts.items()},
        {str(change): int(grown[has[change]].sum()) for change in counts},
        int(grown.sum()),
        tuple(
            ChangedSegment(
                row["log_uri"],
                tuple(row["changes"]),
                *(row[name] for name in _SIZES),
            )
            for row in listed.slice(0, MOST_CHANGED).to_pylist()
        ),
        max(0, listed.num_rows - MOST_CHANGED),
    )


def _before(catalog: Catalog, snapshot: Snapshot) -> Snapshot | None:
    found = (one.snapshot for one in catalog.candidates() if not one.problem)
    return next((one for one in found if one and one.sequence < snapshot.sequence), None)


def _rows_by_change(changed: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each change which rows of a difference have it."""
    lists: Any = changed["changes"].combine_chunks()
    names = pc.list_flatten(lists)
    parents = pc.list_parent_indices(lists).to_numpy()
    has = {}
    for change in SegmentChange:
        has[str(change)] = np.zeros(changed.num_rows, bool)
        has[str(change)][parents[np.asarray(pc.equal(names, str(change)))]] = True
    return has


def topic_facts(totals: Sequence[TopicTotals]) -> tuple[tuple[TopicFacts, ...], int, TopicFacts]:
    """Return the largest topics, the number of the others, and the sum of the others."""
    largest = sorted(totals, key=lambda one: (-one.log_bytes, one.topic))
    shown, others = largest[:MOST_TOPICS], largest[MOST_TOPICS:]
    return (
        tuple(_sum_of(one.topic or "?", [one]) for one in shown),
        len(others),
        _sum_of("others", others),
    )


def _sum_of(name: str, totals: Sequence[TopicTotals]) -> TopicFacts:
    not_ok: Counter[str] = Counter()
    for one in totals:
        not_ok.update(one.not_ok)
    return TopicFacts(
        name,
        sum(one.partitions for one in totals),
        sum(one.segments for one in totals),
        sum(one.log_bytes for one in totals),
        records_of(totals),
        min((one.first_timestamp for one in totals if one.first_timestamp >= 0), default=None),
        max((one.largest_timestamp for one in totals if one.largest_timestamp >= 0), default=None),
        dict(sorted(not_ok.items())),
    )


def records_of(totals: Sequence[TopicTotals]) -> int | None:
    """Return the number of records, None if those of a segment were not counted."""
    counts = [one.record_count for one in totals]
    return None if None in counts else sum(count or 0 for count in counts)
