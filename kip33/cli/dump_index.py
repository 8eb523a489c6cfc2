"""The entries of an index file for `kip33 dump`, with wrong ones marked."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kip33.cli.output import iso_time
from kip33.errors import CorruptIndexError
from kip33.formats.names import SegmentFile
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexBytes,
    OffsetIndex,
    TimeIndex,
)
from kip33.indexing.untrue_entries import untrue_entries
from kip33.rules.index_entries import DIALECTS
from kip33.stores.files import read_index
from kip33.stores.locations import Location

Row = dict[str, Any]


def index_rows(location: Location, name: SegmentFile, dialect: str) -> Iterator[Row]:
    """Return a row for each entry; a wrong one has the reason in `untrue`.

    Zeros at the end are counted, not shown. Raises CorruptIndexError for an incomplete entry.
    """
    data = read_index(location)
    index: TimeIndex | OffsetIndex
    if name.kind == "timeindex":
        entries, zeros = _entries(data, TIME_ENTRY_BYTES)
        index = TimeIndex.from_bytes(entries, base_offset=name.base_offset)
    else:
        entries, zeros = _entries(data, OFFSET_ENTRY_BYTES)
        index = OffsetIndex.from_bytes(entries, base_offset=name.base_offset)
    log = location._replace(path=location.path.removesuffix(f".{name.kind}") + ".log")
    found = untrue_entries(index, log, next_offset=DIALECTS[dialect].next_offset)
    shown = len(index)
    while shown and found.why(shown - 1) and not any(index.entries[shown - 1].item()):
        shown -= 1
    for number, row in enumerate(islice(_rows(index), shown)):
        why = found.why(number)
        yield row | {"untrue": why} if why else row
    zeros += len(index) - shown
    if zeros:
        yield {"kind": "tail", "entries": zeros, "note": "entries of zeros follow"}
    if found.note:
        yield {"kind": "note", "note": found.note}


def _entries(data: IndexBytes, entry_bytes: int) -> tuple[bytes, int]:
    """Return the entries before the zeros at the end, and the number of zero entries."""
    if len(data) % entry_bytes:
        raise CorruptIndexError(f"{len(data)} bytes found, expected a multiple of {entry_bytes}")
    entries, zeros = data.entries(entry_bytes)
    if zeros:  # two zero entries are padding, one may be an entry
        entries, zeros = entries + bytes(entry_bytes), zeros - 1
    return entries, zeros


def _rows(index: TimeIndex | OffsetIndex) -> Iterator[Row]:
    if isinstance(index, TimeIndex):
        for number, entry in enumerate(index):
            yield {
                "kind": "time_entry",
                "entry": number,
                "timestamp": entry.timestamp,
                "time": iso_time(entry.timestamp),
                "offset": entry.offset,
            }
    else:
        for number, place in enumerate(index):
            yield {
                "kind": "offset_entry",
                "entry": number,
                "offset": place.offset,
                "position": place.position,
            }
