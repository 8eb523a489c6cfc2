"""How results look: tables for people, one JSON object a line for programs."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOST_COLUMNS: Final = 10_000  # of a table that no terminal shows: a path stays on one line
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def print_json(record: Any) -> None:
    """Print one object on one line."""
    click.echo(json.dumps(record))


def warn(message: str) -> None:
    """Print one line on standard error."""
    click.echo("Warning: " + " ".join(message.split()), err=True)


def iso_time(timestamp_ms: int | None) -> str:
    """Return ISO 8601 in UTC, `-` for none, the number itself beyond the year 9999.

    >>> iso_time(1700000000250)
    '2023-11-14T22:13:20.250Z'
    """
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def human_bytes(size: int) -> str:
    """Return a size with three digits or so: `1.4 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Print a table; numbers to the right. Not cut to the width where no terminal reads it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, name in enumerate(columns):
        numeric = all(isinstance(row[number], int | float) for row in rows) and rows
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = ("" if cell is None else cell for cell in row)
        table.add_row(*(Text(f"{c:,}" if isinstance(c, int) else str(c)) for c in cells))
    console = Console()
    if not console.is_terminal:
        console = Console(width=MOST_COLUMNS)
    console.print(table)
