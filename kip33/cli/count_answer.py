"""The answer of `kip33 count`: numbers of records by topic and period."""

import json
import time
from collections import Counter
from typing import Any, Final

import click

from kip33.cli.count_batches import Counted, counted_batches
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    RESULT,
    iso_time,
    print_rows,
    print_table,
    warn,
)
from kip33.cli.pandas_free import leave_pandas_out
from kip33.cli.progress import progress_bar
from kip33.cli.records_answer import (
    MOST_DAMAGE_WARNINGS,
    damage_text,
    undecided_text,
    warn_of_damage,
)
from kip33.cli.records_options import CountRequest
from kip33.errors import Kip33Error
from kip33.records.reading import Isolation
from kip33.records.record_request import LogsRead

MOST_PERIODS: Final = 1_000_000  # in memory, of all topics
_COLUMNS: Final = ("topic", "period_start", "time", "records")


class RecordCount:
    """Counts the records of a request; `damaged` is the number of places that cannot be read.

    `undecided` is the number of records that may be of aborted transactions.
    """

    def __init__(self, request: CountRequest) -> None:
        """Start with nothing."""
        self._request = request
        self.counted: Counted = Counter()
        self.records = self.damaged = self.undecided = 0
        self.problems: list[str] = []
        self.logs = LogsRead()

    def add(self, found: Counted) -> None:
        """Add numbers of records; Kip33Error, one line, for too many periods."""
        self.counted.update(found)
        self.records += found.total()
        if len(self.counted) > MOST_PERIODS:
            raise Kip33Error(
                f"more than {MOST_PERIODS:,} periods found; give a longer --per, or --from and "
                "--until"
            )

    def skip(self, problems: list[str]) -> None:
        """Count places that cannot be read; the list is emptied."""
        self.damaged += len(problems)
        self.problems += problems[: MOST_DAMAGE_WARNINGS - len(self.problems)]
        problems.clear()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by topic and period; those without a timestamp come last."""
        ordered = sorted(self.counted, key=lambda one: (one[0] or "", one[1] is None, one[1]))
        return [self._row(topic, period) for topic, period in ordered]

    def _row(self, topic: str | None, period: int | None) -> dict[str, Any]:
        start = None if period is None else period * self._request.per_ms
        time_text = None if start is None else iso_time(start)
        found = (topic, start, time_text, self.counted[topic, period])
        return dict(zip(_COLUMNS, found, strict=True))


def show_counts(request: CountRequest) -> None:
    """Print the numbers of records."""
    leave_pandas_out()
    started = time.monotonic()
    request.check()
    count = RecordCount(request)
    skipped: list[str] = []
    undecided: list[int] = []
    with progress_bar("count") as bar:
        for found in counted_batches(request, skipped, undecided, count.logs):
            count.add(found)
            count.skip(skipped)
            if bar:
                bar.counted(count.records)
    count.skip(skipped)
    count.undecided = sum(undecided)
    count.logs.require_one()
    warn_of_damage(count.problems, count.damaged)
    if count.logs.unreadable:
        warn(count.logs.unreadable_text())
    rows = count.rows()
    seconds = time.monotonic() - started
    if request.output_format == "table":
        _print_table(rows, count, seconds)
        return
    print_rows(rows, _COLUMNS, request.output_format)
    summary = {"records": count.records, "periods": len(rows), "damaged": count.damaged}
    if request.isolation == Isolation.READ_COMMITTED:
        summary["undecided"] = count.undecided
    click.echo(RESULT + json.dumps(summary | {"seconds": round(seconds, 3)}), err=True)


def _print_table(rows: list[dict[str, Any]], count: RecordCount, seconds: float) -> None:
    shown = rows[:MOST_TABLE_ROWS]
    cells = [(row["topic"] or "-", row["time"] or "-", row["records"]) for row in shown]
    print_table(("topic", "from", "records"), cells)
    if len(rows) > len(shown):
        click.echo(f"and {len(rows) - len(shown):,} more; --format jsonl shows all of them")
    periods = f"{len(rows):,} period{'' if len(rows) == 1 else 's'}"
    records = f"{count.records:,} record{'' if count.records == 1 else 's'}"
    problems = damage_text(count.damaged) + undecided_text(count.undecided)
    click.echo(f"{records} in {periods}; {problems}read in {seconds:.1f} s")
