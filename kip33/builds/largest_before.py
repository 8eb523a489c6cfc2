"""The largest timestamp of the segments before each segment, for designs that depend on it.

The entries of such a design rise over the whole log (`IndexDesign.needs_largest_before`). So a
segment's file depends on its own log and on one number: the largest timestamp of the partition's
earlier segments.

- A row of the newest snapshot is reused only if this number is known and is the same as when the
  row was built. It is unknown behind a segment that must be read again, and may change if an
  earlier segment was dropped.
- For the segments to read, a first pass reads them to find their largest timestamps. So a build
  with such a design reads these logs twice.

A search does not depend on the number: with any number, each entry is true for its own segment. A
larger one leaves entries out, and then a search reads more.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING, Column, segments_of
from kip33.builds.build_options import BuildSpec
from kip33.builds.reuse import Int64s, Mask
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import with_column
from kip33.catalog.segment_order import KEY, largest_before
from kip33.formats.batch import NO_TIMESTAMP
from kip33.indexing.segment import index_file
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.stores.concurrently import map_in_order
from kip33.stores.progress import Phase

LARGEST_BEFORE: Final = "largest_before"  # a column of the files to read
_UNKNOWN: Final = 2**63 - 1  # above every timestamp but one, which is then unknown, too
_OF_ROWS: Final = [*KEY, "max_timestamp"]


class EarlierTimestamps(NamedTuple):
    """What the newest snapshot tells, in the order of the listing."""

    reusable: Mask
    largest_before: Int64s  # over the earlier segments that are reused


def earlier_timestamps(
    catalog: Catalog, newest: Snapshot, files: pa.Table, uris: Column, reusable: Mask
) -> EarlierTimestamps:
    """Return which of the reusable rows still have the right entries.

    `files` is a LISTING whose logs are at `uris`. CatalogError if the snapshot was damaged in
    between.
    """
    rows = pa.concat_tables(list(catalog.read_pieces(newest, _OF_ROWS)))
    row_largest = pc.fill_null(rows["max_timestamp"], NO_TIMESTAMP).to_numpy()
    built_with = largest_before(rows, row_largest)
    at = pc.index_in(uris, value_set=rows["log_uri"]).fill_null(-1).to_numpy().astype(np.int64)
    is_segment = pc.is_valid(files["base_offset"]).to_numpy()
    largest = np.where(reusable, row_largest[at], np.where(is_segment, _UNKNOWN, NO_TIMESTAMP))
    now = largest_before(files, largest)
    still = reusable & (now == built_with[at]) & (now != _UNKNOWN)
    of_reused = np.where(still, row_largest[at], NO_TIMESTAMP)
    return EarlierTimestamps(still, largest_before(files, of_reused))


def with_largest_before(build: BuildSpec, files: pa.Table, engine: Engine) -> tuple[pa.Table, int]:
    """Return the files to read with the right LARGEST_BEFORE, and how many bytes were read for it.

    In `files` the column has the number over the segments that are not read.
    """
    found = engine.run_on_bins(
        files, partial(largest_bin, build), work=Work(Phase.LARGEST_BEFORE, source=build.source)
    )
    by_path = {one.path: one.largest for one in found}
    largest = np.array([by_path[str(path)] for path in files["path"].to_pylist()], np.int64)
    of_read = largest_before(files, largest)
    of_reused: Any = files[LARGEST_BEFORE].to_numpy()
    files = with_column(files, LARGEST_BEFORE, pa.array(np.maximum(of_read, of_reused)))
    return files, sum(one.bytes_read for one in found)


class LargestTimestamp(NamedTuple):
    """The largest timestamp that the row of a log will have, -1 for none."""

    path: str
    largest: int
    bytes_read: int


def largest_bin(build: BuildSpec, number: int, files: pa.Table) -> Iterator[LargestTimestamp]:
    """Yield the largest timestamp of each log of one bin, which is the work of one task."""
    segments = segments_of(files.select(LISTING.names))
    run = partial(_largest, build)
    yield from map_in_order(
        build.source, segments, run, held_bytes=lambda segment: segment.size_bytes or 0
    )


def _largest(build: BuildSpec, segment: Segment) -> LargestTimestamp:
    if segment.error or segment.base_offset is None:
        return LargestTimestamp(segment.path, NO_TIMESTAMP, 0)
    index = index_file(
        segment.log(build.source),
        base_offset=segment.base_offset,
        topic=segment.topic or "",
        settings=build.of_topic(segment.topic).settings,
        native=True,
    )
    if index.status in (SegmentStatus.INVALID, *NOT_READ):
        return LargestTimestamp(segment.path, NO_TIMESTAMP, index.bytes_read)
    return LargestTimestamp(segment.path, int(index.summary["max_timestamp"]), index.bytes_read)
