"""KIP-33's migration rule: the time index of a closed segment whose records have no timestamps.

Kafka leaves such an index empty and uses the log file's modification time instead. The KIP wanted
one entry with that time in the index of each old segment, and an empty index for the last one. Its
texts name two offsets for the entry:

    next-base-offset   the next segment's base offset: all records were appended before that time.
                       The rule of the accepted text; `entry` is another name for it
    first-offset       the segment's own base offset: the segment is found for that time. The rule
                       of an earlier text

No release of Kafka writes such entries. The time is of a file, not of a record, so no search may
take it for one.
"""

from enum import StrEnum
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import MAX_INT32
from kip33.formats.time_index import TimeIndex

NO_ENTRY: Final = -1
OTHER_NAME: Final = "entry"  # the other name of NEXT_BASE_OFFSET
_Int64s = npt.NDArray[np.int64]


class Untimestamped(StrEnum):
    """What the index of a closed segment without timestamps has; each member is its own text."""

    NONE = "none"  # nothing, as in Kafka
    NEXT_BASE_OFFSET = "next-base-offset"
    FIRST_OFFSET = "first-offset"


RuleName: TypeAlias = Literal["none", "next-base-offset", "first-offset", "entry"]
"""The names in RULES."""
RULES: Final = (*(str(rule) for rule in Untimestamped), OTHER_NAME)


def rule_of(text: str) -> Untimestamped:
    """Return the rule of a name in RULES; ValueError for another.

    >>> rule_of("entry") is Untimestamped.NEXT_BASE_OFFSET
    True
    """
    if text not in RULES:
        raise ValueError(f"untimestamped {text!r}: expected one of {', '.join(RULES)}")
    return Untimestamped.NEXT_BASE_OFFSET if text == OTHER_NAME else Untimestamped(text)


def entry_offsets(
    rule: str, base_offsets: _Int64s, next_base_offsets: _Int64s, last_modified_ms: _Int64s
) -> _Int64s:
    """Return the offset of each segment's entry, NO_ENTRY if it has none.

    `next_base_offsets` is negative for the last segment of a partition. A file's time that is not
    positive gives no entry: brokers read entries of zeros as padding. Nor does an offset that is
    2^31 or more above the base.

    >>> bases, nexts, times = (np.array(x) for x in ([0, 40], [40, -1], [1000, 2000]))
    >>> entry_offsets("next-base-offset", bases, nexts, times).tolist()
    [40, -1]
    """
    offsets = base_offsets if rule == Untimestamped.FIRST_OFFSET else next_base_offsets
    is_given = (rule != Untimestamped.NONE) & (next_base_offsets >= 0) & (last_modified_ms > 0)
    is_in_range = (offsets >= base_offsets) & (offsets - base_offsets <= MAX_INT32)
    found: _Int64s = np.where(is_given & is_in_range, offsets, NO_ENTRY)
    return found


def entry_offset(
    rule: str, base_offset: int, next_base_offset: int | None, last_modified_ms: int | None
) -> int | None:
    """Return the offset of one segment's entry, None if it has none: see `entry_offsets`."""
    if rule == Untimestamped.NONE:
        return None
    next_base = NO_ENTRY if next_base_offset is None else next_base_offset
    columns = (np.array([value]) for value in (base_offset, next_base, last_modified_ms or 0))
    offset = int(entry_offsets(rule, *columns)[0])
    return None if offset == NO_ENTRY else offset


def index_of_file_time(last_modified_ms: int, offset: int, *, base_offset: int) -> bytes:
    """Return the bytes of a `.timeindex` with the one entry of a segment without timestamps.

    >>> index_of_file_time(1000, 42, base_offset=40).hex(" ", 4)
    '00000000 000003e8 00000002'
    """
    return TimeIndex.from_entries([(last_modified_ms, offset)], base_offset=base_offset).to_bytes()
