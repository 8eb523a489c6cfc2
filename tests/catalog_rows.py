"""Rows of a catalog for segments on disk, as a search, a lag or a failover takes them."""

import json
from collections.abc import Iterable
from typing import Any

from kip33.storage.publishing import WRITTEN
from kip33.storage.searched import SearchedSegment


def catalog_rows(
    segments: Iterable[SearchedSegment], *, log_dir: str = "broker-1"
) -> list[dict[str, Any]]:
    """Return a replica's rows: the dialect as build settings, where a build wrote the index."""
    rows = []
    for segment in segments:
        row = segment._asdict()
        dialect = row.pop("dialect")
        settings = json.dumps({"dialect": dialect}) if dialect else None
        rows.append(
            row
            | {"log_dir": log_dir, "build_settings": settings}
            | {"index_file": WRITTEN if dialect else None}
        )
    return rows
