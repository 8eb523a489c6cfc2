"""The timestamps that a broker would judge logs by: from the current files beside each log."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.archive.segment_paths import beside
from kip33.errors import is_of_the_machine
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.rules.broker_start import (
    BrokerTimestampSource,
    BrokerView,
    IndexFault,
    broker_view,
    last_entry_at,
)
from kip33.stores.files import has_text_name, modified_ns, opened
from kip33.stores.locations import Location


class SeenByBroker(NamedTuple):
    """The timestamp by which a broker judges a log; None if that is unknown."""

    log_uri: str
    broker_largest_timestamp: int | None
    broker_largest_timestamp_source: BrokerTimestampSource | None
    broker_index_fault: IndexFault | None


_FIELDS: list["pa.Field[Any]"] = [
    pa.field("broker_largest_timestamp", pa.int64()),
    pa.field("broker_largest_timestamp_source", pa.string()),
    pa.field("broker_index_fault", pa.string()),
]
SEEN: Final = pa.schema(_FIELDS)
"""The fields of `SeenByBroker` as columns, but for the log."""


def seen_by_broker(rows: Iterable[tuple[str, int | None]]) -> Iterator[SeenByBroker]:
    """Yield what a broker would read from the files beside each log.

    A row has the log's URI and the largest timestamp of its records, None if a broker would not
    keep the segment or the log was not read. A directory is listed once if its rows are adjacent.
    Only the last 12 bytes of each `.timeindex` are read. A file that cannot be read is a fault, not
    an exception.
    """
    listed: Location | None = None
    infos: dict[str, fs.FileInfo] | None = None  # None: the directory cannot be listed
    for log_uri, max_timestamp in rows:
        log = Location.of(log_uri)
        try:
            if log.parent != listed:
                listed, infos = log.parent, None
                selector = fs.FileSelector(listed.path)
                entries = log.filesystem().get_file_info(selector)
                infos = {info.base_name: info for info in entries if has_text_name(info)}
            view = None if infos is None else _view(log, infos, max_timestamp)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            view = None
        yield SeenByBroker(log_uri, *(view or (None, None, IndexFault.UNREADABLE)))


def _view(
    log: Location, infos: dict[str, fs.FileInfo], max_timestamp: int | None
) -> BrokerView | None:
    if log.inside:
        return None  # a broker does not open such a file
    index_place = beside(log, "timeindex")
    info, time_index = infos.get(log.name), infos.get(index_place.name)
    has_offset_index = beside(log, "index").name in infos
    time_ns = modified_ns(info, log) if info else None
    if time_ns is None or (max_timestamp is None and not has_offset_index):
        return None  # the log was deleted, or the result of its recovery is unknown
    size = time_index.size if time_index else None
    return broker_view(
        time_index_bytes=size,
        last_entry=_last_entry(index_place, size or 0),
        has_offset_index=has_offset_index,
        max_timestamp=-1 if max_timestamp is None else max_timestamp,
        last_modified_ms=time_ns // 1_000_000,
    )


def _last_entry(time_index: Location, size_bytes: int) -> bytes:
    at = last_entry_at(size_bytes)
    if at is None:
        return b""
    entry = bytearray(TIME_ENTRY_BYTES)
    with opened(time_index) as (read_into, _):
        if read_into(at, memoryview(entry)) != TIME_ENTRY_BYTES:
            raise OSError(f"{time_index.uri}: the file is shorter than when it was listed")
    return bytes(entry)
