"""Catalog rows for segments on disk, in the form that search, lag and failover need."""

from collections.abc import Iterable
from typing import Any

from kip33.search.searched_segment import SearchedSegment


def catalog_rows(
    segments: Iterable[SearchedSegment], *, log_dir: str = "broker-1"
) -> list[dict[str, Any]]:
    """Return a replica's rows."""
    return [segment._asdict() | {"log_dir": log_dir} for segment in segments]
