"""The output of every command: tables and lines for people, JSON and CSV for programs, warnings.

A command makes an `Output`, and `show` prints it in the format that was asked for. The cells of a
table are made of the same rows as JSON and CSV, by the table's columns.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, get_args

import click

from kip33.cli.standard_output import exact_output, make_utf8
from kip33.cli.tables import MOST_TABLE_ROWS as MOST_TABLE_ROWS
from kip33.cli.tables import Column as Column
from kip33.cli.tables import Table as Table
from kip33.cli.tables import facts as facts
from kip33.cli.tables import print_sentences
from kip33.errors import Kip33Error, unreadable_logs_text, without_secrets
from kip33.errors import counted as counted
from kip33.formats.printed_fields import csv_line, json_text
from kip33.formats.times import TIME_FIELDS, TimesName, with_iso_times
from kip33.formats.times import iso_time as iso_time
from kip33.rules.policies import human_bytes as human_bytes
from kip33.rules.policies import human_duration as human_duration

if TYPE_CHECKING:
    from kip33.catalog.catalog import Catalog
    from kip33.cli.metrics_file import GaugeSamples, MetricsRequest

Part = TypeVar("Part")
RESULT: Final = "KIP33_RESULT "  # the start of the line of --result-line
RESULT_LINE: Final = "kip33.result_line"  # where click's `meta` has that option
MOST_FINDING_LINES: Final = 10  # at the end of a run
_LINES_AT_ONCE: Final = 1_000  # that are printed
_MOST_SPOOLED_BYTES: Final = 8 << 20  # in memory
_PIECE_CHARACTERS: Final = 1 << 10
_NONE_IS_MINUS_ONE: Final = TIME_FIELDS.union(
    ("timestampType", "offset_of_max_timestamp", "retention_ms", "retention_bytes"),
    ("producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch"),
)

Row: TypeAlias = Mapping[str, Any]


def without_sentinels(row: Row) -> Row:
    """Return a row for programs: None in place of Kafka's -1 for no time, count, limit or id.

    >>> without_sentinels({"max_timestamp": -1, "waited_ms": -1, "partition": 0})
    {'max_timestamp': None, 'waited_ms': -1, 'partition': 0}
    """
    none = [name for name in _NONE_IS_MINUS_ONE.intersection(row) if row[name] == -1]
    return {**row, **dict.fromkeys(none)} if none else row


def some(number: int, text: str) -> str | None:
    """Return a text with a number in it, None for 0: `some(3, "{:,} unchanged")`."""
    return text.format(number) if number else None


class RowList(NamedTuple):
    """Rows for programs: in a JSON object the list `key`, in lines of JSON each has its `kind`.

    `is_compact`: without blanks. `columns` are those of CSV, by default the fields of the first
    row, and `in_csv` makes their row of one.
    """

    key: str
    rows: Iterable[Row]
    kind: str | None = None
    is_compact: bool = False
    columns: Sequence[str] = ()
    in_csv: Callable[[Row], Row] | None = None

    def lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows as JSON."""
        first = {"kind": kind} if kind else {}
        separators = (",", ":") if self.is_compact else None
        for row in self.rows:
            yield json_text({**first, **without_sentinels(row)}, separators=separators)


