"""What became of a segment's index files: the column `index_file` of the catalog.

The column is null where a file is missing or could not be written.
"""

from enum import StrEnum


class IndexFileState(StrEnum):
    """Who owns a segment's index files; each member is its own text.

    >>> IndexFileState.KEPT == "kept"
    True
    """

    WRITTEN = "written"  # we own the files, and they match the log
    KEPT = "kept"  # at least one file belongs to another program and was kept
    STALE = "stale"  # we own the files, but one does not match the log: the next build tries again
