"""The options of `kip33 records` and `kip33 count` as typed values, and those they share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kip33.cli.options import TOPICS_HELP, layout_option, max_batch_bytes_option, store_options
from kip33.cli.times import DURATION, MOMENT
from kip33.formats.batch import MAX_INT32

if TYPE_CHECKING:
    from kip33.records.reading import Reading

_Command = TypeVar("_Command", bound=Callable[..., Any])
_CHOICE: Final = (
    click.argument("source", metavar="SOURCE|CATALOG"),
    click.option("--topic", "topics", multiple=True, metavar="GLOB", help=TOPICS_HELP),
    click.option(
        "--partition",
        "partitions",
        type=click.IntRange(0, MAX_INT32),
        multiple=True,
        metavar="N",
        help="Only this partition. May be repeated.",
    ),
    click.option(
        "--log-dir",
        metavar="NAME",
        help="Only this log directory [default: the most complete replica of each partition].",
    ),
    click.option(
        "--from",
        "from_ms",
        type=MOMENT,
        metavar="T",
        help="Only records at or after this time: ISO 8601, 9:05 (today in UTC), milliseconds, "
        "now-7d.",
    ),
    click.option("--until", "until_ms", type=MOMENT, metavar="T", help="Only records before it."),
    click.option(
        "--disorder",
        "disorder_ms",
        type=DURATION,
        metavar="1h",
        help="Promise: no record is older than an earlier one by more than this. Then reading "
        "stops soon after --until. Without it, later segments are also read.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(["read_uncommitted", "read_committed"]),
        default="read_uncommitted",
        show_default=True,
        help="read_committed: leave out records of aborted and open transactions, as a consumer "
        "does.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class RecordChoice:
    """Which records are read, and how; None if not given."""

    source: str
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    log_dir: str | None
    from_ms: int | None
    until_ms: int | None  # exclusive
    disorder_ms: int | None
    isolation: str
    on_error: str
    layout: str
    max_batch_bytes: int

    def check(self) -> None:
        """Raise UsageError, one line, if no time is between --from and --until."""
        if None not in (self.from_ms, self.until_ms) and (self.until_ms or 0) <= (
            self.from_ms or 0
        ):
            raise click.UsageError(
                "--until must be later than --from; records at --until are not included"
            )

    def reading(self, level: str = "records", columns: Sequence[str] | None = None) -> "Reading":
        """Return what is read, as `kip33.read_arrow` takes it; ValueError, one line."""
        from kip33.records.reading import Reading

        return Reading.of(
            level=level,
            topic=self.topics,
            partition=self.partitions or None,
            log_dir=self.log_dir,
            columns=columns,
            start_time=self.from_ms,
            end_time=self.until_ms,
            isolation=self.isolation,
            on_error=self.on_error,
            disorder=self.disorder_ms,
            max_batch_bytes=self.max_batch_bytes,
            layout=self.layout,
        )


@dataclass(frozen=True, kw_only=True)
class RecordsRequest(RecordChoice):
    """The options of `kip33 records`."""

    columns: tuple[str, ...] | None
    where_key: str | None
    grep: str | None
    limit: int | None
    decode: bool
    schemas: str | None
    output_format: str | None
    output: str | None

    def check(self) -> None:
        """Raise UsageError, one line, for options that contradict each other."""
        super().check()
        if self.schemas is not None and not self.decode:
            raise click.UsageError("--schemas requires --decode")
        if self.decode and self.columns and "value" not in self.columns:
            raise click.UsageError("--decode requires the column value in --columns")


@dataclass(frozen=True, kw_only=True)
class CountRequest(RecordChoice):
    """The options of `kip33 count`."""

    per_ms: int
    output_format: str


def choice_options(command: _Command) -> _Command:
    """Add the argument and the options of RecordChoice, --conf and --config."""
    command = store_options(max_batch_bytes_option(layout_option(command)))
    for option in reversed(_CHOICE):
        command = option(command)
    return command


def on_error_option(*choices: str) -> Callable[[_Command], _Command]:
    """Return the option --on-error with these choices, the first one the default."""
    texts = {
        "skip": "skip: a warning, and the batches after it are read",
        "row": "row: a row with the reason in _corrupt",
        "fail": "fail: an error, also for records that may be of aborted transactions (with "
        "--isolation read_committed)",
    }
    return click.option(
        "--on-error",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="For a batch, the end of a log or a file that cannot be read: "
        + "; ".join(texts[choice] for choice in choices)
        + ".",
    )
