"""Where a search begins in a log: a place that the indexes name and the batches there confirm."""

from typing import Final

from kip33.errors import CorruptIndexError
from kip33.formats.batch import BatchHeader
from kip33.rules.search import bears_out, reach_of
from kip33.search.index_lookup import IndexLookup, Start
from kip33.search.log_window import LogWindow

_NO_LIMIT: Final = 2**63 - 1


class ProvenStarts:
    """The starts that a segment's indexes name, each compared with the log before it is used."""

    def __init__(self, log: LogWindow, indexes: IndexLookup, base_offset: int) -> None:
        """Take an open log and its indexes."""
        self._log, self._indexes, self._base_offset = log, indexes, base_offset
        self._is_index_true: bool | None = None

    def start(self, target_ms: int, resume: tuple[int, int]) -> tuple[int, int]:
        """Return a position to begin, and an offset before which no record is late enough."""
        indexes, end = self._indexes, self._log.end
        starts = indexes.starts_for(target_ms, end)
        upper = indexes.upper_start_for(target_ms, end)
        nearest = max(resume[0], min((start.position for start in starts), default=0))
        is_far = upper is not None and upper.position - nearest > indexes.proof_bytes
        begin = resume
        for start in starts:
            if start.position <= resume[0] and not is_far:
                break
            if self._is_confirmed(start, target_ms):
                begin = max(begin, (start.position, start.first_offset))
                break
        else:
            if starts:
                indexes.distrust("the batches at its position do not match it")
                return resume
        if upper is None or upper.position <= begin[0]:
            return begin
        if is_far:
            if self._are_all_confirmed() and self._is_confirmed(upper, target_ms):
                return upper.position, upper.first_offset
            indexes.distrust("the batches at its position do not match it")
            return begin
        self._log.expect(upper.position - begin[0] + (upper.expected_bytes or 0))
        return begin

    def _are_all_confirmed(self) -> bool:
        """Return whether every entry of the time index is true."""
        if self._is_index_true is None:
            try:
                starts = self._indexes.all_starts(self._log.end)
                self._is_index_true = all(
                    start is not None and self._is_confirmed(start, _NO_LIMIT) for start in starts
                )
            except CorruptIndexError:
                self._is_index_true = False
        return self._is_index_true

    def _is_confirmed(self, start: Start, target_ms: int) -> bool:
        reach = reach_of(start.claim)
        headers: list[BatchHeader] = []
        rest = self._log.end - start.position
        self._log.expect(rest if start.expected_bytes is None else start.expected_bytes)
        damage = self._log.damage
        for header in self._log.headers(start.position):
            headers.append(header)
            if header.last_offset >= reach:
                break
            if header.max_timestamp > start.claim.entry.timestamp:
                return False
        else:
            self._log.damage = damage  # of a place that an index made up
            return False
        if start.is_exact and headers[0].last_offset != start.last_offset:
            return False
        within = headers[0].base_offset >= self._base_offset
        return within and bears_out(headers, start.claim, target_ms)
