"""The transactions of a segment, as far as the segment alone shows them.

A segment is scanned without knowing which transactions are open at its start. So a scan gives a
`TransactionSummary`: the entries of the `.txnindex` as if no transaction were open, and the data
that `rules.transaction_index` needs to complete them when the previous segment's transactions are
known.
"""

import json
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.rules.transactions import ABORT_COLUMNS


class TransactionSummary(NamedTuple):
    """The transactions of one segment.

    `aborts` has rows of ABORT_COLUMNS, in the log's order, as if no transaction were open at the
    start.
    """

    aborts: npt.NDArray[np.int64]
    first_ends: dict[int, int]  # offset of each producer's first marker
    open_at_end: dict[int, int]  # first offset of those that began here, by producer
    lowest: int | None  # first offset of all that began here

    def to_json(self) -> str:
        """Return it as text, for `from_json`."""
        pairs = [[*of_producer.items()] for of_producer in (self.first_ends, self.open_at_end)]
        return json.dumps([self.aborts.tolist(), *pairs, self.lowest])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the summary from the text of `to_json`."""
        aborts, first_ends, open_at_end, lowest = json.loads(text)
        rows = np.array(aborts, np.int64).reshape(-1, ABORT_COLUMNS)
        return cls(rows, dict(first_ends), dict(open_at_end), lowest)

    @property
    def changes_nothing(self) -> bool:
        """Return whether no transaction begins or ends in this segment."""
        return not self.first_ends and not self.open_at_end


NO_TRANSACTIONS: Final = TransactionSummary(np.empty((0, ABORT_COLUMNS), np.int64), {}, {}, None)
