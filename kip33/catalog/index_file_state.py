"""What became of a segment's index files: the column `index_file` of the catalog.

The column is null where a file is missing or could not be written.
"""

from enum import StrEnum
from typing import Final

from kip33.formats.draft_indexes import TIME_INDEX_FILE

# The columns with the sizes of a segment's index files, and what the names of the files end in.
INDEX_FILE_KINDS: Final = (
    ("time_index_bytes", TIME_INDEX_FILE),  # or a draft's: the file that the row names
    ("offset_index_bytes", "index"),
    ("transaction_index_bytes", "txnindex"),
    ("producer_snapshot_bytes", "snapshot"),
)


class IndexFileState(StrEnum):
    """Who owns a segment's index files; each member is its own text.

    >>> IndexFileState.KEPT == "kept"
    True
    """

    WRITTEN = "written"  # we own the files, and they match the log
    KEPT = "kept"  # at least one file belongs to another program and was kept
    STALE = "stale"  # we own the files, but one does not match the log: the next build tries again
