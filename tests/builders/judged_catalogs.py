"""A snapshot that is judged with all of its rows at once."""

import pyarrow as pa

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.partitions import partitions
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import in_order
from kip33.retention.evaluation import JudgedRows, RetentionRequest, judge_rows


def judged_at_once(
    catalog: Catalog, request: RetentionRequest, snapshot: Snapshot | None = None
) -> JudgedRows:
    chosen = snapshot or catalog.require_newest()
    rows = partitions(catalog, chosen, SEGMENTS.names, request.topics)
    return judge_rows(pa.concat_tables(rows), request)


def judged_of(rows: list[dict[str, object]], request: RetentionRequest) -> JudgedRows:
    """Judge rows of SEGMENTS in any order."""
    return judge_rows(in_order(pa.Table.from_pylist(rows, schema=SEGMENTS)), request)
