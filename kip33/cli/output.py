"""The output of results: tables for people, JSON and CSV for programs, and warnings."""

import builtins
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from kip33.catalog.catalog import Catalog, Choice, choose
from kip33.cli.standard_output import escaped, exact_output
from kip33.errors import unreadable_logs_text
from kip33.formats.times import iso_time as iso_time
from kip33.rules.policies import human_bytes as human_bytes
from kip33.rules.policies import human_duration as human_duration

MOST_TABLE_ROWS: Final = 1_000  # a table is for people
RESULT: Final = "KIP33_RESULT "  # the start of the last line, which programs read
MOST_COLUMNS: Final = 10_000  # width without a terminal: a path stays on one line
FORMULA: Final = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet evaluates, or strips first
NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MARKUP: Final = re.compile(r"[\\[]|:\S*[a-z]\S*:")  # what rich would not print as it is


def print_json(record: Any) -> None:
    """Print one object on one line."""
    click.echo(json.dumps(record))


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output_format: str
) -> None:
    """Print rows as `jsonl`, as one `json` list, or as `csv` with a header."""
    if output_format == "jsonl":
        for row in rows:
            print_json(row)
    elif output_format == "json":
        print_json(rows)
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: csv_cell(value) for name, value in row.items()})
        click.echo(text.getvalue(), exact_output(), nl=False, color=True)


def print_joined(lines: Iterable[str]) -> None:
    """Print the objects of a JSON list, one after the other, without its brackets."""
    for number, line in enumerate(lines):
        click.echo((", " if number else "") + line, nl=False)


def print_result_apart(summary: Mapping[str, Any]) -> None:
    """Print the machine-readable line apart from the data: spark-submit joins both streams."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        click.echo(RESULT + json.dumps(summary), err=True)


def print_answers(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    output_format: str,
    context: Mapping[str, Any],
) -> None:
    """Print rows as `print_rows` does; each JSON object ends with the keys of `context`.

    CSV has only the columns, for programs that read them by position.
    """
    if output_format != "csv":
        rows = [{**row, **context} for row in rows]
    print_rows(rows, columns, output_format)


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