@dataclass(frozen=True)
class OutputFinding:
    """A finding: how many there are, the first of them, and the command that shows all.

    An example has a file, the byte and the reason; those that are new begin with NEW.
    """

    count: int
    unit: str = "segment"
    examples: Callable[[], Iterable[str]] = tuple  # called only if they are shown
    command: str = ""
    is_wrong: bool = True  # False of `ok` or `identical`, for which --fail-on may ask, too


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command found; rows and pages may be generators, of which only one is used.

    `page`: tables and lines for people, in their order, or a function of the summary. In a JSON
    object the fields of `head`, and of `summary` if there is no `summary_key`, are before the rows;
    `tail` is after them. A single list without a key is printed without an object. Lines of JSON
    whose rows have a kind end with the summary. CSV has the rows of the first list; without rows it
    has one row, the summary. In every format `emitted`, the input of another program, is printed in
    place of all that.

    A summary, if there is one, also gets how the command ran (`kip33.cli.runs`); its file has the
    fields of `more`, too. `findings` are compared with --fail-on; those named in `incomplete` make
    exit code 1, those in `refused` 4. `unread` are lines on logs that could not be read, of `logs`
    in all: without any other the exit code is 1. `remarks` are warnings below the output.
    `if_unwritten`, what the command did, is said where standard output cannot be written. `gauges`
    are those of --metrics, with `labels` on each. `is_streamed`: rows are read while they are
    printed, so how long is not known.
    """

    page: Callable[[Row], Iterable[Table | str]] | Iterable[Table | str]
    rows: Sequence[RowList] = ()
    summary: Row = field(default_factory=dict)
    summary_key: str = ""
    head: Row = field(default_factory=dict)
    tail: Row = field(default_factory=dict)
    emitted: Iterable[str] | None = None
    more: Row = field(default_factory=dict)
    findings: Mapping[str, OutputFinding] = field(default_factory=dict)
    incomplete: Sequence[str] = ()
    refused: Sequence[str] = ()
    unread: Sequence[str] = ()
    logs: int = 0
    is_streamed: bool = False
    if_unwritten: str = ""
    remarks: Sequence[str] = ()
    gauges: "Callable[[Row, MetricsRequest], Iterable[GaugeSamples]]" = lambda *_: ()
    labels: Mapping[str, str] = field(default_factory=dict)


FORMATS: Final = ("table", "json", "jsonl", "csv")
TIMES: Final[tuple[TimesName, ...]] = get_args(TimesName)


def show(
    answer: Output,
    output_format: str,
    times: TimesName = TIMES[0],
    *,
    guard_formulas: bool = False,
) -> None:
    """Print an answer in one of FORMATS, and the line of --result-line if it is given.

    Times of JSON and CSV are as one of TIMES says; `guard_formulas` is of CSV.

    Rows may be read while they are printed. If that fails after some were printed, as when their
    snapshot is pruned meanwhile, a line says that the output is incomplete; of a JSON object then
    nothing is printed.
    """
    if answer.emitted is None:
        if output_format != FORMATS[0]:
            make_utf8()
        is_iso = times != TIMES[0] and output_format != FORMATS[0]
        answer = _with_iso_times(answer) if is_iso else answer
        _print(answer, output_format, guard_formulas=guard_formulas)
    else:
        print_lines(_complete(answer.emitted), is_exact=True)
    print_result({**answer.head, **answer.summary, **answer.tail})


def _print(answer: Output, output_format: str, *, guard_formulas: bool) -> None:
    match output_format:
        case "table":
            page = answer.page(answer.summary) if callable(answer.page) else answer.page
            for block in _complete(page):
                if isinstance(block, Table):
                    block.print()
                else:
                    print_sentences(block)
        case "csv":
            rows = _csv_of(answer, guard_formulas=guard_formulas)
            print_lines(_complete(rows), is_exact=True)
        case "jsonl" if answer.rows:
            lines = chain.from_iterable(rows.lines(rows.kind) for rows in answer.rows)
            print_lines(_complete(lines))
            if answer.summary and answer.rows[0].kind:
                print_json({"kind": "summary", **answer.summary})
        case _:
            with tempfile.SpooledTemporaryFile(_MOST_SPOOLED_BYTES, "w+", encoding="utf-8") as file:
                file.writelines(_json_object(answer))
                file.seek(0)
                print_lines(iter(partial(file.read, _PIECE_CHARACTERS), ""), end="")
            click.echo()


def _with_iso_times(answer: Output) -> Output:
    return replace(
        answer,
        rows=[one._replace(rows=map(with_iso_times, one.rows)) for one in answer.rows],
        **{name: with_iso_times(getattr(answer, name)) for name in ("summary", "head", "tail")},
    )


def _complete(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield parts of an output; an error after the first is said to leave it incomplete."""
    is_begun = False
    try:
        for part in parts:
            is_begun = True
            yield part
    except Kip33Error:
        if is_begun:
            warn("the output is incomplete, because of the following error")
        raise


def print_result(summary: Row) -> None:
    """Print the summary on standard error, on one line, if --result-line asks for it."""
    context = click.get_current_context(silent=True)
    if context and context.meta.get(RESULT_LINE):
        click.echo(RESULT + json.dumps(summary), err=True)


