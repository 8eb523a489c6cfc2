"""The output of every command: tables and lines for people, JSON and CSV for programs, warnings.

A command makes an `Output`, and `show` prints it in the format that was asked for. The cells of a
table are made of the same rows as JSON and CSV, by the table's columns.
"""

import builtins
import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeAlias

import click

from kip33.catalog.catalog import Catalog, Choice, choose
from kip33.cli.standard_output import escaped, exact_output
from kip33.errors import unreadable_logs_text
from kip33.formats.times import iso_time as iso_time
from kip33.rules.policies import counted as counted
from kip33.rules.policies import human_bytes as human_bytes
from kip33.rules.policies import human_duration as human_duration

MOST_TABLE_ROWS: Final = 1_000  # a table is for people
RESULT: Final = "KIP33_RESULT "  # the start of the last line, which programs read
MOST_COLUMNS: Final = 10_000  # width without a terminal: a path stays on one line
FORMULA: Final = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet evaluates, or strips first
NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
grouped: Final = "{:,}".format  # a number as a text, which is left-aligned
_LINES_AT_ONCE: Final = 1_000  # that are printed
_MARKUP: Final = re.compile(r"[\\[]|:\S*[a-z]\S*:")  # what rich would not print as it is

Row: TypeAlias = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: its heading, and what it shows of a row.

    `value` is the row's field, or a function of the row; `show` makes it readable. `none` is shown
    for None.
    """

    heading: str
    value: str | int | Callable[[Any], Any]
    show: Callable[[Any], Any] | None = None
    none: str = "-"

    def cell(self, row: Any) -> Any:
        """Return a text, a number, or a tuple of texts that have a line each."""
        value = self.value(row) if callable(self.value) else row[self.value]
        if value is None:
            return self.none
        return self.show(value) if self.show else value


class Table(NamedTuple):
    """A table of rows for people; below it stands how many more rows there are.

    `what` names the rows, and `total` is their number where `rows` has not all of them. `most`:
    None for all of them.
    """

    columns: Sequence[Column]
    rows: Iterable[Any]
    title: str | None = None
    what: str = ""
    total: int | None = None
    most: int | None = MOST_TABLE_ROWS
    full_format: str = "jsonl"

    def print(self) -> None:
        """Print the first rows, and how many others there are."""
        rows = iter(self.rows)
        cells = [[column.cell(row) for column in self.columns] for row in islice(rows, self.most)]
        print_table([column.heading for column in self.columns], cells, title=self.title)
        more = sum(1 for _ in rows) if self.total is None else self.total - len(cells)
        if more:
            what = f" {self.what}" if self.what else ""
            click.echo(f"and {more:,} more{what}; --format {self.full_format} shows all of them")


def facts(name: str, *pairs: tuple[str, str | None]) -> Table:
    """Return a table of names and texts; those that are None are left out.

    >>> list(facts("build", ("log", "1 KiB"), ("holes", None)).rows)
    [('log', '1 KiB')]
    """
    texts = [pair for pair in pairs if pair[1] is not None]
    return Table((Column(name, 0), Column("", 1)), texts, most=None)


def some(number: int, text: str) -> str | None:
    """Return a text with a number in it, None for 0: `some(3, "{:,} unchanged")`."""
    return text.format(number) if number else None


class RowList(NamedTuple):
    """Rows for programs: in a JSON object the list `key`, in lines of JSON each has its `kind`.

    `is_compact`: without blanks, and with the characters of other scripts.
    """

    key: str
    rows: Iterable[Row]
    kind: str | None = None
    is_compact: bool = False

    def lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows as JSON."""
        first = {"kind": kind} if kind else {}
        separators = (",", ":") if self.is_compact else None
        for row in self.rows:
            yield json.dumps(
                {**first, **row}, ensure_ascii=not self.is_compact, separators=separators
            )


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command prints; rows and pages may be generators, of which only one is used.

    `page`: tables and lines for people, in their order. In a JSON object the fields of `head`, and
    of `summary` if there is no `summary_key`, are before the rows; `tail` is after them. A single
    list without a key is printed without an object. Lines of JSON whose rows have a kind end with
    the summary. It is also the KIP33_RESULT line of the formats `result_with`, beside data on
    standard error.
    """

    page: Iterable[Table | str]
    rows: Sequence[RowList] = ()
    summary: Row | None = None
    summary_key: str = ""
    head: Row = field(default_factory=dict)
    tail: Row = field(default_factory=dict)
    csv: Iterable[str] = ()
    result_with: Sequence[str] = ()


BESIDE_DATA: Final = ("json", "jsonl", "csv")  # formats with a KIP33_RESULT line


def show(answer: Output, output_format: str) -> None:
    """Print an answer as `table`, `json`, `jsonl` or `csv`."""
    match output_format:
        case "table":
            for block in answer.page:
                if isinstance(block, Table):
                    block.print()
                else:
                    click.echo(block)
        case "csv":
            print_lines(answer.csv, is_exact=True)
        case "jsonl" if answer.rows:
            print_lines(chain.from_iterable(rows.lines(rows.kind) for rows in answer.rows))
            if answer.summary is not None and answer.rows[0].kind:
                print_json({"kind": "summary", **answer.summary})
        case _:
            print_lines(_json_object(answer), end="")
            click.echo()
    if output_format in answer.result_with:
        click.echo(RESULT + json.dumps(answer.summary), err=output_format != "table")


def _json_object(answer: Output) -> Iterator[str]:
    """Yield a JSON object, or one list, in pieces: there may be millions of rows."""
    if len(answer.rows) == 1 and not answer.rows[0].key:
        yield from _json_list(answer.rows[0])
        return
    summary = answer.summary or {}
    before, after = dict(answer.head), dict(answer.tail)
    if answer.summary_key:
        after[answer.summary_key] = summary
    else:
        before |= summary
    lists = {rows.key: rows for rows in answer.rows}
    for number, (key, value) in enumerate((before | lists | after).items()):
        yield f'{", " if number else "{"}"{key}": '
        if isinstance(value, RowList):
            yield from _json_list(value)
        else:
            yield json.dumps(value)
    yield "}"


def _json_list(rows: RowList) -> Iterator[str]:
    yield "["
    for number, line in enumerate(rows.lines(None)):
        yield f", {line}" if number else line
    yield "]"


class _Returned:
    """What a csv writer writes to, so that it returns its lines without their ends."""

    @staticmethod
    def write(line: str) -> str:
        return line.removesuffix("\r\n")


def csv_rows(rows: Iterable[Row], columns: Sequence[str]) -> Iterator[str]:
    """Yield a header, then the rows, as CSV."""
    writer = csv.DictWriter(_Returned(), columns)  # quotes what its own end of a line has: \r, \n
    yield writer.writeheader()
    for row in rows:
        yield writer.writerow({name: csv_cell(value) for name, value in row.items()})


def print_lines(lines: Iterable[str], *, end: str = "\n", is_exact: bool = False) -> None:
    """Print texts, many at a time; `is_exact`: with their control characters."""
    stream = exact_output() if is_exact else None
    rest = iter(lines)
    while some := list(islice(rest, _LINES_AT_ONCE)):
        click.echo(end.join(some) + end, stream, nl=False, color=True)


def result_formats() -> tuple[str, ...]:
    """Return the formats with a KIP33_RESULT line; spark-submit would join it to CSV."""
    return ("table",) if "PYSPARK_GATEWAY_PORT" in os.environ else ("table", "csv")


def partition_name(row: Row) -> str:
    """Return `broker-1/orders-0`, or its known parts."""
    log_dir = f"{row['log_dir']}/" if row.get("log_dir") else ""
    partition = "?" if row["partition"] is None else row["partition"]
    return f"{log_dir}{row['topic']}-{partition}"


def print_json(record: Any) -> None:
    """Print one object on one line."""
    click.echo(json.dumps(record))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `3 ok, 1 truncated`."""
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def csv_cell(value: Any) -> Any:
    """Return a cell that a spreadsheet reads as a text or a number, not as a formula.

    A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe before
    it, unless it is a number. JSON has every text as it is.

    >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell(-1), csv_cell("a-b")
    ("'=1+1", '-1', -1, 'a-b')
    """
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def warn(message: str) -> None:
    """Print one line on standard error."""
    from kip33.stores.locations import without_secrets

    click.echo("Warning: " + " ".join(without_secrets(message).split()), err=True)


