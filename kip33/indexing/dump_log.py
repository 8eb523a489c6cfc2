"""What is in a log or an index file, row by row, as kafka-dump-log.sh shows it.

Wrong entries of an index are marked with the reason.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final, TypedDict, Unpack

from kip33.archive import common_options as common
from kip33.archive.bad_batches import DamagedBytes, WholeBatches
from kip33.errors import (
    CorruptIndexError,
    CorruptSegmentError,
    Kip33Error,
    LocationError,
    UnsupportedFormatError,
    counted,
)
from kip33.formats.batch import (
    CONTROL,
    DELETE_HORIZON,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from kip33.formats.byte_sources import SeekableBytes
from kip33.formats.names import SegmentFile, parse_segment_file
from kip33.formats.records import control_type, iterate_records
from kip33.formats.scan import read_header_at
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexBytes,
    OffsetIndex,
    TimeIndex,
)
from kip33.formats.times import iso_time
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.untrue_entries import untrue_entries
from kip33.options import Option, Path, takes
from kip33.rules.index_entries import DIALECTS
from kip33.stores.files import MOST_INDEX_BYTES, one_line, opened, read_index, read_whole
from kip33.stores.filesystem_option import place_on
from kip33.stores.locations import Location

DumpedRow = dict[str, Any]
_KINDS: Final = ("log", "timeindex", "index", "txnindex")  # endings of names
_FLAGS: Final = (
    *((TRANSACTIONAL, "transactional"), (CONTROL, "control"), (DELETE_HORIZON, "delete-horizon")),
)


class DumpOptions(TypedDict, total=False):
    """What is shown of a log, and how index files are read."""

    records: Annotated[
        bool,
        Option(
            "For a .log, also show the records; keys and values are shown as sizes.",
            python="For a `.log`, also the records, with the sizes of keys and values.",
        ),
    ]
    payload: Annotated[
        bool,
        Option(
            "With --records: also show keys and values. Those that are not UTF-8 are key_base64 "
            "and value_base64; a table cuts long ones.",
            python="With `records`: also their `key` and `value`, bytes or None.",
        ),
    ]
    max_batch_bytes: common.MaxBatchBytes
    dialect: common.ReadDialect


class DumpRequest(DumpOptions, total=False):
    """What a dump of a file is asked, with the settings of its store."""

    storage_options: common.StoreSettings
    filesystem: common.GivenFilesystem


@takes(DumpRequest)
def dump_log(file: Path, **options: Unpack[DumpRequest]) -> Iterator[DumpedRow]:
    """Yield what is in a log or index file, a dict for each batch, record or entry.

    >>> first, *others = dump_log("archive/broker-1/orders-0/00000000000000000000.log")
    >>> first["kind"], first["base_offset"], first["records"], len(others)
    ('batch', 0, 10, 399)

    - `file`: a path or URI. Its name has the base offset and the kind: `.log`, `.timeindex`,
      `.index` or `.txnindex`
    - `options`: see `DumpRequest`

    `kind` says what a row is: `batch`, `record`, `undecodable`, `damage`, `load_failure`;
    `time_entry`, `offset_entry`, `aborted_transaction`, `tail` (zeros at the end, which are only
    counted), `note`. The fields are those of `kip33 dump --format jsonl`. Entries of a `.timeindex`
    or `.index` are compared with the log beside it: a wrong one has the reason in `untrue`. Without
    a log only the order of entries is checked.

    Errors are raised while rows are read: UnsupportedFormatError for another file, LocationError
    for one that cannot be read, CorruptIndexError for an incomplete entry. ValueError for `payload`
    without `records`.
    """
    if options["payload"] and not options["records"]:
        raise ValueError("payload requires records")
    location = place_on(file, options["storage_options"], options["filesystem"])
    return _file_rows(f"{file}", location, options)


def _file_rows(name: str, location: Location, options: DumpOptions) -> Iterator[DumpedRow]:
    """Yield the rows of a file; an error names it."""
    parsed = parse_segment_file(location.name)
    if parsed is None or parsed.kind not in _KINDS:
        raise UnsupportedFormatError(
            f"{name}: kip33 cannot show this file; expected '<base "
            "offset>.timeindex', '.index', '.txnindex' or '.log'"
        )
    try:
        yield from _rows(location, parsed, options)
    except OSError as error:
        raise LocationError(f"{name}: cannot be read: {one_line(error)}") from error
    except Kip33Error as error:
        raise type(error)(f"{name}: {error}") from error


def _rows(location: Location, name: SegmentFile, options: DumpOptions) -> Iterator[DumpedRow]:
    if name.kind == "log":
        return _log_rows(location, options)
    if name.kind == "txnindex":
        data = read_whole(location, most_bytes=MOST_INDEX_BYTES)
        return _transaction_rows(TransactionIndex.from_bytes(data, base_offset=name.base_offset))
    return _index_rows(location, name, options["dialect"])


def _transaction_rows(index: TransactionIndex) -> Iterator[DumpedRow]:
    for number, one in enumerate(index):
        yield {"kind": "aborted_transaction", "entry": number, **one._asdict()}


def _log_rows(location: Location, options: DumpOptions) -> Iterator[DumpedRow]:
    """Yield the batches, with their records if these are asked for; also those behind damage."""
    with (
        opened(location) as (read_into, size_bytes),
        location.filesystem().open_input_file(location.path) as file,
    ):
        log = WholeBatches(read_into, size_bytes)
        for found in log:
            if isinstance(found, DamagedBytes):
                why = f"{log.scan.damage}; {found}"
                yield {"kind": "damage", "valid_bytes": log.valid_bytes, "note": why}
                continue
            for position in found["position"].tolist():
                header = read_header_at(read_into, position)
                yield _batch_row(header)
                if options["records"]:
                    file.seek(position)
                    yield from _record_rows(file, header, options)
        for kind, note in (("damage", log.scan.damage), ("load_failure", log.scan.load_failure)):
            if note:
                yield {"kind": kind, "valid_bytes": log.valid_bytes, "note": note}


def _batch_row(header: BatchHeader) -> DumpedRow:
    flags = [name for bit, name in _FLAGS if header.magic >= 2 and header.attributes & bit]
    return {
        "kind": "batch",
        "position": header.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count if header.records_count >= 0 else None,
        "max_timestamp": header.max_timestamp,
        "time": _time(header.max_timestamp),
        "timestamp_type": header.timestamp_type,
        "magic": header.magic,
        "codec": header.codec,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "flags": flags,
        "crc": f"{header.crc:08x}",
    }


def _time(timestamp: int) -> str | None:
    return None if timestamp == NO_TIMESTAMP else iso_time(timestamp)


def _record_rows(
    file: SeekableBytes, header: BatchHeader, options: DumpOptions
) -> Iterator[DumpedRow]:
    is_control = header.magic >= 2 and header.attributes & CONTROL
    try:
        for record in iterate_records(
            file, position=header.position, max_batch_bytes=options["max_batch_bytes"]
        ):
            row = {
                "kind": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "time": _time(record.timestamp),
                "key_bytes": None if record.key is None else len(record.key),
                "value_bytes": None if record.value is None else len(record.value),
                "headers": len(record.headers),
                "control": control_type(record.key) if is_control else None,
            }
            yield row | ({"key": record.key, "value": record.value} if options["payload"] else {})
    except (CorruptSegmentError, UnsupportedFormatError) as error:
        yield {"kind": "undecodable", "position": header.position, "note": str(error)}


def _index_rows(location: Location, name: SegmentFile, dialect: str) -> Iterator[DumpedRow]:
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
    for number, row in enumerate(islice(_entry_rows(index), shown)):
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
        raise CorruptIndexError(
            f"{counted(len(data), 'byte')} found, expected a multiple of {entry_bytes}"
        )
    entries, zeros = data.entries(entry_bytes)
    if zeros:  # two zero entries are padding, one may be an entry
        entries, zeros = entries + bytes(entry_bytes), zeros - 1
    return entries, zeros


def _entry_rows(index: TimeIndex | OffsetIndex) -> Iterator[DumpedRow]:
    if isinstance(index, TimeIndex):
        for number, entry in enumerate(index):
            yield {
                "kind": "time_entry",
                "entry": number,
                "timestamp": entry.timestamp,
                "time": _time(entry.timestamp),
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
