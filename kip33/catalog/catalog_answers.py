"""What one catalog, or the two of a cluster with tiered storage, tell: snapshots, segments, holes.

`source` is a snapshot of one catalog, or both tiers; `topics` are globs. PolicyError for a glob
that matches no topic, CatalogError if a part is damaged.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot, Warn, warn_caller
from kip33.catalog.holes import in_order, read_holes
from kip33.catalog.logs import IS_REMOTE, UNTIL
from kip33.catalog.schema import PARTS, chosen
from kip33.catalog.segment_order import PARTITION, joined
from kip33.catalog.tier_findings import OF_FINDINGS, TierComparison, compare_tiers, holes_of_log
from kip33.catalog.tiers import IS_COPY, IS_DIFFERENT, CatalogSnapshot, Tiers
from kip33.rules.policies import Policies, TopicGlobs, require_topics

TIER: Final = "tier"
TIER_COLUMNS: Final = (TIER, IS_COPY, IS_DIFFERENT, UNTIL)
"""What segments of two tiers have, too: `local` or `remote`, and columns of `Tiers.rows`."""

_NEEDED: Final = ("status", *PARTITION, "base_offset", "log_uri")
_ORDER: Final = (*PARTITION, "base_offset", IS_REMOTE, "log_uri")


def undamaged_snapshots(catalog: Catalog, warn: Warn = warn_caller) -> list[Snapshot]:
    """Return the snapshots that are not damaged, newest first; `warn` gets a line on each other."""
    found = list(catalog.candidates())
    for one in found:
        if one.problem:
            warn(f"{one.problem}; this snapshot is ignored")
    return [one.snapshot for one in found if one.snapshot and not one.problem]


def segments_of(
    source: CatalogSnapshot | Tiers,
    columns: Sequence[str],
    topics: Sequence[str] = (),
    statuses: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Yield these columns of segments in order; `statuses`: only of these, () all.

    Those of one catalog come a row group at a time. Those of two tiers are one table, with the
    columns TIER_COLUMNS.
    """
    names, chosen = list(columns), _chosen(source, topics)
    if isinstance(source, Tiers):
        tables = source.tables([*dict.fromkeys((*names, *_NEEDED))], chosen)
        rows = joined((_with_status(rows, statuses) for rows in tables), _ORDER)
        rows = rows.append_column(TIER, pc.if_else(rows[IS_REMOTE], "remote", "local"))
        yield rows.select([*names, *TIER_COLUMNS])
        return
    for rows in source.pieces([*dict.fromkeys((*names, "status"))], chosen):
        yield _with_status(rows, statuses).select(names)


def segment_table(
    source: CatalogSnapshot | Tiers,
    columns: Sequence[str] | None,
    topics: Sequence[str] = (),
    statuses: Sequence[str] = (),
) -> pa.Table:
    """Return what `segments_of` yields as one table; None: all columns. ValueError for another."""
    names = chosen(PARTS, columns).names
    tables = list(segments_of(source, names, topics, statuses))
    return pa.concat_tables(tables) if tables else PARTS.empty_table().select(list(names))


def holes_in(
    source: CatalogSnapshot | Tiers, topics: Sequence[str] = (), policies: Policies | None = None
) -> pa.Table:
    """Return the missing offsets as HOLES, of two tiers those of the logs that both make up.

    `policies` say which topics are compacted.
    """
    chosen = _chosen(source, topics)
    if isinstance(source, Tiers):
        tables = source.tables(OF_FINDINGS, chosen)
        return in_order(holes_of_log(rows, policies) for rows in tables)
    return read_holes(*source, topics, policies=policies)


def tiers_compared(
    tiers: Tiers, topics: Sequence[str] = (), policies: Policies | None = None
) -> TierComparison:
    """Return what two tiers have, and what is wrong between them."""
    return compare_tiers(tiers, policies, _chosen(tiers, topics))


def _chosen(source: CatalogSnapshot | Tiers, globs: Sequence[str]) -> list[str] | None:
    """Return the topics that match, None for all of them."""
    if not globs:
        return None
    names = source.topics()
    require_topics(globs, names)
    return [*filter(TopicGlobs.of(globs).matches, names)]


def _with_status(rows: pa.Table, statuses: Sequence[str]) -> pa.Table:
    if not statuses:
        return rows
    return rows.filter(pc.is_in(rows["status"], value_set=pa.array(statuses)))
