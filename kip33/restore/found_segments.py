"""The segments of a source, from a listing or from a catalog."""

from collections.abc import Iterator
from typing import NamedTuple

from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed
from kip33.archive.sources import matches, require_segments
from kip33.catalog.catalog import Catalog
from kip33.restore.restore_request import RestoreRequest
from kip33.rules.offset_holes import Extent
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.locations import Location

_COLUMNS = [
    *("log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms", "error"),
    *("topic_id", "status", "valid_bytes", "last_offset", "record_count", "max_timestamp"),
]


class FoundSegment(NamedTuple):
    """One segment; of a listing the fields from `valid_bytes` on are not known."""

    log: Location
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None  # None: a directory that cannot be listed
    size_bytes: int | None
    last_modified_ms: int | None
    error: str | None
    topic_id: str | None
    status: str = SegmentStatus.UNVERIFIED.value
    valid_bytes: int | None = None
    last_offset: int | None = None
    record_count: int | None = None
    max_timestamp: int | None = None  # -1: no batch has one

    @property
    def extent(self) -> Extent:
        """Return how much of the partition it has."""
        last_offset = self.base_offset if self.last_offset is None else self.last_offset
        return Extent.of(self.status, self.size_bytes, self.valid_bytes, last_offset)

    @property
    def problem(self) -> str | None:
        """Return why it cannot be restored wherever it is in its partition, as far as is known."""
        if self.base_offset is None or self.size_bytes is None:
            return self.error or "its size is not known"
        if self.status in (SegmentStatus.INVALID, SegmentStatus.UNREADABLE):
            return self.error or self.status
        return self.error if self.status == SegmentStatus.UNVERIFIED else None


def found_segments(
    request: RestoreRequest, on_listed: Listed | None = None
) -> Iterator[FoundSegment]:
    """Yield the segments of the topics that are asked for, in any order.

    Raises LocationError if there are no segments, CatalogError for a damaged catalog.
    """
    if request.catalog is None:
        return _listed(request, on_listed)
    return _catalogued(request)


def _listed(request: RestoreRequest, on_listed: Listed | None) -> Iterator[FoundSegment]:
    listing = require_segments(
        request.source, request.topics, layout=layout_of(request.layout), on_listed=on_listed
    )
    for one in listing.segments():
        log = one.log(request.source) if one.path else request.source
        is_known = not one.is_directory
        yield FoundSegment(
            *(log, one.log_dir, one.topic, one.partition, one.base_offset if is_known else None),
            *(one.size_bytes, one.last_modified_ms, one.error, one.topic_id),
        )


def _catalogued(request: RestoreRequest) -> Iterator[FoundSegment]:
    assert request.catalog is not None
    place, snapshot = request.catalog
    for piece in Catalog(place).read_pieces(snapshot, [*_COLUMNS, "log_uri"]):
        for row in piece.to_pylist():
            if matches(row["topic"], request.topics):
                fields = {name: row[name] for name in _COLUMNS}
                yield FoundSegment(log=Location.of(row["log_uri"]), **fields)
