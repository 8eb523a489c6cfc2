"""The figures with which KIP-33 compares its drafts, as formulas.

Source: KIP-33, the table of the first draft and the rejected alternatives. Its sizes are binary:
"3.4 GB" is 3.4 * 2^30 bytes.
"""

from typing import Final

from kip33.formats.draft_indexes import INLINE_ENTRY_BYTES
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

_DAY_MS: Final = 86_400_000
KIP_PARTITIONS: Final = 3_500  # of the broker in the KIP


def entries_per_day(granularity_ms: int) -> int:
    """Return the most entries of one day with one entry per second, minute or other period.

    >>> entries_per_day(1_000), entries_per_day(60_000)
    (86400, 1440)
    """
    return _DAY_MS // granularity_ms


def daily_memory_bytes(granularity_ms: int, partitions: int = KIP_PARTITIONS) -> int:
    """Return the memory for the entries of one day of many partitions.

    >>> round(daily_memory_bytes(1_000) / 2**30, 1), daily_memory_bytes(60_000) // 2**20
    (3.4, 57)
    """
    return entries_per_day(granularity_ms) * TIME_ENTRY_BYTES * partitions


def time_index_bytes(segment_bytes: int, index_interval_bytes: int) -> int:
    """Return the most bytes of a `.timeindex` with an entry for each interval.

    >>> time_index_bytes(2**30, 4096) // 2**20
    3
    """
    return segment_bytes // index_interval_bytes * TIME_ENTRY_BYTES


def inline_bytes(offset_index_bytes: int) -> int:
    """Return the size of an offset index after each entry gets a timestamp.

    >>> inline_bytes(16 * 2**30) // 2**30
    32
    """
    return offset_index_bytes // OFFSET_ENTRY_BYTES * INLINE_ENTRY_BYTES
