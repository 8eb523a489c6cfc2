"""Rows of the newest snapshot that a build says nothing of, and therefore keeps.

A build of some topics has not looked at the others, and a directory that could not be listed today
may still hold what it held yesterday: their rows are carried over, never dropped.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import pyarrow as pa

from kip33.storage.catalog import Draft, Part, Snapshot
from kip33.storage.listing import segments_of
from kip33.storage.locations import Location
from kip33.storage.parts import publish_part


def matches(topic: str | None, topics: Sequence[str]) -> bool:
    """Return whether a topic is one of the globs; without globs, and where it is unknown, it is."""
    return not topics or topic is None or any(fnmatchcase(topic, glob) for glob in topics)


def unlistable_directories(source: Location, files: pa.Table) -> tuple[str, ...]:
    """Return the URIs, a slash at the end, of the directories that the listing could not enter."""
    rows = (segment for segment in segments_of(files.select(range(9))) if segment.error)
    return tuple(source.child(segment.path).uri + "/" for segment in rows)


def carry_over(
    draft: Draft,
    snapshot: Snapshot,
    *,
    topics: Sequence[str],
    unlistable: tuple[str, ...],
    first_number: int,
) -> Iterator[Part]:
    """Publish the rows of `snapshot` outside `topics` or below `unlistable`; yield their parts."""
    number = first_number
    for table in draft.catalog.read_parts(snapshot):
        columns = (table[name].to_pylist() for name in ("topic", "log_uri", "base_offset"))
        kept = [
            offset is not None and (not matches(topic, topics) or uri.startswith(unlistable))
            for topic, uri, offset in zip(*columns, strict=True)
        ]
        if any(kept):
            rows = table.filter(pa.array(kept, pa.bool_()))
            yield publish_part(draft.folder, number, rows)
            number += 1
