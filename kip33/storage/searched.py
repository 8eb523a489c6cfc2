"""What a search knows of a segment before it opens anything: one row of the catalog."""

from typing import NamedTuple

from kip33.rules.search import may_hold


class SearchedSegment(NamedTuple):
    """A catalog row, as search needs it."""

    log_uri: str
    base_offset: int
    last_offset: int | None
    size_bytes: int | None
    valid_bytes: int | None
    max_timestamp: int | None  # -1: no record has one; None: not known
    largest_timestamp: int | None  # Kafka's: the file's time where there is no timestamp
    status: str
    index_uri: str | None  # the .timeindex of the catalog
    # How a build left the index files there: an index file of another size or time is another one.
    time_index_bytes: int | None = None
    offset_index_bytes: int | None = None
    time_index_settings: str | None = None  # JSON; of one pass if equal to the other's
    offset_index_settings: str | None = None
    time_index_modified_ms: int | None = None
    offset_index_modified_ms: int | None = None

    @property
    def doubt(self) -> str | None:
        """Return the status where the log's batches count for nothing: they are not searched."""
        return self.status if self.status in ("invalid", "unreadable") else None

    @property
    def is_bare(self) -> bool:
        """Return whether it is known to have no batch."""
        return self.status == "empty" or 0 in (self.size_bytes, self.valid_bytes)

    def may_hold(self, target_ms: int) -> bool:
        """Return whether it is worth opening for a time."""
        return not self.doubt and not self.is_bare and may_hold(self.max_timestamp, target_ms)
