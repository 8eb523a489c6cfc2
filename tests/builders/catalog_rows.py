"""Rows of a catalog for segments on disk, as a search, a lag or a failover takes them."""

from collections.abc import Iterable
from typing import Any

from kip33.search.searched_segment import SearchedSegment


def catalog_rows(
    segments: Iterable[SearchedSegment], *, log_dir: str = "broker-1"
) -> list[dict[str, Any]]:
    """Return a replica's rows."""
    return [segment._asdict() | {"log_dir": log_dir} for segment in segments]
