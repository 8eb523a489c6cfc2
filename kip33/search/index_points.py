"""The position in a log that its `.index` gives for an offset.

An `.index` is not trusted: the batch at the position must be one that a walk to the offset may
begin with. Otherwise the walk begins at the start of the log.
"""

from kip33.errors import CorruptIndexError, FileReadError
from kip33.formats.index_pages import IndexPages, last_point
from kip33.search.log_window import LogWindow


def checked_position(
    window: LogWindow, offsets: IndexPages, *, base_offset: int, offset: int
) -> int:
    """Return a position from which a walk reaches an offset: that of an index point, or 0.

    The batch at an index point must begin at or before the offset, and not before the segment.
    """
    try:
        slot = last_point(offsets, offset - base_offset)
        position = offsets[slot][1] if slot >= 0 else 0
    except (FileReadError, CorruptIndexError):
        return 0
    if not 0 < position < window.end:
        return 0
    damage = window.damage
    first = next(window.headers(position), None)
    window.damage = damage  # not of the log: the index gave a wrong position
    return position if first and base_offset <= first.base_offset <= offset else 0
