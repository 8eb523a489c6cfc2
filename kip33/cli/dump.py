"""`kip33 dump`: the contents of a log or an index file, wrong entries marked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import click

from kip33.cli.declared_options import options_of
from kip33.cli.output import Output, Row, RowList
from kip33.cli.runs import CommandRun, runs
from kip33.cli.standard_output import shown_bytes
from kip33.formats.printed_fields import text_field
from kip33.indexing.dump_log import DumpOptions, dump_log

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


@dataclass(frozen=True, kw_only=True)
class DumpCommand:
    """What `kip33 dump` is asked."""

    files: Sequence[str]
    shown: DumpOptions

    def check(self) -> None:
        """Raise UsageError for --payload without --records."""
        if self.shown["payload"] and not self.shown["records"]:
            raise click.UsageError("--payload requires --records")


@click.command(epilog="Example: kip33 dump orders-0/00000000000000000000.timeindex")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options_of(DumpOptions)
@runs(DumpCommand, work="here", summary=False)
def dump(command: DumpCommand, run: CommandRun) -> Output:
    """Show each FILE, a .log or an index file, batch by batch or entry by entry.

    The base offset comes from the file's name. Entries of a .timeindex or .index are compared with
    the .log beside it, and wrong entries are marked with the reason. Without a .log only the order
    of entries is checked, and entries are marked from the first one that is out of order. Zeros at
    the end, as in a copy of a running broker's file, are counted but not shown.
    """
    files = command.files
    counts: Counter[str] = Counter()
    kinds = [name.rpartition(".")[2] for name in files]
    columns = dict.fromkeys(column for kind in kinds for column in CSV_COLUMNS.get(kind, ()))

    def printed(name: str) -> Iterator[Row]:
        for row in dump_log(name, **command.shown):
            counts[row["kind"]] += 1
            yield {"file": name, **_with_texts(row)}

    return Output(
        page=chain.from_iterable(
            _page(name, dump_log(name, **command.shown), len(files) > 1) for name in files
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
    shown = set()
    for row in map(_for_people, rows):
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
