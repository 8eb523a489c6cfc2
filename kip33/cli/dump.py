"""`kip33 dump`: the contents of a log or an index file, wrong entries marked."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import click

from kip33.archive.common_options import ReadDialect
from kip33.cli.declared_options import option_of
from kip33.cli.options import format_option, max_batch_bytes_option, store_options
from kip33.cli.output import Output, RowList, iso_time, show
from kip33.cli.standard_output import shown_bytes, text_field
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
from kip33.formats.records import Record, control_type, iterate_records
from kip33.formats.scan import BatchScan, read_header_at
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexBytes,
    OffsetIndex,
    TimeIndex,
)
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.untrue_entries import untrue_entries
from kip33.rules.index_entries import DIALECTS
from kip33.stores.files import MOST_INDEX_BYTES, one_line, opened, read_index, read_whole
from kip33.stores.locations import Location

Row = dict[str, Any]
FLAGS = ((TRANSACTIONAL, "transactional"), (CONTROL, "control"), (DELETE_HORIZON, "delete-horizon"))
DUMP_COLUMNS = {
    "time_entry": (("entry", 8), ("timestamp", 20), ("time", 26), ("offset", 0)),
    "offset_entry": (("entry", 8), ("offset", 20), ("position", 0)),
    "aborted_transaction": (
        *(("entry", 8), ("producer_id", 20), ("first_offset", 20), ("last_offset", 20)),
        ("last_stable_offset", 0),
    ),
    "batch": (
        *(("position", 11), ("size_bytes", 11), ("base_offset", 12), ("last_offset", 12)),
        *(("records", 8), ("time", 26), ("timestamp_type", 16), ("magic", 6), ("codec", 8)),
        *(("producer_id", 12), ("flags", 0)),
    ),
    "record": (
        *(("", 11), ("offset", 23), ("time", 26), ("key_bytes", 10), ("value_bytes", 12)),
        *(("headers", 8), ("control", 0)),
    ),
    "record_payload": (
        *(("", 11), ("offset", 23), ("time", 26), ("headers", 8), ("control", 8)),
        *(("key", 30), ("value", 0)),
    ),
}


CSV_COLUMNS: Final = {  # by the ending of a file's name
    "timeindex": ("entry", "timestamp", "time", "offset"),
    "index": ("entry", "offset", "position"),
    "txnindex": ("entry", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    "log": (
        *("position", "size_bytes", "base_offset", "last_offset", "records", "max_timestamp"),
        *("time", "timestamp_type", "magic", "codec", "partition_leader_epoch", "producer_id"),
        *("producer_epoch", "base_sequence", "flags", "crc", "offset", "timestamp", "key_bytes"),
        *("value_bytes", "headers", "control", "key", "key_base64", "value", "value_base64"),
        "valid_bytes",
    ),
}
_REMARKS: Final = ("untrue", "entries", "note")


class ShownRecords(NamedTuple):
    """How records are shown; `payload` returns what is added for keys and values."""

    max_batch_bytes: int
    payload: Callable[[Record], Row] | None


@click.command(epilog="Example: kip33 dump orders-0/00000000000000000000.timeindex")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--records",
    is_flag=True,
    help="For a .log, also show the records; keys and values are shown as sizes.",
)
@click.option(
    "--payload",
    is_flag=True,
    help="With --records: also show keys and values. Those that are not UTF-8 are key_base64 and "
    "value_base64; a table cuts long ones.",
)
@max_batch_bytes_option
@option_of("dialect", ReadDialect)
@store_options
@format_option
def dump(
    files: tuple[str, ...],
    records: bool,
    payload: bool,
    max_batch_bytes: int,
    dialect: str,
    output_format: str,
) -> None:
    """Show each FILE, a .log or an index file, batch by batch or entry by entry.

    The base offset comes from the file's name. Entries of a .timeindex or .index are compared with
    the .log beside it, and wrong entries are marked with the reason. Without a .log only the order
    of entries is checked, and entries are marked from the first one that is out of order. Zeros at
    the end, as in a copy of a running broker's file, are counted but not shown.
    """
    if payload and not records:
        raise click.UsageError("--payload requires --records")
    is_table = output_format == "table"
    show_payload = (_shown_payload if is_table else _json_payload) if payload else None
    how = ShownRecords(max_batch_bytes, show_payload) if records else None
    counts: Counter[str] = Counter()

    def rows_of(name: str) -> Iterator[Row]:
        for row in _file_rows(name, how, dialect):
            counts[row["kind"]] += 1
            yield {"file": name, **row}

    kinds = [name.rpartition(".")[2] for name in files]
    columns = dict.fromkeys(column for kind in kinds for column in CSV_COLUMNS.get(kind, ()))
    rows = chain.from_iterable(map(rows_of, files))
    answer = Output(
        page=chain.from_iterable(_page(name, rows_of(name), len(files) > 1) for name in files),
        rows=[RowList("rows", rows, columns=["file", "kind", *columns, *_REMARKS])],
        summary={"files": len(files), "by_kind": counts},
        summary_key="summary",
    )
    show(answer, output_format)


def _file_rows(name: str, how: ShownRecords | None, dialect: str) -> Iterator[Row]:
    """Yield the rows of a file; an error names it."""
    location = Location.of(name)
    parsed = parse_segment_file(location.name)
    if parsed is None or parsed.kind not in CSV_COLUMNS:
        raise UnsupportedFormatError(
            f"{name}: kip33 cannot show this file; expected '<base "
            "offset>.timeindex', '.index', '.txnindex' or '.log'"
        )
    try:
        yield from _rows(location, parsed, how, dialect)
    except OSError as error:
        raise LocationError(f"{name}: cannot be read: {one_line(error)}") from error
    except Kip33Error as error:
        raise type(error)(f"{name}: {error}") from error


def _rows(
    location: Location, name: SegmentFile, how: ShownRecords | None, dialect: str
) -> Iterator[Row]:
    if name.kind == "log":
        return _log_rows(location, how)
    if name.kind == "txnindex":
        data = read_whole(location, most_bytes=MOST_INDEX_BYTES)
        return _transaction_rows(TransactionIndex.from_bytes(data, base_offset=name.base_offset))
    return _index_rows(location, name, dialect)


def _transaction_rows(index: TransactionIndex) -> Iterator[Row]:
    for number, one in enumerate(index):
        yield {"kind": "aborted_transaction", "entry": number, **one._asdict()}


def _log_rows(location: Location, how: ShownRecords | None) -> Iterator[Row]:
    """Yield the batches, with their records unless `how` is None."""
    with (
        opened(location) as (read_into, size_bytes),
        location.filesystem().open_input_file(location.path) as file,
    ):
        scan = BatchScan(read_into, size_bytes)
        for batches in scan:
            for position in batches["position"].tolist():
                header = read_header_at(read_into, position)
                yield _batch_row(header)
                if how is not None:
                    file.seek(position)
                    yield from _record_rows(file, header, how)
        for kind, note in (("damage", scan.damage), ("load_failure", scan.load_failure)):
            if note:
                yield {"kind": kind, "valid_bytes": scan.valid_bytes, "note": note}


def _batch_row(header: BatchHeader) -> Row:
    flags = [name for bit, name in FLAGS if header.magic >= 2 and header.attributes & bit]
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


def _record_rows(file: SeekableBytes, header: BatchHeader, how: ShownRecords) -> Iterator[Row]:
    is_control = header.magic >= 2 and header.attributes & CONTROL
    try:
        for record in iterate_records(
            file, position=header.position, max_batch_bytes=how.max_batch_bytes
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
            yield row | how.payload(record) if how.payload else row
    except (CorruptSegmentError, UnsupportedFormatError) as error:
        yield {"kind": "undecodable", "position": header.position, "note": str(error)}


def _json_payload(record: Record) -> Row:
    return dict((text_field("key", record.key), text_field("value", record.value)))


def _shown_payload(record: Record) -> Row:
    return {
        "kind": "record_payload",
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
    }


def _page(name: str, rows: Iterator[Row], is_named: bool) -> Iterator[str]:
    """Yield a line for each row of a file, after the headings of its kind."""
    if is_named:
        yield f"{name}:"
    shown = set()
    for row in rows:
        if "note" in row:
            what = row.get("entries", "")
            yield f"{row['kind']}: {what} {row['note']}".replace("  ", " ")
        else:
            columns = DUMP_COLUMNS[row["kind"]]
            if row["kind"] not in shown:
                shown.add(row["kind"])
                yield _line([title for title, _ in columns], columns)
            line = _line([_cell(row.get(title, "")) for title, _ in columns], columns)
            yield f"{line}  <- {row['untrue']}" if "untrue" in row else line


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else str(value)


def _line(cells: list[str], columns: tuple[tuple[str, int], ...]) -> str:
    padded = (cell.ljust(width) for cell, (_, width) in zip(cells, columns, strict=True))
    return "  ".join(padded).rstrip()


def _index_rows(location: Location, name: SegmentFile, dialect: str) -> Iterator[Row]:
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


def _entry_rows(index: TimeIndex | OffsetIndex) -> Iterator[Row]:
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
