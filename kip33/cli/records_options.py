"""The options of `kip33 records` as typed values, and those that `kip33 count` has, too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kip33.archive.bins import EngineName
from kip33.cli.declared_options import options_of
from kip33.cli.engine_option import EngineOptions, is_typed
from kip33.cli.options import together
from kip33.cli.output import open_catalog_dir
from kip33.cli.times import DURATION
from kip33.errors import counted
from kip33.records.partitions import Source
from kip33.records.reading import ReadOptions, RecordChoice

if TYPE_CHECKING:
    from kip33.stores.locations import Location

ON_ERROR_FAILS: Final = "--on-error fail"  # in messages
_Command = TypeVar("_Command", bound=Callable[..., Any])
places: Final = together(
    click.argument("source", metavar="SOURCE|CATALOG"),
    click.argument("remote", metavar="[REMOTE]", required=False),
)
choice_options: Final = together(
    places,
    options_of(RecordChoice, disorder=DURATION),
)


def source_of(source: str, remote: str | None) -> Source:
    """Return what is read: a place, or the catalogs of two tiers; LocationError without one."""
    if remote is None:
        return source
    from kip33.api.offsets_for_times import OpenedTiers

    return OpenedTiers((open_catalog_dir(source), open_catalog_dir(remote, "REMOTE")))


def require_times(read: RecordChoice) -> None:
    """Raise UsageError, one line, if no time is between --from and --until."""
    start, end = read["start_time"], read["end_time"]
    if isinstance(start, int) and isinstance(end, int) and end <= start:
        raise click.UsageError(
            "--until must be later than --from; records at --until are not included"
        )


@dataclass(frozen=True, kw_only=True)
class RecordsCommand:
    """The options of `kip33 records`; None if not given."""

    source: str
    remote: str | None  # the catalog of the other tier
    read: ReadOptions
    shown_columns: tuple[str, ...] | None
    where_key: str | None
    grep: str | None
    limit: int | None
    decode: bool
    schemas: str | None
    output_format: str | None
    output: str | None
    to: str | None  # a folder
    engine: EngineOptions
    summary_file: "Location | None"

    def check(self) -> None:
        """Raise UsageError, one line, for options that contradict each other."""
        require_times(self.read)
        if self.to is not None:
            self._require_records_only()
        else:
            self._require_no_spark()
        if self.schemas is not None and not self.decode:
            raise click.UsageError("--schemas requires --decode")
        if self.decode and self.shown_columns and "value" not in self.shown_columns:
            raise click.UsageError("--decode requires the column value in --columns")

    def _require_no_spark(self) -> None:
        is_asked = is_typed("engine") and self.engine.engine == EngineName.SPARK
        asked = {"--engine spark": is_asked}
        asked |= {f"--{name}": is_typed(name) for name in ("master", "parallelism")}
        if option := next((option for option in asked if asked[option]), None):
            raise click.UsageError(f"{option} requires --to FOLDER: tasks of Spark write files")

    def _require_records_only(self) -> None:
        """Raise UsageError for options that --to does not have."""
        given = {
            "--where-key": self.where_key,
            "--grep": self.grep,
            "--limit": self.limit,
            "--decode": self.decode,
            "--output": self.output,
            f"--format {self.output_format}": self.output_format not in (None, "table", "json"),
            "--on-error row": self.read["on_error"] == "row" or None,
        }
        for option, value in given.items():
            if value not in (None, False):
                raise click.UsageError(f"--to writes all records, as they are: leave out {option}")


on_error_option: Final = click.option(
    "--on-error",
    type=click.Choice(["skip", "row", "fail"]),
    default="skip",
    show_default=True,
    help="For a batch, the end of a log or a file that cannot be read: skip: a warning, and the "
    "batches after it are read; row: a row with the reason in _corrupt; fail: an error, also for "
    "records that may be of aborted transactions (with --isolation read_committed), or of no log "
    "(of two tiers without leader epochs).",
)


def problems_text(damaged: int, undecided: int | None, undecoded: int = 0) -> str:
    """Return how many problems there are, and of which records and values; empty for 0.

    A problem is damage, a log that cannot be read or is invalid, or offsets that are missing.
    """
    found = (
        (damaged, "problem", "in the logs"),
        (undecided, "record", "may be of aborted transactions"),
        (undecoded, "value", "cannot be decoded"),
    )
    return "".join(f"{counted(number, what)} {why}; " for number, what, why in found if number)
