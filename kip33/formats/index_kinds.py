"""The kinds of index files that a segment may have, as a table.

    kind               file          a broker writes it again
    TIME               .timeindex    if it or the .index is missing
    OFFSET             .index        if it is missing
    TRANSACTION        .txnindex     only if the .index is missing

A `.timeindex` and an `.index` depend on their log only. A `.txnindex` depends on the transactions
that are open at the segment's start, so it needs a fold over the partition.
"""

from enum import StrEnum
from typing import Self

from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.formats.transaction_index import TRANSACTION_ENTRY_BYTES


class IndexKind(StrEnum):
    """A kind of index file; the names of its columns begin with its text: `time_index_bytes`."""

    file: str  # how the names of its files end; a build's time indexes may be of another design
    entry_bytes: int

    TIME = ("time_index", TIME_INDEX_FILE, TIME_ENTRY_BYTES)
    OFFSET = ("offset_index", "index", OFFSET_ENTRY_BYTES)
    TRANSACTION = ("transaction_index", "txnindex", TRANSACTION_ENTRY_BYTES)

    def __new__(cls, text: str, file: str, entry_bytes: int) -> Self:
        """Make a member from a row of the table."""
        kind = str.__new__(cls, text)
        kind._value_ = text
        kind.file, kind.entry_bytes = file, entry_bytes
        return kind

    @property
    def suffix(self) -> str:
        """Return the suffix of its files, with the dot."""
        return f".{self.file}"

    @property
    def verdict_field(self) -> str:
        """Return the field of a verdict on it, and of a printed row."""
        return "verdict" if self is IndexKind.TIME else f"{self}_verdict"

    @property
    def count_field(self) -> str:
        """Return the field of a summary with the verdicts on it."""
        return f"by_{self.verdict_field}"

    @property
    def gap_field(self) -> str | None:
        """Return the field with the largest gap; None: lookups do not depend on its entries."""
        fields = {
            IndexKind.TIME: "largest_gap_bytes",
            IndexKind.OFFSET: f"{self}_largest_gap_bytes",
        }
        return fields.get(self)
