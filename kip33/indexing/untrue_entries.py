"""The wrong entries of an index file, found by its log, or by the order of its entries alone.

Without a log only the order is known. Then the first entry that is out of order is reported, and
the entries after it are unknown.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import FileReadError
from kip33.formats.native import compiled, plain
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import OffsetIndex, TimeIndex
from kip33.rules.index_truth import OffsetIndexTruth, TimeIndexTruth
from kip33.stores.files import one_line, scanned, size_of
from kip33.stores.locations import Location

MOST_UNTRUE_NAMED: Final = 100_000  # entries of which a reason is kept
OUT_OF_ORDER: Final = "out of order after the entry before"
NO_FIRST: Final = "an index cannot begin with this entry"
UNTRUE: Final = "also wrong"
BEHIND: Final = "follows an entry that is out of order"


class UntrueEntries(NamedTuple):
    """Which entries are wrong, and why; `note` says what the answer is based on."""

    is_untrue: npt.NDArray[np.bool_]  # by number
    reasons: dict[int, str]  # by number, of the first MOST_UNTRUE_NAMED
    other_reason: str
    note: str | None = None

    def why(self, number: int) -> str | None:
        """Return why an entry is wrong, None if it is correct."""
        if not self.is_untrue[number]:
            return None
        return self.reasons.get(number, self.other_reason)


def untrue_entries(
    index: TimeIndex | OffsetIndex, log: Location, *, next_offset: bool
) -> UntrueEntries:
    """Return the wrong entries of an index; `next_offset`: read it in the kip33 dialect.

    A log that is missing or cannot be read is not an error: then the order decides.
    """
    try:
        if size_of(log) is None:
            return _by_order(index)
        return _by_log(index, log, next_offset)
    except FileReadError as error:
        note = f"{log.name} cannot be read ({one_line(error)}): only the order is checked"
        return _by_order(index)._replace(note=note)


def _by_order(index: TimeIndex | OffsetIndex) -> UntrueEntries:
    first = len(index.without_tail())
    is_untrue = np.arange(len(index)) >= first
    return UntrueEntries(is_untrue, {first: OUT_OF_ORDER if first else NO_FIRST}, BEHIND)


def _by_log(index: TimeIndex | OffsetIndex, log: Location, next_offset: bool) -> UntrueEntries:
    with scanned(log) as (read_into, size_bytes, view_at):
        is_time = isinstance(index, TimeIndex)
        scan = BatchScan(read_into, size_bytes, seek_max_record=is_time, view_at=view_at)
        speed = compiled if scan.native else plain
        hint = None
        if isinstance(index, TimeIndex):
            times = TimeIndexTruth(index.timestamps, index.offsets)
            for batches in scan:
                times.append(batches, speed)
            untrue = times.untrue(next_offset=next_offset, most_named=MOST_UNTRUE_NAMED)
            hint = times.other_dialect(next_offset=next_offset) if untrue else None
        else:
            places = OffsetIndexTruth(index.offsets, index.positions, base_offset=index.base_offset)
            for batches in scan:
                places.append(batches, speed)
            untrue = places.untrue(most_named=MOST_UNTRUE_NAMED)
        damage = scan.damage or scan.load_failure
    is_untrue = np.zeros(len(index), np.bool_)
    if untrue is None:
        return UntrueEntries(is_untrue, {}, UNTRUE)
    is_untrue[untrue.numbers] = True
    if damage:
        hint = f"{log.name}: {damage}; entries were compared with the batches before the damage"
    reasons = {number: why.removeprefix("but ") for number, why in untrue.reasons.items()}
    return UntrueEntries(is_untrue, reasons, UNTRUE, hint)