def warn_of_first(lines: Sequence[str], most: int, others: str) -> None:
    """Print the first lines, and how many there are besides: `others` has a place for it."""
    for line in lines[:most]:
        warn(line)
    if len(lines) > most:
        warn(others.format(len(lines) - most))


def warn_of_unreadable(lines: Sequence[str], of: int) -> bool:
    """Print how many of the logs could not be read, and the first's line, if there is one.

    Return whether none could be read: then the command ends with exit code 1.
    """
    if lines:
        warn(unreadable_logs_text(len(lines), min(lines), of=of))
    return 0 < len(lines) == of


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Print a table with right-aligned numbers; it is not cut to a width without a terminal.

    A cell that is a tuple of texts has a line for each.
    """
    rows = [list(row) for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        for number in range(len(columns))
    ]
    cells = [[_cell_text(cell) for cell in row] for row in rows]
    title = title and escaped(title)
    lines = _plain_table(columns, cells, numeric, title)
    if lines is None:
        _print_by_rich(columns, cells, numeric, title)
    else:
        click.echo("\n".join(lines))


def _cell_text(cell: Any) -> str:
    """Return a cell without control characters; a tuple has one line for each of its texts."""
    if cell is None:
        return ""
    if isinstance(cell, tuple):
        return "\n".join(map(escaped, cell))
    return escaped(f"{cell:,}" if isinstance(cell, int) else str(cell))


def _plain_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    title: str | None,
) -> list[str] | None:
    """Return the lines of a table as rich prints them, in a tenth of the time.

    None where rich has to decide: on a terminal, or where a cell is not plain ASCII on one line.
    """
    if not _is_plain_output() or not all(map(_is_plain_row, (columns, *rows))):
        return None
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    total = sum(widths) + 3 * len(widths) + 1
    headings = [*columns, *([title] if title else [])]
    if any(_MARKUP.search(heading) for heading in headings) or total > MOST_COLUMNS:
        return None
    if title and (len(title) > total or not _is_plain_row([title])):
        return None

    def line(cells: Sequence[str], edge: str) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return f"{edge} " + f" {edge} ".join(padded) + f" {edge}"

    def border(left: str, fill: str, between: str, right: str) -> str:
        return left + between.join(fill * (width + 2) for width in widths) + right

    return [
        *([title.ljust(total)] if title else []),
        border("┏", "━", "┳", "┓"),
        line(columns, "┃"),
        border("┡", "━", "╇", "┩"),
        *(line(row, "│") for row in rows),
        border("└", "─", "┴", "┘"),
    ]


def _is_plain_output() -> bool:
    """Return whether standard output is a file or a pipe that takes the lines of a table."""
    asked_for = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    utf_8 = (sys.stdout.encoding or "").lower().startswith("utf")
    in_notebook = hasattr(builtins, "get_ipython")
    return (
        utf_8
        and not sys.stdout.isatty()
        and not in_notebook
        and not any(name in os.environ for name in asked_for)
    )


def _is_plain_row(cells: Sequence[str]) -> bool:
    return all(cell.isascii() and cell.isprintable() and cell == cell.strip() for cell in cells)


def _print_by_rich(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    title: str | None,
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=exact_output())  # which colours a terminal
    if not console.is_terminal:
        console = Console(file=exact_output(), width=MOST_COLUMNS)
    console.print(table)


def choose_and_warn(catalog: Catalog, text: str | None) -> Choice:
    """Return `choose(...)` and print each of its warnings on one line."""
    return choose(catalog, text, warn)
