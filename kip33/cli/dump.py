"""`kip33 dump`: the contents of a log or an index file, wrong entries marked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import click

from kip33.cli.declared_options import options_of
from kip33.cli.output import Output, Row, RowList
from kip33.cli.runs import CommandRun, runs
from kip33.cli.standard_output import shown_bytes
from kip33.cli.tables import left_out_text, line_width
from kip33.formats.printed_fields import text_field
from kip33.indexing.dump_log import DumpOptions, dump_log


class _Field(NamedTuple):
    """A column of lines: its heading, its width, and its rank, as that of `Column`."""

    heading: str
    width: int
    rank: int = 0


_TIME: Final = _Field("time", 24)
_OFFSET: Final = _Field("offset", 12)
_VALUE: Final = _Field("value", 20)  # is cut where there is no room
DUMP_COLUMNS: Final = {
    "time_entry": (_Field("entry", 8, 1), _Field("timestamp", 15, 2), _TIME, _OFFSET),
    "offset_entry": (_Field("entry", 8, 1), _OFFSET, _Field("position", 10)),
    "aborted_transaction": (
        *(_Field("entry", 8, 2), _Field("producer_id", 12, 1), _Field("first_offset", 12)),
        *(_Field("last_offset", 12), _Field("last_stable_offset", 18, 3)),
    ),
    "batch": (
        *(_Field("position", 10), _Field("size_bytes", 10, 1), _Field("base_offset", 12)),
        *(_Field("last_offset", 12, 3), _Field("records", 8, 1), _TIME),
        *(_Field("timestamp_type", 14, 5), _Field("magic", 5, 7), _Field("codec", 6, 2)),
        *(_Field("producer_id", 11, 6), _Field("flags", 21, 4)),
    ),
    "record": (
        *(_Field("", 2, 4), _OFFSET, _TIME, _Field("key_bytes", 9, 1)),
        *(_Field("value_bytes", 11, 1), _Field("headers", 8, 2), _Field("control", 8, 3)),
    ),
    "record_payload": (
        *(_Field("", 2, 3), _OFFSET, _TIME, _Field("headers", 8, 1), _Field("control", 8, 2)),
        *(_Field("key", 12), _VALUE),
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


@click.command(epilog="Example: kip33 dump orders-0/00000000000000000000.timeindex")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options_of(DumpOptions)
@runs(work="here", summary=False)
def dump(files: Sequence[str], shown: DumpOptions, run: CommandRun) -> Output:
    """Show each FILE, a .log or an index file, batch by batch or entry by entry.

    Batches behind one with a wrong CRC, where a broker would cut the log, come after a line about
    the damage. The base offset comes from the file's name. Entries of a .timeindex or .index are
    compared with the .log beside it, and wrong entries are marked with the reason. Without a .log
    only the order of entries is checked, and entries are marked from the first one that is out of
    order. Zeros at the end, as in a copy of a running broker's file, are counted but not shown.
    """
    if shown["payload"] and not shown["records"]:
        raise click.UsageError("--payload requires --records")
    counts: Counter[str] = Counter()
    kinds = [name.rpartition(".")[2] for name in files]
    columns = dict.fromkeys(column for kind in kinds for column in CSV_COLUMNS.get(kind, ()))

    def printed(name: str) -> Iterator[Row]:
        for row in dump_log(name, **shown):
            counts[row["kind"]] += 1
            yield {"file": name, **_with_texts(row)}

    return Output(
        page=chain.from_iterable(
            _page(name, dump_log(name, **shown), len(files) > 1) for name in files
        ),
        rows=[
            RowList(
                "rows",
                chain.from_iterable(map(printed, files)),
                columns=["file", "kind", *columns, *_REMARKS],
            )
        ],
        summary={"files": len(files), "by_kind": counts},
        summary_key="summary",
        is_streamed=True,
    )


def _with_texts(row: Row) -> Row:
    """Return a row whose key and value are fields of JSON."""
    if "key" not in row:
        return row
    texts = dict((text_field("key", row["key"]), text_field("value", row["value"])))
    return {name: row[name] for name in row if name not in ("key", "value")} | texts


def _for_people(row: Row) -> Row:
    if "key" not in row:
        return row
    shown = {"key": shown_bytes(row["key"]), "value": shown_bytes(row["value"])}
    return {**row, "kind": "record_payload", **shown}


def _page(name: str, rows: Iterator[Row], is_named: bool) -> Iterator[str]:
    """Yield a line for each row of a file, after the headings of its kind."""
    if is_named:
        yield f"{name}:"
    width = line_width()
    shown: dict[str, Sequence[_Field]] = {}
    for row in map(_for_people, rows):
        kind = row["kind"]
        if "note" in row:
            yield f"{kind}: {row.get('entries', '')} {row['note']}".replace("  ", " ")
            continue
        if kind not in shown:
            shown[kind] = _with_room(DUMP_COLUMNS[kind], width)
            yield _line([field.heading for field in shown[kind]], shown[kind], width)
        line = _line(
            [_cell(row.get(field.heading, "")) for field in shown[kind]], shown[kind], width
        )
        if "untrue" not in row:
            yield line
        elif width is None or len(line) + len(row["untrue"]) + 5 <= width:
            yield f"{line}  <- {row['untrue']}"
        else:
            yield from (line, f"  <- {row['untrue']}")
    without = {
        field.heading: _width_of(DUMP_COLUMNS[kind])
        for kind, fields in shown.items()
        for field in DUMP_COLUMNS[kind]
        if field.heading and field not in fields
    }
    if without:
        yield left_out_text(without, max(without.values()))


def _with_room(fields: Sequence[_Field], width: int | None) -> Sequence[_Field]:
    """Return the columns of which a line has room, without those of the highest ranks."""
    while width is not None and _width_of(fields) > width:
        if not (last := max(field.rank for field in fields)):
            break
        fields = [field for field in fields if field.rank < last]
    return fields


def _width_of(fields: Sequence[_Field]) -> int:
    return sum(field.width + 2 for field in fields) - 2


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else str(value)


def _line(cells: Sequence[str], fields: Sequence[_Field], width: int | None) -> str:
    padded = (cell.ljust(field.width) for cell, field in zip(cells, fields, strict=True))
    line = "  ".join(padded).rstrip()
    if width is None or fields[-1] is not _VALUE or len(line) <= width:
        return line
    return f"{line[: width - 3]}..."