def _json_object(answer: Output) -> Iterator[str]:
    """Yield a JSON object, or one list, in pieces: there may be millions of rows."""
    if len(answer.rows) == 1 and not answer.rows[0].key:
        yield from _json_list(answer.rows[0])
        return
    before, after = dict(answer.head), dict(answer.tail)
    if answer.summary_key:
        after[answer.summary_key] = answer.summary
    else:
        before |= answer.summary
    lists = {rows.key: rows for rows in answer.rows}
    for number, (key, value) in enumerate((before | lists | after).items()):
        yield f'{", " if number else "{"}"{key}": '
        if isinstance(value, RowList):
            yield from _json_list(value)
        else:
            yield json_text(value)
    yield "}"


def _json_list(rows: RowList) -> Iterator[str]:
    yield "["
    for number, line in enumerate(rows.lines(None)):
        yield f", {line}" if number else line
    yield "]"


def _csv_of(answer: Output, *, guard_formulas: bool) -> Iterator[str]:
    """Yield the first list of rows as CSV, without rows the summary."""
    if not answer.rows:
        summary = {**answer.head, **answer.summary, **answer.tail}
        return csv_rows([summary], [*summary], guard_formulas=guard_formulas)
    _, given, _, _, columns, in_csv = answer.rows[0]
    rows = map(in_csv, given) if in_csv else iter(given)
    if not columns:
        first = next(rows, {})
        columns, rows = [*first], chain([first] if first else [], rows)
    return csv_rows(rows, columns, guard_formulas=guard_formulas) if columns else iter(())


def csv_rows(
    rows: Iterable[Row], columns: Sequence[str], *, guard_formulas: bool = False
) -> Iterator[str]:
    """Yield a header, then these fields of the rows, as CSV."""
    yield csv_line(columns)
    for row in rows:
        cells = without_sentinels(row)
        yield csv_line(map(cells.get, columns), guard_formulas=guard_formulas)


def print_lines(lines: Iterable[str], *, end: str = "\n", is_exact: bool = False) -> None:
    """Print texts, many at a time; `is_exact`: with their control characters."""
    stream = exact_output() if is_exact else None
    some: list[str] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == _LINES_AT_ONCE:
                text, some = end.join([*some, ""]), []
                click.echo(text, stream, nl=False, color=True)
    finally:  # also those before an error
        click.echo(end.join([*some, ""] if some else []), stream, nl=False, color=True)


def partition_name(row: Row) -> str:
    """Return `broker-1/orders-0`, or its known parts."""
    log_dir = f"{row['log_dir']}/" if row.get("log_dir") else ""
    partition = "?" if row["partition"] is None else row["partition"]
    return f"{log_dir}{row['topic']}-{partition}"


def print_json(record: Any) -> None:
    """Print one object on one line."""
    make_utf8()
    click.echo(json_text(record))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `3 ok, 1 truncated`."""
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def skipped_facts(skipped: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield a line on each kind of skipped files, for `facts`.

    >>> list(skipped_facts({".swap files": 1, "-delete directories": 2}))
    [('skipped', '1 .swap file'), ('skipped', '2 -delete directories')]
    """
    for what, count in skipped.items():
        for many, one in _SINGULARS if count == 1 else ():
            what = what.replace(many, one, 1)
        yield "skipped", f"{count:,} {what}"


_SINGULARS: Final = (
    ("names are", "name is"),
    ("files", "file"),
    ("links to directories that are", "link to a directory that is"),
    ("directories", "directory"),
    ("manifests", "manifest"),
)


def warn(*messages: str) -> None:
    """Print messages on standard error, each on one line."""
    for message in messages:
        click.echo("Warning: " + " ".join(without_secrets(message).split()), err=True)


def warn_of_first(lines: Sequence[str], most: int, others: str) -> None:
    """Print the first lines, and how many there are besides: `others` has a place for it."""
    warn(*lines[:most])
    if len(lines) > most:
        warn(others.format(len(lines) - most))


def warn_of_unreadable(lines: Sequence[str], of: int) -> bool:
    """Print how many of the logs could not be read, and the first's line, if there is one.

    Return whether none could be read: then the command ends with exit code 1.
    """
    if lines:
        warn(unreadable_logs_text(len(lines), min(lines), of=of))
    return 0 < len(lines) == of


def open_catalog_dir(text: str, what: str = "CATALOG") -> "Catalog":
    """Return the catalog at a path or URI, or the one in an index directory, with a warning."""
    from kip33.catalog.catalog import catalog_at
    from kip33.stores.locations import Location

    return catalog_at(Location.of(text), what, warn)
