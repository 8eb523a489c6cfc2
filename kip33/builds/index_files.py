"""The columns of a catalog row that tell of its segment's index files."""

from typing import Any, Final

from kip33.builds.build_options import BuildSpec
from kip33.catalog.schema import SEGMENTS
from kip33.formats.index_kinds import IndexKind
from kip33.indexing.published_files import IndexPublisher, PublishedFiles
from kip33.rules.publication import Owner, state_together
from kip33.rules.segment_notes import SegmentNote

_IF_NOT_FLUSHED: Final = (
    "the snapshot is not committed: fix it and run the command again, or build with --no-fsync"
)
_COLUMNS: Final = {
    kind: [
        (column, what)
        for what in ("size_bytes", "modified_ms", "matches", "crc32c")
        if (column := f"{kind}_{what.removeprefix('size_')}") in SEGMENTS.names
    ]
    for kind in IndexKind
}
"""The columns of a kind's file, each with its field of PublishedFile."""


def publisher_of(build: BuildSpec) -> IndexPublisher:
    """Return who publishes the index files of a build."""
    return IndexPublisher(
        build.index_dir,
        in_place=build.in_place,
        others=Owner.REPLACED if build.overwrite else Owner.ANOTHERS,
        lists_puts=build.lists_puts,
        if_not_flushed=_IF_NOT_FLUSHED,
    )


def put_into(row: dict[str, Any], published: PublishedFiles) -> None:
    """Add to a catalog row what became of index files; it may have those of others already."""
    before = row.get("index_file")
    if published.states and (before or "index_file" not in row):
        states = (before, *published.states) if before else published.states
        row["index_file"] = state_together(states)
    row.setdefault("index_file", None)
    for kind, file in published.files.items():
        if row["index_file"] or kind is IndexKind.TRANSACTION:
            for column, field in _COLUMNS[kind]:
                row[column] = getattr(file, field)
    add_notes(row, *published.notes)
    add_problems(row, *published.problems)


def add_notes(row: dict[str, Any], *notes: SegmentNote) -> None:
    """Add notes to a catalog row."""
    if notes:
        row["notes"] = list(dict.fromkeys((*(row.get("notes") or ()), *notes)))


def add_problems(row: dict[str, Any], *problems: str) -> None:
    """Add to the `index_error` of a catalog row."""
    if problems:
        row["index_error"] = "; ".join(filter(None, (row.get("index_error"), *problems)))
